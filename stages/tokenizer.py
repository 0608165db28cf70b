"""Byte-level BPE: fitting one on survivors, and encoding with any Hugging Face ``tokenizer.json``.

Byte-level BPE gives the same merges over any number of threads and any order of documents (Sennrich et al. 2016; byte
level as in Radford et al. 2019). Unigram training differs between two runs, so it is not offered.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from shards.errors import UserError
from stages import failing
from stages.failing import Failure
from stages.models.cache import load_once
from stages.quick_tokens import QuickTokenizer
from stages.tokenizer_file import DEFAULT_END_OF_TEXT, read_tokenizer

BYTE_SYMBOLS = 256

ENDS_INSIDE: Final = Failure(failing.STAGE_ERROR, "the text gives the end-of-text token, which would end it early")

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


class TokenizerUse(NamedTuple):
    """How a tokeniser is used: what an ``Encoder`` is made from, in any process.

    Attributes:
        path: a ``tokenizer.json``.
        end_of_text: the token that ends a document.
        quick: whether fastokens encodes what it can; else ``tokenizers`` encodes everything.
    """

    path: str
    end_of_text: str = DEFAULT_END_OF_TEXT
    quick: bool = True


class Encoder:
    """A loaded tokeniser with what shards must know of it: vocabulary size, end-of-text token, digest of its file.

    Raises:
        UserError: if the file is no tokeniser, or one that would lose text.
    """

    def __init__(self, path: str, end_of_text: str = DEFAULT_END_OF_TEXT, quick: bool = True) -> None:
        self._tokenizer, self._text, self.digest = read_tokenizer(path, end_of_text)
        self._wants_quick = quick
        self._end_of_text: int | None = self._tokenizer.token_to_id(end_of_text)
        self.vocab_size = 1 + max(self._tokenizer.get_vocab(with_added_tokens=True).values())

    @functools.cached_property
    def quick(self) -> QuickTokenizer | str:
        """The quick tokeniser, or why there is none. Loaded by the first text: who asks for a token needs none."""
        quick = QuickTokenizer.load(self._text) if self._wants_quick else "not asked for"
        self._text = ""
        return quick

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

    def tokens_of(self, text: str) -> list[int]:
        """Return the tokens of one text as ``tokenizers`` gives them, the end-of-text token among them if it does."""
        return [int(token) for token in self._encode_slowly([text]).values]

    def encode(self, texts: list[str]) -> Encoded:
        """Return the tokens of n texts, no special ones among them.

        A text has none, and a failure, if both libraries fail on it, or if it gives the end-of-text token itself.
        """
        try:
            found = failing.call_first(self._encode, texts)
        except BaseException as error:

            def again(rows: range) -> Encoded:
                return failing.call_again(self._encode, texts[rows.start : rows.stop])

            found = joined_tokens(failing.settle_failed(range(len(texts)), error, again, self._failure_of))
        return self._without_end_of_text(found)

    def _encode(self, texts: list[str]) -> Encoded:
        quick = self.quick
        if isinstance(quick, str):
            return self._encode_slowly(texts)
        try:
            return Encoded(*quick.encode(texts), {})
        except failing.NOT_OF_A_DOCUMENT:
            raise
        except BaseException:
            if len(texts) > 1:
                raise
            # Settled down to the one text that it cannot take.
            return self._encode_slowly(texts)

    def _encode_slowly(self, texts: list[str]) -> Encoded:
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

    def _without_end_of_text(self, found: Encoded) -> Encoded:
        """Return the tokens with none for a text that gives the end-of-text token: it would end in its middle.

        Where that token is an ordinary entry of the vocabulary, as in Unigram models, no setting keeps text from it.
        """
        places = np.flatnonzero(found.values == self._end_of_text) if self._end_of_text is not None else ()
        if not len(places):
            return found
        guilty = np.unique(np.searchsorted(found.offsets, places, side="right") - 1)
        lengths = np.diff(found.offsets)
        kept = np.ones(len(lengths), np.bool_)
        kept[guilty] = False
        values = found.values[np.repeat(kept, lengths)]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.where(kept, lengths, 0))])
        return Encoded(values, offsets, {**found.failures, **dict.fromkeys(guilty.tolist(), ENDS_INSIDE)})


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


def load_encoder(use: TokenizerUse) -> Encoder:
    """Return the encoder of a ``tokenizer.json``, loaded once per process."""
    return load_once(_load, json.dumps(use))


def _load(use: str) -> Encoder:
    return Encoder(*json.loads(use))
