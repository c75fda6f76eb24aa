"""Typed specs and statuses: the classes, their fields, their names on the wire, and errors."""
