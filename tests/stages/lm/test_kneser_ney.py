from __future__ import annotations

import functools
import io
import math
import random
from collections import Counter, defaultdict
from pathlib import Path

import kenlm
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.lm.kneser_ney import FALLBACK, MAX_ORDER, NgramModel, fit

GOLDEN = Path(__file__).parents[3].parent / "shared" / "data" / "models" / "lmplz_golden"
BOS, EOS, UNK = "<s>", "</s>", "<unk>"

Parameters = dict[tuple[str, ...], tuple[float, float]]

corpora = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=9).map(" ".join), min_size=1, max_size=40).filter(
    lambda lines: any(lines)
)


def arpa_bytes(model: NgramModel) -> bytes:
    file = io.BytesIO()
    model.write_arpa(file)
    return file.getvalue()


def read_arpa(content: bytes) -> Parameters:
    """Return (log10 probability, log10 back-off or 0) of every n-gram in an ARPA file."""
    parameters: Parameters = {}
    for line in content.decode("utf-8", "surrogateescape").split("\n"):
        fields = line.split("\t")
        if len(fields) > 1:
            parameters[tuple(fields[1].split(" "))] = (float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0)
    return parameters


class Oracle:
    """The estimate by its definition (Chen and Goodman 1998), one dict look-up at a time."""

    def __init__(self, lines: list[str], order: int) -> None:
        seen: Counter[tuple[str, ...]] = Counter()
        for line in lines:
            sentence = (BOS, *line.split(), EOS)
            for n in range(1, order + 1):
                seen.update(sentence[i : i + n] for i in range(len(sentence) - n + 1))
        self.order = max(map(len, seen))
        before: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for gram in seen:
            before[gram[1:]].add(gram[0])
        self.count = {g: c if len(g) == self.order or g[0] == BOS else len(before[g]) for g, c in seen.items()}
        self.count[(BOS,)] = self.count[(UNK,)] = 0
        self.after: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for gram, count in self.count.items():
            if count:
                self.after[gram[:-1]].append(count)
        self.discount = [self._discounts(n) for n in range(1, self.order + 1)]
        self.vocabulary = [g[0] for g in self.count if len(g) == 1 and g[0] != BOS]

    def _discounts(self, n: int) -> list[float]:
        of = Counter(count for gram, count in self.count.items() if len(gram) == n)
        if of[1] and of[2] and of[3]:
            y = of[1] / (of[1] + 2 * of[2])
            found = [j - (j + 1) * y * of[j + 1] / of[j] for j in (1, 2, 3)]
            if min(found) > 0:
                return [0.0, *found]
        return [0.0, *FALLBACK]

    def left_over(self, context: tuple[str, ...]) -> float:
        if context not in self.after:
            return 1.0
        counts = self.after[context]
        return sum(self.discount[len(context)][min(count, 3)] for count in counts) / sum(counts)

    def prob(self, gram: tuple[str, ...]) -> float:
        context = gram[:-1]
        lower = self.prob(gram[1:]) if context else 1 / len(self.vocabulary)
        count = self.count.get(gram, 0)
        share = (count - self.discount[len(context)][min(count, 3)]) / sum(self.after[context]) if count else 0.0
        return share + self.left_over(context) * lower

    def parameters(self) -> Parameters:
        found: Parameters = {}
        for gram in self.count:
            backoff = math.log10(self.left_over(gram)) if len(gram) < self.order else 0.0
            found[gram] = (0.0 if gram == (BOS,) else math.log10(self.prob(gram)), backoff)
        return found


def assert_same(found: Parameters, expected: Parameters, tolerance: float) -> None:
    assert found.keys() == expected.keys()
    for i in (0, 1):
        assert max(abs(found[gram][i] - expected[gram][i]) for gram in found) <= tolerance


