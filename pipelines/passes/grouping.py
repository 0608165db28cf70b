"""How the survivors are dealt into units that each make shards: a function of the data and the recipe alone.

Never of the number of workers, so that shards are the same bytes for any. A small run makes small shards: units of
the size of a full one would leave all workers but one without work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from shards.sealed import digest_of

MIN_UNIT_BYTES: Final = 4 << 20
"""Text in a unit at least, if there is so much, and in a part of a split: about one batch."""
MIN_UNITS: Final = 64
"""Units that a run is cut into before they reach the size of a shard: enough for as many workers."""
MAX_PIECES: Final = 1_024
"""Pieces in a unit at most: an element that names their files stays under 1 MB."""


class Piece(NamedTuple):
    """The documents of a split, or those in some of its batches: part ``part`` of ``parts``.

    Attributes:
        split: the split's name.
        part: from 0 on.
        parts: into how many its batches are dealt, in order.
        text_bytes: about what survives of them.
    """

    split: str
    part: int
    parts: int
    text_bytes: int


def group_splits(survivor_bytes: Mapping[str, int], shard_text_bytes: int) -> dict[str, tuple[Piece, ...]]:
    """Return groups of consecutive pieces by the name of their unit, in order.

    Args:
        survivor_bytes: text that is left of every split, in the splits' order.
        shard_text_bytes: text that fills a shard.
    """
    unit_bytes = min(shard_text_bytes, max(MIN_UNIT_BYTES, sum(survivor_bytes.values()) // MIN_UNITS))
    groups: dict[str, tuple[Piece, ...]] = {}
    group: list[Piece] = []
    size = 0
    for piece in _pieces(survivor_bytes, max(MIN_UNIT_BYTES, unit_bytes)):
        group.append(piece)
        size += piece.text_bytes
        if size >= unit_bytes or len(group) == MAX_PIECES:
            groups[_name(len(groups), group)] = tuple(group)
            group, size = [], 0
    if group:
        groups[_name(len(groups), group)] = tuple(group)
    return groups


def _pieces(survivor_bytes: Mapping[str, int], part_bytes: int) -> Iterator[Piece]:
    for split, text_bytes in survivor_bytes.items():
        parts = max(1, text_bytes // part_bytes)
        for part in range(parts):
            yield Piece(split, part, parts, text_bytes * (part + 1) // parts - text_bytes * part // parts)


def _name(position: int, group: list[Piece]) -> str:
    said = [piece.split if piece.parts == 1 else f"{piece.split} {piece.part}/{piece.parts}" for piece in group]
    return f"{position:05d}-{digest_of(said)[:8]}"
