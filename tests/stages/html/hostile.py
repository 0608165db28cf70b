"""Hostile pages, from seeds: pieces that make parsers search, reopen, nest and compare, repeated and mutated.

``python -m tests.stages.html.hostile --pages 100000`` looks for pages that the guard lets pass and that cost far more
than their length; each runs in a child process that may be killed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import resource
import time
from collections.abc import Iterator
from typing import Final

from resiliparse.parse.html import HTMLTree

from stages.html.extraction import extract
from stages.html.guard import too_costly
from stages.html.names import _NAMES

NAMES: Final = sorted({name for names in _NAMES.values() for name in names.split()} | {"x-y", "rtc", "wbr"})
FORMATTING: Final = ["a", "b", "big", "code", "em", "font", "i", "nobr", "s", "small", "strike", "strong", "tt", "u"]
SUSPECTS: Final = [
    *FORMATTING,
    *[
        "table",
        "td",
        "tr",
        "tbody",
        "caption",
        "select",
        "option",
        "optgroup",
        "button",
        "p",
        "div",
        "li",
        "ul",
        "dd",
        "form",
        "template",
        "svg",
        "math",
        "mi",
        "annotation-xml",
        "foreignobject",
        "object",
        "applet",
        "marquee",
        "html",
        "body",
        "head",
        "frameset",
        "h1",
        "span",
        "ruby",
        "rt",
        "input",
        "hr",
        "br",
        "textarea",
        "script",
        "style",
        "plaintext",
        "noscript",
    ],
]
TEXTS: Final = [
    *["x", "&amp;", "&nbsp;", "\x00", "漢", "<", "&#0;", "<!---->", "<![CDATA[x]]>", "</x>", "</p>", "</br>"],
    " ",
    "\n",
]


def pieces(rng: random.Random, count: int) -> list[str]:
    """Return start tags, end tags and text."""
    found = []
    for _ in range(count):
        name = rng.choice(SUSPECTS if rng.random() < 0.8 else NAMES)
        kind = rng.random()
        if kind < 0.5:
            found.append(f"<{name}>")
        elif kind < 0.6:
            found.append(f"<{name} {' '.join(f'a{at}={at}' for at in range(rng.choice((1, 3, 40, 400))))}>")
        elif kind < 0.85:
            found.append(f"</{name}>")
        else:
            found.append(rng.choice(TEXTS))
    return found


def page(seed: int, size: int) -> str:
    """Return a page of about ``size`` characters: up to four runs, in each of which a few pieces repeat.

    In some runs every repetition has another attribute, so that no parser takes two of them for the same.
    """
    rng = random.Random(seed)
    runs = []
    for _ in range(rng.randint(1, 4)):
        piece = "".join(pieces(rng, rng.randint(1, 5)))
        times = max(1, int(size * rng.choice((0.002, 0.02, 0.2, 1.0)) / max(len(piece), 1)))
        if rng.random() < 0.3:
            head, mark, rest = piece.partition(">")
            runs.append("".join(f"{head} z={at}{mark}{rest}" for at in range(times)))
        else:
            runs.append(piece * times)
    text = "".join(runs)
    for _ in range(rng.choice((0, 0, 3, 30))):
        at, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        cut = text[at : min(end, at + 50)]
        where = rng.randrange(len(text) + 1)
        text = text[:where] + cut + text[where:]
    return text[: 4 * size]


def _cost(seed: int, size: int) -> tuple[int, int, float, float, int]:
    html = page(seed, size)
    if too_costly(html):
        return seed, len(html), 0.0, 0.0, 0
    start = time.process_time()
    HTMLTree.parse(html)
    parsed = time.process_time()
    text = extract(html).text
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return seed, len(text), (parsed - start) / len(html), (time.process_time() - parsed) / len(html), used


def _worker(seeds: Iterator[int], size: int, found: multiprocessing.SimpleQueue[object]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    for seed in seeds:
        found.put(seed)
        found.put(_cost(seed, size))


def main() -> None:
    """Print the pages that cost most, in seconds per million characters, and those that end their process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--size", type=int, default=60_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="a page that takes longer is killed")
    options = parser.parse_args()
    rows: list[tuple[int, int, float, float, int]] = []
    begun, last = options.first, options.first + options.pages
    while begun < last:
        queue: multiprocessing.SimpleQueue[object] = multiprocessing.SimpleQueue()
        child = multiprocessing.Process(target=_worker, args=(range(begun, last), options.size, queue))
        child.start()
        while begun < last and queue._reader.poll(options.seconds):  # type: ignore[attr-defined]
            try:
                one = queue.get()
            except EOFError:
                break
            if isinstance(one, tuple):
                rows.append(one)
                begun = one[0] + 1
            if not child.is_alive() and queue.empty():
                break
        if begun < last:
            print(f"seed {begun} was killed, or killed its process")
            begun += 1
        child.kill()
        child.join()
    refused = sum(row[2] == 0 for row in rows)
    print(f"{len(rows)} pages, {refused} refused, most memory {max(row[4] for row in rows) >> 10} MiB")
    for column, name in ((2, "parsing"), (3, "extraction")):
        worst = sorted(rows, key=lambda row: -row[column])[:5]
        print(name + ":", ", ".join(f"seed {row[0]} {row[column] * 1e6:.2f} s/M" for row in worst))


if __name__ == "__main__":
    main()
