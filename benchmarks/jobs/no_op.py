"""How many reconciles that do nothing go through a controller's queue and workers in a second.

* queue: the work queue alone, with a thread that gets and says done: what the controller adds to.
* backlog: one worker, all requests queued before it begins, as after a restart.
* backlog 8: the same with eight workers.
* live, live 8: another thread asks meanwhile, so that both share the interpreter.
* deadline: as backlog, with a ``reconcile_timeout``.
* async: as backlog, with an ``async def`` reconciler.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Sequence
from typing import Any, Final

from appsdk_operator import Request, StopSignal
from appsdk_operator.controllers import Controller, ControllerOptions, RequestQueue
from appsdk_operator.runtime import Metrics, WorkQueue, system_clock
from benchmarks._job import Job, Unit
from benchmarks._measures import Figures, Measure, column, one_case, run


class Count:
    """A reconciler that counts, and stops at the last request."""

    def __init__(self, count: int) -> None:
        self.last = count
        # A lock would be another one that eight workers wait for.
        self.numbers = itertools.count(1)
        self.stop = StopSignal()
        self.ended = 0.0

    def reconcile(self, _: Any) -> None:
        """One more."""
        if next(self.numbers) < self.last:
            return
        self.ended = system_clock.monotonic()
        self.stop.set()

    async def reconcile_async(self, request: Any) -> None:
        """The same."""
        self.reconcile(request)


class Feed:
    """A source that asks for each request once, in its start or in a thread of its own."""

    def __init__(self, requests: Sequence[Request], *, is_live: bool) -> None:
        self.requests = requests
        self.is_live = is_live
        self.began = 0.0
        self.thread: threading.Thread | None = None

    def start(self, inbox: RequestQueue[Request], _: StopSignal) -> None:
        """Begin."""
        if not self.is_live:
            self.feed(inbox)
            return
        self.thread = threading.Thread(target=self.feed, args=(inbox,))
        self.thread.start()

    def feed(self, inbox: RequestQueue[Request]) -> None:
        """Ask for all."""
        self.began = system_clock.monotonic()
        for request in self.requests:
            inbox.add(request)


def requests(count: int) -> list[Request]:
    """As many different requests."""
    return [Request("default", f"widget-{number}") for number in range(count)]


def controller(
    *, count: int = 100_000, is_live: bool = False, is_async: bool = False, **options: Any
) -> Figures:
    """From the first request asked for to the last one reconciled."""
    end = Count(count)
    subject: Controller[Request] = Controller(
        "benchmark",
        end.reconcile_async if is_async else end.reconcile,
        options=ControllerOptions(**options),
        metrics=Metrics(),
    )
    feed = Feed(requests(count), is_live=is_live)
    subject.watch(feed)
    subject.run(end.stop)
    if feed.thread is not None:
        feed.thread.join()
    return {"reconciles_per_second": count / (end.ended - feed.began)}


def work_queue(*, count: int = 100_000) -> Figures:
    """The queue alone."""
    end = Count(count)
    subject: WorkQueue[Request] = WorkQueue("benchmark")

    def work() -> None:
        while not end.stop.is_set():
            item = subject.get()
            if item is not None:
                end.reconcile(item.key)
                subject.done(item.key)

    everything = requests(count)
    began = system_clock.monotonic()
    for request in everything:
        subject.add(request)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    subject.shut_down()
    return {"reconciles_per_second": count / (end.ended - began)}


def _async(*, count: int = 20_000) -> Figures:
    return controller(count=count, is_async=True)


MEASURES: dict[str, Measure] = {
    "queue": work_queue,
    "backlog": controller,
    "backlog 8": functools.partial(controller, max_concurrent_reconciles=8),
    "live": functools.partial(controller, is_live=True),
    "live 8": functools.partial(controller, is_live=True, max_concurrent_reconciles=8),
    "deadline": functools.partial(controller, reconcile_timeout=60.0),
    "async": _async,
}
_QUICK: Final = {"count": 2_000}

JOB = Job(
    name="no_op",
    title="Reconciles that do nothing",
    text=(
        "Different requests go through a controller's queue and its workers, to a reconciler that "
        "counts. `queue` is the work queue alone, with a thread that takes and says done. With "
        "`backlog` all are queued before the workers begin, as after a restart, with `live` "
        "another thread asks meanwhile; the number is that of the workers. `deadline` has a "
        "`reconcile_timeout`, `async` an `async def` reconciler. No network is part of it."
    ),
    columns=(column("reconciles/s", "reconciles_per_second", Unit.RATE),),
    cases=one_case("benchmarks.jobs.no_op", MEASURES, _QUICK, floor="queue"),
)

if __name__ == "__main__":
    run(MEASURES)
