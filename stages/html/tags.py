"""Regular expressions for HTML tags and their attributes, linear in the page. Without numba: readers use them."""

from __future__ import annotations

import re
from typing import Final

_NAME: Final = r"[\s/]*+{0}[^\s/>][^\s/>=]*+)"
_VALUE: Final = r"(?:\s*+=\s*+(?:\"{0}[^\"]*+)\"|'{0}[^']*+)'|{0}[^\s>\"'][^\s>]*+)|(?=>)))?+"
_REST: Final = r"((?:" + (_NAME + _VALUE).format("(?:") + r")*+)([\s/]*+)(?:>|\Z)"
_OTHER: Final = r"<!--(?:-?>|.*?--!?>|.*)|<(/?[a-z][^\s/>]*+)" + _REST + r"|<[!/?][^>]*+(?:>|\Z)"
_FLAGS: Final = re.IGNORECASE | re.DOTALL | re.ASCII

ATTRIBUTES: Final = re.compile((_NAME + _VALUE).format("("), re.ASCII)
"""One attribute: name, then its value in double, in single, or in no quotes."""
TAGS: Final = re.compile(_OTHER, _FLAGS)
"""A comment, or a tag: its name (with the slash of an end tag), its attributes, and what precedes its end.

A tag that is never closed reaches to the end of the page, as in a browser, so no byte is scanned twice.
"""
