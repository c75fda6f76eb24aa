"""Sources: what feeds a controller's queue."""
