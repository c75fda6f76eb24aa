"""Fails when a hot path has become about twice as slow, or objects much larger.

What is compared is ours with a floor that was measured in the same run, so that the machine has no
part in it. The bounds are generous: a busy machine passes, a hot path of half the speed does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks._job import Case, Column, Entry, Job
from benchmarks._results import EntryResult, Results, all_jobs

__all__ = ["BOUNDS", "ROUNDS", "TOLERANCE", "Bound", "failing", "is_watched"]

TOLERANCE = 0.6
"""The part of the usual that must be reached."""

ROUNDS = 2
"""How often what has a bound is run; the best of the rounds counts."""


@dataclass(frozen=True, kw_only=True)
class Bound:
    """What is usual for an entry of ours."""

    job: str
    case: str
    """The title of the case, in its quick form."""
    label: str
    usual: float
    """How many times better than the floor it is on a quiet machine: 0.2 is a fifth as good. To be
    set anew when the hot path has become faster: a run with ``--guard`` prints what it found."""
    floor: str = "floor bulk"
    column: int
    """Which of the job's columns."""


_WATCHER = "appsdk watcher-untouched"
# Processor time, which is not disturbed by what else the machine does; memory; and a rate.
_CPU_PER_EVENT, _CPU_PER_OBJECT, _MEMORY, _RATE = 1, 4, 1, 0

BOUNDS = (
    Bound(job="watch", case="widgets of 2 KB", label=_WATCHER, usual=0.43, column=_CPU_PER_EVENT),
    Bound(
        job="watch",
        case="widgets of 2 KB",
        label="appsdk watcher-typed",
        usual=0.25,
        column=_CPU_PER_EVENT,
    ),
    Bound(
        job="watch",
        case="widgets of 2 KB",
        label="appsdk app-update",
        usual=0.30,
        column=_CPU_PER_EVENT,
    ),
    Bound(
        job="watch",
        case="widgets of 2 KB, TLS",
        label=_WATCHER,
        usual=0.46,
        column=_CPU_PER_EVENT,
    ),
    Bound(
        job="list",
        case="10,000 widgets of 2 KB",
        label=_WATCHER,
        usual=0.39,
        column=_CPU_PER_OBJECT,
    ),
    Bound(job="list", case="10,000 widgets of 2 KB", label=_WATCHER, usual=0.58, column=_MEMORY),
    Bound(job="no_op", case="", label="backlog", usual=0.62, floor="queue", column=_RATE),
)


def is_watched(job: Job, case: Case, entry: Entry) -> bool:
    """Whether a bound is made of this entry."""
    return any(
        (bound.job, bound.case) == (job.name, case.title)
        and entry.label in (bound.label, bound.floor)
        for bound in BOUNDS
    )


def failing(results: Results, tell: Callable[[str], object]) -> list[Bound]:
    """The bounds that are not kept; what was not measured is not kept either."""
    found = []
    for bound in BOUNDS:
        ratio = _ratio(results, bound)
        title = " ".join(filter(None, ["guard:", bound.job, bound.case]))
        title = f"{title}: {bound.label}, {_column(bound)}"
        if ratio is None:
            tell(f"{title}: not measured")
            found.append(bound)
            continue
        least = bound.usual * TOLERANCE
        verdict = "ok" if ratio >= least else "TOO SLOW"
        tell(
            f"{title}: {ratio:.3f} of {bound.floor}, usually {bound.usual:.3f}, "
            f"at least {least:.3f}: {verdict}"
        )
        if ratio < least:
            found.append(bound)
    return found


def _column(bound: Bound) -> str:
    """What is compared."""
    job = next((job for job in all_jobs() if job.name == bound.job), None)
    return job.columns[bound.column].title if job else f"column {bound.column + 1}"


def _ratio(results: Results, bound: Bound) -> float | None:
    job = next((job for job in all_jobs() if job.name == bound.job), None)
    case = next((c for c in results.cases_of(bound.job) if c.title == bound.case), None)
    if job is None or case is None:
        return None
    column = job.columns[bound.column]
    ours = _best(case.entry(bound.label), column)
    floor = _best(case.entry(bound.floor), column)
    if not ours or not floor:
        return None
    return ours / floor if column.more_is_better else floor / ours


def _best(entry: EntryResult | None, column: Column) -> float | None:
    """The best of the rounds: others on the machine only ever make things slower."""
    values = entry.values(column) if entry else []
    if not values:
        return None
    return max(values) if column.more_is_better else min(values)
