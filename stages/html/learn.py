"""Learn the forest from pages whose main text people have marked: ``python -m stages.html.learn PAGES``.

PAGES is the file ``wcxb_train.jsonl.zst``, or one like it: a JSON object per line with ``html``, ``main_content`` and
``url``. LightGBM is needed here and nowhere else: ``pip install lightgbm``. The same pages and the same version of it
give the same forest, byte for byte. ``--folds 4`` says instead how the forest does on pages of domains that it was not
learnt from.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt
import zstandard

from stages.html.blocks import END, START, WORDS, Page
from stages.html.extraction import kept_from, page_of
from stages.html.features import FEATURES, features_of
from stages.html.forest import FILE, ONE, Forest

ATTRIBUTION: Final = (
    "Learnt from 1,075 pages of the Web Content Extraction Benchmark by Murrough Foley "
    "(github.com/Murrough-Foley/web-content-extraction-benchmark, dev part), CC BY 4.0. "
    "Its test part was not looked at."
)
TREES: Final = 150
GRAM: Final = 4
"""A block is main content as far as its words stand in the marked text so many in a row."""
BLOCK_WEIGHT: Final = 0.5
"""A block counts by this power of its words."""
PAGE_WEIGHT: Final = 0.5
"""A page's blocks are divided by this power of their sum, so that long pages do not outweigh all others."""
PARAMETERS: Final[dict[str, Any]] = {
    "objective": "cross_entropy",
    "num_leaves": 16,
    "learning_rate": 0.1,
    "min_data_in_leaf": 100,
    "lambda_l2": 5.0,
    "feature_fraction": 0.3,
    "bagging_fraction": 0.5,
    "bagging_freq": 1,
    "max_bin": 63,
    "seed": 1,
    "deterministic": True,
    "force_row_wise": True,
    "verbose": -1,
}
# Words, and each character of a script without spaces.
_WORD: Final = re.compile(
    r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W_\u0e00-\u0e7f\u3040-\u9fff\uac00-\ud7af]+"
)
_COUNTED: Final = re.compile(r"\w+")


@dataclass(frozen=True)
class Example:
    """A page to learn from: its blocks, their features, and how much of each is main content, 0 to 1."""

    domain: str
    gold: str
    page: Page
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float64]


def labels(texts: Sequence[str], gold: str) -> npt.NDArray[np.float64]:
    """Return how much of each text is in ``gold``, 0 to 1, float64 of shape (texts,).

    A short text that is a line of ``gold`` counts where its neighbours are in it: the same words stand in menus.
    """
    marked = _WORD.findall(gold.lower())
    grams = {tuple(marked[at : at + GRAM]) for at in range(len(marked) - GRAM + 1)}
    lines = {tuple(_WORD.findall(line)) for line in gold.lower().split("\n")}
    words = [tuple(_WORD.findall(text.lower())) for text in texts]
    flat = [word for block in words for word in block]
    covered = np.zeros(len(flat), np.bool_)
    for at in range(len(flat) - GRAM + 1):
        if tuple(flat[at : at + GRAM]) in grams:
            covered[at : at + GRAM] = True
    bounds = np.cumsum([0, *map(len, words)])
    found = np.array([covered[a:b].mean() if b > a else 0.0 for a, b in itertools.pairwise(bounds)])
    result = found.copy()
    for block, said in enumerate(words):
        near = found[max(block - 4, 0) : block + 5]
        if said and found[block] < 0.5 and said in lines and (near >= 0.5).sum() >= 3:
            result[block] = 1.0
    return result


def examples(path: Path) -> Iterator[Example]:
    """Yield the pages of a file, in its order."""
    with path.open("rb") as file:
        for line in io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(file), "utf-8"):
            row = json.loads(line)
            page = page_of(row["html"])
            texts = [page.text[start:end].decode("utf-8", "replace") for start, end in page.blocks[:, [START, END]]]
            gold = row["main_content"]
            yield Example(_domain(row["url"]), gold, page, features_of(page), labels(texts, gold))


