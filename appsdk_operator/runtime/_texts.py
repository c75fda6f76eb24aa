"""Texts of values that users make, whose ``__str__`` may fail."""

from __future__ import annotations

__all__ = ["safe_text"]


def safe_text(value: object) -> str:
    """``value`` as text, also if its ``__str__`` raises."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} whose text failed: {type(error).__name__}>"
