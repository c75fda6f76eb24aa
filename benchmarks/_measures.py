"""What jobs share that need no replay server: memory, CPU time, objects, and their entries.

Such a job is a module with measurements by label: functions that do something in a fresh process
and say the figures. ``python -m benchmarks.jobs.NAME LABEL OPTIONS`` runs one of them; OPTIONS, as
JSON, says how much of everything, and without it there is as much as in a full run.
"""

from __future__ import annotations

import gc
import importlib.metadata
import json
import resource
import statistics
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final

from appsdk_operator import Kind, Object, StopSignal
from appsdk_operator.runtime import ThreadGroup
from benchmarks._contestant import resident_memory
from benchmarks._job import Case, Column, Group, Unit, python_entry

if TYPE_CHECKING:
    from appsdk_operator.cache import Event, EventSource

Figures: TypeAlias = dict[str, float]
"""What a measurement found, by name; the unit is in the name or its usual one, seconds or bytes."""

Measure: TypeAlias = Callable[..., Figures]
"""A measurement; its keyword arguments say how much of everything."""

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


def widget(number: int, version: int = 1) -> Object:
    """A small custom resource, decoded as an informer would."""
    uid = f"7b1cf4c2-2f2a-4f0e-9d0e-{number:012}"
    raw = (
        f'{{"apiVersion":"example.com/v1","kind":"Widget","metadata":{{"name":"widget-{number:07}",'
        f'"namespace":"default","uid":"{uid}","resourceVersion":"{version}","generation":1}},'
        f'"spec":{{"size":{number}}}}}'
    )
    return Object.from_json(WIDGET, raw.encode())


@final
class Feed:
    """An informer that hands over events from memory, a batch at a time."""

    def __init__(self, batches: Iterable[Sequence[Event]]) -> None:
        self.batches = batches
        self.source: EventSource | None = None

    def add_event_handler(self, handler: EventSource, /) -> None:
        """Remember whom to tell."""
        self.source = handler

    def run(self, stop: StopSignal, /) -> None:
        """Tell it."""
        assert self.source is not None
        for events in self.batches:
            self.source.on_events(events)
        stop.wait()


def resident() -> int:
    """Bytes of memory of this process, once what is garbage has gone."""
    gc.collect()
    return resident_memory()


def own_cpu() -> float:
    """Seconds of CPU time that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def percentiles(values: Sequence[float]) -> Figures:
    """The usual ones of a distribution."""
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        "p50": statistics.median(ordered),
        "p99": ordered[int(0.99 * last)],
        "p999": ordered[int(0.999 * last)],
        "longest": ordered[last],
    }


def observed(
    run: Callable[[StopSignal], object], observe: Callable[[StopSignal], Figures]
) -> Figures:
    """What ``observe``, in a thread of its own, finds while ``run`` runs, which ends then."""
    stop = StopSignal()
    found: list[Figures] = []
    failures: list[Exception] = []

    def work() -> None:
        try:
            found.append(observe(stop))
        except Exception as error:
            failures.append(error)
        finally:
            stop.set()

    threads = ThreadGroup("observer")
    threads.start("observer", work)
    try:
        run(stop)
    finally:
        stop.set()
        threads.join()
    if failures:
        raise failures[0]
    return found[0]


def column(title: str, name: str, unit: Unit = Unit.NUMBER) -> Column:
    """A column that shows a figure as it is; of rates more is better."""
    return Column(
        title=title,
        value=lambda numbers: numbers[name],
        unit=unit,
        more_is_better=unit is Unit.RATE,
    )


def one_case(
    module: str,
    measures: Mapping[str, Measure],
    quick_options: Mapping[str, Any],
    *,
    title: str = "",
    floor: str = "",
    ours: str = "",
    peers: Mapping[str, str] | None = None,
    in_quick: Collection[str] | None = None,
) -> Callable[[bool], Sequence[Case]]:
    """The cases of a job that has one table, with a line for each measurement, in their order.

    Args:
        module: the job's own.
        measures: by label.
        quick_options: how much of everything in the quick form.
        title: what tells the case from others of the job.
        floor: the label of the one that is as little as one can do.
        ours: the label of the one that peers are compared with; default: the first of ours.
        peers: labels of those that are somebody else's, with the distribution that they need.
        in_quick: labels of those that take part in the quick form; default: all.
    """
    others = peers or {}

    def group_of(label: str) -> Group:
        if label == floor:
            return Group.FLOOR
        return Group.PEER if label in others else Group.OURS

    def cases(quick: bool) -> Sequence[Case]:
        entries = [
            python_entry(
                label,
                module,
                label,
                group=group_of(label),
                options=quick_options if quick else {},
                absent=_absence_of(others[label]) if label in others else "",
            )
            for label in measures
            if not quick or in_quick is None or label in in_quick
        ]
        return [Case(title=title, entries=entries, floor=floor, ours=ours)]

    return cases


def _absence_of(distribution: str) -> str:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return f"{distribution} is not installed"
    return ""


def run(measures: Mapping[str, Measure]) -> None:
    """Do what the command line names, ``LABEL OPTIONS``, and print the figures as JSON."""
    options = json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    figures = measures[sys.argv[1]](**options)
    sys.stdout.flush()
    print(json.dumps(figures), flush=True)
