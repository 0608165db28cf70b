"""Text: characters, words, lines, shingles, and the kernels that count them."""
