from __future__ import annotations

import posixpath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.planning.places import encoded, file_name, is_unshowable, key_of, sibling_and_key, spelled

BASE = "/home/me/corpus"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.jsonl", "a.jsonl"),
        ("./a//b/../c.jsonl", "a/c.jsonl"),
        ("../a.jsonl", "../a.jsonl"),
        ("/x//y/./z", "/x/y/z"),
        ("file:///x/a%20b.jsonl", "/x/a b.jsonl"),
        ("s3://bucket/a b.jsonl", "s3://bucket/a%20b.jsonl"),
        ("s3://bucket/a%20b.jsonl", "s3://bucket/a%20b.jsonl"),
        ("S3://bucket//a///b/", "s3://bucket/a/b"),
        ("s3://bucket/a?", "s3://bucket/a"),
        ("s3://bucket/a#", "s3://bucket/a"),
        ("s3://bucket/a?region=x", "s3://bucket/a?region=x"),
        ("s3://bucket/żółć", "s3://bucket/%C5%BC%C3%B3%C5%82%C4%87"),
        ("s3://bucket/a=1,b+(c)", "s3://bucket/a=1,b+(c)"),
        ("memory:///a%20b//c", "memory:///a%20b//c"),
    ],
)
def test_a_path_has_one_spelling(path: str, expected: str) -> None:
    assert spelled(path) == expected
    assert spelled(expected) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.jsonl", "a.jsonl"),
        (f"{BASE}/a.jsonl", "a.jsonl"),
        ("../corpus/a.jsonl", "a.jsonl"),
        ("../other/a.jsonl", "/home/me/other/a.jsonl"),
        (f"{BASE}x/a.jsonl", f"{BASE}x/a.jsonl"),
        ("..a.jsonl", "..a.jsonl"),
        ("memory:///a//b", "memory://a//b"),
        ("memory://a/b/", "memory://a/b"),
        ("gs://bucket//a%41", "gs://bucket/aA"),
    ],
)
def test_spellings_of_one_place_have_one_key(path: str, expected: str) -> None:
    assert key_of(path, BASE) == expected


@given(st.lists(st.sampled_from(["a", "b", ".", "..", "", "corpus"]), min_size=1, max_size=6).map("/".join))
def test_a_key_is_the_place_itself(path: str) -> None:
    there = posixpath.normpath(posixpath.join(BASE, path))
    assert posixpath.normpath(posixpath.join(BASE, key_of(path, BASE))) == there
    assert key_of(there, BASE) == key_of(path, BASE) or there == BASE


@given(
    st.text(st.characters(exclude_characters="/\0", exclude_categories=("Cs",)), min_size=1).filter(
        lambda name: name not in (".", "..")
    )
)
def test_any_object_name_survives_its_uri(name: str) -> None:
    uri = f"s3://bucket/deep/{encoded(name)}"
    assert sibling_and_key(uri) == ("s3://bucket/x", f"deep/{name}")
    assert file_name(uri) == name
    assert file_name(f"deep/{name}") == name
    assert spelled(uri) == uri


def test_a_query_stays_with_the_root() -> None:
    assert sibling_and_key("s3://bucket/a/b?region=x") == ("s3://bucket/x?region=x", "a/b")
    assert sibling_and_key("memory:///a/b") == ("memory://x", "/a/b")
    assert file_name("s3://bucket/a/b.jsonl?region=x/y") == "b.jsonl"


@pytest.mark.parametrize("name", ["a\x00", "a\n", "\x85", "\udcff", "\x7f"])
def test_names_that_cannot_be_shown_are_told(name: str) -> None:
    assert is_unshowable(name)
    assert not is_unshowable("żółć\u00a0東京 'x'")
