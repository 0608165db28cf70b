"""Text: characters, UTF-8, words, and the kernels that count and compare them."""
