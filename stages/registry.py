"""The stages there are: one line each. Classes load on first use, so listing them costs nothing."""

from __future__ import annotations

import difflib
import importlib
from typing import Final, cast

from shards.errors import UserError
from stages.base import Stage

REGISTRY: Final[dict[str, str]] = {
    "sample_v1": "stages.judges.sample:Sample",
    "url_blacklist_v1": "stages.judges.url_blacklist:UrlBlacklist",
    "extract_html_v1": "stages.judges.extract_html:ExtractHtml",
    "language_v1": "stages.judges.language:Language",
    "gopher_quality_v2": "stages.judges.gopher_quality:GopherQuality",
    "gopher_repetition_v2": "stages.judges.gopher_repetition:GopherRepetition",
    "perplexity_v1": "stages.judges.perplexity:Perplexity",
    "fingerprint_v2": "stages.judges.fingerprint:Fingerprint",
}

BUILT_IN: Final[dict[str, str]] = {
    "fingerprint_v2": "Leave it out; its parameters are keys of [dedup]",
}
"""Stages that every chain has without being asked, so no recipe may name them; and what to do instead."""


def recipe_stages() -> list[str]:
    """Return the names that a recipe may use, in the order in which they are listed."""
    return [name for name in REGISTRY if name not in BUILT_IN]


def recipe_stage_class(name: str, place: str = "") -> type[Stage]:
    """Return the class of a stage that a recipe names.

    Raises:
        UserError: if there is no such stage (it names the nearest one), or no recipe may name it.
    """
    if name in BUILT_IN:
        raise UserError(
            f"{name!r} is part of every chain and cannot be named in a recipe", place=place, remedy=BUILT_IN[name]
        )
    if name not in REGISTRY:
        known = recipe_stages()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
        remedy = f"Did you mean {near[0]!r}?" if near else f"There are: {', '.join(known)}"
        raise UserError(f"no stage is called {name!r}", place=place, remedy=remedy)
    return stage_class(name)


def stage_class(name: str) -> type[Stage]:
    """Return the class registered under ``name``, one of ``REGISTRY``."""
    module, _, attribute = REGISTRY[name].partition(":")
    return cast(type[Stage], getattr(importlib.import_module(module), attribute))
