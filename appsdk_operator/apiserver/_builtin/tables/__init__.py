"""Tables for kubectl: columns and cells of the built-in kinds."""
