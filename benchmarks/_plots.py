"""Bars of the figures that matter most, as SVG files that are the same for the same figures."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._job import Column, Group
from benchmarks._report import shown
from benchmarks._results import CaseResult, Results, all_jobs, summary_of

__all__ = ["CHARTS", "Chart", "draw", "file_name"]

_COLOURS = {Group.FLOOR: "#b8bcc2", Group.OURS: "#1f77b4", Group.PEER: "#e08a3c"}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One column of one case."""

    name: str
    job: str
    column: int
    case: str
    """The title of the case begins with that; the first one that does is drawn."""
    title: str


CHARTS = (
    Chart(
        name="watch",
        job="watch",
        column=0,
        case="widgets of 2 KB",
        title="Watch events per second, widgets of 2 KB (more is better; logarithmic)",
    ),
    Chart(
        name="list",
        job="list",
        column=0,
        case="20,000 widgets of 2 KB",
        title="Objects listed per second, widgets of 2 KB (more is better; logarithmic)",
    ),
    Chart(
        name="memory",
        job="list",
        column=1,
        case="20,000 widgets of 2 KB",
        title="Memory per object, widgets of 2 KB (less is better; logarithmic)",
    ),
    Chart(
        name="latency",
        job="latency",
        column=0,
        case="1,000 events/s",
        title="Latency at 1,000 events/s, 99th percentile (less is better; logarithmic)",
    ),
)


def file_name(chart: Chart) -> str:
    """What its file is called."""
    return f"performance-{chart.name}.svg"


def draw(results: Results, folder: Path) -> str:
    """Draw what there are figures for; says what was done."""
    if importlib.util.find_spec("matplotlib") is None:
        return "no plots: matplotlib is not installed (it is in the dependency group bench)"
    drawn = []
    for chart in CHARTS:
        found = _bars(results, chart)
        if found is not None:
            _draw(chart, *found, folder / file_name(chart))
            drawn.append(file_name(chart))
    return f"plots: {', '.join(drawn)}" if drawn else "no plots: nothing to draw was measured"


@dataclass(frozen=True)
class _Bar:
    label: str
    group: Group
    value: float


def _bars(results: Results, chart: Chart) -> tuple[Column, list[_Bar]] | None:
    job = next((job for job in all_jobs() if job.name == chart.job), None)
    case = next((c for c in results.cases_of(chart.job) if c.title.startswith(chart.case)), None)
    if job is None or case is None:
        return None
    column = job.columns[chart.column]
    bars = _values(case, column)
    return (column, bars) if bars else None


def _values(case: CaseResult, column: Column) -> list[_Bar]:
    bars = []
    for entry in case.entries:
        summary = summary_of(entry, column)
        if summary is not None and summary.median > 0 and entry.label != "floor drain":
            bars.append(_Bar(entry.label, entry.group, summary.median))
    return sorted(bars, key=lambda bar: bar.value, reverse=not column.more_is_better)


def _draw(chart: Chart, column: Column, bars: Sequence[_Bar], path: Path) -> None:
    # Typed as Any, for those who check types without the group bench.
    matplotlib: Any = importlib.import_module("matplotlib")
    figures: Any = importlib.import_module("matplotlib.figure")
    style = {"svg.hashsalt": chart.name, "svg.fonttype": "none", "font.family": "sans-serif"}
    with matplotlib.rc_context(style):
        figure = figures.Figure(figsize=(8, 0.32 * len(bars) + 0.9), layout="constrained")
        axes = figure.add_subplot()
        # Hundredfold differences stay visible; each bar says its number.
        axes.set_xscale("log")
        values = [bar.value for bar in bars]
        colours = [_COLOURS[bar.group] for bar in bars]
        drawn = axes.barh([bar.label for bar in bars], values, color=colours, height=0.7)
        labels = [shown(value, column.unit) for value in values]
        axes.bar_label(drawn, labels=labels, padding=4, fontsize=9)
        axes.set_xlim(min(values) / 2, max(values) * 4)
        axes.set_title(chart.title, loc="left", fontsize=11)
        axes.xaxis.set_visible(False)
        axes.tick_params(axis="y", length=0, labelsize=9)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
