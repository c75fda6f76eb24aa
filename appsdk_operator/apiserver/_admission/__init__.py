"""Admission webhooks: configurations, reviews, patches, and the order of calls."""
