"""What the peers' programs share: a kubeconfig, and what becomes of their events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from benchmarks import _contestant
from benchmarks._contestant import Laps, Latencies, Memory, Options, Run

__all__ = ["Listing", "Sink", "asynchronous", "kubeconfig", "main", "sink"]


class Sink(Protocol):
    """What a contestant gives the objects of its MODIFIED events to."""

    def take(self, obj: Any) -> bool:
        """Take one; whether it was the last one."""
        ...

    def numbers(self) -> dict[str, float]:
        """What was measured."""
        ...


class _Counting:
    """For ``watch``: nobody looks into the objects."""

    def __init__(self, options: Options) -> None:
        self._laps = Laps(options.events)

    def take(self, _: Any) -> bool:
        """Count it."""
        self._laps.count_one()
        return not self._laps.left

    def numbers(self) -> dict[str, float]:
        """How long it took."""
        return self._laps.numbers()


class _Timing:
    """For ``latency``: the resource version is when the event was sent."""

    def __init__(self, options: Options, version_of: Callable[[Any], str]) -> None:
        self._latencies = Latencies(options.events)
        self._version_of = version_of

    def take(self, obj: Any) -> bool:
        """Note how late it is."""
        self._latencies.note(self._version_of(obj))
        return self._latencies.done.is_set()

    def numbers(self) -> dict[str, float]:
        """The percentiles."""
        return self._latencies.numbers()


def sink(job: str, options: Options, version_of: Callable[[Any], str]) -> Sink:
    """What the jobs ``watch`` and ``latency`` do with events.

    Args:
        job: its name.
        options: what is asked for.
        version_of: reads an object's resource version, in the contestant's own way.
    """
    return _Timing(options, version_of) if job == "latency" else _Counting(options)


class Listing:
    """The job ``list``: made just before the first request."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._used_before = self._used = time.process_time()
        self._began = self._ended = time.perf_counter()

    def done(self) -> None:
        """Every object is in memory."""
        self._ended, self._used = time.perf_counter(), time.process_time()

    def numbers(self, objects: int) -> dict[str, float]:
        """What was measured; to be called with everything still held."""
        timed = {"seconds": self._ended - self._began, "cpu": self._used - self._used_before}
        return {**timed, "objects": objects, **self._memory.numbers()}


@contextlib.contextmanager
def kubeconfig(options: Options) -> Iterator[None]:
    """A file that says where the server is, named by ``KUBECONFIG``, in a folder of its own.

    It must be there before a client is imported: some look at the variable only then.
    """
    cluster = {"server": options.server}
    if options.ca:
        cluster["certificate-authority"] = options.ca
    context = {"cluster": "bench", "user": "bench", "namespace": "default"}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": cluster}],
        "users": [{"name": "bench", "user": {"token": "bench"}}],
        "contexts": [{"name": "bench", "context": context}],
        "current-context": "bench",
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.write_text(json.dumps(document))
        os.environ["KUBECONFIG"] = str(path)
        yield


def asynchronous(
    events: Callable[[str, Options], Coroutine[Any, Any, dict[str, float]]],
    list_all: Callable[[Options], Coroutine[Any, Any, dict[str, float]]],
) -> Mapping[str, Run]:
    """The jobs of a client for asyncio: those of its events, and its list."""
    return {
        "watch": lambda options: asyncio.run(events("watch", options)),
        "list": lambda options: asyncio.run(list_all(options)),
        "latency": lambda options: asyncio.run(events("latency", options)),
    }


def main(jobs: Mapping[str, Run]) -> None:
    """As :func:`benchmarks._contestant.main`, with a kubeconfig; the process ends at once."""

    def with_kubeconfig(run: Run) -> Run:
        def job(options: Options) -> Mapping[str, float]:
            with kubeconfig(options):
                return run(options)

        return job

    _contestant.main({name: with_kubeconfig(run) for name, run in jobs.items()})
    # Threads and event loops of clients run on; nobody waits for them.
    os._exit(0)
