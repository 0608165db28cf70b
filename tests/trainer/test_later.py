from __future__ import annotations

import pytest
import torch

from trainer.later import Later, Transfer


def test_what_was_sent_is_read_as_often_as_asked() -> None:
    transfer = Transfer()
    later = Later(lambda: sum(transfer.read()))
    with pytest.raises(RuntimeError, match="only after its update"):
        later.get()
    transfer.send(torch.tensor([1.5, 2.0]))
    assert later.get() == later.get() == 3.5
