"""CustomResourceDefinitions: validation, defaults, serving, and conversion webhooks."""
