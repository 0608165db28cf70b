from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.parts import Part, first_row


@given(rows=st.integers(0, 40), ranks=st.integers(1, 7), replicas=st.integers(1, 4))
def test_ranks_and_replicas_write_every_row_once(rows: int, ranks: int, replicas: int) -> None:
    whole = torch.arange(rows, dtype=torch.float32)
    owned = torch.chunk(whole, ranks) if rows else ()
    written: list[float] = []
    for rank in range(ranks):
        mine = owned[rank] if rank < len(owned) else torch.empty(0)
        first = first_row(rows, rank, ranks)
        for replica in range(replicas):
            part = Part(mine, whole.shape, first, replica, replicas).share()
            assert part.tensor.tolist() == list(part.rows)
            written += part.tensor.tolist()
    assert written == whole.tolist()
