"""HTML: charset and tags of a page, a guard against pages that would stall a parser, and the learnt extraction."""
