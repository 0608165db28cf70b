"""``headrace lm``: KenLM-compatible language models."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from shards.errors import UserError

lm = typer.Typer(
    help="Language models for the perplexity stage.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_LINE_CHARS = 1 << 20
"""The longest piece of a file without line breaks that is held at once."""


@lm.callback()
def group() -> None:
    """Language models for the perplexity stage."""


@lm.command()
def train(
    corpus: Annotated[
        list[Path], typer.Argument(help="UTF-8 text, plain, .gz or .zst; one sentence or paragraph per line.")
    ],
    out: Annotated[Path, typer.Option(help="The ARPA file to write.")],
    order: Annotated[int, typer.Option(help="Words in the longest n-gram.")] = 3,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
) -> None:
    """Fit an interpolated modified Kneser-Ney model and write it as an ARPA file, which KenLM reads."""
    check_files(corpus, out, force)
    from pipelines.inspection.terminal import make_console
    from pipelines.progress import PassProgress
    from stages.lm import kneser_ney

    console = make_console(stderr=True)
    with PassProgress(console) as progress:
        progress.begin("reading", sum(os.path.getsize(path) for path in corpus), 0, is_bytes=True)
        model = kneser_ney.fit(corpus_lines(corpus, progress.advance), order)
        progress.end(f"{model.sentences:,} lines, {model.tokens:,} words")
    model.write_arpa(out)
    _print_model(model, out)


def check_files(corpus: Sequence[Path], out: Path, force: bool) -> None:
    """Refuse what could only fail later, before anything is read.

    Raises:
        UserError: for a corpus file that is missing, or an output file that cannot or must not be written.
    """
    for path in corpus:
        if not path.is_file():
            raise UserError(f"there is no text file {path}", place="CORPUS", remedy="Name files, not folders")
    if out.exists() and not force:
        raise UserError("the file already exists", place=f"--out {out}", remedy="Choose another name, or use --force")
    if out.resolve() in {path.resolve() for path in corpus}:
        raise UserError("the model would replace its own corpus", place=f"--out {out}", remedy="Choose another name")
    if not out.absolute().parent.is_dir():
        raise UserError("the folder is missing", place=f"--out {out}", remedy="Create it, or name another")


def corpus_lines(paths: Sequence[Path], advance: Callable[[int], None]) -> Iterator[str]:
    """Yield the normalised lines of text files, and tell ``advance`` the bytes read from disk so far.

    Raises:
        UserError: for compressed data that is cut short or damaged.
    """
    from stages.lm.normalise import lm_lines

    before = 0
    for path in paths:
        with path.open("rb") as raw:
            for number, line in enumerate(_lines(path, raw)):
                yield from lm_lines(line)
                if number % 1024 == 0:
                    advance(before + raw.tell())
        before += path.stat().st_size
        advance(before)


def _lines(path: Path, raw: BinaryIO) -> Iterator[str]:
    with io.TextIOWrapper(io.BufferedReader(_Unpacked(path, raw)), encoding="utf-8", errors="replace") as text:
        while line := text.readline(_LINE_CHARS):
            yield line


class _Unpacked(io.RawIOBase):
    """A file's bytes, decompressed if they begin as gzip or zstd do, whatever its name says."""

    def __init__(self, path: Path, raw: BinaryIO) -> None:
        from stages.readers.decompress import Stream
        from stages.readers.members import GZIP_MAGIC, ZSTD_MAGIC

        begins = raw.read(4)
        raw.seek(0)
        packed = "gzip" if begins.startswith(GZIP_MAGIC) else "zstd" if begins == ZSTD_MAGIC else "none"
        self._path, self._stream = path, Stream(raw, packed)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        stream = self._stream
        if not stream.ensure(1):
            if stream.damage is not None:
                raise UserError(
                    f"the text cannot be decompressed: {stream.damage.detail}",
                    place=f"{self._path}, byte {stream.damage.offset}",
                    remedy="Fix this file, or leave it out",
                )
            return 0
        count = min(len(buffer), len(stream.data) - stream.pos)
        buffer[:count] = stream.data[stream.pos : stream.pos + count]
        stream.skip(count)
        return count


def _print_model(model: Any, out: Path) -> None:
    from rich.text import Text

    from pipelines.capacity.machine import shown_bytes
    from pipelines.inspection.terminal import make_console

    console = make_console()
    for order, (table, discounts) in enumerate(zip(model.tables, model.discounts, strict=True), start=1):
        shown = f"{discounts.one:.4f} {discounts.two:.4f} {discounts.three:.4f}"
        note = "  (defaults: too few n-grams to estimate them)" if discounts.fallback else ""
        console.print(Text(f"{order}-grams {len(table.words):>12,}   discounts {shown}{note}"))
    console.print(Text(f"{out}: {shown_bytes(out.stat().st_size)}"), soft_wrap=True)
