"""What is measured: jobs, their tables, and who takes part in each."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks._replay import Spec

__all__ = [
    "Case",
    "Column",
    "Contestant",
    "Entry",
    "Group",
    "Job",
    "Numbers",
    "Unit",
    "Variant",
    "python_entry",
]

Numbers = Mapping[str, float]
"""What a contestant's process printed."""


class Group(enum.Enum):
    """What a contestant is."""

    FLOOR = "floor"
    """As little as one can do: what a faster kit would still have to pay."""
    OURS = "ours"
    PEER = "peer"


class Unit(enum.Enum):
    """How a value is written."""

    RATE = "rate"
    """So many a second."""
    SECONDS = "seconds"
    BYTES = "bytes"
    SHARE = "share"
    """A part of one, written in percent."""
    NUMBER = "number"


@dataclass(frozen=True, kw_only=True)
class Column:
    """A value of a table, computed from the numbers of one round."""

    title: str
    value: Callable[[Numbers], float | None]
    """From the numbers to the value; None where a contestant has none. A missing key is none."""
    unit: Unit = Unit.NUMBER
    more_is_better: bool | None = False
    """None where neither is: the value is told for itself."""

    def of(self, numbers: Numbers) -> float | None:
        """The value in one round."""
        try:
            return self.value(numbers)
        except (KeyError, ZeroDivisionError):
            return None


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A form of a contestant, which takes part in some of the jobs."""

    name: str = ""
    """What the table calls it, behind the contestant's name; also ``variant`` of its options."""
    jobs: Sequence[str]
    """The names of the jobs it can do."""
    kinds: Sequence[str] = ("widgets", "pods")
    """The kinds with which it can do them."""
    sizes: Sequence[int] = ()
    """The sizes of widgets that it can do; none given: all."""
    share: Mapping[str, float] = field(default_factory=dict)
    """By job: which part of the events (or objects, for ``list``) is enough to know its speed, so
    that the slow do not hold up the run; not named: all of them."""
    most_workers: int = 1_000_000
    """The most workers that it can have."""
    most_objects: int = 1_000_000_000
    """The most objects with which it ends in reasonable time."""
    most_events: int = 1_000_000_000
    """The most events that it takes one by one."""


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A program that takes part."""

    name: str
    """What tables and the command line call it."""
    group: Group
    variants: Sequence[Variant]
    requires: str = ""
    """The distribution that must be installed, whose version is told."""
    command: Sequence[str] = ()
    """What runs it; default: the module that declares it, in this interpreter."""
    version: str = ""
    """Its version; default: that of the distribution."""
    absent: str = ""
    """Why it cannot be run here; default: that the distribution is missing, if so."""
    text: str = ""
    """How it does its jobs, for the page; default: the docstring of its module."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Someone who takes part in a case: a process that prints a JSON object of numbers."""

    label: str
    """What the table calls it; unique in its case."""
    group: Group
    command: tuple[str, ...]
    """What is run; name of the job and options, as JSON, are put behind it."""
    job: str
    """The first argument: which of its jobs the program is to do."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The second one; where there is a server, ``server`` and ``ca`` and what it holds are added,
    unless they are named here."""
    spec: Spec | None = None
    """The replay server it talks to; entries of a case with equal ones share it."""
    absent: str = ""
    """Why it cannot be run on this machine, if so."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One table: the same work for all its entries, which take turns."""

    title: str = ""
    """What tells it from the job's other cases, for example ``widgets of 2 KB, TLS``."""
    entries: Sequence[Entry]
    floor: str = ""
    """The label of the entry that the others are compared with, beside ours."""
    ours: str = ""
    """The label of the entry of ours that peers are compared with; default: our first one."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """Numbers that all entries have in common, put to those that each prints."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A question that the benchmark answers, in a module of its own as ``JOB``."""

    name: str
    """What the command line calls it."""
    title: str
    """The heading of its tables."""
    text: str
    """What is measured and how, in a few sentences, for the page."""
    columns: Sequence[Column]
    """The first one is what counts: ratios are made of it."""
    cases: Callable[[bool], Sequence[Case]]
    """Its cases; in the quick form, which takes seconds, if True."""
    rounds: int = 5
    """How often each contestant is run."""


def python_entry(
    label: str,
    module: str,
    job: str,
    *,
    group: Group = Group.OURS,
    options: Mapping[str, Any] | None = None,
    spec: Spec | None = None,
    absent: str = "",
) -> Entry:
    """An entry that is a Python module, run by this interpreter; see ``_contestant.main``."""
    command = (sys.executable, "-m", module)
    return Entry(
        label=label,
        group=group,
        command=command,
        job=job,
        options=options or {},
        spec=spec,
        absent=absent,
    )
