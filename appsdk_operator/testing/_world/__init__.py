"""Whole operators with their threads, simulated on a manual clock."""
