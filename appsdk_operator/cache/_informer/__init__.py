"""Follows one kind on the server: watch state machine, reflector, store, handlers."""
