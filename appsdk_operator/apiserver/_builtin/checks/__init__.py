"""Validation of the built-in kinds."""
