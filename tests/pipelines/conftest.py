from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipelines.beam.base import BeamPass, Inputs, Pass, UnitPass
from pipelines.beam.runners import LocalRunner
from pipelines.beam.work_list import Unit
from pipelines.driver import check, curate
from pipelines.inspection.verdicts import verdicts
from pipelines.passes.build import build_passes
from pipelines.recipe import parse_recipe
from pipelines.run import Run
from pipelines.tables import read_table
from pipelines.workspace import Job, Workspace
from shards.store import FileEntry

_COMMON = (
    "the of and to in is that it was for on are as with they be at this have from or by not but what all were "
    "when we there can an your which their said if do will each about how up out them then she many some so these "
    "would other into has more her two like him see time could no make than first been its who now people my made "
    "over did down only way find use may water long little very after words called just where most know get "
    "through back much before go good new write our used me man too any day same right look think also around "
    "another came come work three word must because does part even place well such here take why things help put "
    "years different away again off went old number great tell men say small every found still between name "
    "should home big give air line set own under read last never us left end along while might next sound below "
    "saw something thought both few those always looked show large often together asked house world going want "
    "school important until form food keep children feet land side without boy once animals life enough took "
    "sometimes four head above kind began almost live page got earth need far hand high year mother light parts "
    "country father let night following picture being study second eyes soon times story boys since white days "
    "ever paper hard near sentence better best across during today others however sure means knew try told young "
    "miles sun ways thing whole hear example heard several change answer room sea against top turned learn point "
    "city play toward five using himself usually "
)
WORDS = _COMMON.split()

Texts = Callable[[int, int], str]


def sentences(seed: int, words: int) -> str:
    """Return a text of so many words, in lines and sentences; another seed gives another text."""
    rng = random.Random(seed)
    picked = [rng.choice(WORDS) for _ in range(words)]
    for start in range(0, words, 12):
        picked[start] = picked[start].capitalize()
        picked[min(start + 11, words - 1)] += ".\n" if start % 36 == 24 else "."
    return " ".join(picked)


def edited(text: str, changes: int, seed: int) -> str:
    """Return ``text`` with single words replaced by ones that occur nowhere else."""
    rng = random.Random(seed)
    words = text.split(" ")
    for at in rng.sample(range(len(words)), changes):
        words[at] = f"edit{rng.randrange(10**6)}"
    return " ".join(words)


@dataclass
class Corpus:
    """A small corpus on disk with what was planted in it, by URL."""

    folder: Path
    exact: list[tuple[str, str]] = field(default_factory=list)
    near: list[tuple[str, str]] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    bad: dict[str, int] = field(default_factory=dict)
    bad_lines: list[tuple[bytes, str]] = field(default_factory=list)
    records: int = 0

    @property
    def largest_bytes(self) -> int:
        """The size of the largest file: splits of so many bytes are the files, one by one."""
        return max(path.stat().st_size for path in self.folder.glob("*.jsonl"))

    def recipe(self, **changes: Any) -> dict[str, Any]:
        """Return the recipe's table with some top-level tables replaced; None leaves a table out."""
        rate = {"shape": "linear", "start": 0.001, "end": 0.0}
        phase = {"name": "base", "share": 1.0, "context_tokens": 32, "batch_tokens": 64, "learning_rate": rate}
        table: dict[str, Any] = {
            "seed": 7,
            "split_bytes": 30_000,
            "sources": [
                {"glob": "web-*.jsonl", "domain": "web", "priority": 1},
                {"glob": "books.jsonl", "domain": "books", "licence": "CC0"},
            ],
            "domains": [{"name": "wiki", "hosts": ["*.wiki.example"]}],
            "lm": [{"language": "und", "corpus": ["reference.txt"], "order": 2}],
            "stages": [
                {"use": "gopher_quality_v2", "min_words": 20, "domains": ["web", "wiki"]},
                {
                    "use": "perplexity_v1",
                    "min_perplexity": {"percentile": 4.0, "by": "language"},
                    "max_perplexity": {"percentile": 96.0, "by": "language"},
                },
            ],
            "tokenizer": {"vocab_size": 400},
            "shards": {"held_out_share": 0.2, "target_bytes": 8_000},
            "schedule": {"epochs": 1.0, "phases": [phase]},
        }
        table |= changes
        return {key: value for key, value in table.items() if value is not None}


