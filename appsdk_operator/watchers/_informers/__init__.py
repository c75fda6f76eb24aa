"""The informers that feed a controller."""
