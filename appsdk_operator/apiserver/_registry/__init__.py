"""The generic registry: create, update, patch, delete, server-side apply and subresources."""
