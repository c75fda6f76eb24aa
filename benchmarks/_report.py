"""Tables as text, and how values are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks._job import Group, Job, Unit
from benchmarks._results import (
    CaseResult,
    EntryResult,
    Results,
    Summary,
    advantage,
    summary_of,
)

__all__ = ["Row", "as_text", "rows_of", "shown", "shown_ratio", "shown_spread", "titles_of"]

_PREFIXES = {
    Unit.SECONDS: ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    Unit.BYTES: ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")),
}


def _digits(value: float) -> str:
    """Three digits that count, two of what is small.

    >>> [_digits(value) for value in (0.0, 0.0123, 1.2345, 12.345, 1234.5, 1234567.0)]
    ['0', '0.012', '1.23', '12.3', '1,230', '1,230,000']
    """
    if abs(value) < 0.1:
        return f"{value:.2g}"
    rounded = float(f"{value:.3g}")
    if abs(rounded) >= 100 or (abs(value) >= 10 and value.is_integer()):
        return f"{rounded:,.0f}"
    return f"{rounded:.2f}" if abs(rounded) < 10 else f"{rounded:.1f}"


def shown(value: float, unit: Unit) -> str:
    """A value with its unit.

    >>> shown(0.00123, Unit.SECONDS), shown(2690.0, Unit.BYTES), shown(52345.0, Unit.RATE)
    ('1.23 ms', '2.69 KB', '52,300')
    >>> shown(0.000043, Unit.SHARE)
    '0.0043 %'
    """
    if unit is Unit.SHARE:
        return f"{_digits(value * 100)} %"
    for factor, name in _PREFIXES.get(unit, ()):
        if abs(value) >= factor:
            return f"{_digits(value / factor)} {name}"
    return _digits(value)


def shown_spread(summary: Summary | None, unit: Unit) -> str:
    """A median, and the least and the most where there were several rounds."""
    if summary is None:
        return ""
    text = shown(summary.median, unit)
    if summary.least == summary.most:
        return text
    return f"{text} ({shown(summary.least, unit)} - {shown(summary.most, unit)})"


def shown_ratio(ratio: float | None) -> str:
    """A ratio; nothing where there is none."""
    return "" if ratio is None else f"{_digits(ratio)} ×"


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of a table."""

    entry: EntryResult
    cells: Sequence[str]
    """What stands behind the label; empty where the entry has no numbers."""


def titles_of(job: Job, case: CaseResult) -> list[str]:
    """The heads of the table's columns, behind that of the labels."""
    first, *others = job.columns
    ratios = ["of the floor"] if case.entry(case.floor) else []
    if case.of_group(Group.OURS) and case.of_group(Group.PEER):
        ratios.append("we are")
    return [first.title, *ratios, *(column.title for column in others)]


def rows_of(job: Job, case: CaseResult) -> list[Row]:
    """The lines of the table, in the order of the entries.

    ``of the floor`` says which part of the floor's speed an entry reaches, ``we are`` how many
    times better ours is than a peer: below 1 it is worse.
    """
    first, *others = job.columns
    titles = titles_of(job, case)
    floor, ours = case.entry(case.floor), case.entry(case.ours)
    rows = []
    for entry in case.entries:
        if not entry.rounds:
            rows.append(Row(entry=entry, cells=()))
            continue
        cells = [shown_spread(summary_of(entry, first), first.unit)]
        if "of the floor" in titles:
            cells.append(shown_ratio(advantage(first, entry, floor)))
        if "we are" in titles:
            is_peer = entry.group is Group.PEER
            cells.append(shown_ratio(advantage(first, ours, entry)) if is_peer else "")
        cells += (shown_spread(summary_of(entry, column), column.unit) for column in others)
        rows.append(Row(entry=entry, cells=cells))
    return rows


def _table(job: Job, case: CaseResult) -> list[str]:
    rows = rows_of(job, case)
    lines = [["", *titles_of(job, case)], *([row.entry.label, *row.cells] for row in rows)]
    width = max(map(len, lines))
    sizes = [max(len(line[at]) for line in lines if at < len(line)) for at in range(width)]
    text = []
    for line, row in zip(lines, [None, *rows], strict=True):
        cells = [cell.ljust(size) for cell, size in zip(line, sizes, strict=False)]
        problem = row.entry.problem if row else ""
        text.append("  ".join([*cells, problem]).rstrip())
    return text


def as_text(results: Results, jobs: Sequence[Job]) -> str:
    """Everything, for a terminal."""
    lines = [f"{name}: {value}" for name, value in results.environment.items()]
    lines += [f"{name}: {value}" for name, value in results.versions.items()]
    for job in jobs:
        for case in results.cases_of(job.name):
            title = f"{job.title}: {case.title}" if case.title else job.title
            lines += ["", title, *_table(job, case)]
    return "\n".join(lines)
