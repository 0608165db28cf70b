"""What characters and words are, one character at a time in plain Python: what the kernels are held against."""

from __future__ import annotations

import unicodedata
from typing import NamedTuple

from hypothesis import strategies as st

from stages.text.characters import JOINED_RANGES, SINGLE_RANGES

# Letters of every class, few words and many breaks, so that cuts, repetition and paragraphs happen.
PIECES = st.sampled_from(
    ["the ", "The", " of", "cat ", "#", "...", "…", ". ", "- ", "• x", "\n", "\n\n", " \n\t\n", "a\r\n", "don't",
     "3.5 ", "中文", "学", "，", "「", "かな", "2月", "ไทยคำ", "ที่", "ຄົນ", "๒๕", "ᦀᦁ", "བོད་", "1", "٣ ", "é ", "\u0301",
     "𠀀", "_", "\u00a0", "\x00", "\u00ad", "\u200b", "\u200d", "🙂", "हिन्दी ", "İςΣ", "x" * 40]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(PIECES, max_size=40).map("".join), st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
)


class Token(NamedTuple):
    """A word in lower case, or one other character; format characters are left out."""

    kind: str
    text: str


def kind_of(character: str) -> str:
    """Return what a character is to words: a letter of which kind, a mark, ignored, space or sign."""
    category, point = unicodedata.category(character), ord(character)
    if category[0] == "M":
        return "mark"
    if category == "Cf" and character != "\u200b":
        return "ignored"
    if character.isspace():
        return "space"
    if category[0] not in "LN" and character != "_":
        return "sign"
    if _is_in(point, SINGLE_RANGES):
        return "single"
    return "joined" if category[0] == "L" and _is_in(point, JOINED_RANGES) else "letter"


def lower_case(character: str) -> str:
    """Return the lower case of one character, which is one character."""
    return {"ς": "σ"}.get(character.lower(), character.lower()[0])


def tokens_of(text: str) -> list[Token]:
    """Return the words of ``text`` and all that stands between them, in order."""
    tokens: list[Token] = []
    script = last = ""
    for character in text:
        kind = kind_of(character)
        if kind == "ignored":
            continue
        if kind in ("space", "sign"):
            tokens.append(Token(kind, character))
            script = ""
        elif script and _goes_on(script, kind, last, character):
            tokens[-1] = Token(tokens[-1].kind, tokens[-1].text + lower_case(character))
        else:
            script = "letter" if kind == "mark" else kind
            tokens.append(Token("word" if script == "letter" else "unspaced word", lower_case(character)))
        last = last if kind == "mark" else character
    return tokens


def words_of(text: str) -> list[str]:
    """Return the words of ``text``."""
    return [token.text for token in tokens_of(text) if token.kind.endswith("word")]


def _goes_on(script: str, kind: str, last: str, character: str) -> bool:
    if kind == "joined" and script == "joined":
        return _mixed(ord(last) << 32 | ord(character)) % 4 != 0
    return kind == "mark" or script == kind == "letter"


def _is_in(point: int, ranges: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= point <= high for low, high in ranges)


def _mixed(h: int) -> int:
    mask = (1 << 64) - 1
    h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) & mask
    h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) & mask
    return h ^ (h >> 31)
