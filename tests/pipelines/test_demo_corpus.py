from __future__ import annotations

import gzip
import hashlib
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from pipelines.demo.blacklist import BLACKLISTED, NEAR_MISSES
from pipelines.demo.corpus import write_corpus
from pipelines.demo.duplicates import MAX_RELATED, MIN_DUPLICATE, MIN_RELATED
from pipelines.demo.material import gather, passages
from pipelines.demo.planted import KEPT, Planted, jaccard
from pipelines.demo.planting import KEPT_LANGUAGES
from pipelines.demo.stdlib_text import Module, modules, paragraphs, topics
from shards.errors import UserError
from stages.judges.gopher_quality import GopherQuality
from stages.judges.gopher_repetition import GopherRepetition
from stages.judges.language import Language
from stages.judges.url_blacklist import UrlBlacklist
from stages.marking import mark
from stages.readers import Source, read

# Writes the whole corpus and reads it back.
pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Planted]:
    folder = tmp_path_factory.mktemp("demo")
    return folder, write_corpus(folder)


@pytest.fixture(scope="module")
def library() -> list[Module]:
    return list(modules())


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch, library: list[Module]) -> None:
    """Keep the parsed library from test to test: parsing it is most of the time that a corpus takes."""
    monkeypatch.setattr("pipelines.demo.material.modules", lambda: iter(library))


@pytest.fixture(scope="module")
def table(corpus: tuple[Path, Planted]) -> pa.Table:
    """Every record of the corpus, as the readers give it."""
    files = sorted((corpus[0] / "crawl").iterdir())
    sources = [Source(number, str(file)) for number, file in enumerate(files)]
    return pa.Table.from_batches([batch for source in sources for batch in read(source, lambda path: open(path, "rb"))])


