"""Model files: loaded once per process, and checked before a native library opens them."""
