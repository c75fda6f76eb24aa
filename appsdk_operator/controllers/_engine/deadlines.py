"""The deadlines of running reconciles."""

from __future__ import annotations

import threading
from typing import final

from appsdk_operator.controllers._engine.context import ReconcileContext
from appsdk_operator.runtime import Clock, ThreadGroup


@final
class Deadlines:
    """Times out the running reconciles of a controller, which all have one limit. Thread-safe."""

    def __init__(self, threads: ThreadGroup, clock: Clock) -> None:
        self._threads = threads
        self._clock = clock
        self._changed = threading.Condition(threading.Lock())
        # In the order of their deadlines, because all have the same limit.
        self._running: dict[int, ReconcileContext] = {}
        self._has_started = False
        self._is_closed = False
        self._is_waiting_for_first = False

    def begin(self, context: ReconcileContext) -> None:
        """Watch the deadline of ``context``.

        Raises:
            RuntimeError: no thread can be started for it; the next call tries that again.
        """
        with self._changed:
            self._running[id(context)] = context
            if not self._has_started and not self._is_closed:
                self._threads.start("deadlines", self._watch)
                self._has_started = True
            elif self._is_waiting_for_first:
                # Otherwise the thread wakes at an earlier deadline, and looks again.
                self._changed.notify()

    def end(self, context: ReconcileContext) -> None:
        """Stop watching the deadline of ``context``."""
        with self._changed:
            self._running.pop(id(context), None)

    def close(self) -> None:
        """Time out no more reconciles, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()

    def _watch(self) -> None:
        while True:
            with self._changed:
                now = self._clock.monotonic()
                first = next(iter(self._running.values()), None)
                if first is None or first.deadline is None:
                    if self._is_closed:
                        return
                    self._is_waiting_for_first = True
                    self._clock.wait(self._changed)
                    self._is_waiting_for_first = False
                    continue
                if first.deadline > now:
                    if self._is_closed:
                        return
                    self._clock.wait(self._changed, first.deadline - now)
                    continue
                del self._running[id(first)]
            first.time_out()
