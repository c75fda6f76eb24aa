"""One kind, many watchers: what each call costs, from one watcher to a thousand.

An InformerController with one worker; objects come from memory, so that no network or decoding is
part of it.

* N watchers: each is called for each event; ``calls_per_second`` should not fall as N grows.
* 1,000, filtered: a thousand watchers of which one wants to be called (``concerns`` says so).
"""

from __future__ import annotations

import functools
from typing import Final

from appsdk_operator import InformerController, Object, ResourceAction, StopSignal
from appsdk_operator.cache import Event
from appsdk_operator.runtime import Metrics, system_clock
from benchmarks._job import Job, Unit
from benchmarks._measures import (
    WIDGET,
    Feed,
    Figures,
    Measure,
    column,
    observed,
    one_case,
    resident,
    run,
    widget,
)

_BATCH = 100
_OBJECTS = 100


class Counts:
    """A watcher that counts."""

    def __init__(self) -> None:
        self.calls = 0

    def add(self, obj: Object) -> None:
        """Never called."""

    def update(self, _old: Object, _new: Object) -> None:
        """One more."""
        self.calls += 1

    def delete(self, obj: Object) -> None:
        """Never called."""


class Uninterested(Counts):
    """A watcher that no update concerns."""

    def concerns(self, _old: Object, _new: Object) -> bool:
        """No."""
        return False


def watchers(*, watchers: int, calls: int = 300_000, is_filtered: bool = False) -> Figures:
    """About ``calls`` calls, spread over so many watchers."""
    count = max(_BATCH, calls // watchers)
    objects = [widget(number) for number in range(_OBJECTS)]
    newer = [
        widget(number % _OBJECTS, 2 + number // _OBJECTS) for number in range(count + _OBJECTS)
    ]
    events = [
        Event(ResourceAction.UPDATE, new, old)
        for old, new in zip(objects + newer[:-_OBJECTS], newer, strict=True)
    ][:count]
    batches = [events[first : first + _BATCH] for first in range(0, count, _BATCH)]
    before = resident()
    controller = InformerController(metrics=Metrics(), max_pending=count + 1)
    controller.add_informer(Feed(batches), WIDGET)
    everyone = [Uninterested() if is_filtered else Counts() for _ in range(watchers - 1)]
    everyone.append(Counts())
    for watcher in everyone:
        controller.add_watcher(watcher, WIDGET)
    held = resident() - before

    def observe(stop: StopSignal) -> Figures:
        began = system_clock.monotonic()
        while everyone[-1].calls < count:
            stop.wait(0.001)
        seconds = system_clock.monotonic() - began
        return {
            "events_per_second": count / seconds,
            "calls_per_second": count * watchers / seconds,
            "bytes_per_watcher": held / watchers,
        }

    return observed(controller.run, observe)


MEASURES: dict[str, Measure] = {
    "1 watcher": functools.partial(watchers, watchers=1),
    **{f"{n:,} watchers": functools.partial(watchers, watchers=n) for n in (10, 100, 1_000)},
    "1,000, filtered": functools.partial(watchers, watchers=1000, is_filtered=True),
}
_QUICK: Final = {"calls": 5_000}

JOB = Job(
    name="watchers",
    title="Many watchers on one kind",
    text=(
        "An InformerController calls each of its watchers for each update; objects come from "
        "memory. What a call costs should not depend on how many watchers there are. With "
        "`filtered` all but one of a thousand say that no update concerns them: the calls are "
        "those of their filters."
    ),
    columns=(
        column("calls/s", "calls_per_second", Unit.RATE),
        column("events/s", "events_per_second", Unit.RATE),
        column("memory per watcher", "bytes_per_watcher", Unit.BYTES),
    ),
    cases=one_case("benchmarks.jobs.watchers", MEASURES, _QUICK),
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
