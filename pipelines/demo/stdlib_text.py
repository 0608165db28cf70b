"""Text that comes with every CPython: language topics, docstrings and the source of its standard library.

Nothing is imported to be read: docstrings come from the syntax tree, so no module's code runs. What is found differs
between Python versions and distributions; for one Python it is always the same.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import re
import sysconfig
import textwrap
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shards.errors import UserError

# Tests, other people's packages and vendored installers are not the standard library's own documentation; the last two
# hold tables, and the platform's build configuration differs from one machine to the next.
_LEFT_OUT: Final = frozenset(
    {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "turtledemo", "ensurepip", "encodings"}
    | {"pydoc_data", "__pycache__"}
)
_STOP_WORDS: Final = frozenset(("the", "be", "to", "of", "and", "that", "have", "with", "is", "are", "a", "in", "for"))
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
# reStructuredText marks that a site's renderer would have turned into formatting.
_MARKUP: Final = re.compile(r"`+|:(?:class|func|meth|mod|attr|exc|ref|term):|\*{1,2}(?=\w+\*)|(?<=\w)\*{1,2}(?!\w)")
_HYPHENATED: Final = re.compile(r"(?<=\w-)\n\s*(?=[a-z])")
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module of the standard library.

    Attributes:
        path: POSIX path below the library's folder, such as ``json/decoder.py``.
        source: its text.
        docstrings: (qualified name, docstring) in the order of the file; the module's own has an empty name.
    """

    path: str
    source: str
    docstrings: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The dotted name."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def topics() -> dict[str, str]:
    """Return the language reference's topics by name, or nothing where a slim build leaves them out."""
    try:
        found = importlib.import_module("pydoc_data.topics").topics
    except ModuleNotFoundError:
        return {}
    return {str(name): str(text) for name, text in sorted(found.items())}


def modules() -> Iterator[Module]:
    """Yield the standard library's modules in order of their paths.

    Raises:
        UserError: if this Python comes without the source of its library, as an embedded one may.
    """
    root = Path(sysconfig.get_path("stdlib"))
    found = False
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if _LEFT_OUT & set(relative.parts) or relative.name.startswith("_sysconfigdata"):
            continue
        module = _read(path, relative.as_posix())
        if module is not None:
            found = True
            yield module
    if not found:
        raise UserError(
            "this Python comes without the source of its standard library, from which the demo is made",
            place=str(root),
            remedy="Run the demo with a complete installation of CPython",
        )


def _read(path: Path, relative: str) -> Module | None:
    try:
        source = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old modules are not the demo's to report
            tree = ast.parse(source)
    except (UnicodeDecodeError, SyntaxError):  # some distributions contain deliberately broken samples
        return None
    return Module(relative, source, tuple(_docstrings(tree, "")))


def _docstrings(node: ast.Module | _Definition, name: str) -> Iterator[tuple[str, str]]:
    text = ast.get_docstring(node)
    if text:
        yield name, text
    for child in node.body:
        if isinstance(child, _Definition):
            yield from _docstrings(child, f"{name}.{child.name}" if name else child.name)


def paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of running prose, each on one line: no code, lists, tables, or lead-ins to them."""
    for block in _PARAGRAPH.split(text):
        lines = textwrap.dedent(block).strip()
        if ">>>" in lines or "::=" in lines or "\n    " in lines or "\n- " in lines:
            continue
        flat = " ".join(_MARKUP.sub("", _HYPHENATED.sub("", lines)).split())
        if _is_prose(flat):
            yield flat


def _is_prose(flat: str) -> bool:
    words = flat.split()
    if len(words) < 12 or not flat[0].isalpha() or flat[-1] != ".":
        return False
    plain = sum(letter.isalpha() or letter in " ,.'" for letter in flat)
    return plain >= 0.95 * len(flat) and len(_STOP_WORDS.intersection(words)) >= 2


def share_of(name: str, seed: int) -> float:
    """Return a number in [0, 1) that depends on ``name`` and ``seed`` only, for dealing out modules."""
    digest = hashlib.blake2b(f"{seed}:{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2.0**64
