"""Where the slots of a batch come from: the tests' own way back from a row to documents."""

from __future__ import annotations

from collections import Counter

from shards.reader import ShardSet
from tests.shards.small_shards import lengths_of
from trainer.batch import StepPlan

Token = tuple[str, int, int]
"""Domain, document and token in the document."""


def place_of(plan: StepPlan, row: int, column: int) -> Token | None:
    """Return the token in a slot, by looking through every span; None in padding."""
    placed = plan.placed
    for index in range(len(placed.row)):
        at = column - int(placed.column[index])
        if placed.row[index] == row and 0 <= at < placed.length[index]:
            return plan.domains[placed.domain[index]], int(placed.document[index]), int(placed.start[index]) + at
    return None


def count_tokens(plan: StepPlan, seen: Counter[Token]) -> None:
    """Count every token that a step serves."""
    placed = plan.placed
    for index in range(len(placed.row)):
        domain, document = plan.domains[placed.domain[index]], int(placed.document[index])
        first, length = int(placed.start[index]), int(placed.length[index])
        seen.update((domain, document, token) for token in range(first, first + length))


def every_token(shards: ShardSet, times: int = 1) -> Counter[Token]:
    """Return every training token of the shards, each counted ``times`` times."""
    return Counter(
        {
            (domain, document, token): times
            for domain in shards.domains
            for document, length in enumerate(lengths_of(shards, domain))
            for token in range(length)
        }
    )
