from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pydantic
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from shards.errors import UserError
from stages.checks import KEPT
from stages.judges import url_blacklist
from stages.judges.url_blacklist import UrlBlacklist, _load
from stages.url.entries import MAX_URL_CHARS, ascii_host, path_of
from tests.stages.support import stage_of

Batches = Callable[..., pa.RecordBatch]
Judge = Callable[..., list[tuple[str, str] | None]]


@pytest.fixture
def judge(tmp_path: Path, documents: Batches) -> Judge:
    def judged(entries: str, *urls: str | None, hosts: list[str | None] | None = None) -> list[tuple[str, str] | None]:
        path = tmp_path / f"list{len(list(tmp_path.iterdir()))}.txt"
        path.write_text(entries, "utf-8")
        stage = stage_of(UrlBlacklist, lists=(str(path),))
        columns = {"url": urls, "host": hosts or [None] * len(urls)}
        verdict = stage.judge(documents(len(urls), **columns))
        details = [None] * len(urls) if verdict.detail is None else verdict.detail.to_pylist()
        return [
            None if code == KEPT else (stage.reasons[code], detail)
            for code, detail in zip(verdict.codes, details, strict=True)
        ]

    return judged


DOMAIN = ("blacklisted_domain", "list0")
URL = ("blacklisted_url", "list0")


@pytest.mark.parametrize(
    ("entry", "url", "blocked"),
    [
        ("bad.example", "http://bad.example/", True),
        ("bad.example", "HTTPS://User:pw@WWW.Bad.Example.:8443/x?y#z", True),
        ("bad.example", "http://a.b.bad.example", True),
        ("bad.example", "http://notbad.example/", False),
        ("bad.example", "http://bad.example.org/", False),
        ("bad.example", "http://good.example/?u=http://bad.example/", False),
        ("bad.example", "http://bad.example@good.example/", False),
        ("bad.example", "dns:bad.example", False),
        (".bad.example", "http://x.bad.example", True),
        ("*.bad.example", "http://x.bad.example", True),
        ("BAD.example ", "http://bad.example", True),
        ("http://bad.example", "https://bad.example/", True),
        ("www.bad.example", "http://bad.example", False),
        ("_under_score.example", "http://_under_score.example", True),
        ("192.0.2.7", "http://192.0.2.7:80/x", True),
        ("2.7", "http://192.0.2.7/", False),
        ("http://[2001:db8::1]/", "http://[2001:DB8::1]:81/x", True),
        ("bücher.example", "http://xn--bcher-kva.example/", True),
        ("xn--bcher-kva.example", "http://www.BÜCHER。example/", True),
        ("xn--a.\u0301.example", "http://x.xn--a.\u0301.example", True),
        ("# bad.example", "http://bad.example/", False),
    ],
)
def test_domains(judge: Judge, entry: str, url: str, blocked: bool) -> None:
    assert judge(entry + "\n", url) == [DOMAIN if blocked else None]


@pytest.mark.parametrize(
    ("entry", "url", "blocked"),
    [
        ("host.example/ads", "http://host.example/ads", True),
        ("host.example/ads", "http://host.example/ads/1.html", True),
        ("host.example/ads", "http://host.example/ads?x=1", True),
        ("host.example/ads", "http://host.example/adsense", False),
        ("host.example/ads", "http://host.example/x/ads", False),
        ("host.example/ads/", "http://host.example/ads", True),
        ("host.example/Ads", "http://HOST.example/aDS/x", True),
        ("host.example/ads", "http://www2.host.example:80/ads", True),
        ("www.host.example/ads", "http://host.example/ads", True),
        ("web.example/ads", "http://example/ads", False),
        ("host.example/ads", "http://sub.host.example/ads", False),
        ("192.0.2.7/~who", "http://192.0.2.7/%7Ewho/x", True),
        ("host.example/a%2Fb", "http://host.example/a/b", False),
        ("host.example/é", "http://host.example/%C3%A9", True),
        ("host.example/cgi?ring=a;list", "http://host.example/cgi?ring=a;list", True),
        ("host.example/cgi?ring=a", "http://host.example/cgi?ring=a&id=1", True),
        ("host.example/cgi?ring=a", "http://host.example/cgi?ring=ab", False),
        ("host.example/ads", "http://host.example\\ads", True),
        ("host.example/ads", "http://host.example/ads#x", True),
    ],
)
def test_urls(judge: Judge, entry: str, url: str, blocked: bool) -> None:
    assert judge(entry + "\n", url) == [URL if blocked else None]


def test_documents_without_url_are_judged_by_host_if_they_have_one(judge: Judge) -> None:
    found = judge("bad.example\n", None, None, None, hosts=["www.bad.example", "good.example", None])
    assert found == [DOMAIN, None, None]


def test_the_domain_is_the_reason_where_both_are_listed_and_both_are_scores(
    judge: Judge, tmp_path: Path, documents: Batches
) -> None:
    assert judge("bad.example\nbad.example/ads\n", "http://bad.example/ads") == [DOMAIN]
    stage = stage_of(UrlBlacklist, lists=(str(tmp_path / "list0.txt"),))
    urls = ["http://bad.example/ads", "http://bad.example/", "http://good.example/"]
    columns = stage.judge(documents(3, url=urls)).columns
    assert columns["url_blacklist_v1.domain_category"].to_pylist() == ["list0", "list0", None]
    assert columns["url_blacklist_v1.url_category"].to_pylist() == ["list0", None, None]


