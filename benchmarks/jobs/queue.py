"""How many operations a second the work queue does, and what a queued key costs.

One thread, no contention: what the queue itself takes of the time of those who share it.

* ours: different keys, added one by one, then handed out and said to be done.
* batches: the same, added a hundred at a time, as an informer's events are.
* merged: a key that is queued already, added again and again: a busy object.
* delayed: keys that come due in another order than that of their adding, and are handed out then.
* queue.Queue: the standard library's, put and get, which neither merges nor delays nor locks keys.
"""

from __future__ import annotations

import queue
import random
import threading
from typing import Final, final

from appsdk_operator.runtime import WorkQueue, system_clock
from benchmarks._job import Job, Unit
from benchmarks._measures import Figures, Measure, column, one_case, resident, run

_BATCH = 100


@final
class SteppedClock:
    """A clock that says what it was told to say."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """The seconds that it was set to."""
        return self.now

    def time(self) -> float:
        """The same."""
        return self.now

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        """Nobody waits here."""
        raise AssertionError(f"a wait for {timeout} s on {condition}")


def _keys(count: int) -> list[tuple[str, str]]:
    return [("default", f"widget-{number}") for number in range(count)]


def _drained(subject: WorkQueue[tuple[str, str]], count: int) -> float:
    """Seconds to hand out all and to hear that they are done."""
    began = system_clock.monotonic()
    for _ in range(count):
        item = subject.try_get()
        assert item is not None
        subject.done(item.key)
    return system_clock.monotonic() - began


def ours(*, count: int = 200_000) -> Figures:
    """Add one by one, get and done."""
    keys = _keys(count)
    subject: WorkQueue[tuple[str, str]] = WorkQueue("benchmark")
    before = resident()
    began = system_clock.monotonic()
    for key in keys:
        subject.add(key)
    added = system_clock.monotonic() - began
    held = resident() - before
    taken = _drained(subject, count)
    return {
        "adds_per_second": count / added,
        "gets_per_second": count / taken,
        "bytes_per_key": held / count,
    }


def batches(*, count: int = 200_000) -> Figures:
    """Add a hundred at a time."""
    keys = _keys(count)
    subject: WorkQueue[tuple[str, str]] = WorkQueue("benchmark")
    began = system_clock.monotonic()
    for first in range(0, count, _BATCH):
        part = keys[first : first + _BATCH]
        subject.add_all(part, tickets=subject.tickets(len(part)))
    added = system_clock.monotonic() - began
    return {"adds_per_second": count / added, "gets_per_second": count / _drained(subject, count)}


def merged(*, count: int = 200_000) -> Figures:
    """Add what is queued."""
    subject: WorkQueue[tuple[str, str]] = WorkQueue("benchmark")
    key = ("default", "widget")
    began = system_clock.monotonic()
    for _ in range(count):
        subject.add(key)
    added = system_clock.monotonic() - began
    return {"adds_per_second": count / added}


def delayed(*, count: int = 200_000) -> Figures:
    """Add with delays up to a minute, and take each when its time has come."""
    keys = _keys(count)
    clock = SteppedClock()
    subject: WorkQueue[tuple[str, str]] = WorkQueue("benchmark", clock=clock)
    generator = random.Random(0)
    delays = [generator.uniform(0.001, 60.0) for _ in keys]
    before = resident()
    began = system_clock.monotonic()
    for key, delay in zip(keys, delays, strict=True):
        subject.add(key, after=delay)
    added = system_clock.monotonic() - began
    held = resident() - before
    began = system_clock.monotonic()
    left = count
    while left:
        clock.now += 0.01
        while (item := subject.try_get()) is not None:
            subject.done(item.key)
            left -= 1
    taken = system_clock.monotonic() - began
    return {
        "adds_per_second": count / added,
        "gets_per_second": count / taken,
        "bytes_per_key": held / count,
    }


def standard_library(*, count: int = 200_000) -> Figures:
    """``queue.Queue``."""
    keys = _keys(count)
    subject: queue.Queue[tuple[str, str]] = queue.Queue()
    began = system_clock.monotonic()
    for key in keys:
        subject.put(key)
    added = system_clock.monotonic() - began
    began = system_clock.monotonic()
    for _ in range(count):
        subject.get()
        subject.task_done()
    taken = system_clock.monotonic() - began
    return {"adds_per_second": count / added, "gets_per_second": count / taken}


MEASURES: dict[str, Measure] = {
    "ours": ours,
    "batches": batches,
    "merged": merged,
    "delayed": delayed,
    "queue.Queue": standard_library,
}
_QUICK: Final = {"count": 2_000}

JOB = Job(
    name="queue",
    title="The work queue alone",
    text=(
        "One thread adds as many different keys as there are, then takes each and says that it is "
        "done. `batches` adds them a hundred at a time, as informers do; `merged` adds a key that "
        "is queued already; `delayed` adds with delays of up to a minute and takes each when it is "
        "due. `queue.Queue` is the standard library's, which neither merges nor delays, nor sees "
        "to it that no key is worked on twice at once."
    ),
    columns=(
        column("adds/s", "adds_per_second", Unit.RATE),
        column("gets/s", "gets_per_second", Unit.RATE),
        column("memory per key", "bytes_per_key", Unit.BYTES),
    ),
    cases=one_case("benchmarks.jobs.queue", MEASURES, _QUICK, floor="queue.Queue"),
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
