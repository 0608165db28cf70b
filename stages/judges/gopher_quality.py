"""Document-wise quality rules of Rae et al., "Scaling Language Models" (Gopher, 2021), appendix A, table A1."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pydantic

from stages.base import stage
from stages.checks import Check
from stages.limits import AtLeastZero, Share
from stages.scores import Count, Ratio, Values
from stages.text import word_scan
from stages.text.counts import count_stop_words
from stages.text.stop_words import STOP_WORDS
from stages.text.word_scan import WORD_SCAN, Words
from stages.text.words import word_hashes


@stage
class GopherQuality:
    """Drops documents that do not look like running text.

    ``stages.text.words`` says what a word is, ``stages.text.word_scan`` what else is counted. Word length is judged
    where at least half of the words are of a script that writes spaces: it is the characters that are not white space,
    for each of those words. Words with a letter are weighed against what stands between white space without one: a
    price or a row of dashes counts once. Stop words are judged in the languages that ``stop_words`` has; it replaces or
    adds to the lists in ``stages.text.stop_words``, by language code.
    """

    name: ClassVar[str] = "gopher_quality_v2"
    needs = ("text", "language")
    scans = (WORD_SCAN,)
    scores = (
        Count("words", "words"),
        Ratio("mean_word_chars", "characters in a word, of scripts that write spaces"),
        Ratio("hashes_per_word", "number signs for each word"),
        Ratio("ellipses_per_word", "ellipses for each word"),
        Ratio("bullet_lines", "share of lines that begin with a bullet"),
        Ratio("ellipsis_lines", "share of lines that end in an ellipsis"),
        Ratio("alphabetic_words", "share of words with a letter, among these and what has none"),
        Count("stop_words", "distinct stop words, of a language that has a list"),
    )
    checks = (
        Check("too_few_words", "words", min="min_words"),
        Check("too_many_words", "words", max="max_words"),
        Check("short_words", "mean_word_chars", min="min_mean_word_chars"),
        Check("long_words", "mean_word_chars", max="max_mean_word_chars"),
        Check("hash_symbols", "hashes_per_word", max="max_hashes_per_word"),
        Check("ellipses", "ellipses_per_word", max="max_ellipses_per_word"),
        Check("bullet_lines", "bullet_lines", max="max_bullet_lines"),
        Check("ellipsis_lines", "ellipsis_lines", max="max_ellipsis_lines"),
        Check("few_alphabetic_words", "alphabetic_words", min="min_alphabetic_words"),
        Check("few_stop_words", "stop_words", min="min_stop_words"),
    )

    # Defaults are the paper's.
    min_words: AtLeastZero = 50
    max_words: AtLeastZero = 100_000
    min_mean_word_chars: AtLeastZero = 3.0
    max_mean_word_chars: AtLeastZero = 10.0
    max_hashes_per_word: AtLeastZero = 0.1
    max_ellipses_per_word: AtLeastZero = 0.1
    max_bullet_lines: Share = 0.9
    max_ellipsis_lines: Share = 0.3
    min_alphabetic_words: Share = 0.8
    min_stop_words: AtLeastZero = 2
    stop_words: Mapping[str, tuple[str, ...]] = pydantic.Field(default_factory=dict)

    def __post_init__(self) -> None:
        for language, listed in self.stop_words.items():
            for word in listed:
                if len(word_hashes(word)) != 1:
                    raise ValueError(f"the stop word {word!r} of {language!r} is not one word")

    def named_languages(self) -> Mapping[str, Sequence[str]]:
        """Return the languages of ``stop_words``."""
        return {"stop_words": list(self.stop_words)}

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        """Measure text and language."""
        scan = Words.of(batch.column(WORD_SCAN.column))
        found = scan.counts.astype(np.float64)
        count, spaced = found[:, word_scan.WORDS], found[:, word_scan.SPACED]
        alphabetic = found[:, word_scan.ALPHABETIC_WORDS]
        languages = batch.column("language").to_pylist()
        lists = {**STOP_WORDS, **self.stop_words}
        stop_words = count_stop_words(scan, batch.column("text"), languages, lists)
        listed = np.array([bool(lists.get(name)) for name in languages], np.bool_)
        words, lines = np.maximum(count, 1), np.maximum(found[:, word_scan.LINES], 1)
        mostly_spaced = (2 * spaced >= words) & (spaced > 0)
        word_chars = (found[:, word_scan.SPACED_CHARS] + found[:, word_scan.SIGNS]) / np.maximum(spaced, 1)
        return {
            "words": count,
            "mean_word_chars": np.where(mostly_spaced, word_chars, np.nan),
            "hashes_per_word": found[:, word_scan.HASHES] / words,
            "ellipses_per_word": found[:, word_scan.ELLIPSES] / words,
            "bullet_lines": found[:, word_scan.BULLET_LINES] / lines,
            "ellipsis_lines": found[:, word_scan.ELLIPSIS_LINES] / lines,
            "alphabetic_words": alphabetic / np.maximum(alphabetic + found[:, word_scan.LETTERLESS_RUNS], 1),
            "stop_words": np.where(listed, stop_words, np.nan),
        }
