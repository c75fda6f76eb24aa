"""The signal that ends the requests of a block, for callers that can give no argument."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

from appsdk_operator.runtime import StopSignal

_present: ContextVar[StopSignal | None] = ContextVar("stop_of_requests", default=None)


@contextlib.contextmanager
def requests_end_with(stop: StopSignal) -> Iterator[None]:
    """End the requests of the block when ``stop`` is set.

    Reads are cut off. A write that is under way goes on to its answer, because nobody would know
    its effect, but it is not tried again. It applies to requests of this thread, or task, only.
    """
    token = _present.set(stop)
    try:
        yield
    finally:
        _present.reset(token)


def present_stop() -> StopSignal | None:
    """The signal of the innermost block around this call."""
    return _present.get()