def backed_off(parameters: Parameters, context: tuple[str, ...], word: str) -> float:
    if (*context, word) in parameters:
        return parameters[(*context, word)][0]
    return parameters.get(context, (0.0, 0.0))[1] + backed_off(parameters, context[1:], word)


@settings(max_examples=60, deadline=None)
@given(corpora, st.integers(1, MAX_ORDER))
def test_probabilities_sum_to_one_in_every_context(lines: list[str], order: int) -> None:
    parameters = read_arpa(arpa_bytes(fit(lines, order)))
    vocabulary = [gram[0] for gram in parameters if len(gram) == 1 and gram[0] != BOS]
    contexts = {gram[:-1] for gram in parameters} | {("h", "g", "a")[: order - 1]}
    for context in sorted(contexts)[:40]:
        assert sum(10 ** backed_off(parameters, context, word) for word in vocabulary) == pytest.approx(1, abs=2e-6)


@settings(max_examples=60, deadline=None)
@given(corpora, st.integers(1, MAX_ORDER))
def test_equals_the_definition(lines: list[str], order: int) -> None:
    model = fit(lines, order)
    oracle = Oracle(lines, order)
    assert model.order == oracle.order
    assert_same(read_arpa(arpa_bytes(model)), oracle.parameters(), 1e-6)


def test_equals_the_definition_where_no_discount_falls_back() -> None:
    rng = random.Random(7)
    words = [f"w{i}" for i in range(300)]
    weights = [1 / (i + 1) for i in range(300)]
    lines = [" ".join(rng.choices(words, weights, k=rng.randrange(1, 25))) for _ in range(400)]
    model = fit(lines, 4)
    assert model.fallback_orders == ()
    assert_same(read_arpa(arpa_bytes(model)), Oracle(lines, 4).parameters(), 1e-6)


