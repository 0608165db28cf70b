from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from pipelines.beam.base import BeamPass, Inputs, Pass
from pipelines.passes.build import KINDS, build_passes
from pipelines.passes.tokenizer import CopyTokenizer, FitTokenizer
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.workspace import Workspace
from stages.tokenizer import fit_bpe
from tests.pipelines.support import plan_of

RATE = {"shape": "linear", "start": 0.001, "end": 0.0}
SCHEDULE = {
    "epochs": 1.0,
    "phases": [{"name": "base", "share": 1.0, "context_tokens": 32, "batch_tokens": 64, "learning_rate": RATE}],
}
CHOICES: list[tuple[dict[str, Any], ...]] = [
    ({}, {"lm": [{"language": "en", "corpus": ["*.txt"], "order": 2}], "stages": [{"use": "perplexity_v1"}]}),
    ({}, {"min_perplexity": {"percentile": 4.0}}, {"max_perplexity": {"percentile": 96.0, "of": ["*.txt"]}}),
    ({}, {"exact": False}, {"near": False}, {"exact": False, "near": False}),
    ({"vocab_size": 300}, {"file": "tokenizer.json"}),
    ({}, {"schedule": SCHEDULE}),
    ({}, {"edits": [{"use": "repeated_lines_v1"}]}),
]


def recipes() -> list[dict[str, Any]]:
    """A recipe of every shape: with and without models, cuts, either deduplication, a tokeniser, a schedule, edits."""
    found = []
    for models, cuts, dedup, tokenizer, *rest in itertools.product(*CHOICES):
        table = {"sources": [{"glob": "*.jsonl"}], **models, "dedup": dedup, "tokenizer": tokenizer}
        for more in rest:
            table |= more
        if cuts:
            table["stages"] = [{"use": "perplexity_v1", **cuts}]
        found.append(table)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("recipes")
    (base / "reference.txt").write_text("some words of reference")
    (base / "tokenizer.json").write_text(fit_bpe(["text"], 300, "<|endoftext|>"))
    return base


def built(folder: Path, table: dict[str, Any]) -> list[Pass]:
    recipe = parse_recipe(table, "t")
    return build_passes(Workspace.of(str(folder / "out"), recipe, str(folder)), plan_of(3, recipe))


def test_every_pass_reads_only_of_passes_that_come_before_it(folder: Path) -> None:
    shapes = set()
    for table in recipes():
        passes = built(folder, table)
        names = [work.name for work in passes]
        shapes.add(tuple(names))
        for position, work in enumerate(passes):
            assert {output.of for output in work.inputs} <= set(names[:position]), (names, work)
            assert len(set(work.inputs)) == len(work.inputs)
    # Models, exact, near, schedule, edits: each is there or not; cuts are of the run, of reference text, or not there.
    assert len(shapes) == 2**5 * 3


def test_passes_come_in_their_order_and_each_is_known_to_the_sweep(folder: Path) -> None:
    order = [kind.name for kind in KINDS]
    assert len(order) == len(set(order)) == 22
    seen = set()
    for table in recipes():
        names = [work.name for work in built(folder, table)]
        assert names == sorted(names, key=order.index)
        seen |= set(names)
        assert {"judge", "drops", "tokenizer", "encoder", "write", "catalog"} <= set(names)
    assert seen == set(order)


def test_the_tokeniser_is_fitted_or_copied(folder: Path) -> None:
    kinds = {"fit": {"vocab_size": 300}, "copy": {"file": "tokenizer.json"}}
    found = {
        name: next(
            work for work in built(folder, {"sources": [{"glob": "*"}], "tokenizer": table}) if work.name == "tokenizer"
        )
        for name, table in kinds.items()
    }
    assert isinstance(found["fit"], FitTokenizer)
    assert isinstance(found["copy"], CopyTokenizer)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"priority": 1}, {"exact_keys", "near_sets"}),
        ({"domain": "books"}, {"drops", "write"}),
        ({"licence": "CC0"}, set()),
    ],
)
def test_labels_are_settings_of_the_passes_that_use_them(
    folder: Path, change: dict[str, Any], expected: set[str]
) -> None:
    """They are no column of any file, so the digests of these passes must follow them, and no other's."""

    def sections(**more: Any) -> dict[str, Any]:
        table = {"sources": [{"glob": "*.jsonl", **more}], "tokenizer": {"vocab_size": 300}}
        return {work.name: work.section() for work in built(folder, table)}

    before, after = sections(), sections(**change)
    assert {name for name in before if after[name] != before[name]} == expected


def test_what_a_pass_declares_is_made_by_the_passes_above(made: Any) -> None:
    """Every input is a file, a statistic or a small table in the manifest of the pass that it names."""
    passes = made.passes
    assert list(passes) == list(made.run.digests)
    for work in passes.values():
        for of, kind in work.inputs:
            manifest = made.run.manifest(of)
            tables = set(next(manifest.tables()).column_names)
            for marker in manifest.markers():
                assert kind in marker.files or kind in marker.statistics or kind in tables, (work.name, of, kind)


def test_units_come_with_declared_inputs_alone(made: Any, cut_fine: Any, bare: Any) -> None:
    for one in (made, cut_fine, bare):
        for name, work in one.passes.items():
            if isinstance(work, BeamPass):
                for unit in one.unit_inputs(name).values():
                    assert set(unit.entries) <= set(work.inputs), name


def test_digests_are_those_of_the_run(made: Any) -> None:
    for name, work in made.passes.items():
        run = Run(made.workspace, "another key", made.run.digests)
        assert work.digest(Inputs(run, work.inputs)) == made.run.digests[name]
    assert len(set(made.run.digests.values())) == len(made.run.digests) == 20
