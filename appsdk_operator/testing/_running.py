"""Run a manager, a controller or a function in a thread for the length of a ``with`` block."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from appsdk_operator.cache import Health
from appsdk_operator.manager import Runnable, as_runnable, name_of
from appsdk_operator.runtime import (
    StopSignal,
    ThreadGroup,
    add_note,
    safe_repr,
    settle,
    system_clock,
)

_INTERVAL = 0.01


class _EndedEarlyError(RuntimeError):
    """The runnable ended before it was ready."""


@contextlib.contextmanager
def running(
    runnable: Runnable | Callable[[StopSignal], object],
    *,
    wait: bool = True,
    timeout: float = 30.0,
) -> Iterator[StopSignal]:
    """Run ``runnable`` in a thread for the length of the ``with`` block.

    The block begins when the runnable is ready. A :class:`~appsdk_operator.manager.Manager` is
    ready when everything has started and it leads; an object with ``wait_until_ready`` when that
    returns true; an object with ``has_synced`` (a cache, an informer, a controller) when that is
    true. Anything else is ready at once. At its end the runnable is stopped and joined, also when
    the block raised: a failed assertion leaves no thread that keeps pytest waiting.

    Args:
        runnable: anything with ``run(stop)``, or a function of the stop signal; may be async.
        wait: whether to wait until the runnable is ready; False for a standby.
        timeout: seconds of real time to wait until it is ready, and again until it has ended;
            default 30.

    Yields:
        The signal that stops it; set it to stop before the end of the block.

    Raises:
        TimeoutError: it was not ready in time (the text has its ``health()``), or has not ended in
            time after its stop.
        RuntimeError: it ended before it was ready, without an error.
        TypeError: ``runnable`` cannot be run.

    An error of the runnable is raised at the end of the block. If the block raised as well, its
    error is raised, with the runnable's as a note.

    >>> with running(lambda stop: stop.wait()) as stop:
    ...     stop.is_set()
    False
    """
    target = as_runnable(runnable)
    name = name_of(target)
    stop, ended = StopSignal(), StopSignal()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            settle(target.run(stop))
        except BaseException as error:  # reported to the test
            errors.append(error)
        finally:
            ended.set()

    threads = ThreadGroup("running")
    threads.start(name, run)
    try:
        if wait:
            _wait_until_ready(target, name, ended, timeout)
        if not errors:
            yield stop
    except BaseException as error:
        stop.set()
        left = threads.join(timeout)
        if isinstance(error, _EndedEarlyError) and errors:
            raise errors[0] from None
        _note_end(error, name, left, errors)
        raise
    stop.set()
    if threads.join(timeout):
        raise TimeoutError(
            f"{name} has not ended {timeout:g} s after its stop: every wait in it has to obey the "
            "stop signal"
        )
    if errors:
        raise errors[0]


def _wait_until_ready(target: Any, name: str, ended: StopSignal, timeout: float) -> None:
    deadline = system_clock.monotonic() + timeout
    while not _is_ready(target, ended, deadline):
        if ended.is_set():
            raise _EndedEarlyError(f"{name} ended before it was ready")
        if system_clock.monotonic() >= deadline:
            raise TimeoutError(f"{name} was not ready after {timeout:g} s{_health_text(target)}")
        ended.wait(_INTERVAL)


def _health_text(target: Any) -> str:
    """The reason that the runnable's health gives for not being ready."""
    health = target.health() if callable(getattr(target, "health", None)) else None
    if isinstance(health, Health) and not health.is_ready:
        return f": {health.text}"
    return "; for a replica on standby, which does not get ready, use wait=False"


def _is_ready(target: Any, ended: StopSignal, deadline: float) -> bool:
    elected: Any = getattr(target, "elected", None)
    if hasattr(elected, "is_set"):
        return bool(elected.is_set())
    if hasattr(target, "wait_until_ready"):
        left = max(0.0, deadline - system_clock.monotonic())
        return bool(settle(target.wait_until_ready(ended, left)))
    return bool(getattr(target, "has_synced", True))


def _note_end(
    error: BaseException, name: str, left: list[str], errors: list[BaseException]
) -> None:
    if left:
        add_note(error, f"{name} has not ended either: it still runs")
    for other in errors:
        add_note(error, f"{name}, which ran at the same time, raised {safe_repr(other)}")
