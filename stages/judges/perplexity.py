"""Perplexity under KenLM n-gram models, one per language, dropping both tails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, ClassVar, Final, Literal

import kenlm
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic

from shards.errors import UserError
from shards.files import fetch
from stages.base import Verdict, first_failing, stage, text_of
from stages.lm.normalise import iter_lm_lines
from stages.models.cache import load_once

BINS_PER_DECADE: Final = 10_000
"""Perplexities are powers of ten in steps of 1e-4, so that a histogram of them is exact."""

Percentile = Annotated[float, pydantic.Field(ge=0, le=100)]


@stage
class Perplexity:
    """Scores text with the model of its language, and drops what is too plain or too chaotic for it.

    Perplexity is 10^(-(sum of log10 p) / tokens) over the lines of ``stages.lm.normalise``, with begin and end of
    sentence, of which the end counts as a token. The exponent is rounded to 1e-4 before anything is decided. Of a
    long document the lines up to and including the one that reaches ``max_tokens`` are scored.

    ``min_perplexity`` and ``max_perplexity`` are limits by language. ``low_percentile`` and ``high_percentile`` are
    measured on the run itself, so the decide pass applies them; this stage carries them, and scores.
    """

    name: ClassVar[str] = "perplexity_v1"
    reasons: ClassVar[tuple[str, ...]] = ("too_plain", "too_chaotic", "no_model", "no_words")
    columns: ClassVar[Mapping[str, pa.DataType]] = {"perplexity": pa.float64()}
    path_parameters: ClassVar[tuple[str, ...]] = ("models",)

    models: dict[str, str]
    """Path of an ARPA or KenLM binary file by language."""
    min_perplexity: dict[str, Annotated[float, pydantic.Field(gt=0)]] = pydantic.Field(default_factory=dict)
    max_perplexity: dict[str, Annotated[float, pydantic.Field(gt=0)]] = pydantic.Field(default_factory=dict)
    low_percentile: Percentile | None = None
    high_percentile: Percentile | None = None
    unmodelled: Literal["keep", "drop"] = "keep"
    """What becomes of documents in a language without a model; kept ones have a null score."""
    max_tokens: Annotated[int, pydantic.Field(ge=1)] = 100_000

    def __post_init__(self) -> None:
        for which, limits in (("min_perplexity", self.min_perplexity), ("max_perplexity", self.max_perplexity)):
            for language in sorted(limits.keys() - self.models.keys()):
                raise ValueError(f"{which} has a limit for {language!r}, which has no model: add one to models")
        for language in sorted(self.min_perplexity.keys() & self.max_perplexity.keys()):
            low, high = self.min_perplexity[language], self.max_perplexity[language]
            if low > high:
                raise ValueError(f"min_perplexity {low} of {language!r} is above its max_perplexity {high}")
        low_end, high_end = self.low_percentile, self.high_percentile
        if low_end is not None and high_end is not None and low_end >= high_end:
            raise ValueError(f"low_percentile {low_end} is not below high_percentile {high_end}")

    def files(self) -> tuple[str, ...]:
        """Return the models' paths."""
        return tuple(sorted(set(self.models.values())))

    def prepare(self) -> None:
        """Load the models that are there; those that the run still has to fit have no path yet."""
        for path in filter(None, self.models.values()):
            load_once(_load, path)

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Judge by text and language; ``value`` is the perplexity, NaN where there is none."""
        languages = batch.column("language").to_pylist()
        exponents = np.full(batch.num_rows, np.nan)
        modelled = np.zeros(batch.num_rows, np.bool_)
        for row, (language, text) in enumerate(zip(languages, text_of(batch), strict=True)):
            if language in self.models:
                modelled[row] = True
                exponents[row] = log10_perplexity(load_once(_load, self.models[language]), text, self.max_tokens)
        scored = ~np.isnan(exponents)
        perplexity = np.full(batch.num_rows, np.nan)
        perplexity[scored] = perplexity_of_bin(np.rint(exponents[scored] * BINS_PER_DECADE).astype(np.int64))
        low = np.array([self.min_perplexity.get(language, 0.0) for language in languages])
        high = np.array([self.max_perplexity.get(language, np.inf) for language in languages])
        verdict = first_failing(
            (0, perplexity < low, perplexity),
            (1, perplexity > high, perplexity),
            (2, ~modelled & (self.unmodelled == "drop"), perplexity),
            (3, modelled & ~scored, perplexity),
        )
        return Verdict(verdict.codes, verdict.value, {"perplexity": pa.array(perplexity, mask=~scored)})


def log10_perplexity(model: Any, text: str, max_tokens: int) -> float:
    """Return log10 of the perplexity of ``text``, rounded to 1e-4; NaN if no line of it has a token."""
    total, tokens = 0.0, 0
    for line in iter_lm_lines(text):
        total += model.score(line, bos=True, eos=True)
        tokens += line.count(" ") + 2
        if tokens >= max_tokens:
            break
    return round(-total / tokens, 4) if tokens else math.nan


def perplexity_bin(perplexity: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Return the bin of each score of the stage: its log10 in steps of 1e-4, int64 of the same shape."""
    bins: npt.NDArray[np.int64] = np.rint(np.log10(perplexity) * BINS_PER_DECADE).astype(np.int64)
    return bins


def perplexity_of_bin(bins: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return the score that stands for each bin, float64 of the same shape: the exact inverse of ``perplexity_bin``."""
    # Python's pow, one by one: numpy's vectorised one may differ in the last place between processors.
    values = (round(10.0 ** (int(b) / BINS_PER_DECADE), 4) for b in bins.ravel())
    return np.fromiter(values, np.float64, bins.size).reshape(bins.shape)


def percentile_cuts(histogram: Mapping[int, int], low: float | None, high: float | None) -> tuple[float, float]:
    """Turn a histogram of bins into (min_perplexity, max_perplexity) at percentiles ``low`` and ``high``.

    A percentile p is the smallest score that at least p% of the documents do not exceed (Hyndman and Fan's first
    definition, numpy's ``inverted_cdf``), in exact arithmetic on the decimal notation of p. None is no limit: 0 or inf.

    Raises:
        ValueError: if the histogram holds no document.
    """
    bins = sorted(b for b, count in histogram.items() if count)
    if not bins:
        raise ValueError("a histogram without documents has no percentiles")
    below = np.cumsum([histogram[b] for b in bins], dtype=np.int64)

    def at(percentile: float) -> float:
        rank = max(math.ceil(Fraction(str(percentile)) * int(below[-1]) / 100), 1)
        return float(perplexity_of_bin(np.array([bins[int(np.searchsorted(below, rank))]]))[0])

    return 0.0 if low is None else at(low), math.inf if high is None else at(high)


def _load(path: str) -> Any:
    local = fetch(path)
    if not local.is_file():
        raise UserError(f"there is no language model at {path}", place="models of perplexity_v1")
    config = kenlm.Config()
    config.show_progress = False
    config.arpa_complain = kenlm.ARPALoadComplain.NONE
    try:
        return kenlm.Model(str(local), config)
    except (OSError, RuntimeError, UnicodeDecodeError) as error:
        raise UserError(
            f"KenLM cannot read {path}", place=str(error).strip(), remedy="Name an ARPA or binary file"
        ) from None
