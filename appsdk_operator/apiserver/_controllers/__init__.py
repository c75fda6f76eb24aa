"""Garbage collection and namespace deletion."""
