"""Run something beside a test, and be sure that it has ended when the test has."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from appsdk_operator.cache import Health
from appsdk_operator.manager import Runnable, as_runnable, name_of
from appsdk_operator.runtime import StopSignal, ThreadGroup, settle, system_clock

__all__ = ["running"]

_INTERVAL = 0.01


class _EndedEarlyError(RuntimeError):
    """The run was over before it was ready."""


@contextlib.contextmanager
def running(
    runnable: Runnable | Callable[[StopSignal], object],
    *,
    wait: bool = True,
    timeout: float = 30.0,
) -> Iterator[StopSignal]:
    """Run ``runnable`` in a thread as long as the ``with`` block lasts, however that ends.

    The block begins when the runnable is ready: a :class:`~appsdk_operator.manager.Manager` when
    all has started and it leads, what has ``wait_until_ready`` when that says so, and what has
    ``has_synced``, as a cache, an informer and both kinds of controllers, when that is true.
    Anything else is ready at once. Where the block ends the runnable is told to stop, and waited
    for, also when the block raised: a failed assertion leaves no thread that keeps pytest waiting.

    Args:
        runnable: anything with ``run(stop)``, or a function of the stop signal; may be async.
        wait: whether the block waits until the runnable is ready; False for a standby.
        timeout: seconds of real time to wait for it to be ready, and again for its end; default 30.

    Yields:
        The signal that stops it, to be set by who wants that earlier.

    Raises:
        TimeoutError: it was not ready in time, with what its ``health()`` says of it, or has not
            ended in time after its stop.
        RuntimeError: it ended before it was ready, without an error.
        TypeError: ``runnable`` is none.

    What the runnable raised is raised at the end of the block. If the block raised too, that comes
    through, with the runnable's error as its note.

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
        except BaseException as error:  # for the test, whatever it is
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
            f"{name} has not ended {timeout:g} s after its stop: whatever it waits for has to obey "
            "the stop signal"
        )
    if errors:
        raise errors[0]


def _wait_until_ready(target: Any, name: str, ended: StopSignal, timeout: float) -> None:
    deadline = system_clock.monotonic() + timeout
    while not _is_ready(target, ended, deadline):
        if ended.is_set():
            raise _EndedEarlyError(f"{name} ended before it was ready")
        if system_clock.monotonic() >= deadline:
            raise TimeoutError(f"{name} was not ready after {timeout:g} s{_why(target)}")
        ended.wait(_INTERVAL)


def _why(target: Any) -> str:
    """What the runnable says of it, as informers, caches, controllers and managers can."""
    health = target.health() if callable(getattr(target, "health", None)) else None
    if isinstance(health, Health) and not health.is_ready:
        return f": {health.text}"
    return "; if it is not going to be, as a replica that stands by, use wait=False"


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
        error.add_note(f"{name} has not ended since either: it runs still")
    for other in errors:
        error.add_note(f"{name}, which ran beside it, raised {other!r}")
