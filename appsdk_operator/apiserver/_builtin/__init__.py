"""The built-in kinds: types, defaults, strategies, validation, tables, protobuf."""
