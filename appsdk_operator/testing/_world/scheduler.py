# ruff: noqa: SLF001 - the blocking calls of threading have no public hooks
"""A deterministic thread scheduler: one thread runs at a time, on a manual clock.

Programs with threads run unchanged. The blocking calls of the scheduler's threads (conditions,
events, joins) are patched: each switches to the next thread. A thread runs until it waits. When all
threads wait, the clock moves to the earliest deadline. A seed decides the order of the threads, so
nothing depends on the machine.

On Linux the threads share one processor, and none preempts another. One that wakes another on a
second processor pays for the interrupt, and the other one then waits for the interpreter's lock: a
simulated hour of two replicas takes nearly twice the processor time.

The kit's own locks are not patched, but that of its Latch: no thread waits while it holds one, so
none ever finds one held. Those of other code are: their holder may wait for an answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import queue
import random
import sys
import threading
import traceback
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, final

from appsdk_operator.controllers import controller_names
from appsdk_operator.runtime import (
    Latch,
    ManualClock,
    current_frames,
    entered_environment,
    environment,
    processor_time_of_thread,
)

_LOOK: Final = 1.0
"""Seconds of real time after which the driver looks at the thread that it waits for."""
_MOST_COMPUTING: Final = 20.0
"""Seconds of processor time of a thread that comes to no wait."""
_MOST_IDLE: Final = 60.0
"""Seconds of real time of a thread that blocks: a test's usual time limit is longer."""
_IDLE_SHARE: Final = 0.01
"""The share of a processor below which a thread blocks; a thread that only waits for a busy
processor gets more."""
_MOST_WAITS_AT_END: Final = 20
_here: Final = threading.local()

_real_wait = threading.Condition.wait
_real_start = threading.Thread.start
_real_join = threading.Thread.join
_RealRandom = random.Random
_real_loop = asyncio.new_event_loop
_real_rlock = threading.RLock
_real_claim = controller_names.claim
_real_time = threading._time  # type: ignore[attr-defined]
_real_pool = ThreadPoolExecutor.__init__


class StuckError(RuntimeError):
    """A thread never waits, or all threads wait without a deadline."""


class _BlockEndedError(BaseException):
    """Raised in threads that wait at the end of the scheduler's block."""


@final
class Fiber:
    """A thread of the scheduler."""

    def __init__(self, schedule: ThreadScheduler, name: str, owner: object) -> None:
        """A thread that is ready to run, and belongs to ``owner``."""
        self.schedule = schedule
        self.name = name
        self.owner = owner
        self.thread: threading.Thread | None = None
        self.is_ready: bool = True
        self.has_ended: bool = False
        self.gate: Any = allocate_lock()
        self.gate.acquire()
        self.done: threading.Condition = threading.Condition()
        self.processor_time: Callable[[], float] = lambda: 0.0

    def release(self) -> None:
        """Wake it: it is a waiter of a condition, as locks of other threads are."""
        self.schedule.wake(self)

    def end(self) -> None:
        """Mark it as ended, and wake the threads that join it."""
        with self.done:
            self.has_ended = True
            self.done.notify_all()
        self.is_ready = False


@final
class Patience:
    """Decides, look by look, whether a thread will not come to a wait.

    It goes by what the thread does. The time alone says nothing: the machine may be busy.
    """

    def __init__(self) -> None:
        self._used: dict[Fiber, tuple[float, float]] = {}
        self._idle = 0.0

    def end(self, fiber: Fiber, used: float) -> str:
        """The reason to wait no longer, or "".

        Args:
            fiber: the thread that runs.
            used: the seconds of processor time that it has used.
        """
        first, last = self._used.get(fiber, (used, used))
        self._used[fiber] = first, used
        if used - first >= _MOST_COMPUTING:
            return f"it has computed for {_MOST_COMPUTING:g} s"
        if used - last < _IDLE_SHARE * _LOOK:
            self._idle += _LOOK
        if self._idle >= _MOST_IDLE:
            return f"it has blocked for {_MOST_IDLE:g} s in a call that is not simulated"
        return ""


