"""Writes: create, update, patch, delete, subresources."""
