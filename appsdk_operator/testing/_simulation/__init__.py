"""An operator on a model of an API server, without threads."""
