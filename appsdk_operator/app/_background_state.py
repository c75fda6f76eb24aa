"""Whether a background function is to run for an object: a state machine without I/O or clock."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Final, final

import attrs

from appsdk_operator.resource import Object

LONG_RUN: Final = 600.0
"""Seconds after which a run counts as good: its failure is the first one again."""


class Act(enum.Enum):
    """What the owner of a machine has to do now."""

    START = "start"
    """Run the function for :attr:`BackgroundState.running`."""
    STOP = "stop"
    """Ask the run to end. The machine waits for its end, however long it takes."""


class Phase(enum.StrEnum):
    """What a background function does for an object."""

    IDLE = "idle"
    """It is not wanted: there is no object for it."""
    STARTING = "starting"
    """It is wanted, and starts with the next look."""
    RUNNING = "running"
    STOPPING = "stopping"
    """It was asked to end, and has not yet."""
    WAITING = "waiting"
    """It has failed, and starts again when its time has come."""
    OVER = "over"
    """It has returned, so it does not run any more for this object; or it was given up for this
    state of the object."""


@final
@attrs.define(eq=False)
class BackgroundState:
    """One background function, for all objects that have the same name one after the other.

    At most one run exists at any time: after :data:`Act.START` there is no other start before
    :meth:`ended`. So an object that is made anew under its name waits for the run for the former
    one.
    """

    relents: Callable[[Object, Object], bool]
    """Whether a function that was given up for the first state starts for the second one."""
    wanted: Object | None = None
    """The newest state of the object that it is to run for; None: there is none."""
    running: Object | None = None
    """The object, as it was at the start, of the run that has not ended; None: there is none."""
    is_stopping: bool = False
    """Whether that run was asked to end."""
    attempt: int = 0
    """The number of failures in a row."""
    due: float | None = None
    """When it may start again after a failure."""
    uid: str = ""
    """Of the object of this name that was seen last."""
    _has_returned: bool = attrs.field(default=False, init=False)
    _refused: Object | None = attrs.field(default=None, init=False)
    """The state for which it was given up."""
    _started: float = attrs.field(default=0.0, init=False)

    def see(self, obj: Object, *, is_wanted: bool) -> None:
        """Take the newest state of the object of this name.

        Args:
            obj: the object.
            is_wanted: whether the function is to run for it in this state.
        """
        if obj.uid != self.uid:
            self._begin_anew(obj.uid)
        elif self._refused is not None and self.relents(self._refused, obj):
            self._refused, self.attempt = None, 0
        self.wanted = obj if is_wanted else None

    def gone(self, uid: str) -> None:
        """The object of this uid does not exist any more."""
        if uid == self.uid:
            self._begin_anew("")
            self.wanted = None

    def next(self, now: float, *, is_open: bool) -> Act | None:
        """What is to be done now; it counts as done.

        Args:
            now: the monotonic time.
            is_open: False: nothing may run, as at a stop.
        """
        if self.running is not None:
            is_right = self.wanted is not None and self.wanted.uid == self.running.uid
            if self.is_stopping or (is_open and is_right):
                return None
            self.is_stopping = True
            return Act.STOP
        if not is_open or self.phase not in (Phase.STARTING, Phase.WAITING):
            return None
        if self.due is not None and now < self.due:
            return None
        self.running, self.is_stopping = self.wanted, False
        self._started, self.due = now, None
        return Act.START

    def count_failure(self, now: float) -> int:
        """The number of the attempt, from 0, that has failed now: what the retry policy is asked.

        Failures after a long run are counted anew.
        """
        return 0 if now - self._started >= LONG_RUN else self.attempt

    def returned(self) -> None:
        """The run has ended; by itself, unless it was asked to."""
        is_last = not self.is_stopping and self._is_of_present
        self._end()
        if is_last:
            self._has_returned = True

    def failed(self, obj: Object, delay: float | None, attempt: int, now: float) -> None:
        """The run has raised an error; if it was asked to end, that says nothing of the next one.

        Args:
            obj: the state of its object that the run has seen last.
            delay: seconds until it may start again; None: not for that state.
            attempt: the number of the next attempt.
            now: the monotonic time.
        """
        counts = not self.is_stopping and self._is_of_present
        self._end()
        if not counts:
            return
        self.attempt = attempt
        if delay is None:
            wanted = self.wanted
            if wanted is not None and self.relents(obj, wanted):
                self.attempt = 0
            else:
                self._refused = obj
        else:
            self.due = now + delay

    @property
    def phase(self) -> Phase:
        """What it does."""
        if self.running is not None:
            return Phase.STOPPING if self.is_stopping else Phase.RUNNING
        if self.wanted is None:
            return Phase.IDLE
        if self._has_returned or self._refused is not None:
            return Phase.OVER
        return Phase.STARTING if self.due is None else Phase.WAITING

    @property
    def is_given_up(self) -> bool:
        """Whether it has failed, and does not start again for this state of the object."""
        return self._refused is not None

    @property
    def refused(self) -> Object | None:
        """The state for which it was given up."""
        return self._refused

    @property
    def is_forgettable(self) -> bool:
        """Whether nothing has to be known of this name any more."""
        return self.running is None and not self.uid

    @property
    def _is_of_present(self) -> bool:
        return self.running is not None and self.running.uid == self.uid

    def _begin_anew(self, uid: str) -> None:
        self.uid, self._has_returned, self._refused = uid, False, None
        self.attempt, self.due = 0, None

    def _end(self) -> None:
        self.running, self.is_stopping, self.due = None, False, None
