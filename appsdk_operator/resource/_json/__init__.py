"""Plain JSON: its values and their parts, read-only forms, differences, streams of lines."""
