"""Delivers events to handlers, in order for each object."""
