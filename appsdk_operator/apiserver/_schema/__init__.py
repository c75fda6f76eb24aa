"""Schemas: structural schemas with pruning, defaults and validation; built-in schemas; metadata."""
