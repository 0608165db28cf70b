"""Learning: how blocks are labelled, trees stored, and the score that is compared."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zstandard

from stages.html.features import FEATURES
from stages.html.forest import ONE, Forest
from stages.html.learn import examples, f1, labels, stored


def test_a_block_counts_as_far_as_its_words_stand_in_the_gold() -> None:
    gold = "the mill stands beside the river\n\nMills\n\nits wheel still turns in spring"
    blocks = [
        "Home",
        "the mill stands beside the river",
        "Mills",
        "its wheel still turns in spring as they say",
        "Home",
    ]
    found = labels([*blocks, "its wheel still turns in spring"], gold)
    assert found[[0, 1, 4, 5]].tolist() == [0, 1, 0, 1]
    assert found[3] == pytest.approx(6 / 9)
    assert labels(["水车还在转动", "别的内容"], "旧磨坊的水车还在转动。").tolist() == [1, 0]


def test_a_line_of_the_gold_counts_among_its_neighbours_only() -> None:
    gold = "one two three four five\nMills\nsix seven eight nine ten\neleven twelve thirteen fourteen"
    near = ["one two three four five", "Mills", "six seven eight nine ten", "eleven twelve thirteen fourteen"]
    far = ["menu"] * 9
    found = labels(["Mills", *far, near[0], "advertisement here", near[1], "another of them", *near[2:]], gold)
    assert found[0] == 0
    assert found[12] == 1


def test_f1_of_words() -> None:
    assert f1("a a b", "a b c") == pytest.approx(2 / 3)
    assert f1("", "") == 1.0


def test_a_tree_is_stored_and_walked_alike() -> None:
    tree = {
        "split_feature": 2,
        "threshold": 0.1,
        "left_child": {"leaf_value": -1.5},
        "right_child": {
            "split_feature": 4,
            "threshold": 3.5,
            "left_child": {"leaf_value": 0.25},
            "right_child": {"leaf_value": 2.0},
        },
    }
    forest = Forest(json.dumps(stored([{"tree_structure": tree}])))
    x = np.zeros((3, FEATURES), np.float32)
    x[1:, 2] = 0.1, 0.2
    x[2, 4] = 9
    # The float32 nearest to 0.1 is greater than it, and so on the right.
    assert forest.likelihoods(x).tolist() == pytest.approx(
        [ONE / (1 + np.exp(1.5)), ONE / (1 + np.exp(-0.25)), ONE / (1 + np.exp(-2))], rel=0.02
    )


def test_pages_are_read_from_a_file(tmp_path: Path) -> None:
    rows = [
        {"url": f"http://www.{at}.example.org/", "html": "<p>one two three four", "main_content": "one two three four"}
        for at in range(2)
    ]
    path = tmp_path / "pages.jsonl.zst"
    path.write_bytes(zstandard.compress("\n".join(map(json.dumps, rows)).encode()))
    found = list(examples(path))
    assert [example.domain for example in found] == ["example.org"] * 2
    assert found[0].y.tolist() == [1.0]
    assert found[0].x.shape == (1, FEATURES)
