"""How long after it was sent an event reaches a callback."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks._contestants import entries_for
from benchmarks._job import Case, Column, Job, Unit
from benchmarks._replay import Spec

__all__ = ["JOB"]


def _case(rate: int, seconds: float, *, tls: bool = False) -> Case:
    spec = Spec(rate=rate, events=int(rate * seconds), tls=tls)
    title = f"{rate:,} events/s" + (", TLS" if tls else "")
    return Case(title=title, entries=entries_for("latency", spec), floor="floor bulk")


def _cases(quick: bool) -> Sequence[Case]:
    if quick:
        return [_case(1000, 1.0)]
    return [
        _case(100, 10.0),
        _case(1000, 10.0),
        _case(1000, 10.0, tls=True),
        _case(10_000, 3.0),
    ]


JOB = Job(
    name="latency",
    title="Latency from event to callback",
    text=(
        "A server that holds 1,000 widgets of 2 KB sends changes at an even rate, each with the "
        "time of its sending; the callback looks at the clock. Where a client does not keep up, "
        "the time at which an event should have been sent counts. `floor bulk` is a loop of "
        "reading, splitting and decoding with nothing behind it."
    ),
    columns=(
        Column(title="p99", value=lambda numbers: numbers["p99"], unit=Unit.SECONDS),
        Column(title="p50", value=lambda numbers: numbers["p50"], unit=Unit.SECONDS),
        Column(title="p99.9", value=lambda numbers: numbers["p999"], unit=Unit.SECONDS),
    ),
    cases=_cases,
    rounds=3,
)