@final
class ThreadScheduler:
    """Runs threads one at a time; use it in a ``with`` block, whose thread is the driver.

    It schedules every thread that is started within the block; each must end within the block.
    """

    def __init__(self, clock: ManualClock, *, seed: int = 0) -> None:
        """A scheduler without threads.

        Args:
            clock: the clock of its threads.
            seed: decides which of the ready threads is next; 0: the one that was ready first.
        """
        self.clock = clock
        self._environment = environment(clock=clock)
        self.fibers: list[Fiber] = []
        self._rng = _RealRandom(seed) if seed else None
        self._driver = Fiber(self, "driver", None)
        self._random_before: Any = None
        self._ready: list[Fiber] = []
        self._frozen: dict[int, list[Fiber]] = {}
        self.is_interrupted: bool = False
        """Set to return to the driver before all threads wait."""
        self._is_over = False
        self._ended: list[Fiber] = []
        self._running = self._driver
        self._patience: Patience | None = None
        self._stuck = ""
        """Why the driver gave up to wait for the running thread, which may still go on."""
        self._abandoned: Fiber | None = None
        self._processor = _one_processor()

    def __enter__(self) -> ThreadScheduler:
        if getattr(_here, "fiber", None) is not None:
            raise RuntimeError("a simulated thread cannot drive a simulation of its own")
        _here.fiber = self._driver
        self._random_before = random.getstate()
        random.seed(self.clock.rng.getrandbits(64))
        _install(self)
        self.clock.runs_threads = True
        self._environment.__enter__()
        self._processor.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over, self.is_interrupted = True, False
        self._frozen.clear()
        self._ready = []
        try:
            # A thread that blocks in something else ends with its next wait.
            if self._stuck and not self._is_back():
                self._stuck, self._abandoned = "", self._running
            with contextlib.suppress(StuckError):
                for _round in range(_MOST_WAITS_AT_END):
                    self._ready = [fiber for fiber in self.fibers if fiber is not self._abandoned]
                    self.run_ready()
        finally:
            _here.fiber = None
            self._processor.__exit__(None, None, None)
            self._environment.__exit__()
            self.clock.runs_threads = False
            _uninstall(self)
            random.setstate(self._random_before)

    # -- for the driver ----------------------------------------------------------------------

    def run_ready(self) -> None:
        """Run the ready threads until all wait, or one interrupts."""
        while self._ready and not self.is_interrupted:
            self._switch(self._driver)

    def jump(self, *, until: float = float("inf")) -> bool:
        """Move the clock to the earliest deadline; False where that is after ``until``."""
        return self.clock.advance_to_next(until=until)

    @contextlib.contextmanager
    def owned_by(self, owner: object) -> Iterator[None]:
        """Threads that are started in this block, and their threads, belong to ``owner``."""
        fiber: Fiber = _here.fiber
        before, fiber.owner = fiber.owner, owner
        try:
            yield
        finally:
            fiber.owner = before

    def freeze(self, owner: object) -> None:
        """Suspend the threads of ``owner`` until :meth:`thaw`, as a paused machine does."""
        self._frozen.setdefault(id(owner), []).extend(
            [fiber for fiber in self._ready if fiber.owner is owner]
        )
        self._ready = [fiber for fiber in self._ready if fiber.owner is not owner]

    def thaw(self, owner: object) -> None:
        """Resume the threads of ``owner``; does nothing where they are not suspended."""
        self._ready += self._frozen.pop(id(owner), [])

    # -- for its threads ---------------------------------------------------------------------

    def maybe_switch(self) -> None:
        """Switch to another thread, if the seed chooses one."""
        me: Fiber | None = getattr(_here, "fiber", None)
        if self._rng is not None and me is not None and self._ready:
            self.yield_now()

    def yield_now(self) -> None:
        """Switch to another thread; for good where the owner is suspended. Not for the driver."""
        me: Fiber = _here.fiber
        if me is not self._driver:
            self.wake(me)
            self._switch(me)

    def wake(self, fiber: Fiber) -> None:
        """Make a thread ready."""
        fiber.is_ready = True
        if fiber is self._driver:
            return
        ready = self._frozen.get(id(fiber.owner), self._ready)
        if fiber not in ready:
            ready.append(fiber)

    def pause(self, me: Fiber) -> None:
        """Run other threads until this one is woken."""
        if me is not self._driver:
            self._switch(me)
            return
        self.run_ready()
        while not me.is_ready:
            if not self.jump():
                raise StuckError("all threads wait, and none has a time-out: this never ends")
            self.run_ready()

    def _switch(self, me: Fiber) -> None:
        """Switch to the next thread; return when this one is chosen again."""
        if me is self._abandoned:
            if me.has_ended:
                return
            raise _BlockEndedError
        if me is self._driver and self._stuck and not self._is_back():
            raise StuckError(self._blocked())
        following = self._next(me)
        if following is not me:
            self._running = following
            following.gate.release()
            if me.has_ended:
                return
            if me is self._driver:
                if not self._is_back():
                    raise StuckError(self._blocked())
            else:
                me.gate.acquire()
                if self._is_over:
                    raise _BlockEndedError
        self._running = me
        while self._ended:
            thread = self._ended.pop().thread
            if thread is not None and thread is not threading.current_thread():
                _real_join(thread)

    def _is_back(self) -> bool:
        """Wait until it is the driver's turn again; False if the thread that runs is stuck."""
        while not self._driver.gate.acquire(timeout=_LOOK):
            fiber = self._running
            self._patience = self._patience or Patience()
            self._stuck = self._patience.end(fiber, fiber.processor_time())
            if self._stuck:
                return False
        self._stuck, self._patience = "", None
        return True

    def _next(self, me: Fiber) -> Fiber:
        if not self._ready or (self.is_interrupted and me is not self._driver):
            return self._driver
        if self._rng is None or len(self._ready) == 1:
            return self._ready.pop(0)
        return self._ready.pop(self._rng.randrange(len(self._ready)))

    def _blocked(self) -> str:
        fiber = self._running
        ident = fiber.thread.ident if fiber.thread else None
        frame = current_frames().get(ident or 0)
        where = "".join(traceback.format_stack(frame)[-4:]) if frame else ""
        return f"the thread {fiber.name} has not come to a wait: {self._stuck}\n{where}"

    # -- replacements of threading's methods --------------------------------------------------

    def start(self, me: Fiber, thread: threading.Thread) -> None:
        """Start a thread as part of the scheduler."""
        child = Fiber(self, thread.name, me.owner)
        child.thread = thread
        run = thread.run
        environment = entered_environment()

        def run_scheduled() -> None:
            _here.fiber = child
            child.processor_time = processor_time_of_thread()
            child.gate.acquire()
            try:
                with contextlib.suppress(_BlockEndedError), environment:
                    run()
            finally:
                child.end()
                self.fibers.remove(child)
                self._ended.append(child)
                _here.fiber = None
                self._switch(child)

        thread.run = run_scheduled  # type: ignore[method-assign]
        thread._appsdk_operator_fiber = child  # type: ignore[attr-defined]
        _here.fiber = None
        try:
            _real_start(thread)
        finally:
            _here.fiber = me
        self.fibers.append(child)
        self.wake(child)

    def join(self, target: Fiber, timeout: float | None) -> None:
        """Wait until another thread has ended."""
        deadline = None if timeout is None else self.clock.monotonic() + max(0.0, timeout)
        with target.done:
            while not target.has_ended:
                left = None if deadline is None else deadline - self.clock.monotonic()
                if left is not None and left <= 0:
                    return
                self.clock.wait(target.done, left)


