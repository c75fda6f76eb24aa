"""The results of a run, and their JSON."""

from __future__ import annotations

import importlib
import json
import pkgutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import jobs
from benchmarks._job import Column, Group, Job

__all__ = [
    "CaseResult",
    "EntryResult",
    "Results",
    "Summary",
    "advantage",
    "all_jobs",
    "summary_of",
]


@dataclass
class EntryResult:
    """What became of an entry."""

    label: str
    group: Group
    rounds: list[dict[str, float]] = field(default_factory=list)
    """The numbers of each round."""
    problem: str = ""
    """Why there are none, or not of all rounds."""
    is_absent: bool = False
    """Whether it cannot be run on this machine."""

    def values(self, column: Column) -> list[float]:
        """The value of each round that has one."""
        found = (column.of(numbers) for numbers in self.rounds)
        return [value for value in found if value is not None]


@dataclass
class CaseResult:
    """One table."""

    job: str
    title: str
    entries: list[EntryResult]
    floor: str = ""
    """The label of the floor."""
    ours: str = ""
    """The label of the entry of ours that peers are compared with."""

    def entry(self, label: str) -> EntryResult | None:
        """The entry of that name."""
        return next((entry for entry in self.entries if entry.label == label), None)

    def of_group(self, group: Group) -> list[EntryResult]:
        """The entries of a group that have numbers."""
        return [entry for entry in self.entries if entry.group is group and entry.rounds]


@dataclass
class Results:
    """A whole run."""

    environment: dict[str, str]
    versions: dict[str, str]
    """Of each contestant, or why it is absent."""
    cases: list[CaseResult] = field(default_factory=list)
    seconds: float = 0.0
    """How long it took."""
    is_quick: bool = False

    def cases_of(self, job: str) -> list[CaseResult]:
        """The tables of a job."""
        return [case for case in self.cases if case.job == job]

    def replace(self, newer: Results) -> None:
        """Take over the jobs of another run, instead of the own ones."""
        jobs = {case.job for case in newer.cases}
        self.cases = [case for case in self.cases if case.job not in jobs] + newer.cases
        self.seconds += newer.seconds
        self.versions |= newer.versions

    def write(self, path: Path) -> None:
        """Write them as JSON."""

        def plain(value: object) -> object:
            return value.value if isinstance(value, Group) else vars(value)

        path.write_text(json.dumps(self, default=plain, indent=1) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Results:
        """Read what :meth:`write` wrote."""
        data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for case in data["cases"]:
            for entry in case["entries"]:
                entry["group"] = Group(entry["group"])
            case["entries"] = [EntryResult(**entry) for entry in case["entries"]]
        data["cases"] = [CaseResult(**case) for case in data["cases"]]
        return cls(**data)


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A value over the rounds."""

    median: float
    least: float
    most: float


def summary_of(entry: EntryResult | None, column: Column) -> Summary | None:
    """Median and spread of a column; None where there is no value."""
    values = entry.values(column) if entry else []
    if not values:
        return None
    return Summary(median=statistics.median(values), least=min(values), most=max(values))


def advantage(
    column: Column, first: EntryResult | None, second: EntryResult | None
) -> float | None:
    """How many times better the first one is, by the medians; None where nobody can tell."""
    one, other = summary_of(first, column), summary_of(second, column)
    if one is None or other is None or column.more_is_better is None:
        return None
    better, worse = (one, other) if column.more_is_better else (other, one)
    return better.median / worse.median if worse.median > 0 else None


def all_jobs() -> Sequence[Job]:
    """What ``benchmarks.jobs`` has; what everybody is in comes first."""
    found: list[Job] = [
        importlib.import_module(f"{jobs.__name__}.{module.name}").JOB
        for module in pkgutil.iter_modules(jobs.__path__)
        if not module.name.startswith("_")
    ]
    first = ["watch", "list", "latency", "reconcile"]
    order = {name: number for number, name in enumerate(first)}
    return sorted(found, key=lambda job: (order.get(job.name, len(first)), job.name))
