from __future__ import annotations

import contextlib
import errno
import gzip
import importlib.metadata
import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zstandard

from pipelines import cli
from pipelines.commands import demo as demo_command
from pipelines.commands import run as run_command
from shards.errors import UserError

CHECKOUT = Path(__file__).parents[2]
RECIPE = '[[sources]]\nglob = "*.jsonl"\n[[stages]]\nuse = "gopher_quality_v2"\n'


def code_of(*arguments: str | Path) -> int:
    """Run the command line in this process and give its exit code."""
    with pytest.raises(SystemExit) as caught:
        cli.main([str(argument) for argument in arguments])
    return int(caught.value.code or 0)


class Point:
    """An entry point that gives what it is made with, or raises it."""

    def __init__(self, loaded: Any) -> None:
        self._loaded = loaded

    def load(self) -> Any:
        if isinstance(self._loaded, BaseException):
            raise self._loaded
        return self._loaded


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Make ``headrace try`` the given function."""

    def install(loaded: Any) -> None:
        monkeypatch.setattr(cli, "entry_points", lambda: {"try": Point(loaded)})

    return install


def raising(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        """Raise."""
        raise error

    return work


@pytest.mark.parametrize(
    ("arguments", "mine", "beam"),
    [
        ([], [], ()),
        (["run", "r.toml", "--out", "x"], ["run", "r.toml", "--out", "x"], ()),
        (["run", "r.toml", "--", "--runner=P"], ["run", "r.toml"], ("--runner=P",)),
        (["run", "r", "a=1", "--", "--runner", "P", "--", "x"], ["run", "r", "a=1"], ("--runner", "P", "--", "x")),
        (["run", "r", "--"], ["run", "r"], ()),
        (["inspect", "--", "-odd-name"], ["inspect", "--", "-odd-name"], ()),
    ],
)
def test_what_follows_two_dashes_goes_to_beam_where_a_command_takes_it(
    arguments: list[str], mine: list[str], beam: tuple[str, ...]
) -> None:
    assert cli.split_arguments(arguments) == (mine, beam)


def test_a_users_error_is_one_message_without_a_traceback(
    command: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(UserError("the value 7 is wrong.", place="recipe, key [seed]", remedy="Take 8")))
    assert code_of("try") == 2
    shown = capsys.readouterr()
    assert shown.err == "error: the value 7 is wrong\n  where: recipe, key [seed]\n  Take 8\n"
    assert shown.out == ""


def test_a_failed_runner_ends_with_one(command: Callable[[Any], None], capsys: pytest.CaptureFixture[str]) -> None:
    from pipelines.beam.runners import RunnerError

    command(raising(RunnerError("a worker process died")))
    assert code_of("try") == 1
    assert capsys.readouterr().err == "error: a worker process died\n"


def test_a_key_stops_it_and_says_how_to_go_on(
    command: Callable[[Any], None], capsys: pytest.CaptureFixture[str]
) -> None:
    command(raising(KeyboardInterrupt()))
    assert code_of("try") == 130
    assert "finished work is kept; run the same command again" in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 1), (errno.EACCES, 2), (errno.EROFS, 2)])
def test_a_full_or_closed_disk_is_a_message(
    command: Callable[[Any], None], capsys: pytest.CaptureFixture[str], number: int, code: int
) -> None:
    command(raising(OSError(number, os.strerror(number), "/out/file")))
    assert code_of("try") == code
    assert "/out/file" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error", [RuntimeError("a defect"), OSError(errno.EBADF, "x"), ModuleNotFoundError(name="odd")]
)
def test_a_defect_is_not_hidden(command: Callable[[Any], None], error: Exception) -> None:
    command(raising(error))
    with pytest.raises(type(error)):
        cli.main(["try"])


@pytest.mark.parametrize(("module", "extra"), [("torch.distributed", "train"), ("apache_beam", "curate")])
def test_a_missing_extra_is_named_wherever_it_is_missed(
    command: Callable[[Any], None], capsys: pytest.CaptureFixture[str], module: str, extra: str
) -> None:
    for loaded in (ModuleNotFoundError(name=module), raising(ModuleNotFoundError(name=module))):
        command(loaded)
        assert code_of("try", *(["--some", "option"] if isinstance(loaded, Exception) else [])) == 2
        assert f"pip install 'headrace[{extra}]'" in capsys.readouterr().err
    command(ModuleNotFoundError(name=module))
    assert code_of("--help") == 0
    assert "Not installed" in capsys.readouterr().out


def test_every_extra_module_is_named_by_the_extra_that_brings_it() -> None:
    required = importlib.metadata.requires("headrace") or []
    # Looks through every installed package.
    distributions = importlib.metadata.packages_distributions()
    for module, extra in cli._EXTRAS.items():
        names = {name.lower() for name in distributions.get(module, [])}
        assert any(
            line.split(";")[0].lower().startswith(name) and f'"{extra}"' in line.replace("'", '"')
            for line in required
            for name in names
        ), module


def test_a_name_that_is_no_command_proposes_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("insect") == 2
    assert "inspect" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["run"], ["run", "r.toml"], ["run", "r", "--out", "x", "--workers", "0"]])
def test_wrong_usage_ends_with_two(arguments: list[str]) -> None:
    assert code_of(*arguments) == 2


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom pipelines.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'apache_beam', 'torch', 'pyarrow', 'numpy', 'numba', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        shown = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        ).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert [name for name in cli.ORDER if f" {name} " not in shown] == []
    assert min(spent) < 0.5


def recipe_in(folder: Path, text: str = RECIPE) -> Path:
    (folder / "in.jsonl").write_text('{"text": "a text"}\n', encoding="utf-8")
    path = folder / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "arguments", "what"),
    [
        (RECIPE + "sed = 1\n", [], "gopher_quality_v2 has no parameter 'sed'"),
        ("sed = 1\n" + RECIPE, [], "did you mean 'seed'?"),
        (RECIPE, ["seed"], "is not KEY=VALUE"),
        (RECIPE, ["--sample", "0"], "key sample"),
        (RECIPE, ["--sample", "2"], "key sample"),
        (RECIPE.replace("*.jsonl", "*.none"), [], "matches no file"),
        (RECIPE.replace("gopher_quality_v2", "gopher_qualty_v2"), [], "gopher_quality_v2"),
        (RECIPE + '[[lm]]\nlanguage = "en"\nmodel = "no.arpa"\n', [], "'no.arpa' is missing"),
        (RECIPE, ["--", "--streaming"], "without a runner"),
        (RECIPE, ["--", "--runner=X", "--direct_running_mode=multi_threading"], "lose data"),
    ],
)
def test_a_users_mistake_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, arguments: list[str], what: str
) -> None:
    recipe = recipe_in(tmp_path, text)
    assert code_of("run", recipe, "--out", tmp_path / "out", *arguments) == 2
    assert what in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = recipe_in(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine", encoding="utf-8")
    assert code_of("run", recipe, "--out", tmp_path / "out") == 2
    assert "do not belong to a run" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_what_cannot_fit_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipelines.capacity import machine

    recipe = recipe_in(tmp_path)
    for free, what in (
        (machine.Machine(1, 1 << 40), "of disk, and 1 B are free"),
        (machine.Machine(None, 1 << 20), "1 worker(s) need about"),
    ):
        monkeypatch.setattr(machine, "measure", lambda workspace, free=free: free)
        assert code_of("run", recipe, "--out", tmp_path / "out") == 2
        assert what in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "out").exists()


def test_a_dry_run_writes_nothing_and_tells_the_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = recipe_in(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    arguments = ["run", recipe, "--out", tmp_path / "out", "--sample", "0.5", "--workers", "1", "--dry-run"]
    assert code_of(*arguments, "--json") == 0
    value = json.loads(capsys.readouterr().out)
    assert value["chain"] == ["read", "sample_v1", "gopher_quality_v2", "exact_dedup_v1", "near_dedup_v1"]
    assert value["sources"] == [{"glob": ["*.jsonl"], "list": [], "domain": "web", "files": 1, "bytes": 19}]
    assert value["left_out"] == []
    assert value["workers"] == 1
    assert code_of(*arguments) == 0
    assert "Nothing was written" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before
    (tmp_path / "link.jsonl").symlink_to("nowhere")
    assert code_of(*arguments) == 0
    assert "left out: 1 link leads nowhere (link.jsonl)" in capsys.readouterr().out


def test_inspect_gives_the_report_as_json(made: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        code_of("inspect", made.root, "--json", "--samples", "near_duplicate", "--kept", "2", "--trace", "web:0") == 0
    )
    value = json.loads(capsys.readouterr().out)
    assert [stage["name"] for stage in value["stages"]] == [
        "read", "gopher_quality_v2", "perplexity_v1", "perplexity_v1:late",
        "exact_dedup_v1", "near_dedup_v1", "tokenizer",
    ]  # fmt: skip
    for stages in (value["stages"], *(group["stages"] for group in value["domains"].values())):
        for stage in stages:
            assert stage["seen"] == stage["kept"] + stage["failed"] + sum(stage["dropped"].values())
    assert value["domains"]["web"]["tokens"] > 0
    assert set(value["domains"]["web"]) >= {"tokens", "documents", "held_out_tokens", "stages"}
    assert value["samples"]
    assert len(value["kept"]) == 2
    assert value["trace"]["place"]["domain"] == "web"


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ([], ["Documents through the chain", "By language", "By domain", "Duplicates", "Tokens in the shards"]),
        (["--by", "domain"], ["domain books", "domain web", "domain wiki"]),
        (["--samples", "too_few_words"], ["gopher_quality_v2/too_few_words", "value", "Too short by far."]),
        (["--samples", "bad_json"], ["read/bad_json", "web-0.jsonl at"]),
        (["--duplicates"], ["exact_dedup_v1/exact_duplicate", "kept in its place at Jaccard"]),
        (["--trace", "books:0"], ["Token in the shards", "library.example"]),
    ],
)
def test_inspect_prints_tables_and_texts(
    made: Any, capsys: pytest.CaptureFixture[str], options: list[str], shown: list[str]
) -> None:
    assert code_of("inspect", made.root, *options) == 0
    out = capsys.readouterr().out
    assert [text for text in shown if text not in out] == []


def test_inspect_shows_where_the_time_went_before_a_run_is_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pipelines.cost_files import Cost, UnitCosts, write
    from pipelines.recipe import parse_recipe
    from pipelines.workspace import Workspace

    workspace = Workspace.of(str(tmp_path), parse_recipe({"sources": [{"glob": "*"}]}, "here"), ".")
    workspace.save_recipe()
    assert code_of("inspect", tmp_path, "--costs") == 0
    assert "No costs are recorded" in capsys.readouterr().out
    assert code_of("inspect", tmp_path, "--costs", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"costs": {"cpu_seconds": 0, "passes": []}}

    write(workspace.store, "judge", UnitCosts("00000", "d", stages={"read": Cost(3 * 10**9), "write": Cost(10**9)}))
    workspace.store.write_json("timings.json", {"judge": 6.5})
    assert code_of("inspect", tmp_path, "--costs") == 0
    out = capsys.readouterr().out
    shown = ["Where the time went", "judge", "read", "75.0%", "Units", "6.5", "Only attempts that finished"]
    assert [text for text in shown if text not in out] == []
    assert code_of("inspect", tmp_path, "--costs", "--json") == 0
    (judge,) = json.loads(capsys.readouterr().out)["costs"]["passes"]
    assert (judge["name"], judge["cpu_seconds"], judge["elapsed_seconds"]) == ("judge", 4.0, 6.5)
    # What else is asked for needs the verdicts.
    assert code_of("inspect", tmp_path, "--costs", "--kept", "1") == 2


def test_inspect_of_no_run_is_a_users_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert code_of("inspect", tmp_path) == 2
    assert "no run is here" in capsys.readouterr().err


LINES = "".join(f"the {noun} is {'very ' * (n % 3)}old\n" for n, noun in enumerate(["cat", "dog", "house", "sea"] * 9))


def test_lm_train_reads_packed_text_alike(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = LINES.encode()
    half = data.index(b"\n", len(data) // 2) + 1
    for name, content in (
        ("plain.txt", data),
        ("packed.txt.gz", gzip.compress(data[:half]) + gzip.compress(data[half:])),
        ("packed.txt.zst", b"".join(zstandard.compress(part) for part in (data[:half], data[half:]))),
    ):
        (tmp_path / name).write_bytes(content)
        out = tmp_path / f"{name}.arpa"
        assert code_of("lm", "train", tmp_path / name, "--order", "3", "--out", out) == 0
        assert "3-grams" in capsys.readouterr().out
        assert out.read_bytes() == (tmp_path / "plain.txt.arpa").read_bytes()
    assert b"\\3-grams:" in out.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["missing.txt", "--out", "m.arpa"], "no text file"),
        ([".", "--out", "m.arpa"], "no text file"),
        (["a.txt", "--out", "there.arpa"], "already exists"),
        (["a.txt", "--out", "a.txt", "--force"], "its own corpus"),
        (["a.txt", "--out", "none/m.arpa"], "folder is missing"),
        (["a.txt", "--out", "m.arpa", "--order", "7"], "order 7"),
        (["empty.txt", "--out", "m.arpa"], "no word"),
        (["a.txt", "damaged.gz", "--out", "m.arpa"], "cannot be decompressed"),
        (["a.txt", "damaged.zst", "--out", "m.arpa"], "cannot be decompressed"),
    ],
)
def test_lm_train_refuses_what_is_wrong_and_leaves_no_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], what: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text(LINES, encoding="utf-8")
    Path("empty.txt").write_bytes(b"\n")
    Path("there.arpa").write_text("precious", encoding="utf-8")
    Path("damaged.gz").write_bytes(gzip.compress(LINES.encode())[:-20])
    Path("damaged.zst").write_bytes(b"\x28\xb5\x2f\xfdxx")
    assert code_of("lm", "train", *arguments) == 2
    assert what in " ".join(capsys.readouterr().err.split())
    assert not Path("m.arpa").exists()
    assert Path("there.arpa").read_text(encoding="utf-8") == "precious"
    assert Path("a.txt").read_text(encoding="utf-8") == LINES


def test_a_demo_leaves_a_folder_of_other_files_alone(tmp_path: Path) -> None:
    demo_command.require_own_folder(tmp_path / "new")
    demo_command.require_own_folder(tmp_path)
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for place in (tmp_path, tmp_path / "file"):
        with pytest.raises(UserError):
            demo_command.require_own_folder(place)
    (tmp_path / "corpus").mkdir()
    demo_command.require_own_folder(tmp_path)


def test_losses_are_averaged_over_targets_at_each_phases_end() -> None:
    def step(number: int, phase: str, **domains: tuple[float, int]) -> dict[str, Any]:
        table = {name: {"loss": loss, "targets": targets} for name, (loss, targets) in domains.items()}
        return {"kind": "train", "step": number, "phase": phase, "context_tokens": 64, "domains": table}

    lines: Sequence[dict[str, Any]] = [
        step(1, "base", web=(8.0, 10)),
        *(step(number, "base", web=(6.0, 1)) for number in range(2, 10)),
        {"kind": "held_out", "step": 9, "phase": "base", "domains": {"web": {"loss": 6.5, "targets": 4}}},
        {"kind": "skipped", "step": 10, "phase": "end"},
        step(11, "end", web=(5.0, 3), code=(2.0, 1)),
        step(12, "end", web=(1.0, 1)),
    ]
    assert demo_command.losses(lines) == [
        ("step 1", {"web": 8.0}),
        ("base (context 64), last 8 steps", {"web": 6.0}),
        ("base, held out", {"web": 6.5}),
        ("end (context 64), last 2 steps", {"code": 2.0, "web": 4.0}),
    ]


@contextlib.contextmanager
def standing_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def test_training_is_started_as_another_process_that_no_folder_can_shadow(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("raise SystemExit(99)\n", encoding="utf-8")
    command = run_command.train_command(str(tmp_path / "none"), 2)
    assert command[-4:] == ["train", str(tmp_path / "none"), "--ranks", "2"]
    with standing_in(tmp_path):
        assert run_command.train_on(str(tmp_path / "none"), None) == 2
