"""Informers by kind and namespace, shared by all who read or watch."""
