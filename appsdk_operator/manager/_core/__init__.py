"""The manager and the operator: runnables in groups, started and stopped in order."""
