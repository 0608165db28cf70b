"""The demo: a small crawl written from what every CPython carries, its recipe, and a check of every planted page."""
