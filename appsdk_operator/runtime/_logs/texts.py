"""Texts of values that users make, whose ``__str__`` may fail."""

from __future__ import annotations

import threading


def is_interrupt(error: BaseException) -> bool:
    """Whether ``error`` is a Ctrl-C that has to reach the main thread, for which it is meant."""
    return (
        issubclass(type(error), KeyboardInterrupt)
        and threading.current_thread() is threading.main_thread()
    )


def safe_repr(value: object) -> str:
    """``repr(value)``, or the name of its class if that raises."""
    try:
        return repr(value)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return type(value).__name__


def safe_text(value: object) -> str:
    """``value`` as text, also if its ``__str__`` raises."""
    try:
        return str(value)
    except BaseException as error:
        if is_interrupt(error):
            raise
        return f"<{type(value).__name__} whose text failed: {type(error).__name__}>"
