from __future__ import annotations

import hashlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from shards.errors import UserError
from shards.schema import DOCUMENT
from stages import registry
from stages.base import Stage
from stages.marking import mark
from stages.registry import (
    BUILT_IN,
    REGISTRY,
    origin_of,
    origin_of_class,
    recipe_stage_class,
    recipe_stages,
    stage_class,
)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"Where: the recipe\. Did you mean 'gopher_quality_v2'"):
        recipe_stage_class("gopher_qualty_v2", "the recipe")
    with pytest.raises(UserError, match="There are: sample_v1, ") as raised:
        recipe_stage_class("zzzz")
    assert not any(name in str(raised.value) for name in BUILT_IN)


def test_a_recipe_may_name_every_stage_that_no_chain_has_by_itself() -> None:
    assert {*recipe_stages(), *BUILT_IN} == set(REGISTRY)
    assert all(recipe_stage_class(name) is stage_class(name) for name in recipe_stages())
    for name, remedy in BUILT_IN.items():
        with pytest.raises(UserError) as raised:
            recipe_stage_class(name)
        assert remedy in str(raised.value)


def test_a_built_in_stage_comes_from_nowhere_else() -> None:
    for name in recipe_stages():
        assert origin_of(name) is None
        assert origin_of_class(stage_class(name)) is None
    path = REGISTRY["gopher_quality_v2"]
    assert recipe_stage_class(path) is stage_class("gopher_quality_v2")
    assert origin_of(path) is None


SOURCE = """
from stages.base import per_row, stage
from stages.checks import Check
from stages.limits import AtLeastZero
from stages.scores import Count


@stage
class Short:
    name = "{name}"
    scores = (Count("chars"),)
    checks = (Check("short", "chars", min="min_chars"),)

    min_chars: AtLeastZero = 5

    def measure(self, batch):
        return {{"chars": per_row(batch, len)}}


NOT_A_STAGE = 5
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    forget_installed()
    yield folder
    for name in set(sys.modules) - before:
        if name.startswith("outside_"):
            del sys.modules[name]
    forget_installed()


def forget_installed() -> None:
    registry._installed.cache_clear()
    registry._distributions.cache_clear()


def package(site: Path, name: str, version: str | None, points: dict[str, str], *, lists_files: bool = True) -> None:
    """Write a package, and where it has a version the metadata that an installer would."""
    (site / name).mkdir()
    (site / name / "__init__.py").write_text("")
    (site / name / "judges.py").write_text(SOURCE.format(name=next(iter(points), "short_v1")))
    if version is not None:
        info = site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        lines = "".join(f"{key} = {value}\n" for key, value in points.items())
        (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINTS}]\n{lines}")
        (info / "top_level.txt").write_text(name + "\n")
        files = [f"{name}/__init__.py", f"{name}/judges.py"] if lists_files else [f"__editable__.{name}.pth"]
        listed = [*files, f"{info.name}/METADATA", f"{info.name}/entry_points.txt", f"{info.name}/RECORD"]
        (info / "RECORD").write_text("".join(f"{file},,\n" for file in listed))
    importlib.invalidate_caches()
    forget_installed()


def judged(kind: type[Stage]) -> list[str | None]:
    batch = pa.RecordBatch.from_pylist(
        [
            {
                "doc_id": n,
                "text": "x" * n,
                "source_index": 0,
                "offset": 0,
                "language": "und",
                "domain": "",
                "failed": False,
            }
            for n in (4, 5)
        ],
        schema=DOCUMENT,
    )
    reasons: list[str | None] = mark(kind(), batch).column("reason").to_pylist()
    return reasons


def test_a_stage_of_an_installed_package_is_one_of_its_name(site: Path) -> None:
    package(site, "outside_one", "1.4.2", {"short_v3": "outside_one.judges:Short"})
    assert recipe_stages()[-1] == "short_v3"
    # Listing it loads nothing.
    assert "outside_one" not in sys.modules
    found = recipe_stage_class("short_v3")
    assert found.name == "short_v3"
    assert judged(found) == ["short", None]
    assert origin_of("short_v3") == "outside_one==1.4.2"
    assert origin_of("outside_one.judges:Short") == "outside_one==1.4.2"
    with pytest.raises(UserError, match="Did you mean 'short_v3'"):
        recipe_stage_class("shirt_v3")


def test_a_package_that_is_installed_in_editable_form_counts_by_its_source(site: Path) -> None:
    package(site, "outside_edited", "0.1", {"short_v1": "outside_edited.judges:Short"}, lists_files=False)
    expected = hashlib.sha256((site / "outside_edited" / "judges.py").read_bytes()).hexdigest()[:16]
    assert origin_of("short_v1") == f"sha256:{expected}"


def test_a_class_by_its_module_counts_by_its_source_and_a_change_of_it_shows(site: Path) -> None:
    package(site, "outside_plain", None, {})
    path = "outside_plain.judges:Short"
    assert path not in recipe_stages()
    assert judged(recipe_stage_class(path)) == ["short", None]
    before = origin_of(path)
    assert before is not None
    assert before == origin_of(path)
    source = site / "outside_plain" / "judges.py"
    source.write_text(source.read_text().replace("AtLeastZero = 5", "AtLeastZero = 4"))
    del sys.modules["outside_plain.judges"]
    importlib.invalidate_caches()
    assert judged(recipe_stage_class(path)) == [None, None]
    assert origin_of(path) not in (None, before)


def test_no_package_takes_the_place_of_a_built_in_stage(site: Path) -> None:
    package(site, "outside_two", "1", {"gopher_quality_v2": "outside_two.judges:Short"})
    assert recipe_stages().count("gopher_quality_v2") == 1
    assert recipe_stage_class("gopher_quality_v2").__module__ == "stages.judges.gopher_quality"


def test_what_a_package_offers_has_to_be_a_stage_of_that_name(site: Path) -> None:
    points = {"short_v1": "outside_three.judges:Short", "other_v1": "outside_three.judges:Short"}
    package(site, "outside_three", "1", {**points, "gone_v1": "outside_three.gone:Short"})
    assert recipe_stage_class("short_v1").name == "short_v1"
    with pytest.raises(UserError, match="offers 'short_v1' under the name 'other_v1'"):
        recipe_stage_class("other_v1", "the recipe")
    with pytest.raises(UserError, match=r"outside_three\.gone.* cannot be loaded.*Where: the recipe"):
        recipe_stage_class("gone_v1", "the recipe")


NAMELESS = """
from stages.base import stage

