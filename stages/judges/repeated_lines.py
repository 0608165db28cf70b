"""Lines and paragraphs that a document repeats: menus, share buttons, quoted posts. The first occurrence stays."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import pyarrow as pa
import pydantic

from stages.base import Measured, stage
from stages.edits import edit_table
from stages.text.repeated import LINE, PARAGRAPH, find_repeated

_REASONS: Final = {LINE: "repeated_line", PARAGRAPH: "repeated_paragraph"}


@stage
class RepeatedLines:
    """Removes lines and paragraphs that stood in the document before. Drops nothing.

    They are compared as they stand, white space at their ends aside. ``stages.text.repeated`` says what goes with them;
    all that is left is as it was, byte for byte.

    Attributes:
        lines: whether repeated lines go.
        paragraphs: whether repeated paragraphs go, those between lines of white space alone.
        min_chars: characters, white space aside, from which they go: ``}`` and ``---`` stay.
    """

    name: ClassVar[str] = "repeated_lines_v1"
    edits = tuple(_REASONS.values())

    lines: bool = True
    paragraphs: bool = True
    min_chars: Annotated[int, pydantic.Field(ge=1)] = 20

    def __post_init__(self) -> None:
        if not (self.lines or self.paragraphs):
            raise ValueError("with neither lines nor paragraphs there is nothing to remove")

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Find them in the text alone."""
        rows, starts, ends, kinds = find_repeated(
            batch.column("text"), self.min_chars, lines=self.lines, paragraphs=self.paragraphs
        )
        names = pa.array([_REASONS[kind] for kind in sorted(_REASONS)]).take(pa.array(kinds))
        return Measured(edits=edit_table(rows, starts, ends, names))
