"""The end of the threads that call a user's functions, and what they leave behind."""

from __future__ import annotations

import collections
import contextvars
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Final, Protocol, final

from appsdk_operator.runtime._environment import thread_clock
from appsdk_operator.runtime._fork import fork_safe
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._logs.tracebacks import group_members, with_class
from appsdk_operator.runtime._threading.threads import NO_THREAD, LoopPart, LoopThread
from appsdk_operator.runtime._threading.waiters import Gate

_log = get_logger("appsdk_operator.runtime")
_MOST_RESTING: Final = 32
"""Workers too many that wait until one is missing."""
_CANCEL_TIMEOUT: Final = 1.0
"""Seconds for coroutines and threads to end when the time of a stop is over."""


class StillRunning(TimeoutError):  # noqa: N818 - it says what is so, as LeadershipLost
    """Calls of user functions still run after the time limit of the stop.

    If a runnable raises it, alone or in a group, and these calls still run at the end of its
    manager's stop, the manager does not release the Lease, which then expires.
    """

    def __init__(
        self, message: str = "", *, running: Callable[[], list[str]] | None = None
    ) -> None:
        """An error with a function that returns the names of the running threads; default: they run
        for ever."""
        super().__init__(message)
        self._running = running

    def running(self) -> list[str]:
        """The names of the threads that run now."""
        return ["a call"] if self._running is None else self._running()


def left_behind(error: BaseException) -> list[StillRunning]:
    """The errors in ``error``, a group or one alone, that say that calls still run."""
    error = with_class(error)
    if isinstance(error, StillRunning):
        return [error]
    return [one for member in group_members(error) for one in left_behind(member)]


