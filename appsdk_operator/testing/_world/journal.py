"""The journal of a world: who did what when, and its text, the timeline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias, final

import attrs

from appsdk_operator.resource import Object

_LONGEST: Final = 14

Lines: TypeAlias = dict[tuple[str, int], str]
"""Lines of code by file and number, with the functions that they are in."""


@attrs.define(eq=False)
class Entry:
    """One event of a world: a call, a write, a step, a fault, or the start or end of a process."""

    at: float
    """Seconds on the simulation's clock."""
    who: str
    """The replica's name, or ``somebody`` for everybody else."""
    what: str
    """``call`` (of a watcher or reconciler), ``function`` (of an App, in such a call), ``timer``
    (of an App, in such a call), ``write``, ``step`` (of another client), ``fault`` or ``life``
    (start or end of a process)."""
    text: str
    """The predicate of a sentence with ``who`` as its subject."""
    key: str = ""
    """The object's namespace and name, such as ``default/a``; empty if it is about all objects."""
    kind: str = ""
    """The object's kind as ``plural.group``, or for the core group the plural, such as ``secrets``;
    empty if it is about all objects."""
    process: int = 0
    """The number of the replica's process: 1, then 2 after the first restart, …"""
    watcher: int = 0
    """For calls: the number of the recorded watcher or reconciler, from 0."""
    action: str = ""
    """For calls of watchers, and of reconcilers whose request has the object: ``CREATE``,
    ``UPDATE``, ``RESYNC`` or ``DELETE``; for functions of an App: ``add``, ``sync``, ``update`` or
    ``delete``."""
    uid: str = ""
    version: int = 0
    """The resource version of :attr:`object`."""
    began: int = 0
    """The number of its start in the sequence of all starts and ends."""
    ended: int = 0
    """The number of its end in the same sequence; 0 while it runs."""
    over: float = 0.0
    """For calls, functions and timers: the seconds on the simulation's clock at their end."""
    error: BaseException | None = None
    status: int = 0
    """For writes: the HTTP status of the answer; 0 when it was lost."""
    outcome: str = ""
    """The result, unless it is plain success."""
    again: float = math.inf
    """For calls: the seconds after which it wants to be called again."""
    asks: bool = False
    """For steps: whether it gives the operator work."""
    place: str = ""
    """For calls, functions and timers: where what was called begins; empty: not known."""
    lines: Lines = attrs.field(factory=dict, repr=False)
    """For calls in a history that is played for its report: the lines of the operator that ran, in
    the order in which they ran last."""
    is_selective: bool = False
    """For calls: whether the watcher or reconciler selects events by ``concerns``."""
    is_by_key: bool = False
    """For calls: whether the reconciler knows objects by name, as a :class:`KeyReconciler`."""
    declared: Any = attrs.field(default=None, repr=False)
    """For functions and timers of an App: the declaration."""
    old: Object | None = attrs.field(default=None, repr=False)
    """For updates: the state before it."""
    object: Any = attrs.field(default=None, repr=False)
    """For functions, timers, and calls with an :attr:`action`: the object that they got. None for
    anything else."""
    within: Entry | None = attrs.field(default=None, repr=False)
    """For writes and functions: the call that made it."""
    writes: list[Entry] = attrs.field(factory=list, repr=False)
    """For calls: the functions that were called, and the writes that were made in it."""

    @property
    def has_failed(self) -> bool:
        """Whether it raised an error, which may itself be false."""
        return self.error is not None

    @property
    def is_of_timer(self) -> bool:
        """Whether it is a timer, or a call that has called a timer."""
        return self.what == "timer" or any(one.what == "timer" for one in self.writes)

    @property
    def line(self) -> str:
        """The entry without its time; a call with its functions and writes."""
        if self.what != "call":
            return f"{self.who} {self.text}" + (f" ({self.outcome})" if self.outcome else "")
        results = [f"{w.text} ({w.outcome})" if w.outcome else w.text for w in self.writes]
        if self.outcome:
            results.append(self.outcome)
        return f"{self.who} {self.text}" + (f": {', '.join(results)}" if results else "")

    def __str__(self) -> str:
        return f"{self.at:8.1f} s  {self.line}"


@final
class Journal:
    """The entries of a world, in order."""

    def __init__(self) -> None:
        """An empty journal."""
        self.entries: list[Entry] = []
        self.steps: int = 0
        """The starts and ends so far."""

    def step(self) -> int:
        """The next number in the sequence of all starts and ends."""
        self.steps += 1
        return self.steps

    def add(self, entry: Entry) -> Entry:
        """Add an entry that begins now."""
        entry.began = self.step()
        self.entries.append(entry)
        return entry

    def of(self, what: str, key: str | None = None) -> list[Entry]:
        """The entries with this ``what``, of one object or of all."""
        return [e for e in self.entries if e.what == what and key in (None, e.key)]

    def __str__(self) -> str:
        return timeline_of(self.entries)


def timeline_of(entries: Iterable[Entry], key: str = "", *, longest: int = _LONGEST) -> str:
    """The text of a journal, in a few lines.

    Repeated lines are counted, and the middle of a long timeline is left out.

    Args:
        entries: the journal.
        key: the object to tell of, and entries that concern all objects; default: all entries.
        longest: the most lines; default 14.
    """
    wanted = [e for e in entries if e.within is None and (not key or not e.key or e.key == key)]
    lines: list[str] = []
    for group in _repeats(wanted):
        first, last = group[0], group[-1]
        lines.append(str(first))
        if len(group) > 2:
            lines.append(f"{last.at:8.1f} s  … {len(group)} times so far")
        elif len(group) == 2:
            lines.append(str(last))
    if len(lines) > longest:
        head, tail = 4, longest - 5
        left = len(lines) - head - tail
        lines = [*lines[:head], f"{'':8}    … {left} lines …", *lines[-tail:]]
    return "\n".join(lines)


def _repeats(entries: Sequence[Entry]) -> Iterable[list[Entry]]:
    """Groups of consecutive entries with the same text."""
    run: list[Entry] = []
    for entry in entries:
        if run and entry.line != run[0].line:
            yield run
            run = []
        run.append(entry)
    if run:
        yield run
