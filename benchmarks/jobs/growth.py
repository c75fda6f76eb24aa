"""What an event, a list and an object cost as there are more and more objects."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from appsdk_operator import (
    Client,
    ClientConfig,
    InformerController,
    Object,
    SimpleWatcher,
    StopSignal,
)
from appsdk_operator.cache import Informer, Overflow
from benchmarks._contestant import Laps, Memory, Options, main
from benchmarks._contestants import entries_for
from benchmarks._job import Case, Column, Job, Unit, python_entry
from benchmarks._measures import WIDGET, column, own_cpu
from benchmarks._replay import Spec

_OBJECTS: Final = (1_000, 10_000, 100_000, 1_000_000)
_MOST_OF_PEERS: Final = 100_000
_BESIDE: Final = (
    "floor bulk",
    "appsdk watcher-untouched",
    "client-go dynamic-informer",
    "controller-runtime typed",
    "kubernetes watch",
    "kubernetes-asyncio",
    "lightkube",
    "kubernetes informer",
    "kopf event",
    "kr8s",
)
"""One form of each contestant is enough."""
_SLOW: Final = ("kubernetes informer", "kopf event", "kr8s")
"""Those who need a minute, or gigabytes, for 100,000 objects."""
_MOST_OF_SLOW: Final = 10_000


def ours(options: Options) -> dict[str, float]:
    """List, hold and watch in one process."""
    stop, laps = StopSignal(), Laps(options.events)
    listed: list[float] = []
    used: list[float] = []
    left = options.objects

    def add(_: Object) -> None:
        nonlocal left
        left -= 1
        if not left:
            listed.append(time.perf_counter())
            used.append(own_cpu())

    def update(_old: Object, _new: Object) -> None:
        if laps.left == laps.count:
            used.append(own_cpu())
        laps.count_one()
        if not laps.left:
            used.append(own_cpu())
            stop.set()

    config = ClientConfig(server=options.server, ca_file=options.ca)
    with Client(config) as client:
        informer = Informer(WIDGET, client)
        # Each event counts: the informer waits where the watcher is slower, and nothing is merged.
        controller = InformerController(overflow=Overflow.BLOCK)
        controller.add_informer(informer, WIDGET)
        controller.add_watcher(SimpleWatcher(add=add, update=update), WIDGET)
        memory = Memory()
        began, used_before = time.perf_counter(), own_cpu()
        controller.run(stop)
        assert len(informer.store) == options.objects
        held = memory.numbers()
    return {
        **laps.numbers(),
        **held,
        "objects": options.objects,
        "cpu_per_listed": (used[0] - used_before) / options.objects,
        "cpu_per_event": (used[2] - used[1]) / options.events,
        "list_seconds": listed[0] - began,
        "bytes_per_object": (held["rss_after"] - held["rss_before"]) / options.objects,
        "peak_of_steady": held["peak"] / held["rss_after"],
    }


def _cases(quick: bool) -> Sequence[Case]:
    sizes = (1_000, 5_000) if quick else _OBJECTS
    events = 5_000 if quick else 100_000
    specs = {size: Spec(objects=size, events=events, pause=2.0 + size / 100_000) for size in sizes}
    if quick:
        specs = {size: Spec(objects=size, events=events) for size in sizes}
    own = Case(
        title="one process each: list, hold, watch",
        entries=[
            python_entry(f"{size:,} objects", "benchmarks.jobs.growth", "ours", spec=spec)
            for size, spec in specs.items()
        ],
        ours=f"{sizes[0]:,} objects",
    )
    beside = [
        Case(
            title=f"events/s with {size:,} objects",
            entries=[
                entry
                for entry in entries_for("watch", spec)
                if entry.label in _BESIDE and (size <= _MOST_OF_SLOW or entry.label not in _SLOW)
            ],
            floor="floor bulk",
        )
        for size, spec in specs.items()
        if size <= _MOST_OF_PEERS and not quick
    ]
    return [own, *beside]


JOB = Job(
    name="growth",
    title="As objects grow",
    text=(
        "A server with so many widgets of 2 KB, which are listed, and of which then 100,000 "
        "changes come, each of another object. What an event costs should not depend on how many "
        "objects there are. Memory is what the process has grown by, divided by the objects: with "
        "few of them that is what a client and an informer cost. A million is for ours alone, and "
        "those who need a minute, or gigabytes, for 100,000 stop at 10,000."
    ),
    columns=(
        Column(
            title="events/s",
            value=lambda numbers: numbers["events"] / numbers["seconds"],
            unit=Unit.RATE,
            more_is_better=True,
        ),
        column("CPU per event", "cpu_per_event", Unit.SECONDS),
        column("list", "list_seconds", Unit.SECONDS),
        column("CPU per object", "cpu_per_listed", Unit.SECONDS),
        column("memory per object", "bytes_per_object", Unit.BYTES),
        column("memory", "rss_after", Unit.BYTES),
        column("peak/steady", "peak_of_steady"),
    ),
    cases=_cases,
    rounds=3,
)

if __name__ == "__main__":
    main({"ours": ours})
