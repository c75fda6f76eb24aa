"""The asyncio event loop of the threads of a :class:`ThreadScheduler`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import Any, final

from appsdk_operator.runtime import Clock

__all__ = ["SimulatedEventLoop"]


@final
class SimulatedEventLoop(asyncio.BaseEventLoop):
    """An event loop with the timers of a clock, without sockets; it is its own selector."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self._selector = self
        self._changed = threading.Condition()
        self._is_woken = False
        self.tasks: dict[asyncio.Task[Any], None] = {}
        """In the order of their creation, in which they are cancelled in each run."""

    def create_task(self, coro: Any, **options: Any) -> asyncio.Task[Any]:
        task = super().create_task(coro, **options)
        self.tasks[task] = None
        task.add_done_callback(lambda done: self.tasks.pop(done, None))
        return task

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

    def run_in_executor(  # type: ignore[override] - the checkers have a type variable for args
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call ``func`` in a thread of its own, which the scheduler knows."""
        del executor
        outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()

        def call() -> None:
            try:
                outcome.set_result(func(*args))
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=call, name="asyncio").start()
        return asyncio.wrap_future(outcome, loop=self)
