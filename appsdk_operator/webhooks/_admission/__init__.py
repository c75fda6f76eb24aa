"""Admission reviews: requests, responses, defaulters and validators."""
