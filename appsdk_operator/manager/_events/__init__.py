"""The event recorder."""
