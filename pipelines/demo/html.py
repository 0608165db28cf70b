"""Pages as sites serve them: an article inside navigation, a cookie notice, teasers and a footer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_COOKIES = (
    '<div class="cookie-banner" role="dialog"><p>We use cookies to improve your experience. '
    '<a href="/privacy">Read our cookie policy</a></p><button>Accept all</button><button>Reject</button></div>'
)


@dataclass(frozen=True)
class Site:
    """A site's host and the words on its frame."""

    host: str
    name: str
    sections: tuple[str, ...]
    language: str = "en"

    def url(self, path: str) -> str:
        """Return the address of ``path``."""
        return f"https://{self.host}/{path}"


def page(site: Site, title: str, paragraphs: Sequence[str], teasers: Sequence[str] = ()) -> bytes:
    """Return the HTML of an article in UTF-8."""
    body = "\n".join(f"<p>{escape(paragraph, quote=False)}</p>" for paragraph in paragraphs)
    return _frame(site, title, f"<article>\n<h1>{escape(title, quote=False)}</h1>\n{body}\n</article>", teasers)


def empty_page(site: Site, title: str, teasers: Sequence[str] = ()) -> bytes:
    """Return the HTML of a page that is all frame: navigation, cookie notice, teasers and footer."""
    return _frame(site, title, '<div id="content"></div>', teasers)


def _frame(site: Site, title: str, main: str, teasers: Sequence[str]) -> bytes:
    links = "".join(f'<li><a href="/{name.lower()}">{escape(name)}</a></li>' for name in site.sections)
    more = "".join(f'<li><a href="/{n}">{escape(teaser, quote=False)}</a></li>' for n, teaser in enumerate(teasers))
    aside = f'<aside class="sidebar"><h3>Related</h3><ul>{more}</ul></aside>' if more else ""
    return f"""<!DOCTYPE html>
<html lang="{site.language}">
<head><meta charset="utf-8"><title>{escape(title, quote=False)} | {escape(site.name)}</title>
<style>body {{ font-family: serif; margin: 2em auto }} nav li {{ display: inline }}</style>
<script>window.tracker = window.tracker || []; tracker.push(["page", "{site.host}"]);</script></head>
<body>
<header><a class="logo" href="/">{escape(site.name)}</a><nav><ul>{links}</ul></nav></header>
{_COOKIES}
<main>{main}</main>
{aside}
<footer><ul class="menu"><li><a href="/imprint">Imprint</a></li><li><a href="/contact">Contact</a></li></ul>
<p>&copy; 2024 {escape(site.name)}. All rights reserved.</p></footer>
</body></html>
""".encode()
