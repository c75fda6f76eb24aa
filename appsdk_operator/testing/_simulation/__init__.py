"""An operator on a model server, without threads."""
