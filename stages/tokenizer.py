"""Byte-level BPE: fitting one on survivors, and encoding with any Hugging Face ``tokenizer.json``.

Byte-level BPE gives the same merges over any number of threads and any order of documents (Sennrich et al. 2016; byte
level as in Radford et al. 2019). Unigram training differs between two runs, so it is not offered.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shards.errors import UserError
from stages import failing
from stages.failing import Failure
from stages.models.cache import load_once

BYTE_SYMBOLS = 256

Train = Callable[[Iterable[str], int], str]
"""Fits a tokeniser on texts, with so many tokens at most, and returns its ``tokenizer.json`` text."""


def fit_bpe(texts: Iterable[str], vocab_size: int, end_of_text: str) -> str:
    """Fit a byte-level BPE and return its ``tokenizer.json`` text.

    ``end_of_text`` becomes the last token. A small corpus may give fewer tokens than ``vocab_size``.

    Raises:
        UserError: if ``end_of_text`` is a token that the texts themselves give.
        BaseException: whatever the library raises, panics included; ``untrainable`` finds the texts to blame.
    """
    tokenizer = _trained(texts, vocab_size)
    if tokenizer.token_to_id(end_of_text) is not None:
        raise UserError(
            f"{end_of_text!r} is an ordinary token of these texts, so it cannot end them",
            place="recipe, key tokenizer.end_of_text",
            remedy="Choose one that no text holds, such as <|endoftext|>",
        )
    # Added last: as a special token of the trainer it would be found inside ordinary text before merging.
    tokenizer.add_special_tokens([end_of_text])
    return str(tokenizer.to_str(pretty=True))


def _trained(texts: Iterable[str], vocab_size: int) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - 1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def untrainable(texts: list[str], train: Train) -> dict[int, Failure]:
    """Return the texts on which training fails, by position, and why.

    They are trained on without merging, since all that training does to a single text is to count its words.

    Raises:
        BaseException: an error that is of no text: one that a plain word causes as well, or the machine.
    """
    if not texts:
        return {}

    def train_on(rows: range) -> None:
        failing.call_again(unmerged, texts[rows.start : rows.stop])

    def unmerged(chosen: list[str]) -> None:
        train(chosen, BYTE_SYMBOLS + 1)

    def failure_of(error: BaseException) -> Failure | None:
        if isinstance(error, failing.NOT_OF_A_DOCUMENT):
            return None
        broken = failing.error_of(lambda: unmerged(["word"]))
        return None if type(error) is broken else Failure.of(error)

    pieces = failing.settle(range(len(texts)), train_on, failure_of)
    return {rows.start: found for rows, found in pieces if isinstance(found, Failure)}


class Encoded(NamedTuple):
    """The tokens of n texts.

    Attributes:
        values: uint32 of shape (tokens,): the ids, text after text.
        offsets: int64 of shape (n + 1,): where each text begins in ``values``; the last is their number.
        failures: why a text could not be encoded, by its position. It has no tokens.
    """

    values: npt.NDArray[np.uint32]
    offsets: npt.NDArray[np.int64]
    failures: dict[int, Failure]


class Encoder:
    """A loaded tokeniser with what shards must know of it: vocabulary size, end-of-text token, digest of its file."""

    def __init__(self, path: str) -> None:
        from tokenizers import Tokenizer

        data = Path(path).read_bytes()
        try:
            self._tokenizer: Any = Tokenizer.from_str(data.decode("utf-8"))
        except Exception as error:
            raise UserError(
                f"not a tokenizer.json: {error}", place=path, remedy="Name a Hugging Face tokenizer.json file"
            ) from error
        # A tokenizer.json may carry both from its model's training; here either would change a document in silence.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        # Otherwise "<|endoftext|>" written in a page would become the control token.
        self._tokenizer.encode_special_tokens = True
        self.digest = hashlib.sha256(data).hexdigest()
        vocabulary = self._tokenizer.get_vocab(with_added_tokens=True)
        if not vocabulary:
            raise UserError("the tokeniser has no tokens", place=path, remedy="Name a trained tokenizer.json file")
        self.vocab_size = 1 + max(vocabulary.values())

    def token_id(self, token: str, place: str) -> int:
        """Return a token's id.

        Raises:
            UserError: if the vocabulary has no such token.
        """
        found = self._tokenizer.token_to_id(token)
        if found is None:
            raise UserError(
                f"the tokeniser has no token {token!r}",
                place=place,
                remedy="Name its end-of-text token in [tokenizer] end_of_text",
            )
        return int(found)

    def encode(self, texts: list[str]) -> Encoded:
        """Return the tokens of n texts, no special ones among them. A text on which the library fails has none."""
        try:
            return failing.call_first(self._encode, texts)
        except BaseException as error:

            def again(rows: range) -> Encoded:
                return failing.call_again(self._encode, texts[rows.start : rows.stop])

            pieces = failing.settle_failed(range(len(texts)), error, again, self._failure_of)
        return joined_tokens(pieces)

    def _encode(self, texts: list[str]) -> Encoded:
        ids = [encoding.ids for encoding in self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        offsets = np.zeros(len(ids) + 1, np.int64)
        np.cumsum([len(piece) for piece in ids], out=offsets[1:])
        values = np.concatenate([np.empty(0, np.uint32), *(np.asarray(piece, np.uint32) for piece in ids)])
        return Encoded(values, offsets, {})

    def _failure_of(self, error: BaseException) -> Failure | None:
        if isinstance(error, failing.NOT_OF_A_DOCUMENT):
            return None
        # A tokeniser that cannot encode a plain word is broken: that is no fault of any document.
        broken = failing.error_of(lambda: self._encode(["word"]))
        return None if type(error) is broken else Failure.of(error)


def joined_tokens(pieces: Sequence[tuple[range, Encoded | Failure]]) -> Encoded:
    """Return the tokens of texts of which consecutive pieces are encoded, or failed."""
    if len(pieces) == 1 and isinstance(pieces[0][1], Encoded):
        return pieces[0][1]
    values, offsets, total = [np.empty(0, np.uint32)], [np.zeros(1, np.int64)], 0
    failures: dict[int, Failure] = {}
    for rows, found in pieces:
        if isinstance(found, Failure):
            failures[rows.start] = found
            offsets.append(np.full(1, total, np.int64))
            continue
        values.append(found.values)
        offsets.append(found.offsets[1:] + total)
        failures |= {rows.start + row: failure for row, failure in found.failures.items()}
        total += len(found.values)
    return Encoded(np.concatenate(values), np.concatenate(offsets), failures)


def load_encoder(path: str | os.PathLike[str]) -> Encoder:
    """Return the encoder of a ``tokenizer.json``, loaded once per process."""
    return load_once(Encoder, os.fspath(path))
