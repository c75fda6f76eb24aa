"""Texts of values that users make, whose ``__str__`` may fail."""

from __future__ import annotations

__all__ = ["safe_repr", "safe_text"]


def safe_repr(value: object) -> str:
    """``repr(value)``, or the name of its class if that raises."""
    try:
        return repr(value)
    except Exception:
        return type(value).__name__


def safe_text(value: object) -> str:
    """``value`` as text, also if its ``__str__`` raises."""
    try:
        return str(value)
    except Exception as error:
        return f"<{type(value).__name__} whose text failed: {type(error).__name__}>"