@stage
class Nameless:
    def measure(self, batch):
        return {}

@stage
class Slash(Nameless):
    name = "a/b"
"""


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("outside_four.judges:Long", "cannot be loaded"),
        ("outside_four.judges:", "cannot be loaded"),
        ("outside_four.absent:Short", "cannot be loaded"),
        (":Short", "cannot be loaded"),
        ("..judges:Short", "cannot be loaded"),
        ("outside_four.judges:NOT_A_STAGE", "is not a stage"),
        ("outside_four.judges:Count", "is not a stage"),
        ("os:getcwd", "is not a stage"),
        ("outside_four.broken:Short", "cannot be loaded: NameError"),
        ("outside_four.nameless:Nameless", "has no name that columns can begin with"),
        ("outside_four.nameless:Slash", "has no name that columns can begin with"),
    ],
)
def test_a_path_that_leads_to_no_stage_is_the_users_to_fix(site: Path, path: str, message: str) -> None:
    package(site, "outside_four", None, {})
    (site / "outside_four" / "broken.py").write_text("undefined")
    (site / "outside_four" / "nameless.py").write_text(NAMELESS)
    with pytest.raises(UserError, match=f"{message}.*Where: the recipe"):
        recipe_stage_class(path, "the recipe")


def test_a_class_without_a_source_cannot_be_told_from_another(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("outside_nowhere")
    monkeypatch.setitem(sys.modules, "outside_nowhere", module)
    exec(compile("__name__ = 'outside_nowhere'\n" + SOURCE.format(name="short_v1"), "<string>", "exec"), vars(module))
    with pytest.raises(UserError, match="the source of the stage outside_nowhere:Short cannot be read"):
        origin_of("outside_nowhere:Short")
