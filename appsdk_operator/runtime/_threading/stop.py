"""The stop signal that every blocking call takes."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import final

from appsdk_operator.runtime._clock import Clock
from appsdk_operator.runtime._environment import present_clock
from appsdk_operator.runtime._fork import fork_safe
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._threading.threads import settle
from appsdk_operator.runtime._threading.waiters import Waiters

_log = get_logger("appsdk_operator.runtime")


@final
class StopSignal:
    """A flag that is set once; every blocking call of the kit takes one and obeys it.

    Setting it twice is harmless. Setting a signal also sets each :meth:`child` of it. Setting a
    child does not set its parent, so a group can be stopped alone. Thread-safe; signal handlers may
    set it.

    >>> stop = StopSignal()
    >>> group = stop.child()
    >>> group.set()
    >>> stop.is_set()
    False
    """

    def __init__(self, *, clock: Clock | None = None) -> None:
        """A signal whose waits use ``clock``; default: the environment's."""
        self._clock = clock = present_clock(clock)
        # Re-entrant, because a Python signal handler may call set() in a thread that is inside one
        # of these methods.
        self._lock = fork_safe(threading.RLock())
        self._is_set = False
        self._parents: tuple[StopSignal, ...] = ()
        self._waiters = Waiters(clock)
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_id = 0
        self._detach: Callable[[], None] = lambda: None

    def is_set(self) -> bool:
        """Whether the signal was set."""
        if self._is_set:
            return True
        # A parent's callbacks run one after the other, of which one sets this signal. Until then it
        # must not be taken for one that goes on.
        for parent in self._parents:  # noqa: SIM110 - a generator costs more than the rest
            if parent.is_set():
                return True
        return False

    def set(self) -> None:
        """Set the signal: wake every :meth:`wait`, and run each callback once.

        An error of a callback is logged; the other callbacks still run.
        """
        with self._lock:
            if self._is_set:
                return
            self._is_set = True
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        self._waiters.wake()
        self._detach()
        self._parents = ()
        for callback in callbacks:
            _run(callback)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most ``timeout`` seconds until it is set; returns whether it is."""
        return self._waiters.wait(self.is_set, timeout=timeout)

    async def wait_async(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 - as wait()
        """As :meth:`wait`, for ``async def`` functions: other coroutines of the loop go on running.

        Args:
            timeout: seconds of the event loop's clock; default: no limit.
        """
        # Imported here, as everywhere in this room.
        import asyncio

        loop, event = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(event.set)

        detach = self.on_set(wake)
        try:
            await asyncio.wait_for(event.wait(), timeout)
        except TimeoutError:
            pass
        finally:
            detach()
        return self.is_set()

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` when the signal is set; at once if it is set already.

        Callbacks run in the thread that sets the signal and must return promptly.

        Returns:
            A function that removes the callback; calling it later or twice is harmless.
        """
        with self._lock:
            self._next_id += 1
            key = self._next_id
            self._callbacks[key] = callback
            # Checked after the addition: a signal handler may have set it just before.
            if not self._is_set or self._callbacks.pop(key, None) is None:
                return lambda: self._forget(key)
        _run(callback)
        return lambda: None

    def child(self, *others: StopSignal) -> StopSignal:
        """Make a signal that is set when this one or one of ``others`` is; it can be set alone.

        It is set at the same moment as its parent; its callbacks run among its parent's.
        """
        child = StopSignal(clock=self._clock)
        child._parents = (self, *others)
        # A set child removes itself from its parents, so that a long-lived parent does not grow
        # with every former child.
        detach = [parent.on_set(child.set) for parent in child._parents]

        def detach_all() -> None:
            for each in detach:
                each()

        child._detach = detach_all
        if child._is_set:  # by one of them meanwhile, when it had nothing to detach
            detach_all()
        return child

    def _forget(self, key: int) -> None:
        with self._lock:
            self._callbacks.pop(key, None)


def check_stop(stop: object) -> None:
    """Check that ``stop`` is a stop signal.

    Raises:
        TypeError: it is not a stop signal.
    """
    if not isinstance(stop, StopSignal):
        raise TypeError(f"stop={stop!r} is not a StopSignal: make one with StopSignal()")


def _run(callback: Callable[[], object]) -> None:
    try:
        settle(callback())
    except BaseException:
        # Also SystemExit and the like: the callbacks after this one have to run.
        _log.exception("a callback of a stop signal failed")
