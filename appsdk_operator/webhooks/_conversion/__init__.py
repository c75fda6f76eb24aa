"""Conversion reviews between the versions of a kind."""
