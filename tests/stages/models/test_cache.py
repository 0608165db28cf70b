from __future__ import annotations

import gc
import tempfile
import threading
import time
import weakref
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.judges import perplexity
from stages.judges.perplexity import Perplexity
from stages.lm.kneser_ney import fit
from stages.marking import mark
from stages.models import cache
from stages.models.cache import DEFAULT_BYTES, VARIABLE, ModelCache, load_once, models
from tests.stages.support import stage_of


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cache yet, as in a new process; and afterwards the one there was."""
    monkeypatch.setattr(cache, "_cache", [])
    monkeypatch.delenv(VARIABLE, raising=False)


def test_loads_once_however_many_ask_at_a_time() -> None:
    loads: Counter[str] = Counter()

    def slow(path: str) -> object:
        loads[path] += 1
        time.sleep(0.02)
        return object()

    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(load_once(slow, "once"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loads == {"once": 1}
    assert len(found) == 8
    assert len(set(map(id, found))) == 1


def test_paths_and_loaders_are_told_apart() -> None:
    def one(path: str) -> str:
        return f"one {path}"

    def other(path: str) -> str:
        return f"other {path}"

    assert [load_once(one, "a"), load_once(one, "b"), load_once(other, "a")] == ["one a", "one b", "other a"]


def test_a_failed_load_is_tried_again() -> None:
    tries: list[str] = []

    def flaky(path: str) -> str:
        tries.append(path)
        if len(tries) == 1:
            raise OSError("not yet")
        return path

    with pytest.raises(OSError, match="not yet"):
        load_once(flaky, "x")
    assert load_once(flaky, "x") == "x"


def test_a_loader_may_load_another_model() -> None:
    def inner(path: str) -> str:
        return path

    def outer(path: str) -> str:
        return load_once(inner, path) + "!"

    assert load_once(outer, "nested") == "nested!"


class Model:
    """Something that takes memory."""

    def __init__(self, path: str) -> None:
        self.path = path


SIZES = {name: size for size, name in enumerate("abcdefgh", 1)}


@settings(deadline=None)
@given(st.lists(st.sampled_from(list(SIZES)), max_size=40), st.integers(0, 20))
def test_the_models_that_are_held_are_those_used_last_that_fit_together(asked: list[str], most: int) -> None:
    held, loads = ModelCache(most), Counter[str]()

    def load(path: str) -> Model:
        loads[path] += 1
        return Model(path)

    expected: list[str] = []
    loaded: Counter[str] = Counter()
    for path in asked:
        assert held.load(load, path, lambda path=path: SIZES[path]).path == path  # type: ignore[misc]
        if path not in expected:
            loaded[path] += 1
            while expected and sum(SIZES[one] for one in expected) + SIZES[path] > most:
                expected.pop(0)
        else:
            expected.remove(path)
        expected.append(path)
        assert held.held() == expected
        assert loads == loaded
        # One is always held, however large.
        assert sum(SIZES[one] for one in expected) <= max(most, SIZES[path])


def test_what_is_let_go_is_gone_before_the_next_is_loaded() -> None:
    held = ModelCache(10)
    first = weakref.ref(held.load(Model, "a", lambda: 8))

    def load(path: str) -> Model:
        gc.collect()
        assert first() is None
        return Model(path)

    held.load(load, "b", lambda: 8)
    assert held.held() == ["b"]


def test_a_file_counts_with_its_bytes_and_what_is_no_file_with_none(tmp_path: Path) -> None:
    held = ModelCache(100)
    for name, size in (("one", 60), ("two", 40), ("three", 41)):
        (tmp_path / name).write_bytes(bytes(size))
    held.load(Model, str(tmp_path / "one"))
    held.load(Model, "no file")
    held.load(Model, str(tmp_path / "two"))
    assert [Path(path).name for path in held.held()] == ["one", "no file", "two"]
    held.load(Model, str(tmp_path / "three"))
    assert [Path(path).name for path in held.held()] == ["no file", "two", "three"]


def test_a_file_behind_a_uri_counts_with_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Where copies of what is behind a URI are kept.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held = ModelCache(100)
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(bytes(60))
        held.load(Model, (tmp_path / name).as_uri())
    assert held.held() == [(tmp_path / "two").as_uri()]


def test_a_failed_load_holds_nothing() -> None:
    held = ModelCache(10)

    def fail(path: str) -> Model:
        raise OSError(path)

    with pytest.raises(OSError, match="x"):
        held.load(fail, "x", lambda: 5)
    assert held.held() == []


@pytest.mark.usefixtures("own_cache")
def test_the_environment_bounds_the_cache_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert models().most_bytes == DEFAULT_BYTES
    assert models() is models()
    cache._cache.clear()
    monkeypatch.setenv(VARIABLE, "1234")
    assert models().most_bytes == 1234


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("said", ["8G", "-1", "0", "1e9", "nan"])
def test_a_bound_that_is_no_number_is_the_users_to_fix(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setenv(VARIABLE, said)
    with pytest.raises(UserError, match=f"{VARIABLE}={said} is not a number of bytes"):
        load_once(Model, "x")


@pytest.fixture(scope="module")
def hundred(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Path of a small model by language, a hundred of them, each of a text of its own."""
    folder = tmp_path_factory.mktemp("models")
    paths = {f"l{number:02}": str(folder / f"{number:02}.arpa") for number in range(100)}
    for number, path in enumerate(paths.values()):
        words = [f"w{number}", "the", "old", "mill"]
        fit([f"{word} of the river w{number}" for word in words], order=2).write_arpa(path)
    return paths


def documents_in(languages: list[str]) -> pa.RecordBatch:
    text = [f"the old mill w{language[1:]}" for language in languages]
    return pa.record_batch(
        {
            "text": text,
            "language": languages,
            "domain": [""] * len(text),
            "failed": [False] * len(text),
            "value": pa.nulls(len(text), pa.float64()),
            **{name: pa.nulls(len(text), pa.string()) for name in ("dropped_by", "reason", "detail")},
        }
    )


@pytest.mark.usefixtures("own_cache")
def test_of_a_hundred_perplexity_models_those_are_loaded_that_a_document_needs(
    hundred: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: Counter[str] = Counter()
    real = perplexity._load

    def load(path: str) -> Any:
        loads[path] += 1
        return real(path)

    monkeypatch.setattr(perplexity, "_load", load)
    judge = stage_of(Perplexity, models=hundred)
    judge.check_files()
    languages = ["l07", "l42", "l99", "und"] * 5
    batch = documents_in(languages)
    found = mark(judge, batch)
    assert loads == {hundred[language]: 1 for language in ("l07", "l42", "l99")}
    assert found.column("perplexity_v1.tokens").to_pylist() == [5, 5, 5, None] * 5
    mark(judge, batch)
    assert sum(loads.values()) == 3

    # Where one fits at a time, each is loaded once a batch, and the scores are the same.
    cache._cache.clear()
    loads.clear()
    monkeypatch.setenv(VARIABLE, "1")
    assert mark(judge, batch) == found
    assert loads == {hundred[language]: 1 for language in ("l07", "l42", "l99")}
    assert models().held() == [hundred["l99"]]

    # Where two of three fit, the one used last stays for the next batch.
    cache._cache.clear()
    loads.clear()
    monkeypatch.setenv(VARIABLE, str(sum(Path(hundred[name]).stat().st_size for name in ("l42", "l99"))))
    mark(judge, batch)
    assert models().held() == [hundred["l42"], hundred["l99"]]
    mark(judge, documents_in(["l99", "l42"]))
    assert sum(loads.values()) == 3
