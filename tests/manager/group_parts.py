"""Runnables that do as they are told."""

from __future__ import annotations

import threading

import attrs

from appsdk_operator.runtime import StopSignal

TIMEOUT = 10.0


@attrs.define(eq=False, slots=False)
class Scripted:
    """A runnable that does as it is told, and remembers what happened."""

    name: str = "scripted"
    error: BaseException | None = None
    fail_at: str = "stop"
    is_running: threading.Event = attrs.field(factory=threading.Event)
    may_end: threading.Event = attrs.field(factory=threading.Event)
    has_ended: bool = False
    runs: int = 0

    def __attrs_post_init__(self) -> None:
        self.may_end.set()

    def run(self, stop: StopSignal) -> None:
        self.runs += 1
        self.is_running.set()
        if self.error is not None and self.fail_at == "start":
            raise self.error
        stop.wait()
        assert self.may_end.wait(TIMEOUT)
        self.has_ended = True
        if self.error is not None:
            raise self.error


@attrs.define(eq=False, slots=False)
class Gated(Scripted):
    """One that is ready when the test says so."""

    gate: StopSignal = attrs.field(factory=StopSignal)
    is_asked: threading.Event = attrs.field(factory=threading.Event)

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None) -> bool:
        self.is_asked.set()
        either = stop.child()
        self.gate.on_set(either.set)
        either.wait(timeout)
        return self.gate.is_set()
