"""The endpoints of a manager: health, metrics, profiles."""
