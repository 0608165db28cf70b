"""Plants pages among the others, and keeps a record of each with the verdict that it must get."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pipelines.demo import generated
from pipelines.demo.blacklist import BLACKLISTED, NEAR_MISSES
from pipelines.demo.duplicates import Group, distinct_pair, edited_group, exact_group
from pipelines.demo.generated import Article
from pipelines.demo.html import Site, empty_page, page
from pipelines.demo.material import Material, passages
from pipelines.demo.planted import KEPT, Item
from pipelines.demo.sites import BY_LANGUAGE, MIRRORS, SHOP, SITES, TOWN
from pipelines.demo.warc_out import CRAWL_DATE, WarcOut

KEPT_LANGUAGES: Final = ("en", "de", "es", "fr", "it", "nl", "pt")
EXACT: Final = ("exact_dedup_v1/exact_duplicate",)
NEAR: Final = ("near_dedup_v1/near_duplicate",)
_PNG: Final = bytes.fromhex(
    "89504e470d0a1a0a0000000d494844520000000100000001010000000037"
    "6ef9240000000a49444154789c636000000002000148afa4710000000049454e44ae426082"
)  # one pixel


@dataclass
class Crawl:
    """Pages waiting to be dealt out to WARC files, rows for the JSONL of documents, and what is planted among them."""

    rng: random.Random
    titles: list[str]
    pages: list[Callable[[WarcOut], None]] = field(default_factory=list)
    rows: list[dict[str, str]] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    urls: set[str] = field(default_factory=set)

    def address(self, site: Site, title: str, folder: str = "articles") -> str:
        """Return a URL that no other page has."""
        slug = re.sub(r"\W+", "-", title.lower()).strip("-")
        url, number = site.url(f"{folder}/{slug}.html"), 1
        while url in self.urls:
            number += 1
            url = site.url(f"{folder}/{slug}-{number}.html")
        self.urls.add(url)
        return url

    def fetch(self, url: str, body: bytes, **options: str) -> None:
        """Add a response."""
        self.pages.append(lambda warc: warc.response(url, body, **options))

    def page(self, site: Site, article: Article, url: str = "") -> str:
        """Add an article as a page of a site, and return its URL."""
        url = url or self.address(site, article.title)
        teasers = self.rng.sample(self.titles, 4) if site.language == "en" else ()
        self.fetch(url, page(site, article.title, article.paragraphs, teasers))
        return url

    def plant(self, kind: str, site: Site, article: Article, *expected: str, url: str = "") -> None:
        """Add an article as a planted page."""
        self.items.append(Item(kind, self.page(site, article, url), expected))

    def plant_group(self, kind: str, group: Group, expected: tuple[str, ...]) -> None:
        """Add a group of texts, the first on a site of its own and the others on mirrors."""
        sites = [self.rng.choice(SITES), *self.rng.sample(MIRRORS, len(group.articles) - 1)]
        urls = [self.page(site, article) for site, article in zip(sites, group.articles, strict=True)]
        name = "" if expected == (KEPT,) else f"{kind} {len(self.items)}"
        self.record_group(kind, urls, group, [expected] * len(urls), name)

    def record_group(
        self, kind: str, urls: list[str], group: Group, expected: list[tuple[str, ...]], name: str
    ) -> None:
        """Record what became pages of a group's texts."""
        for at, url in enumerate(urls):
            others = {other: round(group.jaccard[at][n], 6) for n, other in enumerate(urls) if n != at}
            self.items.append(Item(kind, url, expected[at], name, others))


def row(url: str, text: str) -> dict[str, str]:
    """Return a row of a JSONL file."""
    return {"url": url, "date": CRAWL_DATE, "text": text}


def plant_all(crawl: Crawl, material: Material, common: list[Article]) -> None:
    """Plant every kind. Takes from ``common``, articles that no stage has a reason to drop, what must survive."""
    _duplicates(crawl, common)
    _across_sources(crawl, common)
    _junk(crawl, material)
    _blacklisted(crawl, common)
    _languages(crawl)
    _responses(crawl)


