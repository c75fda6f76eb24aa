"""Checks that run right before the bytes of a write are sent, at each attempt."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_checks: ContextVar[tuple[Callable[[], None], ...]] = ContextVar("checks_before_write", default=())


@contextlib.contextmanager
def checked_before_write(check: Callable[[], None]) -> Iterator[None]:
    """Call ``check`` before each request of the block that is not a GET.

    The sending thread calls it when the connection is open and nothing is sent yet; what it raises
    ends the request. It applies to requests of this thread, or task, only.
    """
    token = _checks.set((*_checks.get(), check))
    try:
        yield
    finally:
        _checks.reset(token)


def run_write_checks() -> None:
    """Call the checks of the blocks around this call."""
    for check in _checks.get():
        check()
