"""Token reviews."""
