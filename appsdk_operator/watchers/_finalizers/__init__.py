"""Finalizers: their names, their users, and their lifecycle on an object."""
