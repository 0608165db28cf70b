"""fastokens: the tokens of ``tokenizers`` in a fortieth of the time, for the kinds of tokeniser that it takes.

Decision 27 says why this library, and what it does not take. ``tokenizers`` says what is right: ``Encoder`` asks it
wherever this one refuses a file or fails on a text, and a run compares both on documents of its own before it relies on
this one.
"""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stages import failing

THREADS: Final = "FASTOKENS_BPE_THREADS"
"""Environment variable that the library reads at its first call. A worker has one core, and a batch is small."""


class QuickTokenizer:
    """A ``tokenizer.json`` loaded by fastokens. Its caches are bounded: 0.2 GB at most, whatever text it meets.

    Args:
        text: the JSON, without truncation and padding.
    """

    def __init__(self, text: str) -> None:
        os.environ.setdefault(THREADS, "1")
        from fastokens import Tokenizer

        self._tokenizer: Any = Tokenizer.from_json_str(text)

    @classmethod
    def load(cls, text: str) -> QuickTokenizer | str:
        """Return the loaded tokeniser, or why the library does not take it."""
        try:
            return failing.call_again(cls, text)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            return failing.Failure.of(error).detail

    def encode(self, texts: list[str]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.int64]]:
        """Return the ids of n texts, one after another, and their n + 1 offsets. Special tokens in text are text."""
        values, offsets = self._tokenizer.encode_batch_flat(texts, split_special_tokens=True)
        return np.frombuffer(values, "<u4"), np.frombuffer(offsets, "<u8").astype(np.int64)
