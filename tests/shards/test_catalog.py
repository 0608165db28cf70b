from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shards.catalog import CATALOG_NAME, SUBSETS, DomainShards, IndexFile, ShardCatalog, SubsetShards
from shards.errors import IncompleteError


def subset(documents: int, tokens: int, digest: str = "0" * 64) -> SubsetShards:
    file = IndexFile(path="index/a", size=9, sha256=digest)
    return SubsetShards(shards=1, documents=documents, tokens=tokens, listing=file, lengths=file)


def catalog(**changes: Any) -> ShardCatalog:
    web = DomainShards(train=subset(2, 7), held_out=subset(1, 5))
    value = {
        "token_dtype": "uint16",
        "vocab_size": 500,
        "end_of_text": 0,
        "tokenizer": "t",
        "domains": {"web": web, "books": DomainShards(train=subset(1, 6))},
    }
    return ShardCatalog.model_validate(value | changes)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    made = catalog()
    (tmp_path / CATALOG_NAME).write_text(made.to_json())
    assert ShardCatalog.load(tmp_path) == made
    assert ShardCatalog.load(tmp_path).to_json() == made.to_json()


def test_tokens_are_counted_by_domain_and_subset() -> None:
    assert catalog().tokens_per_domain() == {"books": 6, "web": 7}
    assert list(catalog().tokens_per_domain()) == ["books", "web"]
    assert catalog().tokens_per_domain("held_out")["books"] == 0
    assert {name: catalog().tokens_per_domain(name)["web"] for name in SUBSETS} == {"train": 7, "held_out": 5}


def test_the_digest_covers_the_checksums_of_lists() -> None:
    other = catalog(domains={"web": DomainShards(train=subset(1, 3, "1" + "0" * 63))})
    assert other.digest != catalog(domains={"web": DomainShards(train=subset(1, 3))}).digest
    assert catalog().digest == catalog().digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"end_of_text": 500}, "outside the vocabulary"),
        ({"token_dtype": "uint32"}, "not stored as uint32"),
        ({"vocab_size": 65_537}, "not stored as uint16"),
        ({"vocab_size": 0}, "greater than 0"),
        ({"owner": "me"}, "Extra inputs"),
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        catalog(**changes)


def test_shards_without_a_manifest_were_never_finished(tmp_path: Path) -> None:
    with pytest.raises(IncompleteError, match="never finished") as caught:
        ShardCatalog.load(tmp_path)
    assert (caught.value.place, caught.value.remedy) == (
        str(tmp_path),
        "Run the recipe again: it resumes where it stopped",
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format_version": 2}', '{"format_version": 2, "formats": []}'])
def test_what_is_not_a_manifest_of_this_format_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / CATALOG_NAME).write_text(text)
    with pytest.raises(IncompleteError, match="not a manifest") as caught:
        ShardCatalog.load(tmp_path)
    assert caught.value.place == str(tmp_path / CATALOG_NAME)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('{"format_version": 1, "domains": {}}', "format 1 of manifest, and this version of headrace reads 2"),
        ('{"formats": {"tokens": "tokens-v1"}}', "format tokens-v1 of tokens, .* reads tokens-v2"),
        ('{"format_version": 2, "formats": {"lengths": "lengths-v9"}}', "format lengths-v9 of lengths"),
    ],
)
def test_another_format_is_told_apart_from_damage(tmp_path: Path, said: str, message: str) -> None:
    (tmp_path / CATALOG_NAME).write_text(said)
    with pytest.raises(IncompleteError, match=message) as caught:
        ShardCatalog.load(tmp_path)
    assert caught.value.remedy == "Run the recipe again: it writes the shards in the new format"
