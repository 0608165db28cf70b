"""What elements mean: the kinds that go together, and names that the parser writes without an end tag."""

from __future__ import annotations

import pytest
from resiliparse.parse.html import HTMLTree

from stages.html import elements as el
from stages.html.elements import MEANINGS


def known() -> dict[str, int]:
    return {row[:2].astype(">i8").tobytes().rstrip(b"\0").decode(): int(row[2]) for row in MEANINGS if row[2]}


def test_kinds_that_imply_others() -> None:
    for name, bits in known().items():
        for kind in (
            el.ITEM,
            el.CELL,
            el.ROW,
            el.TABLE,
            el.LIST,
            el.HEADING,
            el.PREFORMATTED,
            el.QUOTE,
            el.NAV,
            el.FORM,
        ):
            assert not bits & kind or bits & el.BLOCK, name
        assert (bits & el.HEADING != 0) == (bits >> el.LEVELS & 63 != 0)


@pytest.mark.parametrize("name", sorted(name for name, bits in known().items() if bits & el.VOID))
def test_void_elements_have_no_end_tag(name: str) -> None:
    assert f"</{name}>" not in str(HTMLTree.parse(f"<table><colgroup><{name}></table><{name}>"))


def test_raw_text_is_written_without_escapes() -> None:
    for name in ("script", "style", "xmp", "iframe", "noembed", "noframes"):
        assert known()[name] & el.RAW_TEXT
        assert "a & <b>" in str(HTMLTree.parse(f"<body><{name}>a & <b></{name}>"))
