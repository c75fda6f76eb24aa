"""Calls of webhooks, and where they are."""
