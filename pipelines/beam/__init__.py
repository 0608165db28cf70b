"""Beam: how batches travel, how a stage is applied, what a pass is, and what runs it."""
