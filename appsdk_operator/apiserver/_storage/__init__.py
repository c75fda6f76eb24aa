"""What is stored and served: objects, resources, lists, watches, versions."""
