"""Fails when a hot path has become about twice as slow, or objects much larger.

What is compared is ours with a floor that was measured in the same run, so that the machine has no
part in it. The bounds are generous: a busy machine passes, a hot path of half the speed does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks._job import Column
from benchmarks._results import EntryResult, Results, all_jobs

__all__ = ["BOUNDS", "TOLERANCE", "Bound", "passes"]

TOLERANCE = 0.6
"""The part of the usual that must be reached."""


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
    column: int = 0
    """Which of the job's columns."""


BOUNDS = (Bound(job="watch", case="widgets of 2 KB", label="appsdk watcher-untouched", usual=0.18),)


def passes(results: Results, tell: Callable[[str], object]) -> bool:
    """Whether all that was measured is within its bounds; what was not measured fails."""
    is_good = True
    for bound in BOUNDS:
        found = _found(results, bound)
        least = bound.usual * TOLERANCE
        title = f"guard: {bound.job} ({bound.case}): {bound.label}"
        if found is None:
            tell(f"{title}: not measured")
            is_good = False
            continue
        verdict = "ok" if found >= least else "TOO SLOW"
        tell(
            f"{title}: {found:.3f} of {bound.floor}, usually {bound.usual:.3f}, "
            f"at least {least:.3f}: {verdict}"
        )
        is_good = is_good and found >= least
    return is_good


def _found(results: Results, bound: Bound) -> float | None:
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
