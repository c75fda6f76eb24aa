"""Webhooks in applications of other frameworks: ASGI and WSGI."""
