from __future__ import annotations

import io
import json
import pickle
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import zstandard

from shards.errors import UserError
from stages.checks import KEPT
from stages.judges.language import WINDOW_CHARS, Language, default_model, identify
from stages.marking import mark
from stages.models.cache import load_once
from tests.stages.support import stage_of

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
    stage = stage_of(Language, keep=("en", "zh"), min_confidence=0.5, min_chars=10)
    marked = mark(stage, batch)
    assert marked.column("language").to_pylist() == list(TEXTS)
    unwanted = [language not in ("en", "zh") for language in TEXTS]
    assert marked.column("reason").to_pylist() == ["unwanted_language" if one else None for one in unwanted]
    assert marked.column("detail").to_pylist() == [
        name if one else None for name, one in zip(TEXTS, unwanted, strict=True)
    ]
    assert marked.column("value").null_count == len(TEXTS)
    assert marked.column("language_v1.label").to_pylist() == list(TEXTS)
    assert marked.column("language_v1.chars").to_pylist() == [len(text) for text in TEXTS.values()]
    confidence = marked.column("language_v1.confidence").to_numpy()
    assert (confidence == np.round(confidence, 4)).all()
    assert (confidence <= 1).all()


def test_short_documents_have_their_own_reason_and_keep_their_language(documents: Batches) -> None:
    batch = documents(3, text=["  " + "a" * 9 + "\n" * 50, None, TEXTS["en"]], language=["und", "fr", "und"])
    marked = mark(stage_of(Language, min_chars=10), batch)
    assert marked.column("reason").to_pylist() == ["too_short", "too_short", None]
    assert marked.column("value").to_pylist() == [9.0, 0.0, None]
    assert marked.column("language").to_pylist() == ["und", "fr", "en"]
    assert marked.column("language_v1.confidence").is_null().to_pylist() == [True, True, False]
    assert marked.column("language_v1.label").to_pylist() == [None, None, "en"]
    assert marked.column("language_v1.chars").to_pylist() == [9, 0, len(TEXTS["en"])]


def test_confidence_is_compared_as_rounded(documents: Batches) -> None:
    text = "Tom and Jerry, Peter und Paul, Marie et Jean, 1984."
    batch = documents(1, text=[text])
    found = stage_of(Language, min_confidence=0, min_chars=0).judge(batch)
    (score,) = found.columns["language_v1.confidence"].to_pylist()
    assert 0 < score < 1
    assert stage_of(Language, min_confidence=score, min_chars=0).judge(batch).codes[0] == KEPT
    verdict = stage_of(Language, min_confidence=round(score + 1e-4, 4), min_chars=0).judge(batch)
    assert stage_of(Language).reasons[verdict.codes[0]] == "low_confidence"
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
    assert stage_of(Language).judge(documents(1, text=[text])).columns["language"].to_pylist() == ["ru"]


def test_the_default_model_is_found_without_importing_its_carrier(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stage_of(Language).files() == (default_model(),)

    def absent(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", absent)
    with pytest.raises(UserError, match=r"lid\.176\.ftz.*language_v1.*Install"):
        stage_of(Language).files()


def test_a_missing_or_broken_model_is_the_users_to_fix(tmp_path: Path, documents: Batches) -> None:
    with pytest.raises(UserError, match="no language model at"):
        stage_of(Language, model=str(tmp_path / "absent.bin"), min_chars=0).judge(documents(1, text=["x"]))
    cut = tmp_path / "cut.ftz"
    cut.write_bytes(Path(default_model()).read_bytes()[:500_000])
    with pytest.raises(UserError, match="not a whole fastText model"):
        stage_of(Language, model=str(cut), min_chars=0).judge(documents(1, text=["x"]))


def test_files_are_checked_and_labels_are_known_without_loading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(path: str) -> None:
        raise AssertionError(f"loaded {path}")

    monkeypatch.setattr("stages.judges.language.fasttext.load_model", load)
    stage = stage_of(Language, keep=("en", "eng"))
    stage.check_files()
    known = stage.known_languages()
    assert known is not None
    assert len(known) == 176
    assert set(stage.named_languages()["keep"]) - known == {"eng"}
    text = tmp_path / "words.txt"
    text.write_text("no model" * 100)
    for path, message in ((tmp_path / "absent.bin", "no language model at"), (text, "not a whole fastText model")):
        with pytest.raises(UserError, match=message):
            stage_of(Language, model=str(path)).check_files()


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_limit_by_language_is_of_the_language_that_was_found(documents: Batches, language: str) -> None:
    batch = documents(2, text=[TEXTS["en"], TEXTS["de"]], language=["fr", "fr"])
    stage = stage_of(Language, min_confidence={"language": {language: 1.0}, "default": 0.0}, min_chars=0)
    confidence = stage.judge(batch).columns["language_v1.confidence"].to_pylist()
    assert max(confidence) < 1
    found = [stage_of(Language).reasons[code] if code != KEPT else None for code in stage.judge(batch).codes]
    assert found == ["low_confidence" if name == language else None for name in ("en", "de")]


def test_nothing_loaded_enters_a_pickle(documents: Batches) -> None:
    stage = stage_of(Language)
    stage.judge(documents(1, text=[TEXTS["en"]]))
    assert len(pickle.dumps(stage)) < 1_000


def rows(shared_data: Path, name: str) -> list[dict[str, Any]]:
    with zstandard.open(shared_data / name, "rb") as file:
        return [json.loads(line) for line in io.TextIOWrapper(file, "utf-8")]


@pytest.mark.shared_data
def test_languages_of_encyclopaedic_paragraphs_and_news(documents: Batches, shared_data: Path) -> None:
    stage = stage_of(Language, min_confidence=0.0, min_chars=0)
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
    stage = stage_of(Language, keep=("en",), min_chars=0, min_confidence=0)
    verdict = stage.judge(documents(len(texts), text=texts))
    assert Counter(verdict.columns["language"].to_pylist()) == {"en": 439}
    assert (verdict.codes == KEPT).all()
