"""Informers of one kind: watch state machine, reflector, store, handlers."""
