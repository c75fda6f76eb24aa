"""Waits for what another thread or process does, and nothing announces."""

from __future__ import annotations

from collections.abc import Callable

from appsdk_operator.runtime import StopSignal, system_clock


def eventually(
    condition: Callable[[], object], seconds: float = 60.0, *, every: float = 0.02
) -> bool:
    """Wait until ``condition`` holds; a test that waits for too long fails. Returns True.

    It is asked after a millisecond first, and then more and more seldom, up to ``every`` seconds.
    """
    pause, deadline = StopSignal(clock=system_clock), system_clock.monotonic() + seconds
    interval = 0.001
    while not condition():
        assert system_clock.monotonic() < deadline, f"still not true after {seconds} s"
        pause.wait(interval)
        interval = min(1.2 * interval, every)
    return True
