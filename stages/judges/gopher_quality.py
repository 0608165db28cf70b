"""Document-wise quality rules of Rae et al., "Scaling Language Models" (Gopher, 2021), appendix A, table A1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pydantic

from stages.base import Verdict, first_failing, stage
from stages.text import counts
from stages.text.stop_words import STOP_WORDS
from stages.text.words import word_hashes

Share = Annotated[float, pydantic.Field(ge=0, le=1)]
Ratio = Annotated[float, pydantic.Field(ge=0)]


@stage
class GopherQuality:
    """Drops documents that do not look like running text.

    ``stages.text.words`` says what a word is, ``stages.text.counts`` what else is counted. Word length is judged where
    at least half of the words are of a script that writes spaces: it is the characters that are not white space, for
    each of those words. Words with a letter are weighed against what stands between white space without one: a price or
    a row of dashes counts once. Stop words are judged in the languages that ``stop_words`` has; it replaces or adds to
    the lists in ``stages.text.stop_words``, by language code. Ratios are rounded to 1e-4 before they are compared.
    """

    name: ClassVar[str] = "gopher_quality_v2"
    reasons: ClassVar[tuple[str, ...]] = (
        "too_few_words",
        "too_many_words",
        "short_words",
        "long_words",
        "hash_symbols",
        "ellipses",
        "bullet_lines",
        "ellipsis_lines",
        "few_alphabetic_words",
        "few_stop_words",
    )

    # Defaults are the paper's.
    min_words: Annotated[int, pydantic.Field(ge=0)] = 50
    max_words: Annotated[int, pydantic.Field(ge=1)] = 100_000
    min_mean_word_chars: Ratio = 3.0
    max_mean_word_chars: Ratio = 10.0
    max_hashes_per_word: Ratio = 0.1
    max_ellipses_per_word: Ratio = 0.1
    max_bullet_lines: Share = 0.9
    max_ellipsis_lines: Share = 0.3
    min_alphabetic_words: Share = 0.8
    min_stop_words: Annotated[int, pydantic.Field(ge=0)] = 2
    stop_words: Mapping[str, tuple[str, ...]] = pydantic.Field(default_factory=dict)

    def __post_init__(self) -> None:
        for language, listed in self.stop_words.items():
            for word in listed:
                if len(word_hashes(word)) != 1:
                    raise ValueError(f"the stop word {word!r} of {language!r} is not one word")

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Judge by text and language; ``value`` is the measure of the rule that failed."""
        languages = batch.column("language").to_pylist()
        lists = {**STOP_WORDS, **self.stop_words}
        found = counts.count_words(batch.column("text"), languages, lists).astype(np.float64)
        count, spaced, alphabetic = found[:, counts.WORDS], found[:, counts.SPACED], found[:, counts.ALPHABETIC_WORDS]
        words, lines = np.maximum(count, 1), np.maximum(found[:, counts.LINES], 1)
        mostly_spaced = (2 * spaced >= words) & (spaced > 0)
        word_chars = np.round((found[:, counts.SPACED_CHARS] + found[:, counts.SIGNS]) / np.maximum(spaced, 1), 4)
        hashes = np.round(found[:, counts.HASHES] / words, 4)
        ellipses = np.round(found[:, counts.ELLIPSES] / words, 4)
        bullets = np.round(found[:, counts.BULLET_LINES] / lines, 4)
        ellipsis_lines = np.round(found[:, counts.ELLIPSIS_LINES] / lines, 4)
        with_letter = np.round(alphabetic / np.maximum(alphabetic + found[:, counts.LETTERLESS_RUNS], 1), 4)
        stops = found[:, counts.STOP_WORDS_FOUND]
        listed = np.array([bool(lists.get(language)) for language in languages], np.bool_)
        return first_failing(
            (0, count < self.min_words, count),
            (1, count > self.max_words, count),
            (2, mostly_spaced & (word_chars < self.min_mean_word_chars), word_chars),
            (3, mostly_spaced & (word_chars > self.max_mean_word_chars), word_chars),
            (4, hashes > self.max_hashes_per_word, hashes),
            (5, ellipses > self.max_ellipses_per_word, ellipses),
            (6, bullets > self.max_bullet_lines, bullets),
            (7, ellipsis_lines > self.max_ellipsis_lines, ellipsis_lines),
            (8, with_letter < self.min_alphabetic_words, with_letter),
            (9, listed & (stops < self.min_stop_words), stops),
        )
