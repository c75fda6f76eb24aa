"""What a contestant's process needs: its options, its memory, and how it tells its numbers."""

from __future__ import annotations

import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

__all__ = [
    "Laps",
    "Latencies",
    "Memory",
    "Options",
    "Run",
    "main",
    "peak_memory",
    "resident_memory",
]


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a contestant is asked to do."""

    server: str = ""
    """The URL of the replay server."""
    ca: str | None = None
    """The file with the authority of its certificate."""
    kind: str = "widgets"
    """``widgets`` (example.com/v1 Widget) or ``pods``."""
    size: int = 2000
    """The bytes of a widget."""
    objects: int = 0
    """How many objects the server holds."""
    events: int = 0
    """How many events follow."""
    workers: int = 1
    call_ms: float = 0.0
    """How long a call of the reconciler takes; 0: there is none."""
    variant: str = ""
    """Which form of the contestant."""
    count: int = 0
    """How much to do, in jobs without a server."""


Run = Callable[[Options], Mapping[str, float]]
"""Does a job and says its numbers."""


def main(jobs: Mapping[str, Run]) -> None:
    """Do what the command line names, ``JOB OPTIONS``, and print the numbers as JSON."""
    known = {field.name for field in fields(Options)}
    given = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    options = Options(**{name: value for name, value in given.items() if name in known})
    numbers = jobs[sys.argv[1]](options)
    sys.stdout.flush()
    print(json.dumps(dict(numbers)), flush=True)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(field)


def resident_memory() -> int:
    """The bytes of memory of this process (VmRSS)."""
    return _status("VmRSS")


def peak_memory() -> int:
    """The most bytes of memory that this process has had so far (VmHWM)."""
    return _status("VmHWM")


class Memory:
    """Takes the memory before the first request, at once, and afterwards."""

    def __init__(self) -> None:
        gc.collect()
        self._before = resident_memory()

    def numbers(self) -> dict[str, float]:
        """What the job ``list`` tells of memory; to be called with everything still held."""
        gc.collect()
        return {
            "rss_before": self._before,
            "rss_after": resident_memory(),
            "peak": peak_memory(),
        }


class Laps:
    """Counts up to a number, and knows when the first and the last one came.

    For callbacks of one thread at a time, or of several with ``is_shared``.
    """

    def __init__(self, count: int, *, is_shared: bool = False) -> None:
        self.count = count
        self.left = count
        self.done = threading.Event()
        """Set at the last one."""
        self._began = self._ended = (0.0, 0.0)
        self.count_one: Callable[[], None] = self._count_safely if is_shared else self._count
        """To be called for each."""
        self._lock = threading.Lock()

    def _count_safely(self) -> None:
        with self._lock:
            self._count()

    def _count(self) -> None:
        left = self.left = self.left - 1
        if left == self.count - 1:
            self._began = time.perf_counter(), time.process_time()
        if not left:
            self._ended = time.perf_counter(), time.process_time()
            self.done.set()

    def numbers(self, what: str = "events") -> dict[str, float]:
        """What the jobs ``watch`` (events) and ``reconcile`` (reconciles) tell."""
        (began, used_before), (ended, used) = self._began, self._ended
        return {"seconds": ended - began, "cpu": used - used_before, what: self.count}


class Latencies:
    """The time from the sending of an event until its callback."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done = threading.Event()
        """Set at the last one."""
        self._taken: list[int] = []

    def note(self, resource_version: str) -> None:
        """An event has come, sent at the time that its resource version says."""
        self._taken.append(time.monotonic_ns() - int(resource_version))
        if len(self._taken) == self.count:
            self.done.set()

    def numbers(self) -> dict[str, float]:
        """What the job ``latency`` tells. The first tenth, in which all get warm, is left out."""
        taken = sorted(self._taken[self.count // 10 :])

        def at(share: float) -> float:
            return taken[min(len(taken) - 1, int(len(taken) * share))] / 1e9

        return {"p50": at(0.5), "p99": at(0.99), "p999": at(0.999)}
