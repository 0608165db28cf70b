"""The demo: a small crawl written from what comes with every CPython, its recipe, and a check of every planted page."""
