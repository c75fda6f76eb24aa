"""Printer columns of the built-in kinds."""
