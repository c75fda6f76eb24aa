"""How many watch events a second reach a callback."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks._contestants import entries_for
from benchmarks._job import Case, Column, Job, Unit
from benchmarks._replay import Spec

__all__ = ["JOB"]


def _case(title: str, spec: Spec) -> Case:
    return Case(title=title, entries=entries_for("watch", spec), floor="floor bulk")


def _cases(quick: bool) -> Sequence[Case]:
    events = 20_000 if quick else 100_000
    pause = 0.1 if quick else 0.5
    cases = [
        _case("widgets of 2 KB", Spec(events=events, pause=pause)),
        _case("widgets of 2 KB, TLS", Spec(events=events, pause=pause, tls=True)),
    ]
    if not quick:
        cases.append(_case("pods", Spec(kind="pods", events=events // 2)))
    return cases


JOB = Job(
    name="watch",
    title="Watch events to a callback",
    text=(
        "A server that holds 1,000 objects sends changes of them, in turn, as fast as they are "
        "taken. The client keeps its local copy up to date, where it has one, and calls a function "
        "for each event. The time runs from the first call to the last one. Ours does not look "
        "into the object (`untouched`), reads a field of its spec (`read`), or reads it through a "
        "type (`typed`); a `reconciler` is handed each event, too. `floor drain` is the speed of "
        "the server itself."
    ),
    columns=(
        Column(
            title="events/s",
            value=lambda numbers: numbers["events"] / numbers["seconds"],
            unit=Unit.RATE,
            more_is_better=True,
        ),
        Column(
            title="CPU per event",
            value=lambda numbers: numbers["cpu"] / numbers["events"],
            unit=Unit.SECONDS,
        ),
    ),
    cases=_cases,
)
