"""A clock on which each wait is over at once."""

from __future__ import annotations

import threading


class QuickClock:
    """It moves by the waits, and notes them; for code whose only waits are pauses."""

    def __init__(self) -> None:
        self.now = 0.0
        self.waits: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_700_000_000.0 + self.now

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        assert timeout is not None, "nothing would end this wait"
        self.waits.append(timeout)
        self.now += timeout
