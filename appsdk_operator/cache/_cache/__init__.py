"""Informers by kind and namespace, shared by all readers and handlers."""
