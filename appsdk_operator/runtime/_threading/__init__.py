"""Threads: groups of them, stop signals, waits, locks, and forks."""
