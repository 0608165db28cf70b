"""Repetition rules of Rae et al., "Scaling Language Models" (Gopher, 2021), appendix A, table A1."""

from __future__ import annotations

from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
import pydantic

from stages.base import Verdict, first_failing, stage
from stages.text.repetition import measure_repetition

Share = Annotated[float, pydantic.Field(ge=0, le=1)]


@stage
class GopherRepetition:
    """Drops documents that repeat themselves: lines, paragraphs, and n-grams of the words of ``stages.text.words``.

    ``stages.text.repetition`` says what is measured; shares by characters leave white space out. A line, paragraph or
    n-gram is a duplicate where it occurred before in the document, so the first occurrence does not count; of the most
    common n-gram, if it occurs at least twice, every occurrence does. Shares are rounded to 1e-4 before they are
    compared.
    """

    name: ClassVar[str] = "gopher_repetition_v2"
    reasons: ClassVar[tuple[str, ...]] = (
        "duplicate_lines",
        "duplicate_paragraphs",
        "duplicate_line_chars",
        "duplicate_paragraph_chars",
        *(f"top_{n}gram_chars" for n in (2, 3, 4)),
        *(f"duplicate_{n}gram_chars" for n in (5, 6, 7, 8, 9, 10)),
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

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Judge by text alone; ``value`` is the share that was too high."""
        shares = np.round(measure_repetition(batch.column("text")), 4)
        limits = (
            self.max_duplicate_lines,
            self.max_duplicate_paragraphs,
            self.max_duplicate_line_chars,
            self.max_duplicate_paragraph_chars,
            *self.max_top_ngram_chars,
            *self.max_duplicate_ngram_chars,
        )
        return first_failing(*((i, shares[:, i] > limit, shares[:, i]) for i, limit in enumerate(limits)))
