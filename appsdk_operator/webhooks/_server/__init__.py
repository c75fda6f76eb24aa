"""The server of webhooks, their table by path, and the builder."""
