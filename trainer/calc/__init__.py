"""Calculators of ``headrace calc``: what a training needs and what it should be, without torch."""
