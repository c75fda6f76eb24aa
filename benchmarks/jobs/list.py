"""How long it takes until all objects are in memory, and how much of it they need."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks._contestants import entries_for
from benchmarks._job import Case, Column, Group, Job, Numbers, Unit
from benchmarks._objects import Template
from benchmarks._replay import Spec

__all__ = ["JOB", "PEAK_OF_WHAT_STAYS"]


def _case(title: str, spec: Spec, *, has_peers: bool = True) -> Case:
    entries = entries_for("list", spec)
    return Case(
        title=title,
        entries=[entry for entry in entries if has_peers or entry.group is not Group.PEER],
        floor="floor bulk",
        facts={"json": Template(spec.kind, spec.size).size},
    )


def _cases(quick: bool) -> Sequence[Case]:
    if quick:
        return [_case("10,000 widgets of 2 KB", Spec(objects=10_000))]
    count = 20_000
    return [
        _case("20,000 widgets of 2 KB", Spec(objects=count)),
        _case("20,000 widgets of 2 KB, TLS", Spec(objects=count, tls=True)),
        _case(
            "20,000 widgets of 2 KB, from a server that does not stream lists",
            Spec(objects=count, streaming=False),
            has_peers=False,
        ),
        _case("20,000 widgets of 0.5 KB", Spec(objects=count, size=500)),
        _case("20,000 widgets of 10 KB", Spec(objects=count, size=10_000)),
        _case("20,000 pods", Spec(kind="pods", objects=count)),
        _case("100,000 widgets of 2 KB", Spec(objects=100_000)),
    ]


def _held(numbers: Numbers) -> float:
    return numbers["rss_after"] - numbers["rss_before"]


PEAK_OF_WHAT_STAYS = Column(
    title="peak of memory, of what stays",
    value=lambda numbers: (numbers["peak"] - numbers["rss_before"]) / _held(numbers),
)

JOB = Job(
    name="list",
    title="List and sync",
    text=(
        "From the first request until every object is in memory and, where the client has "
        "callbacks, each was called for. Memory is what the process needs more than before the "
        "request (RSS): once all is there and garbage is collected, and at the peak. Slow clients "
        "list fewer objects, but at least 5,000, with the exception of `kopf index`; all values "
        "are per object. The floors ask for pages of 500 and keep the spec alone. `floor drain` "
        "keeps nothing."
    ),
    columns=(
        Column(
            title="objects/s",
            value=lambda numbers: numbers["objects"] / numbers["seconds"],
            unit=Unit.RATE,
            more_is_better=True,
        ),
        Column(
            title="memory per object",
            value=lambda numbers: _held(numbers) / numbers["objects"],
            unit=Unit.BYTES,
        ),
        Column(
            title="of its JSON",
            value=lambda numbers: _held(numbers) / numbers["objects"] / numbers["json"],
        ),
        Column(
            title="peak of memory per object",
            value=lambda numbers: (numbers["peak"] - numbers["rss_before"]) / numbers["objects"],
            unit=Unit.BYTES,
        ),
        Column(
            title="CPU per object",
            value=lambda numbers: numbers["cpu"] / numbers["objects"],
            unit=Unit.SECONDS,
        ),
    ),
    cases=_cases,
    rounds=3,
)
