"""What options may be, checked where they are given; and ends that take no longer than they may."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from appsdk_operator.runtime import system_clock

__all__ = ["checked_seconds", "join_all"]


def checked_seconds(name: str, seconds: float) -> float:
    """``seconds`` if they are a number from 0 on."""
    if not (math.isfinite(seconds) and seconds >= 0):
        hint = "use 0 for never, or seconds" if name == "resync" else "use 0 or more seconds"
        raise ValueError(f"{name}={seconds}: {hint}")
    return seconds


def join_all(joins: Sequence[Callable[[float], list[str]]], timeout: float, whose: str) -> None:
    """Wait for threads to end, for all of them together at most ``timeout`` seconds.

    Raises:
        TimeoutError: some still run; the text names them.
    """
    deadline = system_clock.monotonic() + timeout
    stuck = [name for join in joins for name in join(max(0.0, deadline - system_clock.monotonic()))]
    if stuck:
        raise TimeoutError(
            f"{whose} was stopped, but after {timeout:g} s these threads still run: "
            f"{', '.join(stuck)}. Let what they do end with the stop, or give them a longer "
            "stop_timeout"
        )