@settings(max_examples=30, deadline=None)
@given(corpora, st.integers(1, MAX_ORDER), st.randoms(use_true_random=False))
def test_order_of_lines_and_buffering_change_nothing(lines: list[str], order: int, rng: random.Random) -> None:
    whole = arpa_bytes(fit(lines, order))
    shuffled = rng.sample(lines, len(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stages.lm.counts._BUFFER_TOKENS", rng.randrange(1, 20))
        patch.setattr("stages.lm.counts._LONG_LINE_CHARS", rng.randrange(0, 20))
        assert arpa_bytes(fit(iter(shuffled), order)) == whole


def test_a_model_by_hand() -> None:
    # One sentence, fallback discounts: a and </s> have one predecessor each, gamma is 0.5, three words can come next.
    parameters = read_arpa(arpa_bytes(fit(["a"], 2)))
    unigram = (1 - 0.5) / 2 + 0.5 / 3
    assert 10 ** parameters[("a",)][0] == pytest.approx(unigram, abs=1e-7)
    assert 10 ** parameters[(UNK,)][0] == pytest.approx(0.5 / 3, abs=1e-7)
    assert 10 ** parameters[(BOS, "a")][0] == pytest.approx(0.5 + 0.5 * unigram, abs=1e-7)
    assert parameters[(BOS,)][0] == 0
    assert 10 ** parameters[(BOS,)][1] == pytest.approx(0.5, abs=1e-7)
    assert parameters[(EOS,)][1] == parameters[(UNK,)][1] == 0


def test_a_tiny_corpus_falls_back_and_says_so() -> None:
    model = fit(["a b a"], 3)
    assert model.fallback_orders == (1, 2, 3)
    assert all((d.one, d.two, d.three) == FALLBACK for d in model.discounts)


def test_an_order_no_sentence_reaches_is_left_out() -> None:
    model = fit(["a", "b"], 6)
    assert model.order == 3
    assert [len(table.words) for table in model.tables] == [5, 4, 2]


def test_special_words_in_the_text_are_white_space() -> None:
    assert arpa_bytes(fit(["a <s> b <unk> </s> <UNK>"], 3)) == arpa_bytes(fit(["a b"], 3))
    assert fit(["a <s> b <unk> </s> <UNK>"], 3).tokens == 2


def test_an_empty_line_is_an_empty_sentence() -> None:
    assert (BOS, EOS) in read_arpa(arpa_bytes(fit(["a", ""], 2)))


@pytest.mark.parametrize("lines", [[], [""], ["  ", "<s> <unk>"]])
def test_no_words_is_the_users_to_fix(lines: list[str]) -> None:
    with pytest.raises(UserError, match="no words"):
        fit(lines, 3)


@pytest.mark.parametrize("order", [0, -1, MAX_ORDER + 1])
def test_an_order_out_of_range_is_refused_before_a_line_is_read(order: int) -> None:
    unread = iter(["a"])
    with pytest.raises(UserError, match=f"order {order} is not between 1 and {MAX_ORDER}"):
        fit(unread, order)
    assert next(unread) == "a"


def test_writes_to_a_path_under_a_temporary_name(tmp_path: Path) -> None:
    model = fit(["a b"], 2)
    model.write_arpa(tmp_path / "m.arpa")
    assert (tmp_path / "m.arpa").read_bytes() == arpa_bytes(model)
    assert [path.name for path in tmp_path.iterdir()] == ["m.arpa"]


@pytest.mark.parametrize("order", range(2, MAX_ORDER + 1))
def test_kenlm_reads_it_and_agrees(order: int, tmp_path: Path) -> None:
    rng = random.Random(order)
    lines = [" ".join(rng.choices("abcdefghij", k=rng.randrange(1, 15))) for _ in range(200)]
    model = fit(lines, order)
    model.write_arpa(tmp_path / "m.arpa")
    loaded = kenlm.Model(str(tmp_path / "m.arpa"))
    assert loaded.order == order
    parameters = read_arpa(arpa_bytes(model))
    for line in [*lines[:20], "a zz b", "zz"]:
        words = [BOS, *(word if (word,) in parameters else UNK for word in line.split()), EOS]
        ours = sum(
            backed_off(parameters, tuple(words[max(0, i - order + 1) : i]), words[i]) for i in range(1, len(words))
        )
        assert loaded.score(line) == pytest.approx(ours, abs=1e-4)


@functools.cache
def golden_order3() -> bytes:
    with (GOLDEN / "order3.arpa.zst").open("rb") as packed:
        return zstandard.ZstdDecompressor().stream_reader(packed).read()


def golden_lines() -> list[str]:
    if not GOLDEN.exists():
        pytest.skip("the golden of lmplz needs the shared data folder beside the checkout")
    # The corpus was cut by bytes: some characters are halved, and lmplz takes them as they are.
    return (GOLDEN / "corpus.txt").read_bytes().decode("utf-8", "surrogateescape").removesuffix("\n").split("\n")


@pytest.mark.shared_data
def test_golden_of_lmplz() -> None:
    model = fit(golden_lines(), 3)
    assert model.fallback_orders == ()
    assert_same(read_arpa(arpa_bytes(model)), read_arpa(golden_order3()), 1e-6)


@pytest.mark.shared_data
def test_golden_of_lmplz_scores_alike_in_kenlm(tmp_path: Path) -> None:
    lines = golden_lines()
    fit(lines, 3).write_arpa(tmp_path / "ours.arpa")
    (tmp_path / "theirs.arpa").write_bytes(golden_order3())
    ours, theirs = kenlm.Model(str(tmp_path / "ours.arpa")), kenlm.Model(str(tmp_path / "theirs.arpa"))
    rng = random.Random(1)
    sentences = [line for line in lines if not any("\udc80" <= c <= "\udcff" for c in line)][:150]
    shuffled = [" ".join(rng.sample(line.split(), len(line.split()))) for line in sentences]
    for sentence in [*sentences, *shuffled, "nothing of this zzz known"]:
        assert ours.score(sentence) == pytest.approx(theirs.score(sentence), abs=1e-4)
