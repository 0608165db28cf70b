"""From HTML to text: the blocks of a page that a learnt forest takes for its main content, plain or as Markdown.

Decision 34 says what it was learnt from, what carried it, and how it compares.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import numpy as np
import pyarrow as pa
import pydantic
from pydantic import Field
from resiliparse.parse.html import HTMLParserException

from stages.base import Measured, stage
from stages.checks import Check
from stages.failing import Failure
from stages.html.charset import charset_of, decode
from stages.html.compose import Form
from stages.html.extraction import Extracted, extract
from stages.html.guard import too_costly
from stages.html.rules import extract_by_rules
from stages.html.trafilatura import extract_with_trafilatura, require_installed, too_large
from stages.limits import Share
from stages.scores import Count, Ratio

_FAILED: Final = "extraction_failed"


@stage
class ExtractHtmlV2:
    """Turns the payload of rows that have one into text; rows that have text already are left alone.

    Pages that would cost a parser time or memory far beyond their length are dropped unparsed, so that no page can stop
    a worker.
    """

    name: ClassVar[str] = "extract_html_v2"
    needs = ("text", "payload", "media_type")
    scores = (
        Count("excess", "what is over its limit: depth, attributes, depth times tags, what is reopened or compared"),
        Count("chars", "characters of the text that was taken from a page"),
        Ratio("share", "share of the page's characters, as a reader sees them, that was taken; by the forest only"),
    )
    checks = (
        Check("too_complex", "excess", max=0),
        Check("no_text", "chars", min="min_chars"),
        Check("little_of_page", "share", min="min_share"),
    )
    failures: ClassVar[tuple[str, ...]] = (_FAILED,)
    decides_measures: ClassVar[frozenset[str]] = frozenset({"min_chars"})

    method: Literal["learnt", "rules", "trafilatura"] = Field(
        default="learnt",
        description="Judge blocks by a learnt forest; or take resiliparse's main content; or trafilatura's.",
    )
    main_content: bool = Field(default=True, description="Leave out navigation, headers, footers and advertisements.")
    form: Form = Field(
        default="plain",
        description="Plain text; 'markdown' with headings, lists, tables and code; or 'markdown_links' with links too.",
    )
    min_chars: int = Field(default=1, ge=1, description="Shorter text, white space at its ends apart, is no text.")
    min_share: Share | None = Field(default=None, description="Least share of the page's characters that is taken.")

    @pydantic.model_validator(mode="after")
    def _others_have_no_form(self) -> ExtractHtmlV2:
        if self.method != "learnt" and (self.form != "plain" or not self.main_content):
            raise ValueError(f"method = {self.method!r} gives main content as plain text: leave out form, main_content")
        return self

    def check_files(self) -> None:
        """Check that what the method needs is installed."""
        if self.method == "trafilatura":
            require_installed()

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Extract every payload: replaces ``text``, and empties ``payload``."""
        chars, excess, share = (np.full(batch.num_rows, np.nan) for _ in range(3))
        details: list[str | None] = [None] * batch.num_rows
        failures: dict[int, Failure] = {}
        texts = batch.column("text").to_pylist()
        rows = zip(batch.column("payload"), batch.column("media_type").to_pylist(), strict=True)
        for row, (payload, media_type) in enumerate(rows):
            if not payload.is_valid or texts[row] is not None:
                continue
            body = payload.as_py()
            html = decode(body, charset_of(body, media_type, html=True))
            if found := self.refused(html):
                excess[row], details[row] = found
                continue
            try:
                extracted = self.extract(html)
            except (HTMLParserException, ValueError, RuntimeError) as error:
                failures[row] = Failure(_FAILED, Failure.of(error).detail)
                continue
            chars[row], share[row] = len(extracted.text), extracted.share
            if len(extracted.text) >= self.min_chars:
                texts[row] = extracted.text
        columns = {"text": pa.array(texts, pa.string()), "payload": pa.nulls(batch.num_rows, pa.binary())}
        scores = {"excess": excess, "chars": chars, "share": share}
        return Measured(scores, columns, failures, pa.array(details, pa.string()))

    def refused(self, html: str) -> tuple[float, str] | None:
        """Return why a page is not parsed: what its measure is, and what that is of; None if it is."""
        return too_costly(html) or (too_large(html) if self.method == "trafilatura" else None)

    def extract(self, html: str) -> Extracted:
        """Return the text of a decoded page."""
        if self.method == "trafilatura":
            return Extracted(extract_with_trafilatura(html), np.nan)
        if self.method == "rules":
            return Extracted(extract_by_rules(html), np.nan)
        return extract(html, self.form, main_content=self.main_content)
