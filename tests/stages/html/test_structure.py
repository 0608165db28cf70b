"""Where elements stand: in which item of which list, which cell of which table, which quote."""

from __future__ import annotations

from resiliparse.parse.html import HTMLTree

from stages.html import structure as st
from stages.html.blocks import ELEMENT, Page


def places(html: str) -> list[list[int]]:
    page = Page(str(HTMLTree.parse(html)))
    return st.structure_of(page)[page.blocks[:, ELEMENT]].tolist()


def test_lists_nest_and_items_are_numbered_in_ordered_ones() -> None:
    outer, inner, last = places("<ol><li>a<ul><li>b</ul><li>c</ol>")
    assert [place[st.DEPTH] for place in (outer, inner, last)] == [1, 2, 1]
    assert [place[st.NUMBER] for place in (outer, inner, last)] == [1, 0, 2]
    assert outer[st.TOP_LIST] == inner[st.TOP_LIST] == last[st.TOP_LIST] > 0


def test_a_table_of_data_has_rows_and_columns_and_one_of_layout_has_not() -> None:
    data = places("<table><tr><td>a<td>b<tr><td>c<td>d</table>")
    assert [place[st.COLUMN] for place in data] == [0, 1, 0, 1]
    assert data[0][st.ROW] == data[1][st.ROW] != data[2][st.ROW]
    for layout in ("<table><tr><td>a<td><table><tr><td>b</table></table>", "<table><tr><td>a<td>b</table>"):
        assert not any(place[st.TABLE] for place in places(layout))


def test_headings_code_and_quotes() -> None:
    heading, code, quote = places("<h3>a</h3><pre>b</pre><blockquote>c</blockquote>")
    assert (heading[st.LEVEL], code[st.CODE], quote[st.QUOTE] > 0) == (3, 1, True)
