"""The sites of the demo's crawl. All hosts end in .example, which RFC 2606 keeps out of the real web."""

from __future__ import annotations

from typing import Final

from pipelines.demo.html import Site

SITES: Final = (
    Site("www.python-notes.example", "Python Notes", ("Home", "Articles", "Archive", "About")),
    Site("handbook.softwaregarden.example", "The Software Garden", ("Start", "Handbook", "People", "Search")),
    Site("blog.riverbank-code.example", "Riverbank Code", ("Blog", "Talks", "Newsletter")),
    Site("learn.northlight.example", "Northlight Learning", ("Courses", "Library", "Prices", "Help")),
    Site("wiki.toolshed.example", "Toolshed Wiki", ("Main", "Recent", "Random", "Upload")),
)
MIRRORS: Final = (
    Site("mirror.opendocs.example", "Open Docs Mirror", ("Index", "Mirrors", "Status")),
    Site("archive.readlater.example", "Read Later", ("Saved", "Popular", "Login")),
    Site("www.reposted.example", "Reposted", ("Today", "Topics", "Submit")),
)
SHOP: Final = Site("www.dealfinder.example", "Deal Finder", ("Offers", "Brands", "Basket"))
TOWN: Final = Site("www.fenbridge-online.example", "Fenbridge Online", ("News", "Events", "Visit"))
BY_LANGUAGE: Final = {
    "de": Site("www.dorfblatt.example", "Dorfblatt", ("Start", "Leben", "Archiv"), "de"),
    "es": Site("www.lasemana.example", "La Semana", ("Portada", "Cultura", "Contacto"), "es"),
    "fr": Site("www.petitjournal.example", "Le Petit Journal", ("Accueil", "Culture", "Contact"), "fr"),
    "it": Site("www.paesemio.example", "Paese Mio", ("Prima", "Storie", "Contatti"), "it"),
    "nl": Site("www.onsdorp.example", "Ons Dorp", ("Begin", "Verhalen", "Contact"), "nl"),
    "pt": Site("www.folhadailha.example", "Folha da Ilha", ("Capa", "Cultura", "Contacto"), "pt"),
    "pl": Site("www.kurier-miejski.example", "Kurier Miejski", ("Start", "Miasto", "Kontakt"), "pl"),
    "ru": Site("www.gorodok.example", "Городок", ("Главная", "Новости", "Архив"), "ru"),
    "sv": Site("www.sjobladet.example", "Sjöbladet", ("Hem", "Nyheter", "Kontakt"), "sv"),
    "zh": Site("www.hebian.example", "河边", ("首页", "文章", "关于"), "zh"),
}
