"""The manager and the operator, which start and stop runnables in groups."""
