"""Structural schemas: pruning, defaults, validation, rules."""
