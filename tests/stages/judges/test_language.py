from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from shards.errors import UserError
from stages.base import KEPT, Stage, mark
from stages.judges.language import WINDOW_CHARS, Language, default_model, identify
from stages.models.cache import load_once

Batches = Callable[..., pa.RecordBatch]

TEXTS = {
    "en": "The river rises in the hills above the town and flows slowly through the meadows to the sea.",
    "de": "Der Fluss entspringt in den Hügeln über der Stadt und fließt langsam durch die Wiesen zum Meer.",
    "fr": "La rivière prend sa source dans les collines au-dessus de la ville et coule vers la mer.",
    "ru": "Река берёт начало на холмах над городом и медленно течёт через луга к далёкому морю.",
    "zh": "这条河发源于城市上方的山丘，缓缓流过草地，最后注入大海。" * 2,
}


def test_finds_languages_and_keeps_those_wanted(documents: Batches) -> None:
    batch = documents(len(TEXTS), text=list(TEXTS.values()))
    stage = Language(keep=("en", "zh"), min_confidence=0.5, min_chars=10)
    marked = mark(cast(Stage, stage), batch)
    assert marked.column("language").to_pylist() == list(TEXTS)
    expected = [None if language in ("en", "zh") else "unwanted_language" for language in TEXTS]
    assert marked.column("reason").to_pylist() == expected
    confidence = marked.column("language_confidence").to_numpy()
    assert (confidence == np.round(confidence, 4)).all()
    assert (confidence <= 1).all()


def test_short_documents_have_their_own_reason_and_keep_their_language(documents: Batches) -> None:
    batch = documents(3, text=["  " + "a" * 9 + "\n" * 50, None, TEXTS["en"]], language=["und", "fr", "und"])
    marked = mark(cast(Stage, Language(min_chars=10)), batch)
    assert marked.column("reason").to_pylist() == ["too_short", "too_short", None]
    assert marked.column("value").to_pylist() == [9.0, 0.0, None]
    assert marked.column("language").to_pylist() == ["und", "fr", "en"]
    assert marked.column("language_confidence").is_null().to_pylist() == [True, True, False]


def test_confidence_is_compared_as_rounded(documents: Batches) -> None:
    text = "Tom and Jerry, Peter und Paul, Marie et Jean, 1984."
    batch = documents(1, text=[text])
    (score,) = Language(min_confidence=0, min_chars=0).judge(batch).columns["language_confidence"].to_pylist()
    assert 0 < score < 1
    assert Language(min_confidence=score, min_chars=0).judge(batch).codes[0] == KEPT
    verdict = Language(min_confidence=round(score + 1e-4, 4), min_chars=0).judge(batch)
    assert Language.reasons[verdict.codes[0]] == "low_confidence"
    assert verdict.value is not None
    assert verdict.value[0] == score


def test_text_without_anything_known_is_undetermined(documents: Batches) -> None:
    model = load_once(_load_default, default_model())
    languages, confidence = identify(model, ["\n\n", "\0", TEXTS["en"].replace(" ", "\n")])
    assert languages[2] == "en"
    assert all(0 <= score <= 1 for score in confidence)
    assert identify(model, [])[0] == []


def _load_default(path: str) -> Any:
    import fasttext

    return fasttext.load_model(path)


def test_a_long_document_is_judged_by_its_beginning_middle_and_end(documents: Batches) -> None:
    filler = " " + "1234567890 " * WINDOW_CHARS
    window = (TEXTS["ru"] + " ") * (WINDOW_CHARS // len(TEXTS["ru"]) + 1)
    text = window + filler + window + filler + window
    assert Language().judge(documents(1, text=[text])).columns["language"].to_pylist() == ["ru"]


def test_the_default_model_is_found_without_importing_its_carrier(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Language().files() == (default_model(),)

    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(UserError, match=r"lid\.176\.ftz.*language_v1.*Install"):
        Language().files()


def test_a_missing_or_broken_model_is_the_users_to_fix(tmp_path: Path, documents: Batches) -> None:
    with pytest.raises(UserError, match="no language model at"):
        Language(model=str(tmp_path / "absent.bin"), min_chars=0).judge(documents(1, text=["x"]))
    cut = tmp_path / "cut.ftz"
    cut.write_bytes(Path(default_model()).read_bytes()[:500_000])
    with pytest.raises(UserError, match="not a whole fastText model"):
        Language(model=str(cut), min_chars=0).judge(documents(1, text=["x"]))


def test_nothing_loaded_enters_a_pickle(documents: Batches) -> None:
    stage = Language()
    stage.judge(documents(1, text=[TEXTS["en"]]))
    assert len(pickle.dumps(stage)) < 1_000


def rows(shared_data: Path, name: str) -> list[dict[str, Any]]:
    with zstandard.open(shared_data / name, "rb") as file:
        return [json.loads(line) for line in io.TextIOWrapper(file, "utf-8")]


@pytest.mark.shared_data
def test_languages_of_encyclopaedic_paragraphs_and_news(documents: Batches, shared_data: Path) -> None:
    stage = Language(min_confidence=0.0, min_chars=0)
    wiki = rows(shared_data, "text/wiki/xquad_contexts.jsonl.zst")
    found = stage.judge(documents(len(wiki), text=[row["text"] for row in wiki])).columns["language"].to_pylist()
    assert found == [row["lang"] for row in wiki]
    news = [row for row in rows(shared_data, "langid/ntrex128.jsonl.zst") if row["fasttext_label"]][::10]
    found = stage.judge(documents(len(news), text=[row["text"] for row in news])).columns["language"].to_pylist()
    right = np.mean([language == row["fasttext_label"] for language, row in zip(found, news, strict=True)])
    assert right == pytest.approx(0.901, abs=0.02)


@pytest.mark.shared_data
def test_common_crawl_documents_are_english(documents: Batches, shared_data: Path) -> None:
    texts = [row["text"] for row in rows(shared_data, "quality/dclm_human_labels.jsonl.zst")]
    stage = Language(keep=("en",), min_chars=0, min_confidence=0)
    verdict = stage.judge(documents(len(texts), text=texts))
    assert Counter(verdict.columns["language"].to_pylist()) == {"en": 439}
    assert (verdict.codes == KEPT).all()
