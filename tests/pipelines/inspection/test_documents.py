from __future__ import annotations

import json
from typing import Any

import pytest

from pipelines.inspection import documents
from pipelines.inspection.funnel import report
from shards.errors import UserError


def test_each_reason_has_its_documents_with_the_score_that_did_it(made: Any) -> None:
    found = documents.dropped_samples(made.run, "all", 2, 0)
    names = {(one.dropped_by, one.reason) for one in found}
    expected = {(link.name, reason) for link in report(made.run).stages for reason in (*link.dropped, *link.failures)}
    assert names == expected
    for one in found:
        assert one.source
        assert (one.text is not None) or one.dropped_by == "read"
        if one.dropped_by == "perplexity_v1:late":
            assert one.value == pytest.approx(one.scores["perplexity_v1.perplexity"])
        if one.reason == "too_few_words":
            assert one.value is not None
            assert one.value < 20


def test_the_same_seed_gives_the_same_documents_and_another_gives_others(made: Any) -> None:
    wanted = "near_dedup_v1/near_duplicate"
    drawn = [
        {one.doc_id for one in documents.dropped_samples(made.run, wanted, 2, seed)} for seed in (0, 0, *range(1, 12))
    ]
    assert drawn[0] == drawn[1]
    assert all(len(ids) == 2 for ids in drawn)
    assert len({frozenset(ids) for ids in drawn}) > 1
    more = {one.doc_id for one in documents.dropped_samples(made.run, wanted, 4, 0)}
    assert drawn[0] < more


@pytest.mark.parametrize("name", ["exact_dedup_v1", "exact_duplicate", "exact_dedup_v1/exact_duplicate"])
def test_stage_reason_and_both_together_name_the_same(made: Any, name: str) -> None:
    found = documents.dropped_samples(made.run, name, 100, 0)
    assert {one.reason for one in found} == {"exact_duplicate"}


def test_a_duplicate_stands_beside_its_witness(made: Any, corpus: Any) -> None:
    by_copy = dict(corpus.near)
    found = documents.dropped_samples(made.run, "near_duplicate", 100, 0)
    assert found
    for one in found:
        assert one.witness_text is not None
        assert one.text != one.witness_text
        assert one.jaccard is not None
        assert one.jaccard >= 0.8
        if one.url in by_copy:
            assert one.witness_url in (by_copy[one.url], *(copy for copy, _ in corpus.near))


def test_a_name_that_dropped_nothing_names_the_nearest(made: Any) -> None:
    with pytest.raises(UserError, match="near_duplicate"):
        documents.dropped_samples(made.run, "near_duplicat", 1, 0)


def test_kept_documents_are_read_with_their_texts(made: Any, corpus: Any) -> None:
    found = documents.kept_samples(made.run, 5, 3)
    assert len(found) == 5
    for one in found:
        assert one.dropped_by is None
        assert one.text == corpus.texts[one.url]
    assert documents.kept_samples(made.run, 5, 3) == found


def test_a_training_token_leads_to_its_document_and_verdict(made: Any, corpus: Any) -> None:
    place, one = documents.traced(made.run, "books:1:3")
    assert place["token"] == 3
    assert place["doc_id"] == one.doc_id
    assert one.dropped_by is None
    assert one.text == corpus.texts[one.url]
    assert documents.traced(made.run, str(one.doc_id)) == ({}, one)


def test_a_record_that_failed_is_traced_to_its_place(made: Any) -> None:
    failed = next(one for one in documents.dropped_samples(made.run, "read", 50, 0) if one.reason == "bad_json")
    _, one = documents.traced(made.run, str(failed.doc_id))
    assert one.text is None
    assert one.source == "web-0.jsonl"
    assert one.offset > 0


@pytest.mark.parametrize(
    "place",
    ["", ":", "web:", "web:x", "web:0:1:2", "web:-1", "nowhere:0", "web:999999", "web:0:99999", "77777777777777", "5"],
)
def test_a_place_that_is_not_there_is_a_users_error(made: Any, place: str) -> None:
    if place == "5":
        place = str((1 << 32) - 1)
    with pytest.raises(UserError):
        documents.traced(made.run, place)


def test_a_sample_is_plain_values(made: Any) -> None:
    for one in documents.dropped_samples(made.run, "all", 1, 0):
        json.dumps({**vars(one), "scores": dict(one.scores)})
