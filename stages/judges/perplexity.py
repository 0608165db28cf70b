"""Perplexity under KenLM n-gram models, one per language."""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import kenlm
import numpy as np
import pyarrow as pa
import pydantic

from shards.errors import UserError
from shards.files import fetch
from stages.base import stage, text_of
from stages.checks import Check
from stages.limits import Grouped, Percentile, Positive
from stages.lm.normalise import iter_lm_bytes
from stages.models.cache import load_once
from stages.scores import Count, Log10, Values

_BINARY: Final = b"mmap lm http://kheafield.com/code format version"
_ARPA: Final = b"\\data\\"
_HEAD_BYTES: Final = 64 << 10


@stage
class Perplexity:
    """Scores text with the model of its language, and drops what is too plain or too chaotic for it.

    Perplexity is 10^(-(sum of log10 p) / tokens) over the lines of ``stages.lm.normalise``, with begin and end of
    sentence, of which the end counts as a token. Of a long document the lines up to and including the one that reaches
    ``max_tokens`` are scored.
    """

    name: ClassVar[str] = "perplexity_v1"
    needs = ("text", "language")
    scores = (
        Log10("perplexity", "perplexity under the model of the language"),
        Count("tokens", "tokens that were scored; none without a model"),
    )
    checks = (
        Check("too_plain", "perplexity", min="min_perplexity"),
        Check("too_chaotic", "perplexity", max="max_perplexity"),
        Check("no_model", "tokens", null="unmodelled"),
        Check("no_words", "tokens", min=1),
    )
    path_parameters: ClassVar[tuple[str, ...]] = ("models",)
    language_models: ClassVar[str] = "models"

    models: dict[str, str]
    """Path of an ARPA or KenLM binary file by language."""
    min_perplexity: Positive | None = None
    max_perplexity: Positive | None = None
    unmodelled: Literal["keep", "drop"] = "keep"
    """What becomes of documents in a language without a model; kept ones have a null score."""
    max_tokens: Annotated[int, pydantic.Field(ge=1)] = 100_000

    def __post_init__(self) -> None:
        low, high = self.min_perplexity, self.max_perplexity
        for which, limit in (("min_perplexity", low), ("max_perplexity", high)):
            for language in sorted(limit.language.keys() - self.models.keys()) if isinstance(limit, Grouped) else ():
                raise ValueError(f"{which} has a limit for {language!r}, which has no model: add one to models")
        if isinstance(low, Percentile) and isinstance(high, Percentile):
            if (low.by, low.of) == (high.by, high.of) and low.percentile >= high.percentile:
                raise ValueError(f"percentile {low.percentile} of min_perplexity is not below {high.percentile}")
        elif isinstance(low, float | Grouped) and isinstance(high, float | Grouped):
            _require_ordered(low, high)

    def files(self) -> tuple[str, ...]:
        """Return the models' paths."""
        return tuple(sorted(set(self.models.values())))

    def check_files(self) -> None:
        """Look at the first bytes of the models that are there; those that the run has to fit have no path yet."""
        for path in filter(None, self.files()):
            with _local(path).open("rb") as file:
                head = file.read(_HEAD_BYTES)
            if not head.startswith(_BINARY) and _ARPA not in head:
                raise _unreadable(path, "it begins as neither")

    def named_languages(self) -> Mapping[str, Sequence[str]]:
        """Return the languages that have a model."""
        return {"models": list(self.models)}

    def measure(self, batch: pa.RecordBatch) -> Mapping[str, Values]:
        """Measure text and language, a language at a time: so a model is loaded once, however few are held."""
        texts = text_of(batch)
        exponents, tokens = np.full(batch.num_rows, np.nan), np.full(batch.num_rows, np.nan)
        of_language: dict[str, list[int]] = {}
        for row, language in enumerate(batch.column("language").to_pylist()):
            if language in self.models:
                of_language.setdefault(language, []).append(row)
        for language in sorted(of_language):
            model = load_once(_load, self.models[language])
            for row in of_language[language]:
                exponents[row], tokens[row] = log10_perplexity(model, texts[row], self.max_tokens)
        return {"perplexity": exponents, "tokens": tokens}


def log10_perplexity(model: Any, text: str, max_tokens: int) -> tuple[float, int]:
    """Return (log10 of the perplexity of ``text``, tokens); (NaN, 0) if no line of it has a token."""
    total, tokens = 0.0, 0
    # KenLM takes UTF-8, and would make it of a string.
    for line in iter_lm_bytes(text):
        total += model.score(line, bos=True, eos=True)
        tokens += line.count(b" ") + 2
        if tokens >= max_tokens:
            break
    return (-total / tokens, tokens) if tokens else (math.nan, 0)


def _require_ordered(low: float | Grouped, high: float | Grouped) -> None:
    grouped = [limit for limit in (low, high) if isinstance(limit, Grouped)]
    if len({limit.by for limit in grouped}) > 1:
        return
    for group in [*sorted({name for limit in grouped for name in limit.numbers}), None]:
        least, most = (limit if isinstance(limit, float) else limit.number_of(group) for limit in (low, high))
        if least is not None and most is not None and least > most:
            of = f" of {group!r}" if group is not None else ""
            raise ValueError(f"min_perplexity {least}{of} is above max_perplexity {most}")


def _local(path: str) -> Path:
    local = fetch(path)
    if not local.is_file():
        raise UserError(f"there is no language model at {path}", place="models of perplexity_v1")
    return local


def _unreadable(path: str, why: str) -> UserError:
    return UserError(f"KenLM cannot read {path}", place=why, remedy="Name an ARPA or binary file")


def _load(path: str) -> Any:
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    try:
        return kenlm.Model(str(_local(path)), config)
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        if os.strerror(errno.ENOMEM) in str(error):
            # Of the machine, and neither of the model nor of a document.
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path) from None
        raise _unreadable(path, str(error).strip()) from None
