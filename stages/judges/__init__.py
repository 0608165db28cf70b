"""Stages: one file each, a batch in and a verdict out."""
