"""The calls of watchers and reconcilers: which, when, and what becomes of those that fail."""
