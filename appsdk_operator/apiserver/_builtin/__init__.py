"""The built-in kinds: types, defaults, strategies, protobuf."""
