"""A last look before a write goes out: right before its bytes, at each try of it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

__all__ = ["checked_before_write", "run_write_checks"]

_checks: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("checks_before_write", default=())


@contextlib.contextmanager
def checked_before_write(check: Callable[[], None]) -> Iterator[None]:
    """Have ``check`` called before each request other than a GET that the block sends.

    It is called by the thread that sends, when the connection stands and nothing is sent yet: what
    it raises ends the request. It sees requests of this thread, or task, only.
    """
    token = _checks.set((*_checks.get(), check))
    try:
        yield
    finally:
        _checks.reset(token)


def run_write_checks() -> None:
    """Call all checks that are in force."""
    for check in _checks.get():
        check()
