"""From an HTTP request to a verb and back."""
