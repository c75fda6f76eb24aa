"""The HTTP(S) server and the certificates of every server that an operator runs."""
