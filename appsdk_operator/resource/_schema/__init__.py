"""CustomResourceDefinitions, and the schemas that classes become in them."""