@contextlib.contextmanager
def _one_processor() -> Iterator[None]:
    """Keep this thread, and those that it starts in the block, on the processor on which it runs.

    A thread that is woken waits there until the one that woke it waits itself. Does nothing on
    another system than Linux, and where a sandbox refuses.
    """
    undo = contextlib.ExitStack()
    with contextlib.suppress(AttributeError, OSError):
        processors = os.sched_getaffinity(0)
        # The 39th field; the second one, a name in parentheses, may have spaces.
        fields = Path("/proc/thread-self/stat").read_bytes().rpartition(b")")[2].split()
        os.sched_setaffinity(0, {int(fields[36])})
        undo.callback(os.sched_setaffinity, 0, processors)
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
            undo.callback(os.sched_setscheduler, 0, os.SCHED_OTHER, os.sched_param(0))
    try:
        yield
    finally:
        # The processors of a container may have been changed.
        with contextlib.suppress(OSError):
            undo.close()


def _wait(self: threading.Condition, timeout: float | None = None) -> bool:
    me: Fiber | None = getattr(_here, "fiber", None)
    if me is None:
        return _real_wait(self, timeout)
    if timeout is not None:
        deadline = me.schedule.clock.monotonic() + timeout
        if timeout > 0:
            me.schedule.clock.wait(self, timeout)
        return me.schedule.clock.monotonic() < deadline
    condition: Any = self
    condition._waiters.append(me)
    saved = condition._release_save()
    me.is_ready = False
    try:
        me.schedule.pause(me)
    finally:
        condition._acquire_restore(saved)
        with contextlib.suppress(ValueError):
            condition._waiters.remove(me)
    return True


def _start(self: threading.Thread) -> None:
    me: Fiber | None = getattr(_here, "fiber", None)
    if me is None:
        _real_start(self)
    else:
        me.schedule.start(me, self)


def _join(self: threading.Thread, timeout: float | None = None) -> None:
    me: Fiber | None = getattr(_here, "fiber", None)
    target: Fiber | None = getattr(self, "_appsdk_operator_fiber", None)
    if me is None or target is None:
        _real_join(self, timeout)
    else:
        me.schedule.join(target, timeout)


