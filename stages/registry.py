"""The stages there are: built in, from installed packages, and classes that a recipe names by their module.

A package offers its stages in the entry-point group ``headrace.stages``, each under its registered name; a recipe may
also say ``use = "package.module:Class"``. Classes load on first use, so listing the built-in ones costs nothing.
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, cast

from shards.errors import UserError
from stages.base import INSTANCE, Stage

ENTRY_POINTS: Final = "headrace.stages"

REGISTRY: Final[dict[str, str]] = {
    "sample_v1": "stages.judges.sample:Sample",
    "url_blacklist_v1": "stages.judges.url_blacklist:UrlBlacklist",
    "extract_html_v1": "stages.judges.extract_html:ExtractHtml",
    "extract_html_v2": "stages.judges.extract_html_v2:ExtractHtmlV2",
    "language_v1": "stages.judges.language:Language",
    "gopher_quality_v2": "stages.judges.gopher_quality:GopherQuality",
    "gopher_repetition_v2": "stages.judges.gopher_repetition:GopherRepetition",
    "perplexity_v1": "stages.judges.perplexity:Perplexity",
    "repeated_lines_v1": "stages.judges.repeated_lines:RepeatedLines",
    "fingerprint_v2": "stages.judges.fingerprint:Fingerprint",
}

BUILT_IN: Final[dict[str, str]] = {
    "fingerprint_v2": "Leave it out; its parameters are keys of [dedup]",
}
"""Stages that every chain has without being asked, so no recipe may name them; and what to do instead."""


def recipe_stages() -> list[str]:
    """Return the names that a recipe may use: the built-in stages in their order, then those of packages, sorted."""
    return [*(name for name in REGISTRY if name not in BUILT_IN), *sorted(_installed())]


@functools.cache
def _installed() -> dict[str, importlib.metadata.EntryPoint]:
    """Return the stages that installed packages offer, by name; none under the name of a built-in one."""
    points = importlib.metadata.entry_points(group=ENTRY_POINTS)
    return {point.name: point for point in points if point.name not in REGISTRY}


def recipe_stage_class(name: str, place: str = "") -> type[Stage]:
    """Return the class of a stage that a recipe names.

    Raises:
        UserError: if there is no such stage (it names the nearest one), no recipe may name it, or it cannot be loaded.
    """
    if name in BUILT_IN:
        raise UserError(
            f"{name!r} is part of every chain and cannot be named in a recipe", place=place, remedy=BUILT_IN[name]
        )
    if ":" in name:
        return _class_at(name, place)
    if name not in REGISTRY and name not in _installed():
        known = recipe_stages()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        remedy = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}"
        raise UserError(f"no stage is called {name!r}", place=place, remedy=remedy)
    return stage_class(name, place)


def stage_class(name: str, place: str = "") -> type[Stage]:
    """Return the class registered under ``name``, built in or by a package.

    Raises:
        UserError: if a package's class cannot be loaded, or is no stage of that name.
    """
    if name in REGISTRY:
        module, _, attribute = REGISTRY[name].partition(":")
        return cast(type[Stage], getattr(importlib.import_module(module), attribute))
    found = _class_at(_installed()[name].value, place)
    if found.name != name:
        raise UserError(f"the package offers {found.name!r} under the name {name!r}", place=place)
    return found


def _class_at(path: str, place: str) -> type[Stage]:
    module, _, attribute = path.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        # The module may be anybody's, and raise anything.
        raise UserError(
            f"the stage {path!r} cannot be loaded: {type(error).__name__}: {error}",
            place=place,
            remedy="Install its package, or put its folder on PYTHONPATH, here and on every worker",
        ) from error
    if not hasattr(found, "__pydantic_fields__") or not callable(getattr(found, "judge", None)):
        raise UserError(
            f"{path!r} is not a stage", place=place, remedy="Name a class that is decorated with stages.base.stage"
        )
    if not re.fullmatch(INSTANCE, str(getattr(found, "name", ""))):
        raise UserError(
            f"the stage {path!r} has no name that columns can begin with",
            place=place,
            remedy="Give it one of letters, digits, _ and -, such as name = 'upper_case_v1'",
        )
    return cast(type[Stage], found)


def origin_of(name: str) -> str | None:
    """Return where the code of a stage that a recipe names comes from, None for a built-in one."""
    return None if name in REGISTRY else origin_of_class(recipe_stage_class(name))


def origin_of_class(found: type[Stage]) -> str | None:
    """Return where the code of a stage comes from: ``distribution==version``, or the hash of its source file.

    None for a stage of headrace's own, whose version is in its name. Code that is installed in editable form, or not
    installed at all, has no version that a change of it would raise: so its source counts.
    """
    top = found.__module__.partition(".")[0]
    if top == "stages":
        return None
    if (distribution := _distribution_of(found)) is not None:
        return f"{distribution.metadata['Name']}=={distribution.version}"
    try:
        source = Path(inspect.getfile(found)).read_bytes()
    except (OSError, TypeError):
        raise UserError(
            f"the source of the stage {found.__module__}:{found.__qualname__} cannot be read",
            remedy="Put the class in a module of its own; what it does is part of the run's digest",
        ) from None
    return f"sha256:{hashlib.sha256(source).hexdigest()[:16]}"


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    """Return the installed distributions that bring each top-level package: found out once, it takes a while."""
    return importlib.metadata.packages_distributions()


def _distribution_of(found: type[Stage]) -> importlib.metadata.Distribution | None:
    """Return the installed distribution whose files hold a class."""
    file = getattr(sys.modules.get(found.__module__), "__file__", None)
    for name in _distributions().get(found.__module__.partition(".")[0], ()):
        distribution = importlib.metadata.distribution(name)
        files = {str(Path(str(distribution.locate_file(one))).resolve()) for one in distribution.files or ()}
        if file is not None and str(Path(file).resolve()) in files:
            return distribution
    return None
