"""Typed classes from schemas: Python modules from CustomResourceDefinitions and OpenAPI."""