def raise_all(what: str, errors: Sequence[Exception]) -> None:
    """Raise the error, or all of them in a group ``what``; nothing if there is none.

    Raises:
        Exception: the only error.
        ExceptionGroup: several.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(what, errors)


def is_cancelled(error: BaseException) -> bool:
    """Whether ``error`` says that a coroutine was cancelled."""
    # Not imported: a program without coroutines has no such error.
    error = with_class(error)
    modules = (sys.modules.get(name) for name in ("asyncio", "concurrent.futures"))
    return any(isinstance(error, one.CancelledError) for one in modules if one is not None)


class _Threads(Protocol):
    def join(self, timeout: float | None = None) -> list[str]: ...


class _Queue(Protocol):
    @property
    def has_sleepers(self) -> bool: ...

    def next_ticket(self) -> int | None: ...


@final
class Workers:
    """The worker threads of a controller and the event loop of its async callbacks.

    They end together: :meth:`stop` says which of them it left behind.
    """

    def __init__(self, threads: _Threads, loop: LoopThread | LoopPart) -> None:
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
class Places:
    """A number of places that calls of several controllers take. Thread-safe."""

    def __init__(self, count: int) -> None:
        """``count`` free places."""
        self._free = count
        self._lock = fork_safe(threading.Lock())

    def take(self) -> bool:
        """Take a place; False if none is free."""
        with self._lock:
            if self._free <= 0:
                return False
            self._free -= 1
            return True

    def give_back(self) -> None:
        """Free a place that was taken."""
        with self._lock:
            self._free += 1


@final
class SpareWorkers:
    """Workers that are not there yet, or that take the place of those whose calls hang or await.

    A worker that was replaced ends after the piece of work that it hangs in. One that was lent
    goes on when the coroutine has ended and fewer than the number of workers are at work.
    Thread-safe.
    """

    def __init__(self, name: str, start: Callable[[int], object]) -> None:
        """Spare workers of controller ``name``; ``start`` starts the one of a number from 1 on."""
        self.missing: int = 0
        """The number of workers that :meth:`fill` may start."""
        self.lends: bool = False
        """Whether workers may be lent; :meth:`begin` each piece of work then."""
        self._name = name
        self._start = start
        # Re-entrant: a signal handler may close it in the very thread that starts a worker.
        self._lock = fork_safe(threading.RLock())
        self._count = 0
        self._has_no_thread = False
        self._replaced: set[int] = set()
        # Of the thread that the first workers were started in.
        self._context: contextvars.Context | None = None
        # Where workers may be lent. Who is at work has one of as many turns as there are workers.
        self._places = Places(0)
        self._workers = 0
        self._surplus = 0
        self._at_work: set[int] = set()
        self._lent: set[int] = set()
        self._waiting: collections.deque[tuple[int, Gate]] = collections.deque()
        self._resting: list[Gate] = []

    def allow_lending(self, workers: int, places: Places) -> None:
        """Before the start: let :meth:`lend` have an effect, at the cost of two locks a piece.

        Args:
            workers: the number of workers, of whom no more are at work at once.
            places: the places for those that are lent.
        """
        self._workers, self._places, self.lends = workers, places, True

    def open(self, missing: int = 0) -> None:
        """Start, replace and lend workers from now on.

        Args:
            missing: how many of them have not started.
        """
        self._context = contextvars.copy_context()
        self.missing = missing

    def close(self) -> None:
        """Start no more workers; none waits for its turn, or rests, any more."""
        with self._lock:
            self._context = None
            while self._waiting:
                self._waiting.popleft()[1].open()
            while self._resting:
                self._resting.pop().open()

    def fill(self) -> None:
        """Start one of the workers that are missing, if any is."""
        with self._lock:
            if self._context is None or not self.missing:
                return
            self.missing -= 1
            if self._resting:
                self._resting.pop().open()
                return
        if not self._start_one():
            with self._lock:
                # One that came back meanwhile may do without it.
                if self._surplus:
                    self._surplus -= 1
                elif self._resting:
                    self._resting.pop().open()
                else:
                    self.missing += 1

    def start_missing(self, queue: _Queue) -> None:
        """Start one of the workers that are missing if it has work, and nobody waits for it."""
        has_work = self.missing and queue.next_ticket() is not None
        if has_work and not queue.has_sleepers:
            self.fill()

    def replace(self, thread: int) -> bool:
        """Start a worker in the place of ``thread``; False if that has one, or it cannot be."""
        with self._lock:
            if self._context is None or thread in self._replaced or thread in self._lent:
                return False
            self._replaced.add(thread)
            self._let_go(thread)
        if not self._start_one():
            with self._lock:
                if thread in self._replaced:
                    self._replaced.discard(thread)
                else:  # it has ended meanwhile
                    self.missing += 1
            return False
        return True

    def is_lent(self, thread: int) -> bool:
        """Whether a worker waits for a coroutine or its turn, and others do its work meanwhile."""
        return thread in self._lent

    # For a worker.

    def begin(self) -> None:
        """Begin a piece of work: wait for a turn, where workers may be lent."""
        thread = threading.get_ident()
        with self._lock:
            if self._context is None or len(self._at_work) < self._workers:
                self._at_work.add(thread)
                return
            gate = Gate()
            self._waiting.append((thread, gate))
        gate.wait()

    def lend(self) -> bool:
        """The calling worker waits for a coroutine from now on, and another one may be started.

        Returns:
            Whether that is so until :meth:`take_back`; False also where no place is free.
        """
        thread = threading.get_ident()
        with self._lock:
            # One that was replaced has no turn.
            may = self._context is not None and thread in self._at_work and self._places.take()
            if may:
                self._lent.add(thread)
                self.missing += 1
                self._let_go(thread)
        return may

    def take_back(self) -> None:
        """The coroutine of the calling worker has ended: wait for a turn."""
        self._places.give_back()
        with self._lock:
            if self.missing:
                self.missing -= 1
            else:
                self._surplus += 1
        self.begin()
        # Not before: a worker that waits for its turn has no place for another one to take.
        with self._lock:
            self._lent.discard(threading.get_ident())

    def have_replaced_me(self) -> bool:
        """Whether the calling worker is to end, because another one has its place."""
        if not self._replaced:
            return False
        thread = threading.get_ident()
        with self._lock:
            is_replaced = thread in self._replaced
            if is_replaced:
                self._replaced.discard(thread)
                self._let_go(thread)
        return is_replaced

    def end(self) -> bool:
        """End a piece of work; returns whether the calling worker is one too many."""
        with self._lock:
            self._let_go(threading.get_ident())
            if not self._surplus:
                return False
            self._surplus -= 1
            return True

    def rest(self) -> bool:
        """Wait until a worker is missing, as to start a thread takes long; False: end instead."""
        with self._lock:
            if self._context is None or len(self._resting) >= _MOST_RESTING:
                return False
            gate = Gate()
            self._resting.append(gate)
        gate.wait()
        return True

    def _let_go(self, thread: int) -> None:
        """The thread has no turn any more; who has waited longest has it. The lock is held."""
        self._at_work.discard(thread)
        while self._waiting and len(self._at_work) < self._workers:
            following, gate = self._waiting.popleft()
            self._at_work.add(following)
            gate.open()

    def _start_one(self) -> bool:
        with self._lock:
            context, self._count = self._context, self._count + 1
            number = self._count
        if context is None:
            return False
        try:
            context.copy().run(self._start, number)
        except NO_THREAD:
            if not self._has_no_thread:
                self._has_no_thread = True
                _log.exception("%s: cannot start a thread for another worker", self._name)
            return False
        self._has_no_thread = False
        return True


def _left(deadline: float) -> float:
    return max(0.0, deadline - thread_clock().monotonic())
