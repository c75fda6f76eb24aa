"""Groups of runnables, which start and stop together; a started group starts later additions."""

from __future__ import annotations

import contextlib
import enum
import weakref
from collections.abc import Callable, Sequence
from threading import Condition, Lock
from typing import Any, final

import msgspec

from appsdk_operator.manager._cancellation import is_cancellation
from appsdk_operator.manager._core.runnable import (
    Placement,
    Runnable,
    RunnableGroup,
    health_of,
    name_of,
    placements,
)
from appsdk_operator.manager._core.signals import longest_wait
from appsdk_operator.runtime import (
    Clock,
    StillRunning,
    StopSignal,
    ThreadGroup,
    add_note,
    as_exception,
    get_logger,
    guarded_call,
    left_behind,
    present_clock,
    safe_text,
    settle,
)

_log = get_logger("appsdk_operator.manager")

STOP_ENGAGED = "can't accept new runnable as stop procedure is already engaged"

_REPORT_AFTER = 10.0
_REPORT_EVERY = 60.0
_RECHECK_AFTER = 0.1

OnFailure = Callable[[str, Exception], None]
"""Called with the name of a runnable that failed, and its error."""


class _GroupState(enum.Enum):
    NEW = "new"
    STARTED = "started"
    STOPPED = "stopped"


class _RunnableState(enum.Enum):
    QUEUED = "queued"
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"


class _Member(msgspec.Struct, eq=False):
    """One runnable in one group."""

    runnable: Runnable
    placement: Placement
    name: str
    state: _RunnableState = _RunnableState.QUEUED
    is_ready: bool = False
    threads: int = 0
    """How many threads it has: one for its run, one that waits until it is ready."""


@final
class Group:
    """Runnables that start together and stop together.

    Runnables that are added before :meth:`start` wait for it, later ones start at once. After the
    stop has begun they are refused. Each runnable has a thread of its own; they share one stop
    signal. Thread-safe.
    """

    def __init__(
        self,
        name: str,
        *,
        on_failure: OnFailure,
        on_end: Callable[[str], None] | None = None,
        base_stop: StopSignal | None = None,
        clock: Clock | None = None,
        threads: str = "",
    ) -> None:
        """A group that has not been started.

        Args:
            name: the group's name.
            on_failure: called for each runnable that raises, in the thread of that runnable.
            on_end: called with the name of each runnable that returns although nobody stopped it,
                in its thread; default: a line in the log.
            base_stop: the parent of the runnables' stop signal; default: none.
            clock: the clock for waits.
            threads: the prefix of the threads' names; default: ``manager/`` and the group's name.
        """
        self.name = name
        self._on_failure = on_failure
        self._on_end = on_end or _log_end
        self._clock = clock = present_clock(clock)
        self._stop = StopSignal(clock=clock) if base_stop is None else base_stop.child()
        self._changed = Condition()
        self._state = _GroupState.NEW
        self._is_closed = False
        self._has_started = False
        self._members: list[_Member] = []
        self._left_behind: list[StillRunning] = []
        self._threads = ThreadGroup(threads or f"manager/{name}")

    def add(self, runnable: Runnable, placement: Placement, name: str = "") -> None:
        """Add ``runnable``, and start it if the group has started.

        Args:
            runnable: the runnable.
            placement: what the group runs for it.
            name: its name in logs and errors; default: :func:`name_of` it.

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
        """Start all runnables, and wait until all are ready.

        The wait includes runnables that are added meanwhile. Slow ones are named in the log.

        Args:
            halt: ends the wait; to be set at a stop and when a runnable fails.

        Returns:
            Whether all are ready; False when halted or stopped. Nothing starts when ``halt`` was
            set before.
        """
        with self._changed:
            # The base signal reaches this group before it reaches the run.
            if self._state is not _GroupState.NEW or halt.is_set() or self._stop.is_set():
                return False
            self.launch()
        detach = halt.on_set(self._wake)
        try:
            return self._wait_until_ready(halt)
        finally:
            detach()

    def launch(self) -> None:
        """Start all runnables, and wait for none; after a stop they see its signal set.

        Raises:
            RuntimeError: there are no threads left; the runnables before have started.
        """
        with self._changed:
            self._state = _GroupState.STARTED
            self._has_started = True
            for member in self._members:
                self._launch(member)

    def close(self) -> Sequence[Runnable]:
        """Refuse further runnables; returns those that were never started."""
        with self._changed:
            self._is_closed = True
            if self._state is _GroupState.NEW:
                self._state = _GroupState.STOPPED
            queued = [member for member in self._members if member.state is _RunnableState.QUEUED]
            for member in queued:
                self._members.remove(member)
            self._changed.notify_all()
        return [member.runnable for member in queued]

    def stop(self) -> None:
        """Set the stop signal; returns at once. A group that has not started never will."""
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
            deadline: how long to wait, as a time of the clock; default: for ever.
            hurry: ends the wait.

        Returns:
            The names of the runnables that still run.
        """
        slice_ = longest_wait(self._clock)
        detach = (hurry or StopSignal()).on_set(self._wake)
        try:
            with self._changed:
                while running := self.running:
                    left = None if deadline is None else deadline - self._clock.monotonic()
                    if (left is not None and left <= 0) or (hurry is not None and hurry.is_set()):
                        return running
                    waits = [limit for limit in (left, slice_) if limit is not None]
                    self._clock.wait(self._changed, min(waits, default=None))
        finally:
            detach()
        self._threads.join()
        return ()

    def join(self, seconds: float) -> None:
        """Wait at most ``seconds`` of real time until all threads have ended."""
        self._threads.join(seconds)

    @property
    def has_started(self) -> bool:
        """Whether the group was ever started."""
        with self._changed:
            return self._has_started

    @property
    def running(self) -> Sequence[str]:
        """The names of the runnables that have running threads."""
        with self._changed:
            return [member.name for member in self._members if member.threads]

    @property
    def left_behind(self) -> Sequence[str]:
        """The names of threads that runnables of the group have left behind, and that run now."""
        with self._changed:
            errors = self._left_behind.copy()
        return [name for error in errors for name in error.running()]

    @property
    def runnables(self) -> Sequence[Runnable]:
        """The runnables that were started and have not ended."""
        with self._changed:
            running = _RunnableState.RUNNING
            return [member.runnable for member in self._members if member.state is running]

    @property
    def members(self) -> Sequence[Runnable]:
        """The runnables that have not ended, started or not."""
        with self._changed:
            return [member.runnable for member in self._members]

    def snapshot(self, *, details: bool = True) -> dict[str, Any]:
        """The states of the group and its runnables, with or without their own snapshots."""
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
            snapshot = getattr(member.runnable, "debug_snapshot", None)
            if details and callable(snapshot):
                row["details"] = guarded_call(
                    "debug_snapshot",
                    snapshot,
                    failed=lambda error: f"could not be read: {safe_text(error)}",
                )
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
                self._on_end(member.name)
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
        with self._changed:
            self._left_behind += left_behind(error)
        if self._stop.is_set() and is_cancellation(error):
            return  # a normal end after the stop
        error = as_exception(member.name, error, for_main_thread=False)
        add_note(error, f"raised by runnable {member.name} (group {self.name})")
        self._on_failure(member.name, error)

    def _end(self, member: _Member) -> None:
        with self._changed:
            member.threads -= 1
            if not member.threads:
                # A manager must not grow with every runnable that has ended.
                self._members.remove(member)
            self._changed.notify_all()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _wait_until_ready(self, halt: StopSignal) -> bool:
        began = self._clock.monotonic()
        report_at = began + _REPORT_AFTER
        slice_ = longest_wait(self._clock)
        while True:
            with self._changed:
                if halt.is_set() or self._state is _GroupState.STOPPED or self._stop.is_set():
                    return False
                waiting = [member for member in self._members if not member.is_ready]
                if not waiting:
                    return True
                now = self._clock.monotonic()
                if now < report_at:
                    left = report_at - now
                    self._clock.wait(self._changed, left if slice_ is None else min(left, slice_))
                    continue
            names = ", ".join(_unready(member) for member in waiting)
            report_at = now + _REPORT_EVERY
            _log.warning(
                "still waiting for %s (group %s) to be ready after %.0f s",
                names,
                self.name,
                now - began,
            )


