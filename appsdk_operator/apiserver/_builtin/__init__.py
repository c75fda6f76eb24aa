"""The built-in kinds: strategies, validation, tables, protobuf."""
