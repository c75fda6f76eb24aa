"""The fault proxy."""
