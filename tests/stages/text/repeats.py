"""What is repeated within a text, line by line in plain Python: what the kernel is held against."""

from __future__ import annotations

from stages.text.repeated import LINE, PARAGRAPH


def chars(text: str) -> int:
    return sum(not character.isspace() for character in text)


def plain_repeated(text: str, min_chars: int, lines: bool, paragraphs: bool) -> tuple[str, dict[int, int]]:
    """Return what is left of a text, and the characters that go as lines and as paragraphs."""
    rows = [part + "\n" for part in text.split("\n")[:-1]] + [last for last in text.split("\n")[-1:] if last]
    goes: list[int | None] = [None] * len(rows)
    seen: dict[int, set[str]] = {LINE: set(), PARAGRAPH: set()}

    def is_repeated(kind: int, content: str) -> bool:
        content = content.strip()
        if chars(content) < min_chars:
            return False
        is_known = content in seen[kind]
        seen[kind].add(content)
        return is_known

    at = blank = 0
    while at < len(rows):
        if not rows[at].strip():
            at += 1
            continue
        end = at
        while end < len(rows) and rows[end].strip():
            end += 1
        if paragraphs and is_repeated(PARAGRAPH, "".join(rows[at:end])):
            goes[blank:end] = [PARAGRAPH] * (end - blank)
        elif lines:
            hits = [is_repeated(LINE, row) for row in rows[at:end]]
            goes[at:end] = [LINE if hit else None for hit in hits]
            if all(hits):
                goes[blank:at] = [LINE] * (at - blank)
        at = blank = end
    left = "".join(row for row, kind in zip(rows, goes, strict=True) if kind is None)
    gone = {kind: sum(len(row) for row, one in zip(rows, goes, strict=True) if one == kind) for kind in seen}
    if rows and goes[-1] is not None and not rows[-1].endswith("\n") and left.endswith("\n"):
        shorter = left[:-2] if left.endswith("\r\n") else left[:-1]
        first = max(at for at, kind in enumerate(goes) if kind is None) + 1
        gone[goes[first]] += len(left) - len(shorter)
        left = shorter
    return left, gone
