"""Patches of plain JSON: JSON Patch, merge patch, strategic merge patch."""
