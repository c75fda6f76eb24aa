"""A hundred thousand failed calls that wait to be tried again: what they cost, and are they late?

An InformerController with one worker and a watcher that fails once for each object. Objects come
from memory, so that no network or decoding is part of it.

* events: the watcher never fails: what the events themselves cost, for comparison.
* spread: each retry has its own time, 10,000 of them a second: how late do they come?
* together: all are due at one time: how quickly are they made?
* reported: as together, but with the default error handler, which logs each failure with its
  traceback; the log goes to the null device.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, final

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
    percentiles,
    resident,
    run,
    widget,
)

_BATCH = 100


def _shown(objects: Sequence[Object]) -> Iterator[list[Event]]:
    """Each object once, a hundred at a time."""
    for first in range(0, len(objects), _BATCH):
        yield [Event(ResourceAction.CREATE, obj) for obj in objects[first : first + _BATCH]]


@final
class FailsOnce:
    """A watcher that fails at each object's first call."""

    def __init__(self, count: int, delay_of: Callable[[int], float] | None) -> None:
        self.delay_of = delay_of
        self.left = self.to_fail = count
        self.dues: dict[str, float] = {}
        self.late: list[float] = []
        self.planned = StopSignal()
        self.over = StopSignal()

    def add(self, obj: Object) -> None:
        """Fail, or note how late the retry is."""
        now = system_clock.monotonic()
        due = self.dues.get(obj.name)
        if due is not None:
            self.late.append(now - due)
        elif self.delay_of is not None:
            raise ConnectionError(obj.name)
        self.left -= 1
        if not self.left:
            self.over.set()

    def update(self, old: Object, new: Object) -> None:
        """Never called."""

    def delete(self, obj: Object) -> None:
        """Never called."""

    def retry(self, error: Exception, attempt: int, /) -> float:
        """The retry policy: when this one is due."""
        assert self.delay_of is not None
        del attempt
        now = system_clock.monotonic()
        due = self.delay_of(len(self.dues))
        self.dues[str(error)] = due
        if len(self.dues) == self.to_fail:
            self.planned.set()
        return max(0.0, due - now)


def retries(
    *, count: int = 100_000, seconds: float = 10.0, rate: float = 10_000.0, reports: bool = False
) -> Figures:
    """Plan ``count`` retries, due after ``seconds``, all at once or ``rate`` of them a second.

    Where planning takes longer than ``seconds``, what is late is late because of that: see that it
    does not.
    """
    objects = [widget(number) for number in range(count)]
    began = system_clock.monotonic()
    watcher = FailsOnce(count, lambda number: began + seconds + (number / rate if rate else 0.0))
    controller = InformerController(
        retry_policy=watcher.retry,
        error_handler=None if reports else lambda *_: None,
        metrics=Metrics(),
    )
    controller.add_informer(Feed(_shown(objects)), WIDGET)
    controller.add_watcher(watcher, WIDGET)

    def observe(_: StopSignal) -> Figures:
        before = resident()
        started = system_clock.monotonic()
        watcher.planned.wait()
        planned = system_clock.monotonic()
        controller.wait_idle()
        held = resident() - before
        watcher.over.wait()
        made = system_clock.monotonic() - max(planned, began + seconds)
        return {
            "planned_per_second": count / (planned - started),
            "bytes_per_retry": held / count,
            "made_per_second": count / made,
        }

    figures = observed(controller.run, observe)
    late = percentiles(watcher.late)
    return figures | {f"late_{name}": value for name, value in late.items()}


def events(*, count: int = 100_000, **_: float) -> Figures:
    """The same objects, nothing fails."""
    objects = [widget(number) for number in range(count)]
    watcher = FailsOnce(count, None)
    controller = InformerController(metrics=Metrics())
    controller.add_informer(Feed(_shown(objects)), WIDGET)
    controller.add_watcher(watcher, WIDGET)

    def observe(_: StopSignal) -> Figures:
        started = system_clock.monotonic()
        watcher.over.wait()
        return {"planned_per_second": count / (system_clock.monotonic() - started)}

    return observed(controller.run, observe)


def _reported(*, count: int = 20_000, seconds: float = 10.0, **_: float) -> Figures:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        logging.basicConfig(stream=nowhere, level=logging.INFO)
        return retries(count=count, seconds=seconds, rate=0.0, reports=True)


MEASURES: dict[str, Measure] = {
    "events": events,
    "spread": retries,
    "together": functools.partial(retries, rate=0.0),
    "reported": _reported,
}
_QUICK: Final = {"count": 1_000, "seconds": 0.3}

JOB = Job(
    name="retries",
    title="100,000 retries that wait for their time",
    text=(
        "A watcher fails once for each of 100,000 objects, which come from memory, and is called "
        "again when its retry policy says: 10,000 a second with `spread`, all of them at one time "
        "with `together`. How many are planned and made in a second, what one costs while it "
        "waits, and how late they are. `events` is the same without failures. With `reported` "
        "(20,000 objects) each failure is logged, as it is by default, with its traceback."
    ),
    columns=(
        column("events or plans/s", "planned_per_second", Unit.RATE),
        column("made/s", "made_per_second", Unit.RATE),
        column("memory per retry", "bytes_per_retry", Unit.BYTES),
        column("late, p50", "late_p50", Unit.SECONDS),
        column("late, p99", "late_p99", Unit.SECONDS),
        column("late, most", "late_longest", Unit.SECONDS),
    ),
    cases=one_case("benchmarks.jobs.retries", MEASURES, _QUICK),
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
