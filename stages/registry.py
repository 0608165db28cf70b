"""The stages that a recipe can name: one line each. Classes load on first use, so listing them costs nothing."""

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
    "gopher_quality_v1": "stages.judges.gopher_quality:GopherQuality",
    "gopher_repetition_v1": "stages.judges.gopher_repetition:GopherRepetition",
    "perplexity_v1": "stages.judges.perplexity:Perplexity",
    "fingerprint_v1": "stages.judges.fingerprint:Fingerprint",
}


def stage_class(name: str) -> type[Stage]:
    """Return the class registered under ``name``.

    Raises:
        UserError: if there is none; it names the nearest one.
    """
    if name not in REGISTRY:
        near = difflib.get_close_matches(name, REGISTRY, n=1, cutoff=0.4)
        raise UserError(
            f"no stage is called {name!r}",
            remedy=f"Did you mean {near[0]!r}?" if near else f"Registered: {', '.join(REGISTRY)}",
        )
    module, _, attribute = REGISTRY[name].partition(":")
    return cast(type[Stage], getattr(importlib.import_module(module), attribute))
