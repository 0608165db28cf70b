"""Deduplication over keys: exact by hash, near by MinHash; no text, no files."""
