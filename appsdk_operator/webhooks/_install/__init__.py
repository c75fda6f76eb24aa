"""Webhook configurations, and how they get into a cluster."""
