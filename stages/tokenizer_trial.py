"""Trying a tokeniser before documents meet it, in a process that may be killed for it.

A ``tokenizer.json`` is a small program: its normaliser may double a text forty times over, or its pattern never end.
And what another library makes of it is only known by comparing.
"""

from __future__ import annotations

import contextlib
import resource
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from shards.errors import UserError
from stages.tokenizer import Encoder, TokenizerUse

MAX_CPU_SECONDS: Final = 30
MAX_BYTES: Final = 6 << 30
"""What a trial may use: ten times what loading the largest vocabularies in use takes, and so no close decision."""

PLAIN: Final = (
    "The old mill stands beside the river, and its wheel still turns in spring: 1,234 times a day, some say.\n\n"
    "«Et pourtant», dit-elle, «c'est déjà l'été.» Привет, мир! 東京の古い本屋。 مرحبا بالعالم 🌊 a = f(x)\t# ok\r\n"
)
"""A text on which no tokeniser may fail."""

VERDICT: Final = pa.schema([("why", pa.string())])
"""Why fastokens does not do for a tokeniser; null where it does."""


def trial(argument: tuple[TokenizerUse, int], _: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """Encode a plain text within limits on CPU time and memory, which end the process where they are met.

    Args:
        argument: the tokeniser, and the CPU-seconds that it may take.

    Yields:
        One batch of no rows.

    Raises:
        UserError: if the tokeniser is none, fails on a plain text, has no such end-of-text token, or gives it for a
            plain text.
    """
    use, seconds = argument
    _limit(seconds)
    encoder = Encoder(use.path, use.end_of_text, quick=False)
    end = encoder.token_id(use.end_of_text, "recipe, key tokenizer.end_of_text")
    # The whole text, and pieces as short as a document may be.
    texts = [PLAIN, *PLAIN.split(), ""]
    try:
        found = encoder.encode(texts)
    except (UserError, OSError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise _unfit(use, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
    for row, failure in found.failures.items():
        if end in encoder.tokens_of(texts[row]):
            raise UserError(
                f"{use.end_of_text!r} is an ordinary token of this tokeniser, so it cannot end a text: "
                f"{texts[row][:40]!r} gives it",
                place="recipe, key tokenizer.end_of_text",
                remedy="Name a token that no text gives, such as <|endoftext|>",
            )
        raise _unfit(use, failure.detail)
    yield pa.RecordBatch.from_pylist([], VERDICT)


def _unfit(use: TokenizerUse, said: str) -> UserError:
    return UserError(
        f"the tokeniser fails on a plain text: {said}",
        place=use.path,
        remedy="Encode a sentence with it in the tokenizers library, and fix what raises",
    )


def _limit(seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds += int(used.ru_utime + used.ru_stime)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.getrlimit(resource.RLIMIT_CPU)[1]))
    # Linux alone says what is mapped already, and limits it.
    with contextlib.suppress(OSError, ValueError):
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + MAX_BYTES, resource.getrlimit(resource.RLIMIT_AS)[1]))


def compare(use: TokenizerUse, documents: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
    """Encode every kind of character, and the column ``text`` of some documents, with both libraries.

    Yields:
        One batch of one row, with why fastokens does not do.
    """
    own = documents.column("text").to_pylist() if documents is not None else []
    why = difference(Encoder(*use._replace(quick=False)), Encoder(*use._replace(quick=True)), [*characters(), *own])
    yield pa.RecordBatch.from_pylist([{"why": why}], VERDICT)


def difference(own: Encoder, quick: Encoder, texts: Sequence[str]) -> str | None:
    """Return why ``quick`` does not do for ``own``; None if it gives the same tokens for every text.

    A text on which ``own`` fails says nothing about the other.
    """
    if isinstance(quick.quick, str):
        return quick.quick
    right, found = own.encode(list(texts)), quick.encode(list(texts))
    for row in range(len(texts)):
        one, other = (each.values[each.offsets[row] : each.offsets[row + 1]] for each in (right, found))
        if row not in right.failures and (row in found.failures or not np.array_equal(one, other)):
            return f"it gives other tokens for {texts[row][:60]!r}"
    return None


def characters() -> list[str]:
    """Return short texts with every character up to U+30FF and every 64th beyond, in words, numbers and space.

    Libraries differ in what they call a letter or white space, which shows beside a character and not alone.
    """
    points = [*range(0x3100), *range(0x3100, 0x20000, 64), 0x1F30A, 0xE0001, 0x10FFFF]
    said = [chr(point) for point in points if unicodedata.category(chr(point)) != "Cs"]
    rows = [said[at : at + 32] for at in range(0, len(said), 32)]
    return ["".join(f"a{char}B {char}{char} 1{char}2's\n{char} " for char in row) for row in rows]
