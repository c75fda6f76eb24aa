"""A client that reads from a cache and sees its own writes."""