def test_detail_is_the_category_of_the_most_specific_entry(tmp_path: Path, documents: Batches) -> None:
    for name, entry in (("aa", "example\n"), ("bb", "bad.example\nx.example\n"), ("cc", "x.example\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "domains").write_text(entry)
        (tmp_path / name / "usage").write_text("black\n")
    stage = stage_of(UrlBlacklist, lists=(str(tmp_path),))
    urls = ["http://bad.example", "http://good.example", "http://x.example"]
    verdict = stage.judge(documents(3, url=urls))
    assert verdict.detail is not None
    assert verdict.detail.to_pylist() == ["bb", "aa", "bb"]
    assert verdict.columns["url_blacklist_v1.domain_category"].to_pylist() == ["bb", "aa", "bb"]
    assert len(stage.files()) == 6


LABEL = st.text("ab", min_size=1, max_size=2)
HOST = st.lists(LABEL, min_size=1, max_size=4).map(".".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(HOST, min_size=1, max_size=5), st.lists(HOST, min_size=1, max_size=8))
def test_domains_agree_with_a_set_of_suffixes(
    tmp_path_factory: pytest.TempPathFactory, entries: list[str], hosts: list[str]
) -> None:
    path = tmp_path_factory.mktemp("list") / "list.txt"
    path.write_text("\n".join(entries))
    batch = pa.record_batch({"url": [f"http://{host}/a" for host in hosts], "host": pa.nulls(len(hosts), pa.string())})
    codes = stage_of(UrlBlacklist, lists=(str(path),)).judge(batch).codes
    assert [code == 0 for code in codes] == [any(f".{h}".endswith(f".{e}") for e in entries) for h in hosts]


PATH = st.text("a/?&;", max_size=6)


@settings(max_examples=60, deadline=None)
@given(st.lists(PATH, min_size=1, max_size=5), st.lists(PATH, min_size=1, max_size=8))
def test_urls_agree_with_prefixes_at_boundaries(
    tmp_path_factory: pytest.TempPathFactory, entries: list[str], paths: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("list") / "c"
    folder.mkdir()
    (folder / "urls").write_text("".join(f"h.example/{entry}\n" for entry in entries))
    (folder / "usage").write_text("black\n")
    urls = [f"http://h.example/{path}" for path in paths]
    batch = pa.record_batch({"url": urls, "host": pa.nulls(len(urls), pa.string())})
    codes = stage_of(UrlBlacklist, lists=(str(folder.parent),)).judge(batch).codes
    listed = [f"/{entry}".rstrip("/") for entry in entries]

    def blocked(path: str) -> bool:
        return any(path == e or (path.startswith(e) and path[len(e)] in "/?&;") for e in listed)

    assert [code == 1 for code in codes] == [blocked(f"/{path}") for path in paths]


@given(st.text(max_size=80))
def test_any_text_has_a_host_and_a_path(text: str) -> None:
    assert not ascii_host(text.lower()).startswith(".")
    assert path_of(f"http://h{text}").isascii()


def test_hostile_urls_are_judged_in_time(judge: Judge) -> None:
    labels = "a." * 500_000
    urls = [
        f"http://{labels}bad.example/",
        "http://bad.example/" + "x/" * 500_000,
        "http://" + "é" * 200_000,
        "http://" + "." * 99,
    ]
    assert judge("bad.example\nother.example/x\n", *urls) == [DOMAIN, DOMAIN, None, None]
    assert judge("o.example/x\n", "http://o.example/x/" + "y" * 2 * MAX_URL_CHARS)[0] is not None


def test_no_list_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(pydantic.ValidationError, match="at least 1 item"):
        stage_of(UrlBlacklist, lists=())
    with pytest.raises(UserError, match="there is no blacklist at"):
        stage_of(UrlBlacklist, lists=(str(tmp_path / "absent"),)).files()


@pytest.mark.shared_data
def test_every_entry_of_a_real_list_blocks_itself_and_its_subdomains(
    shared_data: Path, tmp_path: Path, documents: Batches
) -> None:
    with zstandard.open(shared_data / "blacklist" / "datatrove_ut1_sample_4000.txt.zst", "rb") as packed:
        (tmp_path / "ut1.txt").write_bytes(packed.read())
    names = (tmp_path / "ut1.txt").read_text().split()
    stage = stage_of(UrlBlacklist, lists=(str(tmp_path / "ut1.txt"),))
    for pattern, expected in (("http://{}/", 0), ("https://deep.www.{}:8080/x", 0), ("http://{}.invalid/", KEPT)):
        urls = [pattern.format(name) for name in names]
        assert (stage.judge(documents(len(urls), url=urls)).codes == expected).all()


def test_a_long_list_is_kept_as_a_file_and_blocks_the_same(
    tmp_path: Path, documents: Batches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "kept"))
    (tmp_path / "kept").mkdir()
    path = tmp_path / "list.txt"
    path.write_text("".join(f"listed{number}.example\n" for number in range(1_000)))
    batch = documents(2, url=["http://www.listed7.example/", "http://other.example/"])
    key = json.dumps([[str(path)], []])
    plain = _load(key)
    assert not list((tmp_path / "kept").rglob("*.blacklist_1"))
    monkeypatch.setattr(url_blacklist, "KEPT_BYTES", 1_000)
    for table in (plain, _load(key), _load(key)):
        found = table.find(batch.column("url"), batch.column("host"))
        assert [side.tolist() for side in found] == [[0, -1], [-1, -1]]
    (kept,) = (tmp_path / "kept").rglob("*.blacklist_1")
    # Another list is another file; a damaged one is made again.
    whole = kept.read_bytes()
    kept.write_bytes(whole[:-64])
    _load(key)
    assert kept.read_bytes() == whole
    path.write_text("listed.example\n" * 1_000)
    _load(key)
    assert len(list((tmp_path / "kept").rglob("*.blacklist_1"))) == 2
