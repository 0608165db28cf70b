"""Language models: normalised text, n-gram counts, Kneser-Ney estimates, ARPA files."""
