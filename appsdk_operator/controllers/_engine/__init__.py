"""The controller, and how it runs requests from its queue."""
