"""Storage: objects and their history, resources and versions, lists, watches, conversion."""
