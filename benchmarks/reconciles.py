"""How many no-op reconciles a second go through a controller's queue and worker, in one run.

    python benchmarks/reconciles.py [--reconciles 200000] [--rounds 5]

Each contestant runs in a fresh process; they take turns. The goal is 30,000/s on one core. The
absolute numbers belong to the machine; the ratios say what a controller adds to its queue.

* queue: the kit's WorkQueue alone, a thread that gets and says done.
* backlog: a controller with one worker, all requests queued before it begins, as after a restart.
* live: the same while another thread asks, so that both share the interpreter.
* workers: as live, with four workers.
* deadline: as backlog, with a reconcile_timeout.
* async: as backlog, with an ``async def`` reconciler.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from appsdk_operator.controllers import Controller, ControllerOptions, Request, RequestQueue
from appsdk_operator.runtime import Metrics, StopSignal, WorkQueue, system_clock


class Count:
    """A reconciler that counts, and stops at the last request."""

    def __init__(self, count: int) -> None:
        self.left = count
        self.lock = threading.Lock()
        self.stop = StopSignal()
        self.ended = 0.0

    def reconcile(self, _: Any) -> None:
        """One less."""
        with self.lock:
            self.left -= 1
            if self.left:
                return
        self.ended = system_clock.monotonic()
        self.stop.set()

    async def reconcile_async(self, request: Any) -> None:
        """The same."""
        self.reconcile(request)


class Feed:
    """A source that asks for each request once, in its start or in a thread of its own."""

    def __init__(self, requests: Sequence[Request], *, live: bool) -> None:
        self.requests = requests
        self.live = live
        self.began = 0.0
        self.thread: threading.Thread | None = None

    def start(self, inbox: RequestQueue[Request], _: StopSignal) -> None:
        """Begin."""
        if not self.live:
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


def controller(count: int, *, live: bool = False, is_async: bool = False, **options: Any) -> float:
    """Seconds from the first request asked for to the last one reconciled."""
    end = Count(count)
    subject: Controller[Request] = Controller(
        "benchmark",
        end.reconcile_async if is_async else end.reconcile,
        options=ControllerOptions(**options),
        metrics=Metrics(),
    )
    feed = Feed(requests(count), live=live)
    subject.watch(feed)
    subject.run(end.stop)
    if feed.thread is not None:
        feed.thread.join()
    return end.ended - feed.began


def work_queue(count: int) -> float:
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
    return end.ended - began


CONTESTANTS: dict[str, Callable[[int], float]] = {
    "queue": work_queue,
    "backlog": controller,
    "live": lambda count: controller(count, live=True),
    "workers": lambda count: controller(count, live=True, max_concurrent_reconciles=4),
    "deadline": lambda count: controller(count, reconcile_timeout=60.0),
    "async": lambda count: controller(count // 10, is_async=True) * 10,
}


def rounds(options: argparse.Namespace) -> Iterator[dict[str, float]]:
    """Reconciles a second by contestant, round by round, each in a fresh process."""
    for _ in range(options.rounds):
        result = {}
        for name in CONTESTANTS:
            command = [sys.executable, __file__, "--contestant", name]
            command += ["--reconciles", str(options.reconciles)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            result[name] = options.reconciles / float(done.stdout)
        yield result


def main() -> None:
    """Run the contestants and print the table, or be one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reconciles", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--contestant", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        print(CONTESTANTS[options.contestant](options.reconciles))
        return
    results = list(rounds(options))
    print(f"Python {platform.python_version()}, {platform.machine()}")
    alone = statistics.median(result["queue"] for result in results)
    for name in CONTESTANTS:
        rates = [result[name] for result in results]
        median = statistics.median(rates)
        print(
            f"{name:<8} {median:>10,.0f} reconciles/s ({min(rates):,.0f}-{max(rates):,.0f}), "
            f"{median / alone:.2f} of the queue alone"
        )


if __name__ == "__main__":
    main()
