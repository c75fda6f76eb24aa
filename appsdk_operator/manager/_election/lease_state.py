"""Leader election on a Lease as a state machine without I/O: what to ask of the server, and when.

The semantics are client-go's ``leaderelection``, but for what is marked "unlike client-go" here.
Two rules carry the safety:

* A candidate takes a Lease over only after it has seen the same record for as long as the record
  says, by its own clock. Times in the record are for people.
* A leader believes in its lease for ``lease_duration`` from the moment *before* it sent the request
  that renewed it, by its own clock. Whoever takes over has seen that request's outcome later than
  that, so the two beliefs never overlap while the clocks run at the same speed.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import random
from collections.abc import Callable
from typing import Any, TypeAlias, final

import attrs

from appsdk_operator.manager._election.options import JITTER, LeaderElection

__all__ = [
    "Action",
    "CandidatePhase",
    "LeaseRecord",
    "LeaseState",
    "ObservedLease",
    "ReadLease",
    "Wait",
    "WriteLease",
]

_CONFLICTS_AT_ONCE = 3


@attrs.frozen
class LeaseRecord:
    """What a Lease says."""

    holder: str
    """Who leads; "" when nobody does."""
    duration: int | None
    """The seconds for which the record counts; None when the Lease does not say."""
    acquire_time: str
    renew_time: str
    transitions: int
    """How often the holder has changed."""


@attrs.frozen
class ObservedLease:
    """A Lease as the server showed it."""

    record: LeaseRecord = attrs.field(eq=False)
    version: str
    """Its resource version. Any write to the Lease counts as a sign of life, unlike client-go,
    which compares the record: two renewals may say the same where a clock stands or goes back."""
    uid: str = ""
    source: Any = attrs.field(default=None, eq=False, repr=False)
    """The object, with the resource version that a write has to name."""


class CandidatePhase(enum.Enum):
    """Where a candidate is."""

    ACQUIRING = "acquiring"
    LEADING = "leading"
    RELEASING = "releasing"
    LOST = "lost"
    STOPPED = "stopped"


@attrs.frozen
class Wait:
    """Do nothing before ``until``, by the monotonic clock."""

    until: float


@attrs.frozen
class ReadLease:
    """Get the Lease; without an answer at ``deadline`` the request has failed."""

    deadline: float


@attrs.frozen
class WriteLease:
    """Make the Lease say ``record``: update ``base`` at its version, or create it when None."""

    record: LeaseRecord
    base: ObservedLease | None
    deadline: float


Action: TypeAlias = Wait | ReadLease | WriteLease | None
"""What to do next; None: nothing any more."""


@final
class LeaseState:
    """One candidate's side of an election.

    Ask :meth:`next` what to do, do it, and tell what came of it: :meth:`got` after a read,
    :meth:`wrote`, :meth:`refused` or :meth:`failed` after a write. All times are ``now``, seconds
    of one monotonic clock that the caller reads; ``wall`` goes into the record only. One thread
    drives it; ``held_until`` and ``has_led`` may be read by any.
    """

    def __init__(self, options: LeaderElection, identity: str, rng: random.Random) -> None:
        self.phase = CandidatePhase.ACQUIRING
        self.held_until = -math.inf
        """Until when this candidate leads, by its own clock."""
        self.has_led = False
        self.own_term = 0
        """The number of the lead that this candidate has, or had last."""
        self.observed: ObservedLease | None = None
        """The Lease as it was last lease, be it gone since."""
        self.observed_at = -math.inf
        """When it was first lease as it is."""
        self.contact_at = -math.inf
        """When the server last answered a read or did a write."""
        self.renewed_at = -math.inf
        """When the last write of ours was known to be in force."""
        self.slow_paths = 0
        """How many renewals needed more than one request."""
        self.reason = ""
        """Why the lead was lost."""
        self._options = options
        self._identity = identity
        self._rng = rng
        self._not_before = -math.inf
        self._bound = math.inf  # when the present phase ends, come what may
        self._base: ObservedLease | None = None
        self._is_write_next = False
        self._is_fast = False
        self._sent_at = -math.inf
        self._may_hold = False  # whether a write of ours may be in force
        self._conflicts = 0

    # -- what to do ------------------------------------------------------------------------------

    def next(self, now: float, wall: float) -> Action:
        """What to do now. To be asked again after each answer, each wait, and each stop."""
        if now >= self._bound:
            self._run_out()
        if self.phase in (CandidatePhase.LOST, CandidatePhase.STOPPED):
            return None
        if now < self._not_before:
            return Wait(min(self._not_before, self._bound))
        deadline = min(now + self._options.request_timeout, self._bound)
        if not self._is_write_next:
            return ReadLease(deadline)
        # Before the request is sent: the record cannot be in force earlier than that.
        self._sent_at = now
        self._may_hold = True
        return WriteLease(self._record(wall), self._base, deadline)

    def stop(self, now: float, last_write: Callable[[], float] = lambda: -math.inf) -> None:
        """End it: the belief at once, the Lease too if it is to be given up. Twice is harmless.

        Args:
            now: the time.
            last_write: asked when no more writes begin: when the last one began that may yet be
                carried out. The Lease is given up the fence margin after that, which is before it
                would run out.
        """
        if self.phase not in (CandidatePhase.ACQUIRING, CandidatePhase.LEADING):
            return
        self.held_until = -math.inf
        if not (self._options.release_on_cancel and self._may_hold):
            self.phase = CandidatePhase.STOPPED
            return
        self.phase = CandidatePhase.RELEASING
        begin = max(now, last_write() + self._options.margin)
        self._bound = begin + self._options.renew_deadline
        self._read_at(begin)

    def abandon(self) -> None:
        """Nobody drives this any more."""
        self.held_until = -math.inf
        if self.phase is not CandidatePhase.LOST:
            self.phase = CandidatePhase.STOPPED

    # -- what came of it -------------------------------------------------------------------------

    def on_read(self, now: float, lease: ObservedLease | None) -> None:
        """A read was answered: with the Lease, or None when there is none."""
        self.contact_at = now
        if lease is not None:
            self._observe(now, lease)
        holder = lease.record.holder if lease is not None else ""
        is_mine = holder == self._identity
        self._may_hold = self._may_hold and (is_mine or lease is None)
        match self.phase:
            case CandidatePhase.RELEASING if not is_mine:
                # Unlike client-go, which asks its memory instead of what it has just read, and so
                # may blank the Lease of the one that has taken over.
                self.phase = CandidatePhase.STOPPED
            case CandidatePhase.LEADING if holder and not is_mine:
                self._lose(f"the Lease was taken over by {holder!r}")
            case CandidatePhase.ACQUIRING if now < (free_at := self._free_at()):
                # Unlike client-go we look at the moment when it is free, too, so that a take-over
                # does not wait for the next turn.
                self._read_at(min(now + self._pause(), free_at))
            case _:
                self._write_at(now, lease, is_fast=False)

    def on_write(self, now: float, lease: ObservedLease) -> None:
        """A write is in force; ``lease`` is what the server made of it."""
        self.contact_at = self.renewed_at = now
        self._observe(now, lease)
        self._conflicts = 0
        if self.phase is CandidatePhase.RELEASING:
            self.phase = CandidatePhase.STOPPED
        elif self.phase in (CandidatePhase.ACQUIRING, CandidatePhase.LEADING):
            held_until = self._sent_at + self._options.lease_duration
            if self.phase is CandidatePhase.ACQUIRING and now >= held_until:
                self._read_at(now)  # we slept, and it has run out before we could begin
                return
            self.own_term = lease.record.transitions
            self.held_until = held_until
            self.has_led = True
            self.phase = CandidatePhase.LEADING
            period = self._options.retry_period
            self._bound = min(now + period + self._options.renew_deadline, held_until)
            self._write_at(now + period, lease, is_fast=True)

    def on_conflict(self, now: float) -> None:
        """A write was not done: the Lease has changed, is gone, or was there already."""
        self._conflicts += 1
        if self.phase is CandidatePhase.RELEASING and self._conflicts <= _CONFLICTS_AT_ONCE:
            self._read_at(now)
        else:
            self._fall_back(now)

    def on_failure(self, now: float) -> None:
        """There is no answer, or none that tells whether it was done: the next step looks."""
        self._fall_back(now)

    # -- inside ----------------------------------------------------------------------------------

    def _fall_back(self, now: float) -> None:
        if self._is_write_next and self._is_fast:
            self.slow_paths += 1
            self._read_at(now)
        else:
            self._read_at(now + self._pause())

    def _pause(self) -> float:
        period = self._options.retry_period
        return (
            period * (1 + JITTER * self._rng.random())
            if self.phase is CandidatePhase.ACQUIRING
            else period
        )

    def _read_at(self, when: float) -> None:
        self._is_write_next = self._is_fast = False
        self._not_before = when

    def _write_at(self, when: float, base: ObservedLease | None, *, is_fast: bool) -> None:
        self._is_write_next = True
        self._is_fast = is_fast
        self._base = base
        self._not_before = when

    def _observe(self, now: float, lease: ObservedLease) -> None:
        if lease != self.observed:
            self.observed_at = now
        self.observed = lease

    def _free_at(self) -> float:
        """When the Lease may be taken. One that is gone is held as long as it would have been, or
        its deletion would make two leaders (unlike client-go)."""
        if self.observed is None or self.observed.record.holder in ("", self._identity):
            return -math.inf
        duration = self.observed.record.duration
        return self.observed_at + (
            self._options.record_duration if duration is None else max(0, duration)
        )

    def _run_out(self) -> None:
        if self.phase is CandidatePhase.LEADING:
            self._lose(f"it could not be renewed in {self._options.renew_deadline:g} s")
        elif self.phase is CandidatePhase.RELEASING:
            self.phase = CandidatePhase.STOPPED

    def _lose(self, reason: str) -> None:
        self.held_until = -math.inf
        self.phase = CandidatePhase.LOST
        self.reason = reason

    def _record(self, wall: float) -> LeaseRecord:
        last = self.observed.record if self.observed is not None else None
        stamp = _micro_time(wall)
        if last is not None and stamp == last.renew_time:
            # A write that changes nothing is no write to the server: no new version.
            stamp = _micro_time(wall + 1e-6)
        transitions = last.transitions if last is not None else 0
        if self.phase is CandidatePhase.RELEASING:
            return LeaseRecord("", 1, stamp, stamp, transitions)
        duration = self._options.record_duration
        if last is None:
            return LeaseRecord(self._identity, duration, stamp, stamp, 0)
        if last.holder == self._identity:
            acquired = last.acquire_time or stamp
            return LeaseRecord(self._identity, duration, acquired, stamp, transitions)
        return LeaseRecord(self._identity, duration, stamp, stamp, transitions + 1)


def _micro_time(wall: float) -> str:
    """A time as Kubernetes' MicroTime.

    >>> _micro_time(1_700_000_000.25)
    '2023-11-14T22:13:20.250000Z'
    """
    moment = dt.datetime.fromtimestamp(wall, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
