"""The end of the threads that call a user's functions, and what they leave behind."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from typing import Final, Protocol, final

from appsdk_operator.runtime._environment import thread_clock
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._logs.tracebacks import group_members
from appsdk_operator.runtime._threading.threads import LoopThread

_log = get_logger("appsdk_operator.runtime")
_CANCEL_TIMEOUT: Final = 1.0
"""Seconds for coroutines and threads to end when the time of a stop is over."""


class StillRunning(TimeoutError):  # noqa: N818 - it says what is so, as LeadershipLost
    """Calls of a user's functions still run although the time of a stop is over.

    A runnable that raises it, alone or in a group, makes its manager keep the Lease for as long as
    they run.
    """

    def __init__(
        self, message: str = "", *, running: Callable[[], list[str]] | None = None
    ) -> None:
        """An error with the function that names what runs now; default: for ever."""
        super().__init__(message)
        self._running = running

    def running(self) -> list[str]:
        """The names of the threads that run now."""
        return ["a call"] if self._running is None else self._running()


def left_behind(error: BaseException) -> list[StillRunning]:
    """The errors in ``error``, a group or one alone, that say that calls still run."""
    if isinstance(error, StillRunning):
        return [error]
    return [one for member in group_members(error) for one in left_behind(member)]


def is_cancelled(error: BaseException) -> bool:
    """Whether ``error`` says that a coroutine was cancelled."""
    # Not imported: a program without coroutines has no such error.
    modules = (sys.modules.get(name) for name in ("asyncio", "concurrent.futures"))
    return any(isinstance(error, one.CancelledError) for one in modules if one is not None)


class _Threads(Protocol):
    def join(self, timeout: float | None = None) -> list[str]: ...


@final
class Workers:
    """The worker threads of a controller and the event loop of its async callbacks.

    They end together: :meth:`stop` says which of them it left behind.
    """

    def __init__(self, threads: _Threads, loop: LoopThread) -> None:
        """``threads`` call the user's functions, and await their coroutines on ``loop``."""
        self._threads = threads
        self._loop = loop

    def stop(self, deadline: float) -> list[str]:
        """Cancel coroutines, and wait until all threads have ended.

        Args:
            deadline: how long to wait, as a time of :func:`thread_clock`; a second more for
                coroutines that ignore their cancellation.

        Returns:
            The names of the threads that still run.
        """
        self._loop.close(0.0)
        self._threads.join(_left(deadline))
        self._loop.close(_CANCEL_TIMEOUT)
        return self.running()

    def running(self) -> list[str]:
        """The names of the threads that run now."""
        return self._threads.join(0.0) + self._loop.close(0.0)


@final
class SpareWorkers:
    """Workers that take the place of those whose calls hang. Thread-safe.

    A worker that was replaced ends after the piece of work that it hangs in.
    """

    def __init__(self, name: str, start: Callable[[int], object]) -> None:
        """Spare workers of controller ``name``; ``start`` starts the one of a number from 1 on."""
        self._name = name
        self._start = start
        self._lock = threading.Lock()
        self._count = 0
        self._replaced: set[int] = set()
        # Of the thread that the first workers were started in.
        self._context: contextvars.Context | None = None

    def open(self) -> None:
        """Replace workers from now on: they have started."""
        self._context = contextvars.copy_context()

    def close(self) -> None:
        """Replace no more workers."""
        self._context = None

    def replace(self, thread: int) -> bool:
        """Start a worker in the place of ``thread``; False if that has one, or it cannot be."""
        context = self._context
        with self._lock:
            if context is None or thread in self._replaced:
                return False
            self._replaced.add(thread)
            self._count += 1
            number = self._count
        try:
            context.copy().run(self._start, number)
        except RuntimeError:
            with self._lock:
                self._replaced.discard(thread)
            _log.exception("%s: no thread is to be had for a spare worker", self._name)
            return False
        return True

    def have_replaced_me(self) -> bool:
        """Whether the calling worker is to end, because another one has its place."""
        if not self._replaced:
            return False
        thread = threading.get_ident()
        with self._lock:
            is_replaced = thread in self._replaced
            self._replaced.discard(thread)
        return is_replaced


def _left(deadline: float) -> float:
    return max(0.0, deadline - thread_clock().monotonic())
