"""Bars of the figures that matter most, as SVG files that are the same for the same figures.

The axis is linear and begins at 0: a bar twice as long is a figure twice as large. Text has the
colour of the page (``currentColor``) where a picture is part of one, and that of the reader's theme
elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from benchmarks._job import Unit
from benchmarks._report import shown
from benchmarks._results import Results, all_jobs, summary_of

__all__ = ["CHARTS", "NAMES", "Bar", "Chart", "draw", "file_name", "picture"]

NAMES = {
    "appsdk watcher-untouched": "this kit",
    "lightkube": "lightkube",
    "kubernetes watch": "official Python client",
    "controller-runtime typed": "controller-runtime",
    "client-go dynamic-informer": "client-go",
    "kopf event": "kopf",
}
"""The contestants that pictures show, by their labels in the tables, and what people call them."""


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
        title="Events per second in one process: longer is better",
    ),
    Chart(
        name="list",
        job="list",
        column=0,
        case="20,000 widgets of 2 KB",
        title="Objects per second in a first list: longer is better",
    ),
    Chart(
        name="memory",
        job="list",
        column=1,
        case="20,000 widgets of 2 KB",
        title="Memory for each cached object of 2 KB: shorter is better",
    ),
    Chart(
        name="latency",
        job="latency",
        column=0,
        case="1,000 events/s",
        title="Latency at 1,000 events/s, 99th percentile: shorter is better",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A contestant's figure."""

    label: str
    """As in the tables."""
    value: float


def file_name(chart: Chart) -> str:
    """What its file is called."""
    return f"performance-{chart.name}.svg"


def draw(results: Results, folder: Path) -> str:
    """Draw what there are figures for; says what was done."""
    drawn = []
    for chart in CHARTS:
        job = next((job for job in all_jobs() if job.name == chart.job), None)
        cases = (c for c in results.cases_of(chart.job) if c.title.startswith(chart.case))
        case = next(cases, None)
        if job is None or case is None:
            continue
        column = job.columns[chart.column]
        summaries = {label: summary_of(case.entry(label), column) for label in NAMES}
        bars = [Bar(label=label, value=s.median) for label, s in summaries.items() if s]
        if bars:
            text = picture(chart, bars, column.unit, longer_is_better=bool(column.more_is_better))
            (folder / file_name(chart)).write_text(text, encoding="utf-8")
            drawn.append(file_name(chart))
    return f"plots: {', '.join(drawn)}" if drawn else "no plots: nothing to draw was measured"


_WIDTH, _ROW, _TOP = 500, 30, 34
_BEGIN, _END = 160, 420
"""Where bars begin, and the longest one ends; its number is behind it."""

_HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" \
height="{height}" role="img" aria-labelledby="{name}-title" class="bars">
<style>
.bars {{ color: #1f2328; }}
@media (prefers-color-scheme: dark) {{ .bars {{ color: #d1d7e0; }} }}
</style>
<title id="{name}-title">{title}: {values}</title>
<g fill="currentColor" font-size="14" \
font-family="system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif">
<text x="0" y="16" font-weight="600">{title}</text>
"""


def picture(chart: Chart, bars: Sequence[Bar], unit: Unit, *, longer_is_better: bool) -> str:
    """An SVG with a bar for each, the best one first."""
    ordered = sorted(bars, key=lambda bar: bar.value, reverse=longer_is_better)
    values = "; ".join(f"{NAMES[bar.label]} {shown(bar.value, unit)}" for bar in ordered)
    height = _TOP + _ROW * len(ordered)
    title = escape(chart.title)
    lines = [_HEAD.format(width=_WIDTH, height=height, name=chart.name, title=title, values=values)]
    longest = max(bar.value for bar in ordered)
    for number, bar in enumerate(ordered):
        top = _TOP + _ROW * number
        length = max(1.0, (_END - _BEGIN) * bar.value / longest)
        is_ours = NAMES[bar.label] == "this kit"
        weight = ' font-weight="600"' if is_ours else ""
        look = 'fill="#1f78b4"' if is_ours else 'opacity="0.45"'
        lines.append(
            f'<text x="{_BEGIN - 10}" y="{top + 15}" text-anchor="end"{weight}>'
            f"{NAMES[bar.label]}</text>\n"
            f'<rect x="{_BEGIN}" y="{top}" width="{length:.1f}" height="20" rx="2" {look}/>\n'
            f'<text x="{_BEGIN + length + 8:.1f}" y="{top + 15}"{weight}>'
            f"{shown(bar.value, unit)}</text>\n"
        )
    return "".join([*lines, "</g>\n</svg>\n"])
