"""The journal of a world: who did what when, and the story that it makes."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Final, final

import attrs

__all__ = ["Entry", "Journal", "story_of"]

_LONGEST: Final = 14


@attrs.define(eq=False)
class Entry:
    """One thing that happened."""

    at: float
    """Seconds on the simulation's clock."""
    who: str
    """``somebody`` for all who are not under test, else the replica's name."""
    what: str
    """``call`` (of a watcher or reconciler), ``write``, ``step`` (of somebody), ``fault`` or
    ``life`` (starts and ends)."""
    text: str
    """What was done, as it goes on after the name of who did it."""
    key: str = ""
    """The object's namespace and name as ``default/a``; empty when it concerns all."""
    kind: str = ""
    """The object's kind as ``plural.group``, just ``secrets`` for one without a group; empty when
    it concerns all."""
    process: int = 0
    """Which of the replica's processes: 1, then 2 after the first restart, …"""
    watcher: int = 0
    """For calls: the place of the watcher or reconciler among those that are recorded, from 0."""
    action: str = ""
    """For calls of watchers: ``CREATE``, ``UPDATE``, ``RESYNC`` or ``DELETE``."""
    uid: str = ""
    version: int = 0
    """For calls of watchers: the object's resource version."""
    began: int = 0
    """Its place among all beginnings and ends."""
    ended: int = 0
    """0 while it goes on."""
    error: BaseException | None = None
    status: int = 0
    """For writes: the HTTP status of the answer; 0 when it was lost."""
    outcome: str = ""
    """What came of it, where that is worth telling."""
    asks: bool = False
    """For steps: whether the operator has to do something about it."""
    is_selective: bool = False
    """For calls: of a watcher that is not told of everything."""
    within: Entry | None = attrs.field(default=None, repr=False)
    """For writes: the call that made it."""
    writes: list[Entry] = attrs.field(factory=list, repr=False)
    """For calls: the writes that it made."""

    @property
    def line(self) -> str:
        """The entry without its time, and a call with what it wrote."""
        if self.what != "call":
            return f"{self.who} {self.text}" + (f" ({self.outcome})" if self.outcome else "")
        told = [f"{w.text} ({w.outcome})" if w.outcome else w.text for w in self.writes]
        if self.outcome:
            told.append(self.outcome)
        return f"{self.who} {self.text}" + (f": {', '.join(told)}" if told else "")

    def __str__(self) -> str:
        return f"{self.at:8.1f} s  {self.line}"


@final
class Journal:
    """Everything that happened, in order."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.entries: list[Entry] = []
        self._steps = itertools.count(1)

    def step(self) -> int:
        """The next place among all beginnings and ends."""
        return next(self._steps)

    def add(self, entry: Entry) -> Entry:
        """Note something that begins, or happens, now."""
        entry.began = self.step()
        self.entries.append(entry)
        return entry

    def of(self, what: str, key: str | None = None) -> list[Entry]:
        """The entries of one sort, of one object or of all."""
        return [e for e in self.entries if e.what == what and key in (None, e.key)]

    def __str__(self) -> str:
        return story_of(self.entries)


def story_of(entries: Iterable[Entry], key: str = "", *, longest: int = _LONGEST) -> str:
    """The story of one object, or of all, in a few lines.

    What repeats itself is told once; of a long story the beginning and the end are told.

    Args:
        entries: what happened.
        key: the object that it is about; what concerns all is told in any case.
        longest: the most lines; default 14.
    """
    wanted = [e for e in entries if e.within is None and (not key or not e.key or e.key == key)]
    lines: list[str] = []
    for group in _runs(wanted):
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


def _runs(entries: Sequence[Entry]) -> Iterable[list[Entry]]:
    """Entries in groups of the same line."""
    run: list[Entry] = []
    for entry in entries:
        if run and entry.line != run[0].line:
            yield run
            run = []
        run.append(entry)
    if run:
        yield run