BAD_LINES: Sequence[tuple[bytes, str]] = (
    (b'{"text": ', "bad_json"),
    (b"[1, 2]", "bad_json"),
    (b'{"url": "http://a.example/x"}', "missing_text"),
    (b'{"text": 5}', "missing_text"),
    (b'{"text": "\\ud800"}', "bad_encoding"),
    (b'{"text": "\xff"}', "bad_encoding"),
    (b'{"text": "  "}', "empty"),
)


def _line(url: str, text: str) -> bytes:
    return json.dumps({"url": url, "text": text}).encode()


def make_corpus(folder: Path) -> Corpus:
    """Write the corpus: three files of web text, one of books, reference text for the language model."""
    corpus = Corpus(folder)
    lines: dict[str, list[bytes]] = {name: [] for name in ("web-0", "web-1", "web-2", "books")}

    def add(file: str, url: str, text: str) -> None:
        corpus.texts[url] = text
        lines[file].append(_line(url, text))

    for index in range(96):
        host = "en.wiki.example" if index % 8 == 0 else "site.example"
        add(f"web-{index % 3}", f"http://{host}/{index}", sentences(index, 60 + index % 40))
    for index in range(24):
        add("books", f"http://library.example/{index}", sentences(1000 + index, 150))
    for index in range(6):
        original, copy = f"http://site.example/{8 * index + 1}", f"http://copy.example/{index}"
        # Only white space differs: equal content all the same.
        add("web-2", copy, corpus.texts[original].replace(" ", "  ", 5) + "\n")
        corpus.exact.append((copy, original))
    for index in range(8):
        original, copy = f"http://library.example/{index}", f"http://mirror.example/{index}"
        add("web-1", copy, edited(corpus.texts[original], 1 + index % 3, index))
        corpus.near.append((copy, original))
    # A copy of a near duplicate: its witness has to be what is kept in the end, two steps away.
    add("web-0", "http://mirror.example/copy", corpus.texts["http://mirror.example/0"])
    add("web-1", "http://short.example/", "Too short by far.")
    add("web-1", "http://control.example/", sentences(5000, 70) + " <|endoftext|> " + sentences(5001, 30))
    for line, reason in BAD_LINES:
        lines["web-0"].insert(3 + len(corpus.bad_lines), line)
        corpus.bad_lines.append((line, reason))
        corpus.bad[reason] = corpus.bad.get(reason, 0) + 1
    for name, content in lines.items():
        (folder / f"{name}.jsonl").write_bytes(b"\n".join(content) + b"\n")
        corpus.records += len(content)
    (folder / "reference.txt").write_text("\n".join(sentences(9000 + i, 24) for i in range(80)), encoding="utf-8")
    return corpus


class Notes:
    """A reporter that remembers how each pass ended."""

    def __init__(self) -> None:
        self.ended: dict[str, str] = {}
        self.began: dict[str, tuple[int, int]] = {}
        self.highest = 0
        self._name = ""

    def begin(self, name: str, total: int, done: int, *, is_bytes: bool) -> None:
        self._name, self.began[name], self.highest = name, (total, done), done

    def advance(self, done: int) -> None:
        self.highest = max(self.highest, done)

    def end(self, note: str) -> None:
        self.ended[self._name] = note

    @property
    def unchanged(self) -> set[str]:
        return {name for name, note in self.ended.items() if note == "unchanged"}