@final
class _EventLoop(asyncio.BaseEventLoop):
    """An event loop with the timers of a clock, without sockets; it is its own selector."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._selector = self
        self._changed = threading.Condition()
        self._is_woken = False

    def time(self) -> float:
        return self._clock.monotonic()

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until a timer is due, or another thread schedules a callback."""
        with self._changed:
            if not self._is_woken and timeout != 0:
                self._clock.wait(self._changed, timeout)
            self._is_woken = False
        return []

    def _process_events(self, _: list[Any]) -> None:
        """Does nothing: a selector without sockets finds none."""

    def _write_to_self(self) -> None:
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()


def _new_event_loop() -> asyncio.AbstractEventLoop:
    clock = _clock()
    return _real_loop() if clock is None else _EventLoop(clock)


@final
class _Lock(threading.BoundedSemaphore):
    """A lock whose holder may wait for something else."""

    def acquire(self, blocking: bool = True, timeout: float | None = -1.0) -> bool:
        return super().acquire(blocking, None if timeout is None or timeout < 0 else timeout)

    def release(self, n: int = 1) -> None:
        try:
            super().release(n)
        except ValueError:
            raise RuntimeError("release unlocked lock") from None

    def locked(self) -> bool:
        return self._value == 0


def _new_lock() -> Any:
    if getattr(_here, "fiber", None) is None:
        return allocate_lock()
    module = sys._getframe(1).f_globals.get("__name__")
    return allocate_lock() if _is_held_shortly(module) and module != Latch.__module__ else _Lock()


def _new_rlock() -> Any:
    if getattr(_here, "fiber", None) is None or _is_held_shortly(
        sys._getframe(1).f_globals.get("__name__")
    ):
        return _real_rlock()
    made = threading._PyRLock()  # type: ignore[attr-defined]
    made._block = _Lock()
    return made


@functools.cache
def _is_held_shortly(module: object) -> bool:
    """Whether code of this module never waits while it holds a lock; of an operator, it may."""
    return str(module).partition(".")[0] in ("appsdk_operator", "logging", "threading")


def _claim(name: str, owner: object) -> None:
    # The simulated processes share this process, but each has controller names of its own.
    if getattr(_here, "fiber", None) is None:
        _real_claim(name, owner)


class _Random(_RealRandom):
    """A generator whose default seed comes from the scheduler's clock."""

    def __init__(self, x: Any = None) -> None:
        clock = _clock() if x is None else None
        super().__init__(x if clock is None else clock.rng.getrandbits(64))


@final
class _InOrder(dict[threading.Thread, None]):
    """The threads of a pool, which joins them one by one: a set has them by their addresses."""

    def add(self, thread: threading.Thread) -> None:
        self[thread] = None


def _new_pool(self: Any, *args: Any, **options: Any) -> None:
    _real_pool(self, *args, **options)
    if _clock() is not None:
        self._threads = _InOrder()


def _clock() -> ManualClock | None:
    me: Fiber | None = getattr(_here, "fiber", None)
    return None if me is None else me.schedule.clock


def _time() -> float:
    clock = _clock()
    return _real_time() if clock is None else clock.monotonic()


_REPLACED: Final[list[tuple[Any, str, Callable[..., Any], Callable[..., Any]]]] = [
    (threading.Condition, "wait", _real_wait, _wait),
    (threading.Thread, "start", _real_start, _start),
    (threading.Thread, "join", _real_join, _join),
    (threading, "_time", _real_time, _time),
    (threading, "Lock", threading.Lock, _new_lock),
    (threading, "RLock", _real_rlock, _new_rlock),
    (queue, "time", _real_time, _time),
    (queue, "SimpleQueue", queue.SimpleQueue, queue._PySimpleQueue),  # type: ignore[attr-defined]
    (random, "Random", _RealRandom, _Random),
    (asyncio, "new_event_loop", _real_loop, _new_event_loop),
    (asyncio.events, "new_event_loop", _real_loop, _new_event_loop),
    (controller_names, "claim", _real_claim, _claim),
    (ThreadPoolExecutor, "__init__", _real_pool, _new_pool),
]
_installing: Final = threading.Lock()
_users: Final[list[ThreadScheduler]] = []


def _install(schedule: ThreadScheduler) -> None:
    """Patch the blocking calls; other threads keep the real ones."""
    with _installing:
        _users.append(schedule)
        if len(_users) == 1:
            for owner, name, _, ours in _REPLACED:
                setattr(owner, name, ours)


def _uninstall(schedule: ThreadScheduler) -> None:
    with _installing:
        _users.remove(schedule)
        if not _users:
            for owner, name, real, _ in _REPLACED:
                setattr(owner, name, real)
