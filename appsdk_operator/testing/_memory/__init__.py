"""The embedded API server without a socket."""
