"""A controller with scripted sources and outcomes, on a clock that the test moves."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

import attrs

from appsdk_operator.controllers import (
    Controller,
    ControllerOptions,
    ReconcileContext,
    RequestQueue,
    reconcile_context,
)
from appsdk_operator.runtime import ItemExponential, ManualClock, Metrics, StopSignal
from tests.runs import Run

PATIENCE = 10.0
"""Seconds that a test waits for another thread before it fails."""

_numbers = itertools.count()


def plain_limiter() -> ItemExponential:
    """1, 2, 4, … seconds, without jitter."""
    return ItemExponential(base=1.0, maximum=1000.0, jitter=0.0)


class Tap:
    """A source that gives its queue to the test."""

    def __init__(self, *requests: Any) -> None:
        self.requests = requests
        self.starts = 0
        self.queue: RequestQueue[Any] | None = None
        self.stop: StopSignal | None = None

    def __str__(self) -> str:
        return "tap"

    def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
        self.starts += 1
        self.queue = queue
        self.stop = stop
        for request in self.requests:
            queue.add(request)

    def add(self, request: Any, **how: Any) -> None:
        assert self.queue is not None
        self.queue.add(request, **how)


class SyncingTap(Tap):
    """One that has synced when the test says so; what it hands over comes before that."""

    def __init__(self, *requests: Any, text: str = "syncing tap") -> None:
        super().__init__()
        self.initial = requests
        self.text = text
        self.synced = StopSignal()
        self.is_waited_for = threading.Event()

    def __str__(self) -> str:
        return self.text

    def sync(self) -> None:
        for request in self.initial:
            self.add(request)
        self.synced.set()

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        forget = stop.on_set(self.synced.set)
        self.is_waited_for.set()
        try:
            self.synced.wait(PATIENCE)
            return not stop.is_set()
        finally:
            forget()


class Script:
    """A reconciler that does what the test planned for each call, and then nothing."""

    def __init__(self, *plan: Any) -> None:
        self.plan = list(plan)
        self.calls: list[Any] = []
        self.contexts: list[ReconcileContext] = []
        self.during: Callable[[Any], None] = lambda _: None

    def reconcile(self, request: Any) -> Any:
        self.calls.append(request)
        context = reconcile_context()
        assert context is not None
        self.contexts.append(context)
        self.during(request)
        outcome = self.plan.pop(0) if self.plan else None
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


class Rig:
    """A controller, its script, a tap, and a clock."""

    def __init__(self, *plan: Any, reconciler: Any = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.metrics = options.pop("metrics", None) or Metrics()
        self.script = Script(*plan)
        self.tap = Tap()
        if "retry" not in options:
            options.setdefault("rate_limiter", plain_limiter)
        kind = options.pop("kind", None)
        name = options.pop("name", f"c-{next(_numbers)}")
        clock = options.pop("clock", self.clock)
        self.controller: Controller[Any] = Controller(
            name,
            self.script if reconciler is None else reconciler,
            options=ControllerOptions(**options),
            kind=kind,
            clock=clock,
            metrics=self.metrics,
        )
        self.raised: list[BaseException] = []
        self.stop_signal = StopSignal()
        self.runs: list[Run] = []

    # By hand.

    def begin(self) -> Rig:
        """Start the sources in this thread."""
        self.controller.watch(self.tap)
        self.controller.process_next()
        return self

    def add(self, request: Any = "a", **how: Any) -> None:
        self.tap.add(request, **how)

    def work(self) -> list[Any]:
        """Reconcile all that is ready; the requests in their order."""
        before = len(self.script.calls)
        for _ in range(10_000):
            if not self.controller.process_next():
                return self.script.calls[before:]
        raise AssertionError("the controller does not come to rest")

    def after(self, seconds: float) -> list[Any]:
        self.clock.advance(seconds)
        return self.work()

    @property
    def due_in(self) -> float | None:
        due = self.controller.next_due
        return None if due is None else due - self.clock.monotonic()

    # In threads.

    def start(self, call: Callable[[StopSignal], None] | None = None) -> Rig:
        """Run the controller, or ``call`` something of it, in a thread."""
        self.runs.append(Run(call or self.controller, self.stop_signal, self.raised).start())
        return self

    def join(self) -> list[BaseException]:
        """Wait for all runs to end by themselves; what they raised."""
        for run in self.runs:
            run.join()
        return self.raised

    def stop(self) -> list[BaseException]:
        self.stop_signal.set()
        return self.join()

    def close(self) -> None:
        self.stop_signal.set()
        self.join()
        self.controller.close()

    # Numbers.

    def results(self) -> dict[str, float | None]:
        name = "controller_runtime_reconcile_total"
        return {
            result: count
            for result in ("success", "error", "requeue", "requeue_after")
            if (count := self.metrics.value(name, controller=self.controller.name, result=result))
        }

    def value(self, name: str) -> float | None:
        return self.metrics.value(f"controller_runtime_{name}", controller=self.controller.name)


@attrs.frozen
class Gate:
    """Where a reconcile waits until the test lets it go on."""

    entered: threading.Event = attrs.field(factory=threading.Event)
    open: threading.Event = attrs.field(factory=threading.Event)

    def __call__(self, _: Any = None) -> None:
        self.entered.set()
        assert self.open.wait(PATIENCE)
