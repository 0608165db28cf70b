"""Interpolated modified Kneser-Ney language models of any order from 1 to 6, as KenLM's lmplz estimates them.

Papers: Chen and Goodman, "An empirical study of smoothing techniques for language modeling" (1998), equations 20 to 26;
Heafield et al., "Scalable modified Kneser-Ney language model estimation" (ACL 2013). No n-gram is pruned.

All tables are in suffix order (by last word, then the one before it, ...), so n-grams that share a suffix are
neighbours, and running counts replace the pointers of a trie. For each row, ``suffix`` is the row of the n-gram without
its first word in the table one order lower, and ``context`` that of the n-gram without its last word.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

from shards.errors import UserError
from shards.files import naming
from stages.lm.arpa import NgramTable, write_arpa
from stages.lm.counts import BOS, NgramCounts, count_ngrams

ESTIMATOR: Final = "kneser_ney_v1"
"""Name of this estimate, part of a model's digest. If any corpus gets other parameters, it needs another name."""

MAX_ORDER: Final = 6
"""KenLM reads models of up to this order unless it is compiled for more."""

FALLBACK: Final = (0.5, 1.0, 1.5)
"""Discounts of an order for which none can be estimated: those of lmplz's ``--discount_fallback``."""


@dataclass(frozen=True)
class Discounts:
    """What is subtracted from counts of 1, 2, and 3 or more; ``fallback`` if the corpus was too small to tell."""

    one: float
    two: float
    three: float
    fallback: bool


@dataclass(frozen=True, eq=False)
class NgramModel:
    """A back-off model.

    Attributes:
        words: the vocabulary by id: ``<unk>``, ``<s>``, ``</s>``, then the rest by code point.
        tables: the n-grams of each order from 1 up, in suffix order.
        discounts: one per order.
        sentences: lines it was fitted on.
        tokens: words it was fitted on.
    """

    words: tuple[str, ...]
    tables: tuple[NgramTable, ...]
    discounts: tuple[Discounts, ...]
    sentences: int
    tokens: int

    @property
    def order(self) -> int:
        """The longest n-gram's length: the order asked for, or less if the corpus has no n-gram that long."""
        return len(self.tables)

    @property
    def fallback_orders(self) -> tuple[int, ...]:
        """The orders whose discounts are ``FALLBACK``, to be reported: the corpus was too small or too uniform."""
        return tuple(order for order, discounts in enumerate(self.discounts, 1) if discounts.fallback)

    def write_arpa(self, target: str | os.PathLike[str] | BinaryIO) -> None:
        """Write the model as an ARPA file to a path (under a temporary name until complete) or an open binary file."""
        if not isinstance(target, str | os.PathLike):
            write_arpa(target, self.words, self.tables)
            return
        path = os.fspath(target)
        partial = f"{path}.partial"
        with naming(partial), open(partial, "wb") as file:
            write_arpa(file, self.words, self.tables)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)


def fit(lines: Iterable[str], order: int, *, progress: Callable[[int], None] | None = None) -> NgramModel:
    """Fit a model of ``order`` to ``lines``: normalised sentences, tokens separated by spaces.

    The model depends on the lines as a multiset: neither their order nor their buffering changes it. The tokens
    ``<s>``, ``</s>``, ``<unk>`` and ``<UNK>`` are skipped. Discounts that the counts do not determine are ``FALLBACK``.
    Peak memory is about 70 bytes for each n-gram of the model, of any order, plus the vocabulary.

    Args:
        lines: the sentences; ``stages.lm.normalise.lm_lines`` makes them.
        order: words in the longest n-gram, 1 to ``MAX_ORDER``. KenLM reads models of order 2 and up.
        progress: called now and then with the number of lines read so far.

    Raises:
        UserError: if ``order`` is out of range, or there is no word in ``lines``.
    """
    if not 1 <= order <= MAX_ORDER:
        raise UserError(
            f"order {order} is not between 1 and {MAX_ORDER}",
            place="order of the language model",
            remedy="5 is usual for a word model that filters text",
        )
    return estimate(count_ngrams(lines, order, progress))


def estimate(counts: NgramCounts) -> NgramModel:
    """Estimate a model from counted n-grams."""
    levels = _levels(counts)
    discounts = tuple(_discounts(level.count) for level in levels)
    tables: list[NgramTable] = []
    lower = np.empty(0)
    for i, level in enumerate(levels):
        share, left_over = _discounted(level, discounts[i], len(levels[i - 1].words) if i else 1)
        if i == 0:
            # Any word but <s> can come next, <unk> included.
            prob = share + left_over[0] / (len(level.words) - 1)
            prob[BOS] = 1.0
        else:
            tables[-1] = NgramTable(tables[-1].words, tables[-1].log10_prob, _log10_backoff(left_over))
            prob = share + left_over[level.context] * lower[level.suffix]
        tables.append(NgramTable(level.words, np.minimum(np.log10(prob), 0.0), None))
        lower = prob
    return NgramModel(counts.words, tuple(tables), discounts, counts.sentences, counts.tokens)


