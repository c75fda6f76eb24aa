"""Whole operators on a clock that jumps."""
