"""How many reconciles a second come out of a stream of new objects."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks._contestants import entries_for
from benchmarks._job import Case, Column, Job, Unit
from benchmarks._replay import Spec

__all__ = ["JOB"]


def _case(events: int, workers: int, call_ms: float) -> Case:
    spec = Spec(objects=0, events=events, added=True, call_ms=call_ms)
    what = f"a call of {call_ms:g} ms" if call_ms else "nothing done"
    who = f"{workers} workers" if workers > 1 else "1 worker"
    return Case(
        title=f"{who}, {what}",
        entries=entries_for("reconcile", spec, workers=workers),
        ours="appsdk controller",
    )


def _cases(quick: bool) -> Sequence[Case]:
    if quick:
        return [_case(5000, 1, 0.0), _case(400, 8, 5.0)]
    return [
        _case(50_000, 1, 0.0),
        _case(50_000, 8, 0.0),
        _case(1000, 1, 5.0),
        _case(5000, 8, 5.0),
    ]


JOB = Job(
    name="reconcile",
    title="Reconciles",
    text=(
        "The server sends new objects as fast as they are taken, each with a name of its own, so "
        "that no two become one request. A reconciler with one or eight workers is called for each "
        "and does nothing, or asks the server for the object, which answers after 5 ms. The time "
        "runs from the first reconcile to the last."
    ),
    columns=(
        Column(
            title="reconciles/s",
            value=lambda numbers: numbers["reconciles"] / numbers["seconds"],
            unit=Unit.RATE,
            more_is_better=True,
        ),
    ),
    cases=_cases,
    rounds=3,
)
