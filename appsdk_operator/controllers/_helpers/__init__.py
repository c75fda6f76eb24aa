"""Helpers for reconcilers: owners, finalizers, conditions, create_or_update."""
