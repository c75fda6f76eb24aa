"""Conversion of objects between the versions of their kinds, and the migration of stored ones."""
