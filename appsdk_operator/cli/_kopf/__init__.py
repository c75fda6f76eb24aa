"""``migrate kopf``: translates the source of a kopf operator into that of an App, without I/O."""
