"""From HTML to text: charset, parsing, and the page's main content without navigation and boilerplate.

Extraction is resiliparse's, whose main-content rules DCLM (Li et al. 2024, arXiv:2406.11794, section 4.2) found to give
better models than Common Crawl's WET text, at a fraction of other extractors' cost.
"""

from __future__ import annotations

from typing import ClassVar, Final

import numpy as np
import pyarrow as pa
from pydantic import Field
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLParserException, HTMLTree

from stages.base import Measured, stage
from stages.checks import Check
from stages.failing import Failure
from stages.html.charset import charset_of, decode
from stages.html.guard import too_complex
from stages.scores import Count

_FAILED: Final = "extraction_failed"


@stage
class ExtractHtml:
    """Turns the payload of rows that have one into text; rows that have text already are left alone.

    Pages that would cost a parser time or memory far beyond their length are dropped unparsed, so that no page can stop
    a worker.
    """

    name: ClassVar[str] = "extract_html_v1"
    needs = ("text", "payload", "media_type")
    scores = (
        Count("excess", "nesting depth, attributes of one tag, or depth times tags, where it is over its limit"),
        Count("chars", "characters of the text that was taken from a page"),
    )
    checks = (Check("too_complex", "excess", max=0), Check("no_text", "chars", min="min_chars"))
    failures: ClassVar[tuple[str, ...]] = (_FAILED,)
    decides_measures: ClassVar[frozenset[str]] = frozenset({"min_chars"})

    main_content: bool = Field(default=True, description="Leave out navigation, headers, footers and advertisements.")
    comments: bool = Field(default=False, description="Keep readers' comments below articles.")
    min_chars: int = Field(default=1, ge=1, description="Shorter text, white space at its ends apart, is no text.")

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Extract every payload: replaces ``text``, and empties ``payload``."""
        chars, excess = np.full(batch.num_rows, np.nan), np.full(batch.num_rows, np.nan)
        details: list[str | None] = [None] * batch.num_rows
        failures: dict[int, Failure] = {}
        texts = batch.column("text").to_pylist()
        rows = zip(batch.column("payload"), batch.column("media_type").to_pylist(), strict=True)
        for row, (payload, media_type) in enumerate(rows):
            if not payload.is_valid or texts[row] is not None:
                continue
            html = self._decoded(payload.as_py(), media_type)
            if found := too_complex(html):
                excess[row], details[row] = found
                continue
            try:
                text = self.extract(html)
            except (HTMLParserException, ValueError, RuntimeError) as error:
                failures[row] = Failure(_FAILED, Failure.of(error).detail)
                continue
            chars[row] = len(text)
            if len(text) >= self.min_chars:
                texts[row] = text
        columns = {"text": pa.array(texts, pa.string()), "payload": pa.nulls(batch.num_rows, pa.binary())}
        return Measured({"excess": excess, "chars": chars}, columns, failures, pa.array(details, pa.string()))

    def extract(self, html: str) -> str:
        """Return the text of a decoded page, without white space at its ends."""
        text: str = extract_plain_text(
            HTMLTree.parse(html),
            main_content=self.main_content,
            comments=self.comments,
            alt_texts=False,
            preserve_formatting=True,
        )
        return text.strip()

    @staticmethod
    def _decoded(payload: bytes, media_type: str | None) -> str:
        return decode(payload, charset_of(payload, media_type, html=True))
