"""Runnables, elections and lifecycles that write down what happens, for several tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs

from appsdk_operator.cache import Health
from appsdk_operator.manager import LeadershipLost, RunnableGroup
from appsdk_operator.manager._core.lifecycle import Lifecycle
from appsdk_operator.runtime import StopSignal
from tests import runs

TIMEOUT = 10.0
ORDER = [
    RunnableGroup.HTTP_SERVERS,
    RunnableGroup.WEBHOOKS,
    RunnableGroup.CACHES,
    RunnableGroup.OTHERS,
    RunnableGroup.LEADER_ELECTION,
]


@attrs.define
class Journal:
    """What happened, in order."""

    entries: list[str] = attrs.field(factory=list)
    changed: threading.Condition = attrs.field(factory=threading.Condition)

    def note(self, entry: str) -> None:
        with self.changed:
            self.entries.append(entry)
            self.changed.notify_all()

    def wait_for(self, entry: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: entry in self.entries, TIMEOUT), self.entries

    def __contains__(self, entry: str) -> bool:
        with self.changed:
            return entry in self.entries

    def only(self, word: str) -> list[str]:
        with self.changed:
            return [e.removeprefix(f"{word} ") for e in self.entries if e.startswith(f"{word} ")]


@attrs.define(eq=False, slots=False)
class Part:
    """A runnable that writes down when it starts, is told to stop, and ends."""

    name: str
    journal: Journal
    runnable_group: RunnableGroup | None = None
    error: Exception | None = None
    at_start: bool = False
    """Whether the error comes at the start, not at the stop."""
    may_end: threading.Event = attrs.field(factory=threading.Event)
    at_stop: Callable[[], object] = lambda: None

    def __attrs_post_init__(self) -> None:
        self.may_end.set()

    def run(self, stop: StopSignal) -> None:
        self.journal.note(f"start {self.name}")
        if self.error is not None and self.at_start:
            raise self.error
        stop.wait()
        self.journal.note(f"told {self.name}")
        self.at_stop()
        assert self.may_end.wait(TIMEOUT)
        self.journal.note(f"end {self.name}")
        if self.error is not None:
            raise self.error


@attrs.define(eq=False, slots=False)
class FakeElector:
    """An election that the test decides."""

    journal: Journal
    win: StopSignal = attrs.field(factory=StopSignal)
    lose: StopSignal = attrs.field(factory=StopSignal)
    error: BaseException = attrs.field(factory=lambda: LeadershipLost("leader election lost"))
    ends_by_itself: bool = False
    identity: str = "me"
    leader: str = ""
    is_leader: bool = False
    keeps: bool = False

    def check_write(self) -> None: ...

    def health(self) -> Health:
        return Health(True, "")

    def keep_lease(self) -> None:
        self.keeps = True

    def run(self, stop: StopSignal, on_started: Callable[[], None]) -> None:
        self.journal.note("start elector")
        forget = [signal.on_set(self.win.set) for signal in (stop, self.lose)]
        self.win.wait()
        if not stop.is_set() and not self.lose.is_set():
            self.is_leader = True
            on_started()
            forget.append(stop.on_set(self.lose.set))
            self.lose.wait()
        for one in forget:
            one()
        self.journal.note("end elector" if not self.keeps else "end elector, keeping the lease")
        if not stop.is_set() and not self.ends_by_itself:
            raise self.error


class Run(runs.Run):
    """A lifecycle that runs aside, what happens in it, and its parts."""

    def __init__(self, journal: Journal, lifecycle: Lifecycle) -> None:
        super().__init__(lifecycle)
        self.journal, self.lifecycle = journal, lifecycle
        self.parts: list[Part] = []

    def add(self, name: str, group: RunnableGroup | None = None, **options: Any) -> Part:
        part = Part(name, self.journal, group, **options)
        self.parts.append(part)
        self.lifecycle.groups.add(part)
        return part


def lifecycles() -> Iterator[Callable[..., Run]]:
    """Makes lifecycles, and ends them when the test is over."""
    made: list[Run] = []

    def make(journal: Journal | None = None, **options: Any) -> Run:
        run = Run(journal or Journal(), Lifecycle(**options))
        made.append(run)
        return run

    yield make
    for run in made:
        for part in run.parts:
            part.may_end.set()
        run.stop.set()
        run.lifecycle.close()
        if run.thread.ident is not None:
            run.thread.join(TIMEOUT)


def ready_when(part: Part, gate: StopSignal) -> None:
    """Make ``part`` one that others wait for until ``gate`` is set."""

    def wait_until_ready(stop: StopSignal, timeout: float | None = None) -> bool:
        part.journal.note(f"asked {part.name}")
        either = stop.child()
        gate.on_set(either.set)
        either.wait(timeout)
        return gate.is_set()

    part.wait_until_ready = wait_until_ready  # type: ignore[attr-defined]