@dataclass(eq=False)
class _Level:
    """The n-grams of one order: words (m, order), adjusted count, row of the suffix and of the context, each (m,)."""

    words: npt.NDArray[np.uint32]
    count: npt.NDArray[np.int64]
    suffix: npt.NDArray[np.int64]
    context: npt.NDArray[np.int64]


def _levels(counts: NgramCounts) -> list[_Level]:
    """Derive the tables of all orders from the counts of the highest, without the windows that are only padding.

    The adjusted count of an n-gram is how often it was seen if it begins with <s> or is of the highest order, and
    otherwise the number of distinct words (<s> among them) seen before it.
    """
    ids = np.arange(len(counts.words))
    levels = [_Level(ids.astype(np.uint32)[:, None], np.zeros(len(ids), np.int64), ids, np.zeros(len(ids), np.int64))]
    is_first = _first_of_suffix(counts.ngrams)
    # Of every window, the row of its suffix in the last table made.
    row_of = counts.ngrams[:, -1].astype(np.int64)
    for order in range(2, counts.order + 1):
        first = np.flatnonzero(is_first[order - 1])
        words = counts.ngrams[first, counts.order - order :]
        real = (words[:, 0] != BOS) | (words[:, 1] != BOS)
        words, suffix = words[real], row_of[first[real]]
        seen = np.add.reduceat(counts.counts, first)[real]
        levels[-1].count += np.bincount(suffix, minlength=len(levels[-1].count))
        levels.append(_Level(words, np.where(words[:, 0] == BOS, seen, 0), suffix, _contexts(levels, words, suffix)))
        # Padding has no row. It borrows one that is never looked up, because what contains padding is padding too.
        rank = np.maximum(np.cumsum(real) - 1, 0)
        row_of = rank[np.cumsum(is_first[order - 1]) - 1]
    top = levels[-1]
    if counts.order == 1:
        top.count[row_of] = counts.counts
    else:
        top.count[:] = seen
    while not len(levels[-1].words):
        del levels[-1]
    return levels


def _first_of_suffix(ngrams: npt.NDArray[np.uint32]) -> list[npt.NDArray[np.bool_]]:
    """Return for each length k from 1, at [k - 1], the mask of rows whose last k words differ from the row before."""
    first = np.zeros(len(ngrams), np.bool_)
    first[0] = True
    masks = []
    for column in range(ngrams.shape[1] - 1, -1, -1):
        first = first.copy()
        first[1:] |= ngrams[1:, column] != ngrams[:-1, column]
        masks.append(first)
    return masks


def _contexts(
    levels: list[_Level], words: npt.NDArray[np.uint32], suffix: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Return the rows of the n-grams without their last word.

    Such a row consists of the first word and the context of the suffix, and the table is sorted by just these two.
    """
    lower = levels[-1]
    if len(levels) == 1:
        return words[:, 0].astype(np.int64)
    place = np.uint64(32)
    keys = lower.suffix.astype(np.uint64) << place | lower.words[:, 0]
    return np.searchsorted(keys, lower.context[suffix].astype(np.uint64) << place | words[:, 0])


def _discounts(count: npt.NDArray[np.int64]) -> Discounts:
    """Return the discounts of one order from how many n-grams have an adjusted count of 1, 2, 3 and 4 (equation 26)."""
    n = np.bincount(np.minimum(count, 5), minlength=6).astype(np.float64)
    if n[1:4].all():
        y = n[1] / (n[1] + 2 * n[2])
        one, two, three = (j - (j + 1) * y * n[j + 1] / n[j] for j in (1, 2, 3))
        # A discount cannot exceed its count; one of 0 or less would leave no room for unseen words.
        if min(one, two, three) > 0:
            return Discounts(float(one), float(two), float(three), fallback=False)
    return Discounts(*FALLBACK, fallback=True)


def _discounted(
    level: _Level, discounts: Discounts, contexts: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return each row's discounted relative frequency, and the weight left in each of ``contexts`` (1 if unused)."""
    context = level.context
    # Sums of whole numbers below 2**53: exact in float64, in any order.
    total = np.bincount(context, weights=level.count, minlength=contexts)
    taken = np.array([0.0, discounts.one, discounts.two, discounts.three])
    bucket = np.minimum(level.count, 3)
    left_over = np.zeros(contexts)
    for j in (1, 2, 3):
        left_over += taken[j] * np.bincount(context[bucket == j], minlength=contexts)
    used = total > 0
    left_over = np.divide(left_over, total, out=np.ones(contexts), where=used)
    share = (level.count - taken[bucket]) / total[context]
    return share, left_over


def _log10_backoff(left_over: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    # It exceeds 1 only by a rounding error, because no discount is greater than its count.
    return np.minimum(np.log10(left_over), 0.0)