def _log_end(name: str) -> None:
    _log.info("runnable %s ended, although nobody stopped it", name)


def _unready(member: _Member) -> str:
    if member.state is _RunnableState.ENDED and not member.placement.is_ready_when_ended:
        return f"{member.name} (its run has returned)"
    if member.placement.group is RunnableGroup.CACHES:
        health = health_of(member.runnable)
        if health is not None:
            return f"{member.name} ({health.text})"
    return member.name


@final
class Groups:
    """The groups of a manager, by name. Thread-safe."""

    def __init__(
        self,
        *,
        on_failure: OnFailure,
        base_stop: StopSignal | None = None,
        clock: Clock | None = None,
    ) -> None:
        """For the arguments see :class:`Group`."""
        self._groups = {
            name: Group(name, on_failure=on_failure, base_stop=base_stop, clock=clock)
            for name in RunnableGroup
        }
        # A runnable for two groups is added to both or to none, even while the stop begins.
        self._adding = Lock()
        # Weak: a manager must not grow with every runnable that has ended.
        self._added: list[weakref.ref[Runnable]] = []

    def __getitem__(self, name: RunnableGroup) -> Group:
        return self._groups[name]

    def add(self, runnable: Runnable, *, group: RunnableGroup | None = None) -> None:
        """Add ``runnable`` to the groups that it belongs in, or to ``group``.

        Raises:
            RuntimeError: the stop has begun.
            ValueError: it was added before, even if it has ended since.
            TypeError: an attribute that selects its group is wrong; see :class:`RunnableGroup`.
        """
        found = placements(runnable, group=group)
        name = name_of(runnable)
        with self._adding:
            self._added = [ref for ref in self._added if ref() is not None]
            if any(ref() is runnable for ref in self._added):
                raise ValueError(f"{name} was added already: a runnable runs once, make a new one")
            # The warm-up last: a duplicate is detected by the group of its run.
            for placement in reversed(found):
                self._groups[placement.group].add(runnable, placement, name)
            with contextlib.suppress(TypeError):  # a class with slots alone
                self._added.append(weakref.ref(runnable))

    def close(self) -> Sequence[Runnable]:
        """Refuse further runnables; returns those that were never started."""
        with self._adding:
            return [runnable for group in self._groups.values() for runnable in group.close()]

    @property
    def runnables(self) -> Sequence[Runnable]:
        """The runnables that were started and have not ended."""
        return [r for group in self._groups.values() for r in group.runnables]

    @property
    def members(self) -> Sequence[Runnable]:
        """The runnables that have not ended, started or not, each once."""
        found = {id(r): r for group in self._groups.values() for r in group.members}
        return list(found.values())

    def snapshot(self, *, details: bool = True) -> dict[str, Any]:
        """The state of each group, by name, for a debug page."""
        return {str(name): group.snapshot(details=details) for name, group in self._groups.items()}
