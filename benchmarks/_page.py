"""``docs/performance.md`` and ``docs/measurements.md``, made from the results of a run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from benchmarks._contestants import all_contestants
from benchmarks._goals import goals
from benchmarks._job import Group, Job
from benchmarks._meaning import losses, meaning, worst_losses
from benchmarks._plots import CHARTS, file_name
from benchmarks._replay import ROOT
from benchmarks._report import rows_of, shown_ratio, titles_of
from benchmarks._results import CaseResult, Results, advantage

__all__ = ["measurements", "page"]

_WIDTH = 98

_INTRODUCTION = """\
# Performance

This page compares the speed and the memory of the kit with other clients. All of them do the same
work on the same machine. On another machine the figures differ, but the ratios should be similar.
"""

_UNDER_THE_PICTURE = """\
A server sends changes of objects of 2 KB as fast as the client reads them. For each change the
client updates its local copy, if it has one, and calls a function. [Measurements](measurements.md)
has all clients and figures, the machine, the versions, and the commands to repeat the runs.

## Why it is fast

The kit keeps each object as the bytes that the API server sent. On arrival it decodes only the
fields that identify the object; Go and other Python clients build the whole object first. If many
events wait, it reads, stores and hands them over in batches. The bytes hold no references, so the
garbage collector never walks the local copy.
"""

_MEASUREMENTS = """\
# Measurements

All figures behind [Performance](performance.md): this kit next to other clients, and next to a
floor that no client can beat. `make bench` measures and writes both pages; their text is in
`benchmarks/`.
"""

_READING = """\
## The figures

Each figure is the median over the rounds, with the least and the most in parentheses. The floor
is a program that reads the bytes, decodes as little as possible and does nothing else. `of the
floor` is the speed of an entry divided by that of the floor. `we are` says how many times better
this kit is than the entry; below 1 the entry is better. Each client does a job as its own
documentation shows it, without a rate limit of its own. Each round is a fresh process, and the
clients take turns.

The clients talk to a server that plays back prepared answers. It speaks HTTP/1.1 and does not
compress. With TLS it sends each event in a record of its own, as API servers do. A real API
server is far slower.
"""

_PRICE = """\
## What the speed costs

* **Your function is the limit.** If a callback decodes more, it takes fewer events. If it writes
  for each object, it waits for the API server's answers. An App with an `on_add` writes, too: one
  patch for a new object, and two if there is an `on_delete`.
* **Reading a field decodes it.** The kit decodes `spec`, `labels` and the rest each time that you
  read them. Keep them in a variable if you use them often.
* **A flood costs latency.** If at least 512 KiB wait in the socket, the informer reads up to 1 MiB
  at once, stores all of these objects, and only then calls functions. The first of them waits up
  to 3 ms.
* **Threads.** Each informer has a thread, and its handlers have another one: a thousand kinds in
  one process are two thousand threads.
"""

_REPRODUCE = """\
## How to reproduce it

From a checkout, with Python and make; Go peers take part where there is a Go toolchain. It takes
{minutes}, and wants a machine with nothing else to do.

```console
$ make bench
```

That writes this page and its first one anew. A part of it, or another view:

```console
$ make bench ARGS="--jobs watch,list --rounds 3"
$ make bench ARGS="--contestants appsdk* --plain"
$ make bench ARGS=--quick
```

