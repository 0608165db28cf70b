"""Repetition rules of Rae et al., "Scaling Language Models" (Gopher, 2021), appendix A, table A1."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import pyarrow as pa

from stages.base import stage
from stages.checks import Check
from stages.limits import Share
from stages.scores import Ratio, Values
from stages.text.repetition import measure_repetition
from stages.text.word_scan import WORD_SCAN, Words

_TOP: Final = (2, 3, 4)
_DUPLICATE: Final = (5, 6, 7, 8, 9, 10)


@stage
class GopherRepetition:
    """Drops documents that repeat themselves: lines, paragraphs, and n-grams of the words of ``stages.text.words``.

    ``stages.text.repetition`` says what is measured; shares by characters leave white space out. A line, paragraph or
    n-gram is a duplicate where it occurred before in the document, so the first occurrence does not count; of the most
    common n-gram, if it occurs at least twice, every occurrence does.
    """

    name: ClassVar[str] = "gopher_repetition_v2"
    scans = (WORD_SCAN,)
    scores = (
        Ratio("duplicate_lines", "share of lines that occurred before"),
        Ratio("duplicate_paragraphs", "share of paragraphs that occurred before"),
        Ratio("duplicate_line_chars", "share of characters in lines that occurred before"),
        Ratio("duplicate_paragraph_chars", "share of characters in paragraphs that occurred before"),
        *(Ratio(f"top_{n}gram_chars", f"share of characters in the most common {n}-gram") for n in _TOP),
        *(
            Ratio(f"duplicate_{n}gram_chars", f"share of characters in {n}-grams that occurred before")
            for n in _DUPLICATE
        ),
    )
    checks = (
        *(Check(score.name, score.name, max=f"max_{score.name}") for score in scores[:4]),
        *(Check(score.name, score.name, max=f"max_top_ngram_chars.{i}") for i, score in enumerate(scores[4:7])),
        *(Check(score.name, score.name, max=f"max_duplicate_ngram_chars.{i}") for i, score in enumerate(scores[7:])),
    )

    # Defaults are the paper's.
    max_duplicate_lines: Share = 0.30
    max_duplicate_paragraphs: Share = 0.30
    max_duplicate_line_chars: Share = 0.20
    max_duplicate_paragraph_chars: Share = 0.20
    max_top_ngram_chars: tuple[Share, Share, Share] = (0.20, 0.18, 0.16)
    """For n = 2, 3, 4."""
    max_duplicate_ngram_chars: tuple[Share, Share, Share, Share, Share, Share] = (0.15, 0.14, 0.13, 0.12, 0.11, 0.10)
    """For n = 5 to 10."""

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        """Measure the text alone."""
        shares = measure_repetition(Words.of(batch.column(WORD_SCAN.column)))
        return {score.name: shares[:, place] for place, score in enumerate(self.scores)}
