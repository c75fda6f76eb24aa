"""What the design promises, and whether a run reached it."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks._job import Column, Unit
from benchmarks._report import shown, shown_ratio
from benchmarks._results import (
    CaseResult,
    EntryResult,
    Results,
    Summary,
    advantage,
    all_jobs,
    summary_of,
)
from benchmarks.jobs.list import PEAK_OF_WHAT_STAYS

__all__ = ["Goal", "Outcome", "goals"]

_CLIENT_GO = "client-go *"
_OFFICIAL = "kubernetes *"
_KOPF = "kopf*"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a goal."""

    measured: str
    is_reached: bool
    """By the medians of the rounds."""
    is_sure: bool = True
    """Whether it is reached with our worst round, and the best one of those that we are compared
    with, too."""

    @property
    def verdict(self) -> str:
        """In a word or two."""
        if not self.is_reached:
            return "**missed**"
        return "reached" if self.is_sure else "reached, not in each round"


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A line of the design."""

    what: str
    wanted: str
    outcome: Callable[[Results], Outcome | None]
    """None where the run has not what it takes to tell."""


@dataclass(frozen=True)
class _Place:
    """A column of a case."""

    job: str
    case: str
    """A pattern; the first case whose title fits."""
    column: int = 0

    def case_of(self, results: Results) -> CaseResult | None:
        cases = results.cases_of(self.job)
        return next((case for case in cases if fnmatch.fnmatch(case.title, self.case)), None)

    def column_of(self) -> Column | None:
        job = next((job for job in all_jobs() if job.name == self.job), None)
        return job.columns[self.column] if job else None


def _best(case: CaseResult, column: Column, pattern: str) -> EntryResult | None:
    """The best of the entries whose labels fit."""
    found: EntryResult | None = None
    for entry in case.entries:
        if not fnmatch.fnmatch(entry.label, pattern) or summary_of(entry, column) is None:
            continue
        if found is None or (advantage(column, entry, found) or 0.0) > 1:
            found = entry
    return found


def _lowest(column: Column, ours: Summary | None, theirs: Summary | None) -> float:
    """How many times better our worst round is than their best one."""
    if ours is None or theirs is None:
        return 0.0
    if column.more_is_better:
        return ours.least / theirs.most
    return theirs.least / ours.most if ours.most else 0.0


def _times(place: _Place, ours: str, theirs: str, factor: float) -> Callable[..., Outcome | None]:
    """Ours is ``factor`` times better than the best of theirs."""

    def outcome(results: Results) -> Outcome | None:
        case, column = place.case_of(results), place.column_of()
        if case is None or column is None:
            return None
        other = _best(case, column, theirs)
        ratio = advantage(column, case.entry(ours), other)
        if other is None or ratio is None:
            return None
        text = f"{shown_ratio(ratio)} of `{other.label}`"
        lowest = _lowest(column, summary_of(case.entry(ours), column), summary_of(other, column))
        return Outcome(measured=text, is_reached=ratio >= factor, is_sure=lowest >= factor)

    return outcome


def _value(
    place: _Place, ours: str, bound: float, note: str = "", of: Column | None = None
) -> Callable[..., Outcome | None]:
    """Ours is at least (or, where less is better, at most) ``bound``; ``of``: another column."""

    def outcome(results: Results) -> Outcome | None:
        case, column = place.case_of(results), of or place.column_of()
        summary = summary_of(case.entry(ours), column) if case and column else None
        if summary is None or column is None:
            return None
        found = summary.median
        text = shown(found, column.unit) + (" ×" if column.unit is Unit.NUMBER else note)
        if column.more_is_better:
            return Outcome(measured=text, is_reached=found >= bound, is_sure=summary.least >= bound)
        return Outcome(measured=text, is_reached=found <= bound, is_sure=summary.most <= bound)

    return outcome


def _latency(results: Results) -> Outcome | None:
    place = _Place("latency", "1,000 events/s")
    case, column = place.case_of(results), place.column_of()
    if case is None or column is None:
        return None
    ours = summary_of(case.entry("appsdk watcher-untouched"), column)
    floor = summary_of(case.entry("floor bulk"), column)
    if ours is None or floor is None:
        return None
    bound = 2 * floor.median + 0.001
    text = f"{shown(ours.median, column.unit)}; the bound is {shown(bound, column.unit)}"
    is_sure = ours.most < 2 * floor.least + 0.001
    return Outcome(measured=text, is_reached=ours.median < bound, is_sure=is_sure)


def _growth(results: Results) -> Outcome | None:
    place = _Place("growth", "one process each*")
    case, column = place.case_of(results), place.column_of()
    if case is None or column is None:
        return None
    few = summary_of(case.entry("1,000 objects"), column)
    many = summary_of(case.entry("100,000 objects"), column)
    if few is None or many is None:
        return None
    ratio = few.median / many.median
    text = f"at 100,000 {shown_ratio(ratio)} the cost at 1,000"
    is_sure = few.most <= 1.2 * many.least
    return Outcome(measured=text, is_reached=ratio <= 1.2, is_sure=is_sure)


_WATCH = _Place("watch", "widgets of 2 KB")
_WATCH_TLS = _Place("watch", "widgets of 2 KB, TLS")
_LIST = _Place("list", "*,000 widgets of 2 KB")
_OURS = "appsdk watcher-untouched"
_VALIDATED = _Place("webhooks", "objects validated, 1 connection")
_CHANGED = _Place("webhooks", "objects changed, 1 connection")
_CONVERTED = _Place("webhooks", "objects converted, 1 connection")


def goals() -> tuple[Goal, ...]:
    """All of them, in the design's order."""
    watch = "watch events to a callback, store updated"
    half = "half of a bare urllib3 loop that decodes only names"
    memory = _Place("list", "*,000 widgets of 2 KB", 1)
    of_json = _Place("list", "*,000 widgets of 2 KB", 2)
    largest = _Place("list", "100,000 widgets of 2 KB")
    controller = _Place("reconcile", "1 worker, nothing done")

    def goal(what: str, wanted: str, outcome: Callable[[Results], Outcome | None]) -> Goal:
        return Goal(what=what, wanted=wanted, outcome=outcome)

    return (
        goal(watch, "10 × client-go's dynamic informer", _times(_WATCH, _OURS, _CLIENT_GO, 10)),
        goal(watch, "50 × kopf", _times(_WATCH, _OURS, _KOPF, 50)),
        goal(watch, "5 × the official client", _times(_WATCH, _OURS, _OFFICIAL, 5)),
        goal(watch, half, _times(_WATCH, _OURS, "floor partial", 0.5)),
        goal(f"{watch}, TLS", half, _times(_WATCH_TLS, _OURS, "floor partial", 0.5)),
        goal("list and sync", "10 × client-go", _times(_LIST, _OURS, _CLIENT_GO, 10)),
        goal("list and sync", "5 × the official client", _times(_LIST, _OURS, _OFFICIAL, 5)),
        goal("memory per cached object", "at most 1.35 × its JSON", _value(of_json, _OURS, 1.35)),
        goal(
            "memory per cached object",
            "a sixth of client-go's dynamic informer",
            _times(memory, _OURS, _CLIENT_GO, 6),
        ),
        goal(
            "peak of memory while listing 100,000 objects",
            "at most 1.2 × what stays",
            _value(largest, _OURS, 1.2, of=PEAK_OF_WHAT_STAYS),
        ),
        goal(
            "latency at 1,000 events/s, 99th percentile",
            "below 2 × a bare loop + 1 ms",
            _latency,
        ),
        goal(
            "reconciles that do nothing, through queue and worker",
            "30,000/s",
            _value(_Place("no_op", "*"), "backlog", 30_000, "/s"),
        ),
        goal(
            "the same behind an informer, over the network",
            "30,000/s",
            _value(controller, "appsdk controller", 30_000, "/s"),
        ),
        *(
            goal(
                f"webhooks: objects {what}, per core",
                wanted,
                _times(place, "appsdk", theirs, times),
            )
            for what, place in (
                ("validated", _VALIDATED),
                ("changed", _CHANGED),
                ("converted", _CONVERTED),
            )
            for theirs, times, wanted in (
                ("controller-runtime", 0.5, "half of controller-runtime"),
                ("kopf", 5, "5 × kopf"),
            )
            if (what, theirs) != ("converted", "kopf")  # it has no conversion
        ),
        goal("cost per event from 1,000 to 100,000 objects", "at most 1.2 ×", _growth),
        goal(
            "`import appsdk_operator`",
            "below 100 ms",
            _value(_Place("start_up", "*"), "import appsdk_operator", 0.1),
        ),
        goal(
            "import of all that an operator of watchers uses",
            "below 100 ms",
            _value(_Place("start_up", "*"), "import of watchers", 0.1),
        ),
    )