def _domain(url: str) -> str:
    return ".".join((urlsplit(url).hostname or url).split(".")[-2:])


def learn(pages: Sequence[Example]) -> dict[str, Any]:
    """Return a forest as it is stored, learnt from ``pages``."""
    import lightgbm

    some = [page for page in pages if len(page.y)]
    weights = [weights_of(page.page) for page in some]
    weight = np.concatenate(weights)
    data = lightgbm.Dataset(
        np.vstack([page.x for page in some]),
        np.concatenate([page.y for page in some]),
        weight=weight * (len(weight) / weight.sum()),
    )
    return stored(lightgbm.train(PARAMETERS, data, TREES).dump_model()["tree_info"])


def weights_of(page: Page) -> npt.NDArray[np.float64]:
    """Return how much each block counts, float64 of shape (blocks,)."""
    own = np.maximum(page.blocks[:, WORDS], 1) ** BLOCK_WEIGHT
    return np.asarray(own / own.sum() ** PAGE_WEIGHT, np.float64)


def stored(trees: Sequence[Any]) -> dict[str, Any]:
    """Return LightGBM's trees as ``forest.Forest`` reads them."""
    nodes: list[list[int]] = []
    thresholds: list[float] = []
    leaves: list[int] = []

    def place(tree: Any) -> int:
        if "leaf_value" in tree:
            leaves.append(round(tree["leaf_value"] * ONE))
            return -len(leaves)
        at = len(nodes)
        nodes.append([tree["split_feature"], 0, 0])
        # The next float32 below: a feature, which is one, is at most this exactly where it is at most the threshold.
        exact = np.float32(tree["threshold"])
        thresholds.append(
            float(exact if float(exact) <= tree["threshold"] else np.nextafter(exact, np.float32(-np.inf)))
        )
        nodes[at][1] = place(tree["left_child"])
        nodes[at][2] = place(tree["right_child"])
        return at

    roots = [place(tree["tree_structure"]) for tree in trees]
    return {
        "attribution": ATTRIBUTION,
        "features": FEATURES,
        "roots": roots,
        "nodes": nodes,
        "thresholds": thresholds,
        "leaves": leaves,
    }


def f1(text: str, gold: str) -> float:
    """Return the F1 of the words of ``text``, each as often as it occurs, against those of ``gold``."""
    ours, theirs = Counter(_COUNTED.findall(text.lower())), Counter(_COUNTED.findall(gold.lower()))
    whole = ours.total() + theirs.total()
    return 2 * (ours & theirs).total() / whole if whole else 1.0


def text_of(page: Page, kept: npt.NDArray[np.bool_]) -> str:
    """Return the text of blocks, a line each."""
    bounds = page.blocks[kept][:, [START, END]]
    return b"\n".join(page.text[start:end] for start, end in bounds).decode("utf-8", "replace")


def cross_validated(pages: Sequence[Example], folds: int) -> list[float]:
    """Return the F1 of every page by a forest that was learnt without any page of its domain."""
    domains = sorted({page.domain for page in pages})
    fold = {domain: at % folds for at, domain in enumerate(domains)}
    scores = [0.0] * len(pages)
    for held in range(folds):
        forest = Forest(json.dumps(learn([page for page in pages if fold[page.domain] != held])))
        for at, page in enumerate(pages):
            if fold[page.domain] == held:
                scores[at] = f1(text_of(page.page, kept_from(page.page, forest.likelihoods(page.x))), page.gold)
    return scores


def main() -> None:
    """Learn, or cross-validate."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pages", type=Path)
    parser.add_argument("--folds", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name(FILE))
    options = parser.parse_args()
    pages = list(examples(options.pages))
    if options.folds:
        scores = cross_validated(pages, options.folds)
        low = sum(score < 0.1 for score in scores)
        print(f"F1 {np.mean(scores):.4f} over {len(scores)} pages, {low} under 0.1")
        return
    options.out.write_text(json.dumps(learn(pages), separators=(",", ":")) + "\n", "utf-8")


if __name__ == "__main__":
    main()
