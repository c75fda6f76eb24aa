"""Shards: work divided between replicas by Leases."""
