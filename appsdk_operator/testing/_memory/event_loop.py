# ruff: noqa: SLF001 - asyncio has no public way to set the running loop
"""An asyncio event loop without a selector, which its owner runs step by step."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from typing import Any, final

from appsdk_operator.runtime import Clock


@final
class _Handle:
    """A callback to run, with the methods of asyncio's handles and timers.

    Those are made in Python as well, and do for debugging what takes a tenth of a request.
    """

    __slots__ = ("_args", "_callback", "_context", "_when")

    def __init__(
        self,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context | None,
        when: float = 0.0,
    ) -> None:
        """A callback that was not run yet; ``when`` is of a timer."""
        self._callback: Callable[..., object] | None = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._when = when

    def run(self) -> None:
        """Call the callback, unless that was cancelled; its errors are those of the caller."""
        if self._callback is not None:
            self._context.run(self._callback, *self._args)

    def cancel(self) -> None:
        """Keep the callback from being called."""
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._callback is None

    def when(self) -> float:
        """The time of the timer."""
        return self._when


@final
class ManualEventLoop:
    """An event loop that runs in the thread that calls :meth:`run_due`, with timers of a clock.

    It has the methods that futures, tasks and timers of asyncio need, and no others: it never
    waits, and has no sockets. One thread at a time may use it.
    """

    def __init__(self, clock: Clock) -> None:
        """An empty loop, whose time is that of ``clock``."""
        self._clock = clock
        self._ready: deque[_Handle] = deque()
        self._timers: list[tuple[float, int, _Handle]] = []
        self._sequence = itertools.count()
        # By insertion: the order of cancellations is the same in each run.
        self._tasks: dict[asyncio.Task[Any], None] = {}

    @property
    def as_loop(self) -> asyncio.AbstractEventLoop:
        """This loop with the type that asyncio asks for."""
        loop: Any = self
        return loop  # type: ignore[no-any-return]

    def run_due(self) -> None:
        """Run all callbacks and timers that are due, and those that they schedule."""
        if not self._ready and not self._is_due():
            return
        before = asyncio._get_running_loop()  # the loop of the test, where that is a coroutine
        asyncio._set_running_loop(self.as_loop)
        try:
            while self._ready or self._is_due():
                while self._is_due():
                    self._ready.append(heapq.heappop(self._timers)[2])
                for _ in range(len(self._ready)):
                    self._ready.popleft().run()
        finally:
            asyncio._set_running_loop(before)

    def _is_due(self) -> bool:
        return bool(self._timers) and self._timers[0][0] <= self._clock.monotonic()

    @property
    def next_deadline(self) -> float | None:
        """When the next timer is due, on the clock; None when there is none."""
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def close(self) -> None:
        """Cancel all tasks and timers."""
        for task in list(self._tasks):
            task.cancel()
        self.run_due()
        self._timers.clear()

    # -- the part of asyncio.AbstractEventLoop that tasks need -------------------------------

    def time(self) -> float:
        """The monotonic time of the clock."""
        return self._clock.monotonic()

    def is_running(self) -> bool:
        """Always true: whoever asks runs on it."""
        return True

    def is_closed(self) -> bool:
        """Always false."""
        return False

    def get_debug(self) -> bool:
        """Always false."""
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> _Handle:
        """Run ``callback`` in the next round."""
        handle = _Handle(callback, args, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self,
        delay: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        """Run ``callback`` after ``delay`` seconds of the clock."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[..., object],
        *args: Any,
        context: Context | None = None,
    ) -> _Handle:
        """Run ``callback`` at a time of the clock."""
        timer = _Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._sequence), timer))
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        """A future of this loop."""
        return asyncio.Future(loop=self.as_loop)

    def create_task(self, coro: Coroutine[Any, Any, Any], **options: Any) -> asyncio.Task[Any]:
        """A task that begins in the next round."""
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self.as_loop, **options)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise the error, so that no test misses it."""
        error = context.get("exception")
        if error is not None:
            raise error