Those who take part are in `benchmarks/contestants/` and `benchmarks/peers/`, what they do is in
`benchmarks/jobs/`.
"""


def page(results: Results, jobs: Sequence[Job]) -> str:
    """The page for people who want to know what it means for them."""
    lines = [_INTRODUCTION, *_quick(results)]
    date, cores = results.environment.get("Date"), results.environment.get("Cores")
    if date and cores:
        lines.append(f"Measured on {date}, with {cores} cores.\n")
    first, *_ = CHARTS
    if (ROOT / "docs" / file_name(first)).exists():
        lines += [f"![{first.title}]({file_name(first)})", ""]
    lines.append(_UNDER_THE_PICTURE)
    lines += ["## What it means for you\n", *meaning(results), ""]
    lines += ["## Where we lose\n", *_worst(results, jobs), "", _PRICE]
    lines += ["## Goals\n", *_goal_table(results), ""]
    return _text(lines)


def measurements(results: Results, jobs: Sequence[Job]) -> str:
    """The page with all figures."""
    lines = [_MEASUREMENTS, *_quick(results)]
    lines += ["## Measured with\n", *_environment(results), "", _READING]
    for job in jobs:
        cases = results.cases_of(job.name)
        if cases:
            lines += _job(job, cases)
    lines += ["## Who is ahead of us\n", *_losses(results, jobs), ""]
    lines += ["## Who takes part\n", *_contestants()]
    minutes = max(1, round(results.seconds / 60))
    text = f"about {minutes} minute{'s' if minutes > 1 else ''}"
    lines.append(_REPRODUCE.format(minutes=text))
    return _text(lines)


def _quick(results: Results) -> list[str]:
    note = "> These figures are of the quick form, which only shows that it runs.\n"
    return [note] if results.is_quick else []


def _text(lines: Sequence[str]) -> str:
    return "\n".join(map(_wrapped, lines)).rstrip() + "\n"


def _wrapped(line: str) -> str:
    """A long line of prose in several; tables and what has lines of its own stay as they are."""
    if len(line) <= _WIDTH or line.startswith(("|", "![")) or "\n" in line:
        return line
    indent = "  " if line.startswith("* ") else ""
    return textwrap.fill(
        line,
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    rule = ["---", *["---:"] * (len(heads) - 1)]
    return [f"| {' | '.join(cells)} |" for cells in [heads, rule, *rows]]


def _goal_table(results: Results) -> Iterator[str]:
    outcomes = [(goal, goal.outcome(results)) for goal in goals()]
    reached = sum(outcome is not None and outcome.is_reached for _, outcome in outcomes)
    yield (
        f"Of {len(outcomes)} goals {reached} are reached. Each figure is the median of several "
        "runs. If a client has several variants, the fastest one counts."
    )
    yield ""
    yield "| what | goal | measured | |"
    yield "|---|---|---|---|"
    for goal, outcome in outcomes:
        if outcome is None:
            yield f"| {goal.what} | {goal.wanted} | not measured | |"
        else:
            yield f"| {goal.what} | {goal.wanted} | {outcome.measured} | {outcome.verdict} |"


def _contestants() -> Iterator[str]:
    """What the modules of the contestants say of them."""
    for one in all_contestants():
        # Their docstrings mark code as reStructuredText does.
        yield f"### {one.name}\n"
        yield one.text.replace("``", "`") + "\n"


def _worst(results: Results, jobs: Sequence[Job]) -> list[str]:
    found = list(losses(results, jobs))
    if not found:
        return _losses(results, jobs)
    link = "[The whole list](measurements.md#who-is-ahead-of-us) has all clients that are ahead."
    return [*worst_losses(found), "", link]


def _losses(results: Results, jobs: Sequence[Job]) -> list[str]:
    if not any(case.of_group(Group.PEER) for case in results.cases):
        return ["No peer took part in this run."]
    return list(map(str, losses(results, jobs))) or ["In no job of this run was a peer ahead."]


def _environment(results: Results) -> list[str]:
    rows = [[name, value] for name, value in results.environment.items()]
    rows += [[f"`{name}`", value] for name, value in results.versions.items()]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _job(job: Job, cases: Sequence[CaseResult]) -> list[str]:
    lines = [f"### {job.title}\n", job.text, ""]
    for chart in CHARTS[1:]:  # the first one is on the other page
        if chart.job == job.name and (ROOT / "docs" / file_name(chart)).exists():
            lines += [f"![{chart.title}]({file_name(chart)})", ""]
    for case in cases:
        if case.title:
            lines += [f"**{case.title[0].upper()}{case.title[1:]}**", ""]
        lines += [*_case_table(job, case), "", *_server_speed(job, case)]
    return lines


def _server_speed(job: Job, case: CaseResult) -> list[str]:
    """How far the server is from holding anybody up."""
    column = job.columns[0]
    clients = [*case.of_group(Group.OURS), *case.of_group(Group.PEER)]
    server = case.entry("floor drain")
    ratios = [advantage(column, server, client) for client in clients]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return []
    return [f"The server is {shown_ratio(min(known))} as fast as the fastest client.", ""]


def _case_table(job: Job, case: CaseResult) -> list[str]:
    heads = ["", *titles_of(job, case)]
    rows: list[list[str]] = []
    problems: dict[str, list[str]] = {}
    for row in rows_of(job, case):
        label = f"`{row.entry.label}`"
        if row.cells:
            rows.append([f"**{label}**" if row.entry.group is Group.OURS else label, *row.cells])
        if row.entry.problem:
            problems.setdefault(row.entry.problem, []).append(label)
    # Columns in which nobody has a value are left out.
    kept = [at for at in range(len(heads)) if at < 2 or any(row[at] for row in rows)]
    table = _table([heads[at] for at in kept], [[row[at] for at in kept] for row in rows])
    notes = [f"{', '.join(labels)}: {problem}" for problem, labels in problems.items()]
    return [
        *(table if rows else []),
        *(["", f"Not measured: {'; '.join(notes)}."] if notes else []),
    ]
