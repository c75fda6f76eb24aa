"""Groups of runnables: each starts as a whole, stops as a whole, and takes what comes later."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Sequence
from threading import Condition, Lock
from typing import Any, final

import attrs

from appsdk_operator.cache import Health
from appsdk_operator.manager._cancellation import is_cancellation
from appsdk_operator.manager._core.runnable import (
    Placement,
    Runnable,
    RunnableGroup,
    name_of,
    placements,
)
from appsdk_operator.runtime import (
    Clock,
    StopSignal,
    ThreadGroup,
    as_exception,
    get_logger,
    settle,
    system_clock,
)

__all__ = ["STOP_ENGAGED", "Group", "Groups", "OnFailure"]

_log = get_logger("appsdk_operator.manager")

STOP_ENGAGED = "can't accept new runnable as stop procedure is already engaged"

_REPORT_EVERY = 10.0
_RECHECK_AFTER = 0.1

OnFailure = Callable[[str, Exception], None]
"""Told the name of the runnable that failed, and what it raised."""


class _GroupState(enum.Enum):
    NEW = "new"
    STARTED = "started"
    STOPPED = "stopped"


class _RunnableState(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


@attrs.define(eq=False)
class _Member:
    """One runnable in one group."""

    runnable: Runnable
    placement: Placement
    name: str
    state: _RunnableState = _RunnableState.QUEUED
    is_ready: bool = False
    threads: int = 0
    """How many threads are at work for it: its run, and the wait until it is ready."""


@final
class Group:
    """Runnables that start together and stop together.

    What is added before :meth:`start` waits for it; what is added later starts at once; what is
    added once the stop has begun is refused. Each runnable has a thread of its own, and all of
    them one stop signal. Thread-safe.
    """

    def __init__(
        self,
        name: RunnableGroup,
        *,
        on_failure: OnFailure,
        base_stop: StopSignal | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """A group that has not started.

        Args:
            name: which one.
            on_failure: told of each runnable that raises, in the thread that it ran in.
            base_stop: the runnables' stop signal is a child of this one; default: of none.
            clock: what it waits on.
        """
        self.name = name
        self._on_failure = on_failure
        self._clock = clock
        self._stop = StopSignal(clock=clock) if base_stop is None else base_stop.child()
        self._changed = Condition()
        self._state = _GroupState.NEW
        self._is_closed = False
        self._has_started = False
        self._members: list[_Member] = []
        self._threads = ThreadGroup(f"manager/{name}")

    def add(self, runnable: Runnable, placement: Placement, name: str = "") -> None:
        """Take ``runnable`` in, and start it if the group has started.

        Args:
            runnable: whose work it is.
            placement: what to run for it.
            name: what it is called; default: what it calls itself.

        Raises:
            RuntimeError: the stop has begun, or there are no threads left.
            ValueError: it is in the group already.
        """
        name = name or name_of(runnable)
        with self._changed:
            if self._is_closed:
                raise RuntimeError(f"{name}: {STOP_ENGAGED}: add it before the stop")
            if any(member.runnable is runnable for member in self._members):
                raise ValueError(f"{name} was added already: a runnable runs once")
            member = _Member(runnable, placement, name)
            self._members.append(member)
            try:
                if self._state is _GroupState.STARTED:
                    self._launch(member)
            except BaseException:
                if not member.threads:
                    self._members.remove(member)
                raise
            finally:
                self._changed.notify_all()

    def start(self, halt: StopSignal) -> bool:
        """Start what was added, and wait until all of it is ready.

        What takes long is named in the log. Runnables that are added meanwhile are waited for too.

        Args:
            halt: ends the wait; set it when a runnable has failed, too.

        Returns:
            Whether all are ready; False when halted or stopped. If it was halted before, nothing
            was started.
        """
        with self._changed:
            # The base's stop is known here before it is known to the run.
            if self._state is not _GroupState.NEW or halt.is_set() or self._stop.is_set():
                return False
            self._state = _GroupState.STARTED
            self._has_started = True
            for member in self._members:
                self._launch(member)
        forget = halt.on_set(self._wake)
        try:
            return self._wait_until_ready(halt)
        finally:
            forget()

    def close(self) -> Sequence[Runnable]:
        """Take nothing in any more; what has not started by now never will, and is returned."""
        with self._changed:
            self._is_closed = True
            if self._state is _GroupState.NEW:
                self._state = _GroupState.STOPPED
            left = [member for member in self._members if member.state is _RunnableState.QUEUED]
            for member in left:
                self._members.remove(member)
            self._changed.notify_all()
        return [member.runnable for member in left]

    def stop(self) -> None:
        """Tell all to stop; returns at once. A group that never started never will."""
        self.close()
        with self._changed:
            self._state = _GroupState.STOPPED
            self._changed.notify_all()
        self._stop.set()

    def wait_ended(
        self, deadline: float | None = None, hurry: StopSignal | None = None
    ) -> Sequence[str]:
        """Wait until all threads have ended.

        Args:
            deadline: until when, by the clock; default: for ever.
            hurry: ends the wait.

        Returns:
            The names of the runnables that still run.
        """
        forget = (hurry or StopSignal()).on_set(self._wake)
        try:
            with self._changed:
                while running := self.running:
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if (left is not None and left <= 0) or (hurry is not None and hurry.is_set()):
                        return running
                    self._clock.wait(self._changed, left)
        finally:
            forget()
        self._threads.join()
        return ()

    def join(self, seconds: float) -> None:
        """Wait at most ``seconds`` of real time until all threads have ended."""
        self._threads.join(seconds)

    @property
    def has_started(self) -> bool:
        """Whether it ever did."""
        with self._changed:
            return self._has_started

    @property
    def running(self) -> Sequence[str]:
        """The names of the runnables that have threads at work."""
        with self._changed:
            return [member.name for member in self._members if member.threads]

    @property
    def runnables(self) -> Sequence[Runnable]:
        """What was started and has not ended."""
        with self._changed:
            running = _RunnableState.RUNNING
            return [member.runnable for member in self._members if member.state is running]

    @property
    def members(self) -> Sequence[Runnable]:
        """What was added and has not ended, started or not."""
        with self._changed:
            return [member.runnable for member in self._members]

    def snapshot(self) -> dict[str, Any]:
        """What is in it and how it stands, for a debug page."""
        with self._changed:
            state = self._state.value
            members = list(self._members)
        rows = []
        for member in members:
            row: dict[str, Any] = {
                "name": member.name,
                "state": member.state.value,
                "ready": member.is_ready,
            }
            details = getattr(member.runnable, "debug_snapshot", None)
            if callable(details):
                try:
                    row["details"] = details()
                except Exception as error:
                    row["details"] = f"could not be told: {error}"
            rows.append(row)
        return {"state": state, "runnables": rows}

    def _launch(self, member: _Member) -> None:
        placement = member.placement
        member.state = _RunnableState.RUNNING
        member.is_ready = placement.wait_until_ready is None and not placement.is_ready_when_ended
        try:
            self._threads.start(member.name, lambda: self._run(member))
        except BaseException:
            member.state = _RunnableState.QUEUED
            raise
        member.threads += 1
        if placement.wait_until_ready is not None:
            self._threads.start(f"{member.name}/ready", lambda: self._watch_readiness(member))
            member.threads += 1

    def _run(self, member: _Member) -> None:
        state = _RunnableState.FAILED
        try:
            settle(member.placement.run(self._stop))
            state = _RunnableState.ENDED
            if not self._stop.is_set() and not member.placement.is_ready_when_ended:
                _log.info("runnable %s ended, although nobody stopped it", member.name)
        except BaseException as error:
            self._fail(member, error)
        finally:
            with self._changed:
                member.state = state
                if member.placement.is_ready_when_ended and state is _RunnableState.ENDED:
                    member.is_ready = True
            self._end(member)

    def _watch_readiness(self, member: _Member) -> None:
        check = member.placement.wait_until_ready
        assert check is not None
        try:
            while member.state is not _RunnableState.FAILED and not self._stop.is_set():
                if settle(check(self._stop, None)):
                    with self._changed:
                        member.is_ready = True
                        self._changed.notify_all()
                    return
                self._stop.wait(_RECHECK_AFTER)
        except BaseException as error:
            self._fail(member, error)
        finally:
            self._end(member)

    def _fail(self, member: _Member, error: BaseException) -> None:
        if self._stop.is_set() and is_cancellation(error):
            return  # as it should be
        error = as_exception(member.name, error, for_main_thread=False)
        with contextlib.suppress(Exception):  # a frozen error takes no notes
            error.add_note(f"raised by runnable {member.name} (group {self.name})")
        self._on_failure(member.name, error)

    def _end(self, member: _Member) -> None:
        with self._changed:
            member.threads -= 1
            if not member.threads:
                # A manager must not grow with everything that it has ever run.
                self._members.remove(member)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait_until_ready(self, halt: StopSignal) -> bool:
        began = self._clock.monotonic()
        report_at = began + _REPORT_EVERY
        while True:
            with self._changed:
                if halt.is_set() or self._state is _GroupState.STOPPED or self._stop.is_set():
                    return False
                waiting = [member for member in self._members if not member.is_ready]
                if not waiting:
                    return True
                now = self._clock.monotonic()
                if now < report_at:
                    self._clock.wait(self._changed, report_at - now)
                    continue
            names = ", ".join(_unready(member) for member in waiting)
            report_at += _REPORT_EVERY
            _log.warning(
                "still waiting for %s (group %s) to be ready after %g s",
                names,
                self.name,
                now - began,
            )


def _unready(member: _Member) -> str:
    if member.state is _RunnableState.ENDED and not member.placement.is_ready_when_ended:
        return f"{member.name} (its run has returned)"
    if member.placement.group is RunnableGroup.CACHES:
        with contextlib.suppress(Exception):
            health: Any = getattr(member.runnable, "health", None)
            said = health()
            if isinstance(said, Health):
                return f"{member.name} ({said.text})"
    return member.name


@final
class Groups:
    """All groups of a manager. Thread-safe."""

    def __init__(
        self,
        *,
        on_failure: OnFailure,
        base_stop: StopSignal | None = None,
        clock: Clock = system_clock,
    ) -> None:
        """Groups that have not started; the arguments are those of :class:`Group`."""
        self._groups = {
            name: Group(name, on_failure=on_failure, base_stop=base_stop, clock=clock)
            for name in RunnableGroup
        }
        # What is in two groups is taken in by both or refused, also while the stop begins.
        self._adding = Lock()

    def __getitem__(self, name: RunnableGroup) -> Group:
        return self._groups[name]

    def add(self, runnable: Runnable, *, group: RunnableGroup | None = None) -> None:
        """Take ``runnable`` into the groups that it belongs in, or into ``group``.

        Raises:
            RuntimeError: the stop has begun.
            ValueError: it was added before.
            TypeError: it does not say clearly where it belongs.
        """
        found = placements(runnable, group=group)
        name = name_of(runnable)
        with self._adding:
            for placement in found:
                if any(one is runnable for one in self._groups[placement.group].members):
                    raise ValueError(f"{name} was added already: a runnable runs once")
            # The warm-up last: only the run's own group still knows what was added before.
            for placement in reversed(found):
                self._groups[placement.group].add(runnable, placement, name)

    def close(self) -> Sequence[Runnable]:
        """Take nothing in any more: the stop has begun. Returns what was never started."""
        with self._adding:
            return [runnable for group in self._groups.values() for runnable in group.close()]

    @property
    def runnables(self) -> Sequence[Runnable]:
        """What was started and has not ended."""
        return [r for group in self._groups.values() for r in group.runnables]

    def snapshot(self) -> dict[str, Any]:
        """How the groups stand, by name, for a debug page."""
        return {str(name): group.snapshot() for name, group in self._groups.items()}
