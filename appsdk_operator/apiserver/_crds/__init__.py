"""CustomResourceDefinitions: checks, defaults, conversion, serving."""