@dataclass
class Made:
    """A made run: the workspace, the run with all digests, and what the reporter heard."""

    workspace: Workspace
    run: Run
    notes: Notes

    @property
    def root(self) -> Path:
        return Path(self.workspace.store.root)

    @property
    def splits(self) -> list[str]:
        """The names of the splits, in order."""
        return [split.name for split in self.run.plan.splits]

    @property
    def passes(self) -> dict[str, Pass]:
        """The passes of the recipe by name, in order."""
        return {work.name: work for work in build_passes(self.workspace, self.run.plan)}

    def inputs(self, name: str) -> Inputs:
        """What the driver may read for a pass."""
        return Inputs(self.run, self.passes[name].inputs)

    def unit_inputs(self, name: str) -> dict[str, Unit]:
        """The units from which a pass's pipeline starts, by name, with the files that each may open."""
        work, inputs = self.passes[name], self.inputs(name)
        assert isinstance(work, BeamPass)
        return {unit.name: unit for unit in work.roots(inputs, work.units(inputs))}

    def units(self, name: str) -> tuple[str, ...]:
        """The units of a finished pass, in order."""
        return self.run.manifest(name).units

    def entry(self, name: str, kind: str, unit: str = "all") -> FileEntry:
        """A file of a finished pass."""
        return self.run.manifest(name).by_unit[unit].files[kind]

    def statistics(self, name: str, unit: str = "all") -> Mapping[str, Any]:
        """What a unit of a finished pass counted."""
        return self.run.manifest(name).by_unit[unit].statistics

    def read(self, name: str, kind: str, unit: str = "all") -> pa.Table:
        """A table of a finished pass."""
        return read_table(self.run.store, self.entry(name, kind, unit))

    def verdicts(self) -> list[dict[str, Any]]:
        """Every record with its final verdict, by doc_id."""
        return [row for table in verdicts(self.run) for row in table.to_pylist()]

    def judged(self, kind: str) -> pa.Table:
        """One kind of table of the judge pass, over all splits."""
        return pa.concat_tables([self.read("judge", kind, split) for split in self.splits])


class Quick:
    """Runs units that need no shuffle directly, the others on Beam, whose start-up is most of a small run."""

    def run(self, work: BeamPass, job: Job, inputs: Inputs, units: Sequence[str], poll: Callable[[], None]) -> None:
        if isinstance(work, UnitPass):
            for unit in work.roots(inputs, units):
                # As it would come to a worker.
                work.work(job, Unit.from_json(unit.to_json()))
        else:
            LocalRunner(1).run(work, job, inputs, units, poll)


def make_run(root: Path, table: dict[str, Any], base: Path, runner: Any = None) -> Made:
    """Take a recipe through all passes."""
    workspace = Workspace.of(str(root), parse_recipe(table, "test"), str(base))
    notes = Notes()
    return Made(workspace, curate(workspace, check(workspace), runner or Quick(), notes), notes)


MakeRun = Callable[..., Made]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """A small corpus. Read only; copy it to change it."""
    return make_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def made(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The whole recipe over the corpus, made once on the local runner. Read only; copy its folder to change it."""
    return make_run(tmp_path_factory.mktemp("run"), corpus.recipe(), corpus.folder, LocalRunner(1))


@pytest.fixture(scope="session")
def cut_fine(corpus: Corpus, made: Made, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The same recipe in one split and many small ranges."""
    table = corpus.recipe(split_bytes=10_000_000, dedup={"range_bytes": 4_096, "piece_bytes": 64})
    return make_run(tmp_path_factory.mktemp("fine"), table, corpus.folder)


@pytest.fixture(scope="session")
def bare(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The corpus, without stages, models or deduplication, and a split that holds a bad line and an empty file."""
    folder = tmp_path_factory.mktemp("bare")
    shutil.copytree(corpus.folder, folder / "in")
    (folder / "in" / "web-3.jsonl").write_bytes(b"x" * corpus.largest_bytes)
    (folder / "in" / "web-4.jsonl").write_bytes(b"")
    plain = {"stages": None, "lm": None, "domains": None, "dedup": {"exact": False, "near": False}}
    return make_run(folder / "out", corpus.recipe(**plain, split_bytes=corpus.largest_bytes), folder / "in")


@pytest.fixture
def copied(made: Made, tmp_path: Path) -> Path:
    """A copy of the finished run's folder, to be changed."""
    return Path(shutil.copytree(made.root, tmp_path / "copy"))


@pytest.fixture(scope="session")
def run_recipe() -> MakeRun:
    """The function that takes a recipe through all passes."""
    return make_run


@pytest.fixture(scope="session")
def small_text() -> Texts:
    """The function that makes text: (seed, words)."""
    return sentences


_MAKING_RUNS = {"made", "cut_fine", "bare", "run_recipe", "copied", "plain"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count a test that takes a recipe through Beam among the integration tests: units stay quick."""
    for item in items:
        if _MAKING_RUNS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.integration)
