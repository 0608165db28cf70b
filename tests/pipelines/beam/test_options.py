from __future__ import annotations

import pytest

from pipelines.beam.options import BeamOptions
from pipelines.commands.run import _local_workers
from shards.errors import UserError


@pytest.mark.parametrize(
    "arguments",
    [
        ["--runner=DirectRunner"],
        ["--runner", "DirectRunner"],
        ["--runner=directrunner"],
        ["--runner=direct"],
        ["--runner=FnApiRunner"],
        ["--runner=BundleBasedDirectRunner"],
        ["--runner=apache_beam.runners.direct.direct_runner.DirectRunner"],
        ["--runner=DirectRunner", "--direct_runner_bundle_repeat", "2"],
        ["--runner=DirectRunner", "--direct_num_workers=1", "--direct_running_mode=in_memory"],
        ["--runner=DirectRunner", "--job_name=multi_processing"],
    ],
)
def test_the_local_runner_is_known_under_all_its_names(arguments: list[str]) -> None:
    options = BeamOptions.parse(arguments)
    assert options.is_local
    assert options.arguments == tuple(arguments)


@pytest.mark.parametrize("arguments", [["--runner=PrismRunner"], ["--runner", "PortableRunner"], ["--runner=prism"]])
def test_other_runners_are_welcome_and_not_local(arguments: list[str]) -> None:
    assert not BeamOptions.parse(arguments).is_local


@pytest.mark.parametrize("name", ["my.own.DirectRunner", "indirectrunner", "Nope", "some.module.Nope"])
def test_a_runner_of_another_name_is_not_taken_for_the_local_one(name: str) -> None:
    with pytest.raises(UserError, match=f"Beam knows no runner '{name}'"):
        BeamOptions.parse([f"--runner={name}"])


@pytest.mark.parametrize("runner", ["DirectRunner", "PrismRunner"])
@pytest.mark.parametrize(
    "mode",
    [
        ["--direct_running_mode=multi_threading"],
        ["--direct_running_mode", "multi_processing"],
        ["--direct_num_workers=2"],
        ["--direct_num_workers=0"],
    ],
)
def test_what_loses_data_is_refused(runner: str, mode: list[str]) -> None:
    with pytest.raises(UserError, match="lose data silently") as caught:
        BeamOptions.parse([f"--runner={runner}", *mode])
    assert "--workers N" in caught.value.remedy


def test_options_need_a_runner() -> None:
    with pytest.raises(UserError, match="without a runner"):
        BeamOptions.parse(["--temp_location=/tmp/x"])


@pytest.mark.parametrize(
    ("arguments", "what", "remedy"),
    [
        (
            ["--runner=DirectRunner", "--direct_runner_bundle_repeats=2"],
            "Beam has no option --direct_runner_bundle_repeats",
            "Did you mean --direct_runner_bundle_repeat?",
        ),
        (["--runner=DirectRunner", "--misspelt=1"], "Beam has no option --misspelt", "documentation"),
        (["--runner=DirectRunner", "dedup.threshold=0.6"], "'dedup.threshold=0.6' is not an option", "before the --"),
        (["--runner", "DirectRunner", "more"], "'more' is not an option", "before the --"),
        (["-x", "--runner=DirectRunner"], "'-x' is not an option", "before the --"),
        (["--runner"], "expected one argument", "documentation"),
        (["--runner=DirectRunner", "--direct_runner_bundle_repeat=x"], "invalid int value: 'x'", "documentation"),
        (["--runner=Nope"], "no runner 'Nope'", "DirectRunner"),
        (["--runner=PrismRunner", "--prism_location=./noprism"], "no program './noprism'", "Fix --prism_location"),
        (
            ["--runner=PortableRunner", "--job_endpoint=localhost:1"],
            "no job server answers at 'localhost:1'",
            "fix --job_endpoint",
        ),
    ],
)
def test_what_cannot_be_is_one_message(
    arguments: list[str], what: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=what) as caught:
        BeamOptions.parse(arguments)
    assert remedy in caught.value.remedy
    assert " ".join(arguments) in caught.value.place
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("asked", "runner", "workers", "noted"),
    [
        (None, None, None, False),
        (3, None, 3, False),
        (None, "DirectRunner", 1, True),
        (1, "DirectRunner", 1, False),
        (2, "DirectRunner", 2, False),
        (None, "PrismRunner", 0, False),
        (2, "PrismRunner", 0, False),
    ],
)
def test_local_workers(asked: int | None, runner: str | None, workers: int | None, noted: bool) -> None:
    options = None if runner is None else BeamOptions.parse([f"--runner={runner}"])
    found, notes = _local_workers(asked, options)
    assert found == workers
    assert any("--workers N" in note for note in notes) == noted