@pytest.mark.usefixtures("parsed")
def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(
    corpus: tuple[Path, Planted], tmp_path: Path
) -> None:
    def digest(folder: Path) -> dict[str, str]:
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        return {str(f.relative_to(folder)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    assert write_corpus(tmp_path / "again") == corpus[1]
    assert digest(tmp_path / "again") == digest(corpus[0])
    other = write_corpus(tmp_path / "other", seed=1)
    assert {item.url for item in other.items} != {item.url for item in corpus[1].items}


def test_what_was_planted_reads_back(corpus: tuple[Path, Planted]) -> None:
    assert Planted.read(corpus[0] / "planted.json") == corpus[1]


def test_every_planted_url_is_fetched_exactly_once(corpus: tuple[Path, Planted], table: pa.Table) -> None:
    documents = Counter(
        row["url"]
        for row in table.select(["url", "reason"]).to_pylist()
        if row["reason"] != "not_a_document" and row["url"] is not None
    )
    planted = [item.url for item in corpus[1].items if item.url]
    assert len(planted) == len(set(planted)) > 100
    assert {documents[url] for url in planted} == {1}
    assert max(documents.values()) == 1


def test_every_item_allows_at_most_two_verdicts(corpus: tuple[Path, Planted]) -> None:
    assert all(1 <= len(item.expected) <= 2 for item in corpus[1].items)
    kinds = Counter(item.kind for item in corpus[1].items)
    assert len(kinds) >= 18
    assert kinds["wanted language"] == 24


def test_the_readers_count_just_the_planted_damage(corpus: tuple[Path, Planted], table: pa.Table) -> None:
    marked = Counter(
        f"{row['dropped_by']}/{row['reason']}"
        for row in table.select(["dropped_by", "reason"]).to_pylist()
        if row["dropped_by"] and row["reason"] != "not_a_document"
    )
    expected = Counter(item.expected[0] for item in corpus[1].items if item.expected[0].startswith("read/"))
    assert marked == expected
    assert marked["read/truncated"] == marked["read/bad_json"] == marked["read/bad_encoding"] == 1


def test_jaccard_of_planted_groups_keeps_its_distance_from_the_threshold(corpus: tuple[Path, Planted]) -> None:
    for item in corpus[1].items:
        values = list(item.jaccard.values())
        if item.kind == "near duplicate":
            assert all(MIN_DUPLICATE <= value < 1 for value in values), item
        elif item.kind == "related, no duplicate":
            assert all(MIN_RELATED <= value <= MAX_RELATED for value in values), item
        elif item.group:
            assert values, item
            assert set(values) == {1.0}, item


def test_jaccard_of_known_sets() -> None:
    assert jaccard("a b c d e f", "a b c d e f") == 1
    assert jaccard("A b, c d e f", "a b c d e g") == pytest.approx(1 / 3)
    assert jaccard("a b c d e", "v w x y z") == 0


def test_the_blacklist_blocks_what_it_must_and_no_near_miss(corpus: tuple[Path, Planted], table: pa.Table) -> None:
    stage = UrlBlacklist(lists=(str(corpus[0] / "blacklists"),))
    found = {}
    for batch in table.to_batches():
        for row in mark(stage, batch).select(["url", "dropped_by", "reason"]).to_pylist():
            if row["dropped_by"] == stage.name:
                found[row["url"]] = row["reason"]
    assert found == BLACKLISTED
    assert not found.keys() & set(NEAR_MISSES)


def test_passages_are_surely_in_their_language_and_pass_the_rules_for_text() -> None:
    found = passages()
    texts = [passage.article.text for passage in found]
    batch = documents(texts)
    batch = mark(Language(keep=KEPT_LANGUAGES), batch)
    assert batch.column("language").to_pylist() == [passage.language for passage in found]
    assert min(batch.column("language_v1.confidence").to_pylist()) > 0.9
    batch = mark(GopherRepetition(), mark(GopherQuality(), batch))
    kept = [reason is None for reason in batch.column("reason").to_pylist()]
    assert kept == [passage.language in KEPT_LANGUAGES for passage in found]
    assert len({passage.language for passage in found} & set(KEPT_LANGUAGES)) >= 6


@pytest.mark.usefixtures("parsed")
def test_without_pydoc_data_docstrings_are_enough_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    assert topics() == {}
    planted = write_corpus(tmp_path)
    assert "pydoc_data" in planted.notes[0]
    assert planted.text_bytes["web"] > 100_000


def test_a_python_without_its_library_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(UserError, match="comes without the source of its standard library"):
        list(modules())
    (tmp_path / "small.py").write_text('"""A module."""\n')
    monkeypatch.setitem(sys.modules, "pydoc_data", None)
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(UserError, match="texts for the demo to plant"):
        write_corpus(tmp_path / "out")


def test_sources_that_do_not_parse_are_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    (tmp_path / "broken.py").write_text("def (:\n")
    (tmp_path / "latin.py").write_bytes(b"# \xff\n")
    (tmp_path / "test").mkdir()
    (tmp_path / "test" / "left_out.py").write_text('"""Not the library."""')
    (tmp_path / "good.py").write_text(
        '"""Top."""\nclass A:\n    """Of A."""\n    async def b(self):\n        """Of b."""\n'
    )
    (found,) = modules()
    assert found.name == "good"
    assert found.docstrings == (("", "Top."), ("A", "Of A."), ("A.b", "Of b."))


def test_paragraphs_are_prose_alone() -> None:
    text = """
    The *first* paragraph is running text, with ``marks`` that a renderer would have
    taken away, and it is long enough to be one.

    >>> the_second(is_code) of the kind that documentation has and no reader takes for prose.

    A lead-in to a list which is as long as a paragraph has to be and ends in a colon:

    - one
    """
    assert list(paragraphs(text)) == [
        "The first paragraph is running text, with marks that a renderer would have taken away, "
        "and it is long enough to be one."
    ]


@pytest.mark.usefixtures("parsed")
def test_no_paragraph_stands_in_web_and_reference() -> None:
    material = gather(0)
    reference = set(material.reference)
    web = Counter(paragraph for article in material.web for paragraph in article.paragraphs)
    assert not reference & web.keys()
    assert max(web.values()) == 1


def test_warc_members_are_one_record_each(corpus: tuple[Path, Planted]) -> None:
    data = (corpus[0] / "crawl" / "web-00.warc.gz").read_bytes()
    assert data[4:8] == b"\0\0\0\0"  # no clock in the gzip header
    assert gzip.decompress(data).count(b"WARC/1.1\r\n") == data.count(b"\x1f\x8b\x08\x00\x00\x00\x00\x00")


def test_kept_items_are_said_to_be_kept(corpus: tuple[Path, Planted]) -> None:
    kept = [item for item in corpus[1].items if item.expected == (KEPT,)]
    assert {item.kind for item in kept} >= {"near miss of the blacklist", "related, no duplicate", "wanted language"}


def documents(texts: list[str]) -> pa.RecordBatch:
    rows = len(texts)
    columns = {
        "doc_id": pa.array(range(rows), pa.int64()),
        "text": pa.array(texts, pa.string()),
        "language": pa.array(["und"] * rows),
        "domain": pa.array(["web"] * rows),
        "dropped_by": pa.nulls(rows, pa.string()),
        "reason": pa.nulls(rows, pa.string()),
        "value": pa.nulls(rows, pa.float64()),
        "detail": pa.nulls(rows, pa.string()),
        "failed": pa.array([False] * rows),
    }
    return pa.RecordBatch.from_pydict(columns)
