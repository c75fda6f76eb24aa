"""Event loops that a test holds up."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def held_up(loop: asyncio.AbstractEventLoop | None) -> Iterator[asyncio.AbstractEventLoop]:
    """The loop of another thread, which runs what is due after the block."""
    assert loop is not None
    is_held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        is_held.set()
        go_on.wait(30)

    loop.call_soon_threadsafe(hold)
    assert is_held.wait(30)
    try:
        yield loop
    finally:
        go_on.set()
