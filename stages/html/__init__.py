"""HTML: its character set, its tags, and a guard against pages built to stall a parser."""
