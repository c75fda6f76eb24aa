"""Waiting for threads to end, within one deadline for all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from appsdk_operator.runtime import thread_clock


def join_all(joins: Sequence[Callable[[float], list[str]]], timeout: float, whose: str) -> None:
    """Wait for threads to end, at most ``timeout`` seconds of real time for all together.

    Args:
        joins: functions that wait for some threads, at most the given seconds, and return the
            names of those that still run.
        timeout: seconds.
        whose: what was stopped, for the error text.

    Raises:
        TimeoutError: some threads still run; the text names them.
    """
    clock = thread_clock()
    deadline = clock.monotonic() + timeout
    stuck = [name for join in joins for name in join(max(0.0, deadline - clock.monotonic()))]
    if stuck:
        raise TimeoutError(
            f"{whose} was stopped, but after {timeout:g} s these threads still run: "
            f"{', '.join(stuck)}. Make their work end at the stop, or give a longer stop_timeout"
        )
