"""With one rank; tests/integration/test_trainer_ranks.py has two, where one fails."""

from __future__ import annotations

import pickle

import pytest
from torch.distributed.device_mesh import DeviceMesh

from shards.errors import IncompleteError
from trainer.collectives import any_asks, from_first, on_each


def test_results_come_back(mesh: DeviceMesh) -> None:
    assert from_first(lambda: {"a": (1, None)}) == {"a": (1, None)}
    assert on_each(lambda: 3) == [3]
    assert (any_asks(True), any_asks(False)) == (True, False)


def test_a_user_error_comes_back_with_place_and_remedy(mesh: DeviceMesh) -> None:
    def fail() -> None:
        raise IncompleteError("what", place="where", remedy="how")

    for together in (from_first, on_each):
        with pytest.raises(IncompleteError) as caught:
            together(fail)
        assert (caught.value.what, caught.value.place, caught.value.remedy) == ("what", "where", "how")
    # As it travels from rank to rank.
    error = pickle.loads(pickle.dumps(caught.value))
    assert (str(error), error.place, error.remedy) == (str(caught.value), "where", "how")


def test_other_errors_are_raised_unchanged(mesh: DeviceMesh) -> None:
    with pytest.raises(ZeroDivisionError):
        from_first(lambda: 1 // 0)
