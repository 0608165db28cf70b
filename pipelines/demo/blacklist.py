"""A small URL blacklist in UT1's layout (one folder per category), and pages on both sides of it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_CATEGORIES: Final = {
    # category: (usage, domains, urls). "usage" says whether a category is to be blocked or to be let through.
    "gambling": ("black\ngambling\n", ("casino-royal.example", "luckyspin.example", "poker.bets.example"), ()),
    "warez": (
        "black\nwarez\n",
        ("crackz.example", "203.0.113.77"),
        ("freepages.example/~keygen", "downloads.example/pirated"),
    ),
    "publicite": ("black\nads\n", ("adserver.example", "tracker.banners.example"), ("portal.example/ads/landing",)),
    "liste_blanche": ("white\n", ("www.kids-library.example", "city-museum.example"), ("portal.example/school",)),
}

BLACKLISTED: Final = {
    "https://casino-royal.example/welcome-bonus.html": "blacklisted_domain",
    "http://www.luckyspin.example/games/slots?ref=42": "blacklisted_domain",  # below a listed domain
    "https://tables.poker.bets.example/tonight": "blacklisted_domain",  # below a listed subdomain
    "https://CrackZ.example:8443/serials/2024.html": "blacklisted_domain",  # upper case and a port
    "http://203.0.113.77/mirror/index.html": "blacklisted_domain",  # an address
    "http://freepages.example/~keygen/readme.html": "blacklisted_url",  # below a listed URL
    "https://www.downloads.example/pirated/list.html": "blacklisted_url",  # the same behind www.
    "https://portal.example/ads/landing/spring.html": "blacklisted_url",
}
"""Pages that the lists block, and for which reason."""

NEAR_MISSES: Final = (
    "https://notcasino-royal.example/history.html",  # ends alike, but is not a subdomain
    "https://casino-royal.example.org/about.html",  # begins alike
    "https://bets.example/statistics.html",  # the parent of a listed subdomain
    "http://freepages.example/~gardener/tools.html",  # another user of the same host
    "https://downloads.example/manuals/list.html",
    "https://portal.example/news/landing.html",
    "https://www.kids-library.example/python/start.html",  # in the category that is to be let through
    "https://portal.example/school/loops.html",
)
"""Pages that look much like it, and that the lists do not block."""


def write_blacklists(folder: Path) -> None:
    """Write ``folder/<category>/{domains,urls,usage}``."""
    for category, (usage, domains, urls) in _CATEGORIES.items():
        below = folder / category
        below.mkdir(parents=True, exist_ok=True)
        for name, lines in (("domains", domains), ("urls", urls)):
            (below / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        (below / "usage").write_text(usage, encoding="utf-8")
