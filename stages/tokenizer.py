"""Byte-level BPE: fitting one on survivors, and encoding with any Hugging Face ``tokenizer.json``.

Byte-level BPE gives the same merges over any number of threads and any order of documents (Sennrich et al. 2016; byte
level as in Radford et al. 2019). Unigram training differs between two runs, so it is not offered.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from shards.errors import UserError
from stages.models.cache import load_once

BYTE_SYMBOLS = 256


def fit_bpe(texts: Iterable[str], vocab_size: int, end_of_text: str) -> str:
    """Fit a byte-level BPE and give its ``tokenizer.json`` text.

    ``end_of_text`` becomes the last token. A small corpus may give fewer tokens than ``vocab_size``.

    Raises:
        UserError: if ``end_of_text`` is a token that the texts themselves give.
    """
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
    if tokenizer.token_to_id(end_of_text) is not None:
        raise UserError(
            f"{end_of_text!r} is an ordinary token of these texts, so it cannot end them",
            place="recipe, key tokenizer.end_of_text",
            remedy="Choose one that no text holds, such as <|endoftext|>",
        )
    # Added last: as a special token of the trainer it would be found inside ordinary text before merging.
    tokenizer.add_special_tokens([end_of_text])
    return str(tokenizer.to_str(pretty=True))


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

    def encode(self, texts: list[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return (values uint32 of shape (tokens,), offsets int64 of shape (n + 1,)) of n texts, no special tokens."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        offsets = np.zeros(len(texts) + 1, np.int64)
        np.cumsum([len(piece) for piece in ids], out=offsets[1:])
        values = np.concatenate([np.empty(0, np.uint32), *(np.asarray(piece, np.uint32) for piece in ids)])
        return values, offsets


def load_encoder(path: str | os.PathLike[str]) -> Encoder:
    """Return the encoder of a ``tokenizer.json``, loaded once per process."""
    return load_once(Encoder, os.fspath(path))
