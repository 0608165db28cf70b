"""HTML: the charset and the tags of a page, and a guard against pages that would stall a parser."""
