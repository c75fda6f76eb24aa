"""Helpers for reconcilers: owners, finalizers, conditions, writes, waits."""
