"""Stop words by language, for the test that running text holds some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

STOP_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    # The eight of Rae et al. (2021), appendix A.
    "en": ("the", "be", "to", "of", "and", "that", "have", "with"),
    # Others: frequent articles, prepositions, conjunctions and pronouns of each language.
    "bg": ("на", "и", "в", "да", "се", "от", "за", "с", "не", "са", "че", "по"),
    "ca": ("de", "la", "el", "i", "a", "que", "en", "els", "les", "per", "un", "una", "amb"),
    "cs": ("a", "v", "se", "na", "je", "že", "s", "z", "do", "o", "to", "i", "za", "ve"),
    "da": ("og", "i", "at", "er", "en", "det", "på", "til", "af", "for", "den", "med", "som", "de"),
    "de": ("der", "die", "und", "in", "den", "von", "zu", "das", "mit", "des", "im", "ist", "auf", "ein", "eine"),
    "el": ("και", "το", "η", "του", "της", "να", "την", "ο", "τα", "με", "των", "σε", "για", "από", "που", "στο"),
    "es": ("de", "la", "que", "el", "en", "y", "los", "se", "las", "del", "un", "por", "con", "una", "para"),
    "fi": ("ja", "on", "ei", "että", "oli", "se", "hän", "ovat", "kun", "myös", "mutta", "joka", "sen", "tai"),
    "fr": ("de", "la", "le", "et", "les", "des", "en", "un", "du", "une", "que", "est", "pour", "dans", "par", "sur"),
    "hu": ("a", "az", "és", "hogy", "nem", "is", "egy", "volt", "meg", "de", "ez", "csak", "el"),
    "id": ("yang", "dan", "di", "dari", "untuk", "dengan", "pada", "ini", "dalam", "itu", "tidak", "ke", "adalah"),
    "it": ("di", "e", "il", "la", "che", "in", "a", "per", "un", "del", "è", "della", "una", "con", "le", "i"),
    "nl": ("de", "van", "het", "een", "en", "in", "is", "dat", "op", "te", "voor", "met", "zijn", "die"),
    "no": ("og", "i", "det", "på", "er", "en", "til", "som", "for", "av", "at", "de", "med", "ikke"),
    "pl": ("w", "i", "na", "z", "do", "się", "nie", "że", "jest", "o", "od", "to", "po", "przez", "za", "a"),
    "pt": ("de", "a", "o", "que", "e", "do", "da", "em", "um", "para", "com", "uma", "os", "no", "na", "não"),
    "ro": ("de", "și", "şi", "în", "a", "la", "cu", "din", "o", "pe", "care", "un", "pentru", "că", "au", "este"),
    "ru": ("и", "в", "не", "на", "что", "с", "по", "из", "как", "это", "к", "от", "для", "его", "за", "а", "о"),
    "sv": ("och", "i", "att", "det", "som", "en", "på", "är", "av", "för", "med", "till", "den", "de"),
    "tr": ("ve", "bir", "bu", "da", "de", "için", "ile", "olarak", "olan", "daha", "çok", "gibi", "sonra", "en"),
    "uk": ("і", "в", "у", "на", "що", "з", "не", "до", "та", "за", "як", "від", "це", "й", "а"),
    "vi": ("và", "của", "là", "có", "được", "các", "trong", "cho", "một", "đã", "với", "những", "này", "không"),
}
"""Words by language code of which running text holds at least two; a language that is not here is not checked."""
