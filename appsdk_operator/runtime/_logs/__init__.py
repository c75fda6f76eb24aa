"""Logs: loggers that never raise, their format, failures and tracebacks."""
