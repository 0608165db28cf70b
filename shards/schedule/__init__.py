"""The schedule: a pure function of tokens consumed, shared by curation and training."""