def _duplicates(crawl: Crawl, common: list[Article]) -> None:
    for copies in (1, 1, 1, 2, 2):
        crawl.plant_group("exact duplicate", exact_group(common.pop(), copies), EXACT)
    for copies in (1, 1, 1, 1, 1, 2, 2):
        crawl.plant_group("near duplicate", edited_group(common.pop(), copies, crawl.rng), NEAR)
    for _ in range(5):
        crawl.plant_group("related, no duplicate", distinct_pair(common.pop(), common.pop()), (KEPT,))


def _across_sources(crawl: Crawl, common: list[Article]) -> None:
    """Plant copies that differ in whitespace only, and a page whose text also came by a source of higher priority."""
    for number in range(3):
        article = common.pop()
        urls = [f"https://docs.stdlib.example/spaced/{number}{name}" for name in ("", "?print=1")]
        crawl.rows += [
            row(urls[0], article.text),
            row(urls[1], article.text.replace(". ", ".  ").replace("\n\n", "\n \n")),
        ]
        crawl.record_group(
            "differs in whitespace", urls, exact_group(article, 1), [EXACT, EXACT], f"whitespace {number}"
        )
    for number in range(2):
        article = common.pop()
        urls = [f"https://docs.stdlib.example/syndicated/{number}", crawl.page(MIRRORS[0], article)]
        crawl.rows.append(row(urls[0], article.text))
        crawl.record_group("by two sources", urls, exact_group(article, 1), [(KEPT,), EXACT], f"sources {number}")


def _junk(crawl: Crawl, material: Material) -> None:
    rng = crawl.rng
    rare = [word for word in material.vocabulary if len(word) > 3]
    for _ in range(4):
        crawl.plant("word salad", SHOP, generated.word_salad(rng, rare, 180), "perplexity_v1:late/too_chaotic")
        crawl.plant("stock phrases", TOWN, generated.notice(rng), "perplexity_v1/too_plain")
    for _ in range(3):
        crawl.plant("keyword spam", SHOP, generated.keyword_spam(rng, 150), "gopher_repetition_v2")
        crawl.plant("one sentence repeated", TOWN, generated.one_sentence(rng, 12), "gopher_repetition_v2")
        crawl.plant("hashtags", SHOP, generated.hashtags(rng, 40), "gopher_quality_v2/hash_symbols")
        crawl.plant("too short", TOWN, generated.stub(rng), "gopher_quality_v2/too_few_words")
    for title in ("Home", "Privacy settings", "Search results"):
        url = crawl.address(TOWN, title, "pages")
        crawl.fetch(url, empty_page(TOWN, title, rng.sample(crawl.titles, 6)))
        crawl.items.append(Item("frame without content", url, ("extract_html_v1/no_text",)))


def _blacklisted(crawl: Crawl, common: list[Article]) -> None:
    expected = {url: ("blacklisted URL", f"url_blacklist_v1/{reason}") for url, reason in BLACKLISTED.items()}
    expected |= dict.fromkeys(NEAR_MISSES, ("near miss of the blacklist", KEPT))
    for url, (kind, verdict) in expected.items():
        host = url.split("/")[2].lower()
        crawl.plant(kind, Site(host, host, ("Home", "Offers")), common.pop(), verdict, url=url)


def _languages(crawl: Crawl) -> None:
    for passage in passages():
        kept = passage.language in KEPT_LANGUAGES
        kind, expected = ("wanted language", KEPT) if kept else ("unwanted language", "language_v1/unwanted_language")
        crawl.plant(kind, BY_LANGUAGE[passage.language], passage.article, expected)


def _responses(crawl: Crawl) -> None:
    site = SITES[0]
    gone = page(site, "Not found", ["The page that you asked for has been removed or never was here."])
    for kind, path, body, options, reason in (
        ("image", "images/logo.png", _PNG, {"media_type": "image/png"}, "unsupported_media"),
        ("page that is gone", "old/removed.html", gone, {"status": "404 Not Found"}, "http_status"),
        ("redirect", "index.php", b"", {"status": "301 Moved Permanently", "location": site.url("")}, "http_status"),
    ):
        crawl.fetch(site.url(path), body, **options)
        crawl.items.append(Item(kind, site.url(path), (f"read/{reason}",)))
