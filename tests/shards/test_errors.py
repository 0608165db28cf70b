from __future__ import annotations

import pickle

import pytest

from shards.errors import IncompleteError, UserError


def test_says_value_place_and_remedy_in_one_line() -> None:
    error = UserError("the glob 'x' matches no file.", place="recipe, key sources.0", remedy="Fix it")
    assert str(error) == "the glob 'x' matches no file. Where: recipe, key sources.0. Fix it"


def test_leaves_out_what_it_was_not_told() -> None:
    assert str(UserError("a mistake")) == "a mistake"
    assert str(UserError("a mistake", remedy="Fix it")) == "a mistake. Fix it"


@pytest.mark.parametrize("kind", [UserError, IncompleteError])
def test_comes_back_whole_from_a_worker_process(kind: type[UserError]) -> None:
    error = pickle.loads(pickle.dumps(kind("what", place="where", remedy="how")))
    assert type(error) is kind
    assert (error.what, error.place, error.remedy) == ("what", "where", "how")
    assert str(error) == "what. Where: where. how"


def test_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="what"):
        raise IncompleteError("what")
