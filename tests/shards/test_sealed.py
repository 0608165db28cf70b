from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import IncompleteError
from shards.sealed import SEAL, digest_of, read_sealed, write_sealed
from shards.store import Store

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé\U0001f600"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.text("abc\n", max_size=3), JSON, max_size=4)


@given(JSON)
def test_a_digest_does_not_depend_on_the_order_of_keys(value: object) -> None:
    def turned(part: object) -> object:
        if isinstance(part, dict):
            return {key: turned(part[key]) for key in reversed(list(part))}
        return [turned(item) for item in part] if isinstance(part, list) else part

    assert digest_of(value) == digest_of(turned(value))
    assert digest_of([value]) != digest_of(value)


def test_a_digest_is_of_the_canonical_text() -> None:
    value = {"b": [1, 2.5, None], "a": "ü"}
    assert digest_of(value) == hashlib.sha256('{"a":"ü","b":[1,2.5,null]}'.encode()).hexdigest()


def test_a_digest_refuses_what_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        digest_of(float("nan"))
    with pytest.raises(TypeError):
        digest_of({1, 2})


@settings(deadline=None, max_examples=60)
@given(value=OBJECTS, where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_what_was_written_is_read_and_a_flipped_bit_is_found(value: dict[str, Any], where: float, bit: int) -> None:
    store = Store(f"memory://headrace-{uuid.uuid4().hex}")
    write_sealed(store, "x.json", value)
    assert read_sealed(store, "x.json") == value
    data = bytearray(store.read_bytes("x.json"))
    data[int(where * len(data))] ^= 1 << bit
    store.write_bytes("x.json", bytes(data))
    # A flip may leave the value alone: 1e+16 is 1E+16.
    means = _loaded(bytes(data))
    if isinstance(means, dict) and json.dumps(means) == json.dumps({**value, SEAL: digest_of(value)}):
        assert read_sealed(store, "x.json") == value
        return
    with pytest.raises(IncompleteError, match=r"x\.json is not .*Run the recipe again"):
        read_sealed(store, "x.json")


def test_a_flipped_bit_that_makes_an_infinity_is_found(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_sealed(store, "x.json", {"epochs": 1e308})
    # One bit is between a 3 and a 7.
    store.write_bytes("x.json", store.read_bytes("x.json").replace(b"e+308", b"e+708"))
    with pytest.raises(IncompleteError, match=r"x\.json is not what was written"):
        read_sealed(store, "x.json")


def _loaded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return None


def test_the_same_value_gives_the_same_bytes_and_keys_keep_their_order(tmp_path: Path) -> None:
    store = Store(tmp_path)
    write_sealed(store, "x.json", {"b": 1, "a": [2]})
    first = store.read_bytes("x.json")
    write_sealed(store, "x.json", read_sealed(store, "x.json"))
    assert store.read_bytes("x.json") == first
    assert list(json.loads(first)) == ["b", "a", SEAL]


@pytest.mark.parametrize("content", [b"[]", b"{}", b"3", b'{"a": 1}', b'{"sha256": null}', b'{"a": ', b"\xff\xfe", b""])
def test_what_carries_no_seal_is_not_taken(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with pytest.raises(IncompleteError, match=r"x\.json"):
        read_sealed(Store(tmp_path), "x.json")


def test_a_missing_file_is_incomplete(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match=r"x\.json is missing"):
        read_sealed(Store(tmp_path), "x.json")
