"""Certificates that an operator makes and rotates by itself."""
