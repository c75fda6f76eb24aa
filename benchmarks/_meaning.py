"""What the figures mean for somebody who writes an operator, and where others are better."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks._job import Column, Group, Job, Unit
from benchmarks._report import shown, shown_ratio
from benchmarks._results import (
    CaseResult,
    EntryResult,
    Results,
    advantage,
    all_jobs,
    summary_of,
)

__all__ = ["Loss", "losses", "meaning", "worst_losses"]

_OURS = "appsdk watcher-untouched"
_LIMITS = (128, 256, 512, 1024, 4096)
_MIB = 1 << 20
# Nobody runs a process to the last byte of its limit.
_ROOM = 0.9
_PEOPLES_NAMES = {"kubernetes": "the official Python client"}
"""What people call a contestant, where that is not its name in the tables."""
# Nearer to each other than that, nobody is ahead.
_TIE = 1.01


def _job(name: str) -> Job | None:
    return next((job for job in all_jobs() if job.name == name), None)


def _median(results: Results, job: str, case: str, label: str, column: int = 0) -> float | None:
    """A figure of ours; None where it was not measured."""
    found = _job(job)
    place = next((one for one in results.cases_of(job) if one.title.endswith(case)), None)
    if found is None or place is None:
        return None
    summary = summary_of(place.entry(label), found.columns[column])
    return summary.median if summary else None


def meaning(results: Results) -> Iterator[str]:
    """A few sentences, and a table of objects by memory."""
    yield from _speed(results)
    yield from _sizes(results)


def _speed(results: Results) -> Iterator[str]:
    untouched = _median(results, "watch", "widgets of 2 KB", _OURS)
    read = _median(results, "watch", "widgets of 2 KB", "appsdk watcher-read")
    listed = _median(results, "list", ",000 widgets of 2 KB", _OURS)
    latency = _median(results, "latency", "1,000 events/s", _OURS)
    if untouched and read:
        yield (
            f"* A watcher in one process handles {shown(untouched, Unit.RATE)} changes of 2 KB "
            f"objects a second if its callback does almost nothing, and {shown(read, Unit.RATE)} "
            "if the callback reads the spec of each object."
        )
    if listed:
        yield (
            f"* After a start, 100,000 objects of 2 KB are in memory within "
            f"{shown(100_000 / listed, Unit.SECONDS)}, if the API server is as fast."
        )
    if latency:
        yield (
            "* At 1,000 events a second, for 99 of 100 events the callback begins less than "
            f"{shown(latency, Unit.SECONDS)} after the server sent the event, on the same machine."
        )
    yield ""


def _need(case: CaseResult) -> tuple[float, float] | None:
    """The bytes of a process of ours without objects, and those that each object takes at most."""
    entry = case.entry(_OURS)
    if entry is None or not entry.rounds:
        return None
    base = Column(title="", value=lambda numbers: numbers["rss_before"])
    each = Column(
        title="",
        value=lambda numbers: (numbers["peak"] - numbers["rss_before"]) / numbers["objects"],
    )
    before, more = summary_of(entry, base), summary_of(entry, each)
    return (before.median, more.median) if before and more and more.median > 0 else None


def _sizes(results: Results) -> Iterator[str]:
    needs: list[tuple[str, tuple[float, float]]] = []
    for title in ("widgets of 0.5 KB", "widgets of 2 KB", "widgets of 10 KB", "pods"):
        cases = results.cases_of("list")
        case = next((case for case in cases if case.title.endswith(title)), None)
        need = _need(case) if case else None
        if need:
            needs.append((title, need))
    if not needs:
        return
    base = max(need[0] for _, need in needs)
    yield (
        f"A process with an informer and a watcher takes {shown(base, Unit.BYTES)} before its "
        "first object. The table shows how many objects fit into a memory limit. Each count leaves "
        "a tenth of the memory free, and includes the peak during the first list."
    )
    yield ""
    yield f"| limit | {' | '.join(title for title, _ in needs)} |"
    yield f"|---|{'---:|' * len(needs)}"
    for limit in _LIMITS:
        counts = [max(0.0, (limit * _MIB * _ROOM - before) / each) for _, (before, each) in needs]
        name = f"{limit} Mi" if limit < 1024 else f"{limit // 1024} Gi"
        yield f"| {name} | {' | '.join(_round(count) for count in counts)} |"
    yield ""
    yield (
        "Add the memory for what your functions decode and keep. Selectors, "
        "`drop_managed_fields` and metadata-only informers reduce the memory of each "
        "object: see [informers and caches](informers-and-caches.md)."
    )


def _round(count: float) -> str:
    """Two digits that count: a limit is no measurement."""
    return f"{float(f'{count:.2g}'):,.0f}"


@dataclass(frozen=True, kw_only=True)
class Loss:
    """An entry of ours that peers are ahead of, in one column of a table."""

    job: str
    """The title of the job, as that of the case and of the column."""
    case: str
    column: str
    ours: str
    """The label of the entry, and its figure below."""
    figure: str
    ahead: Sequence[tuple[float, str, str]]
    """Who is ahead: how many times better, the label and the figure; the best one first."""

    def __str__(self) -> str:
        title = f"{self.job}, {self.case}" if self.case else self.job
        names = ", ".join(
            f"`{label}` {figure} ({shown_ratio(ratio)})" for ratio, label, figure in self.ahead
        )
        return f"* {title}, {self.column}: `{self.ours}` {self.figure}; ahead: {names}"


def losses(results: Results, jobs: Sequence[Job]) -> Iterator[Loss]:
    """Wherever a peer is ahead of an entry of ours in the same table."""
    for job in jobs:
        for case in results.cases_of(job.name):
            for column in job.columns:
                yield from _losses_of(job, case, column)


def _losses_of(job: Job, case: CaseResult, column: Column) -> Iterator[Loss]:
    for ours in case.of_group(Group.OURS):
        ahead = [
            (ratio, peer.label, _shown(peer, column))
            for peer in case.of_group(Group.PEER)
            if (ratio := advantage(column, peer, ours)) is not None and ratio > _TIE
        ]
        if ahead:
            yield Loss(
                job=job.title,
                case=case.title,
                column=column.title,
                ours=ours.label,
                figure=_shown(ours, column),
                ahead=sorted(ahead, reverse=True),
            )


def worst_losses(found: Sequence[Loss], count: int = 3) -> Iterator[str]:
    """A sentence for each of the jobs in which somebody is farthest ahead."""
    worst: dict[str, Loss] = {}
    for loss in found:
        if loss.job not in worst or loss.ahead[0][0] > worst[loss.job].ahead[0][0]:
            worst[loss.job] = loss
    for loss in sorted(worst.values(), key=lambda one: -one.ahead[0][0])[:count]:
        ratio, label, figure = loss.ahead[0]
        case = f"{loss.case}, {loss.column}" if loss.case else loss.column
        contestant = label.partition(" ")[0].rstrip(",")
        name = _PEOPLES_NAMES.get(contestant, f"`{contestant}`")
        yield (
            f"* **{loss.job}:** {name} is up to {shown_ratio(ratio)} better: "
            f"{figure} there, {loss.figure} here ({case})."
        )


def _shown(entry: EntryResult, column: Column) -> str:
    summary = summary_of(entry, column)
    return shown(summary.median, column.unit) if summary else ""
