"""Optimizers over the rows that a rank owns, behind one protocol."""
