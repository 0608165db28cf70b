"""The parameters under which each family of stages is recorded, and the inputs that it is shown.

Families are stages without their version, so a new version needs nothing here unless it has other parameters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stages.base import Stage
from stages.registry import stage_class
from tests.golden.golden import FOLDER, Golden
from tests.golden.inputs import PAGES, REPETITIONS, TEXTS, URLS, Input

FILES: Final = FOLDER / "files"
"""What path parameters are relative to."""

VARIANTS: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "sample": {"half": {"share": 0.5}, "seeded": {"share": 0.3, "seed": 7, "domains": ["web"]}},
    "url_blacklist": {
        "declared black": {"lists": ["blacklists"], "domains": ["web"]},
        "by category": {"lists": ["blacklists"], "categories": ["press", "bank"]},
        "a plain file": {"lists": ["list.txt"]},
    },
    "extract_html": {"defaults": {}, "all text": {"main_content": False, "comments": True, "min_chars": 20}},
    "language": {"defaults": {}, "wanted": {"keep": ["en", "de", "zh"], "min_confidence": 0.3, "min_chars": 10}},
    "gopher_quality": {
        "defaults": {"domains": ["web"]},
        "few words": {"min_words": 5, "min_stop_words": 1, "stop_words": {"und": ["the", "and"], "el": ["ο", "και"]}},
        "lines and length": {"min_words": 1, "max_words": 300, "max_ellipses_per_word": 1.0},
        "limits by group": {
            "min_words": {"language": {"en": 20, "zh": 5}, "default": 40},
            "min_mean_word_chars": {"domain": {"code": 0.0}},
            "max_hashes_per_word": 0.05,
            "min_alphabetic_words": {"language": {"en": 0.7}, "default": 0.5},
        },
    },
    "gopher_repetition": {
        "defaults": {},
        # Falling limits, so that each share of copied text fails the rule of another n.
        "paragraphs and n-grams": {
            "max_duplicate_lines": 1.0,
            "max_duplicate_paragraphs": 1.0,
            "max_duplicate_line_chars": 1.0,
            "max_duplicate_paragraph_chars": 0.2,
            "max_top_ngram_chars": [0.5, 0.3, 0.15],
            "max_duplicate_ngram_chars": [0.9, 0.7, 0.5, 0.3, 0.1, 0.0],
        },
    },
    "perplexity": {
        "both limits": {
            "models": {"en": "en.arpa", "und": "en.arpa"},
            "min_perplexity": {"language": {"en": 20.0, "und": 20.0}},
            "max_perplexity": {"language": {"en": 60.0, "und": 60.0}},
        },
        "modelled only": {"models": {"en": "en.arpa"}, "unmodelled": "drop", "max_tokens": 40},
    },
    "repeated_lines": {"defaults": {}, "short lines": {"paragraphs": False, "min_chars": 3}},
    "fingerprint": {
        "defaults": {},
        "small": {"shingle_words": 2, "permutations": 16, "seed": 9, "threshold": 0.5, "domains": ["web"]},
    },
}

OF_VERSION: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "extract_html_v2": {
        "defaults": {},
        "all text": {"main_content": False, "min_chars": 20},
        "markdown": {"main_content": False, "form": "markdown_links"},
        "by rules": {"method": "rules"},
        "most of the page": {"min_share": 0.99},
    },
}
"""For a version whose parameters are not those of the one before."""

INPUTS: Final[dict[str, Mapping[str, Input]]] = {
    "extract_html": PAGES,
    "url_blacklist": URLS,
    "gopher_repetition": {**TEXTS, **REPETITIONS},
}
"""By family; the others are shown ``TEXTS``."""

TOLERANCES: Final[dict[str, float]] = {"language": 1.5e-4}
"""fastText compiles itself for the processor it is installed on, so its float32 sums may round to the next 1e-4."""


def inputs_of(family: str) -> Mapping[str, Input]:
    """Return the documents that a family of stages is shown, by name."""
    return INPUTS.get(family, TEXTS)


def variants_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the parameters under which the stage registered as ``name`` is recorded."""
    return OF_VERSION.get(name) or VARIANTS[Golden(name, {}).family]


def build(name: str, parameters: Mapping[str, Any]) -> Stage:
    """Build the stage registered as ``name``, its paths below ``FILES``."""
    kind = stage_class(name)
    given = {key: _below(value) if key in kind.path_parameters else value for key, value in parameters.items()}
    return kind(**given)


def _below(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _below(item) for key, item in value.items()}
    return str(FILES / value) if isinstance(value, str) else tuple(map(_below, value))
