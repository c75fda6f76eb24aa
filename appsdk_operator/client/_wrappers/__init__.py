"""Clients around other clients."""
