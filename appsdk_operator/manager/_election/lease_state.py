"""Leader election on a Lease as a state machine without I/O.

The semantics are client-go's ``leaderelection``, except where a comment says "unlike client-go".
Two rules make it safe:

* A candidate takes over a Lease only after it has observed the same record for the duration in the
  record, by its own clock. Times in the record are for people.
* A leader holds its lease for ``lease_duration`` from the moment *before* it sent the request that
  renewed it, by its own clock. A candidate can observe that renewal only later, so two leads never
  overlap while the clocks run at the same speed.
"""

from __future__ import annotations

import datetime as dt
import enum
import math
import random
from collections.abc import Callable
from typing import Any, TypeAlias, final

import attrs
import msgspec

from appsdk_operator.manager._election.options import JITTER, LeaderElection

_CONFLICTS_AT_ONCE = 3


class LeaseRecord(msgspec.Struct, frozen=True):
    """The spec of a Lease."""

    holder: str
    """The identity of the leader; "" when there is none."""
    duration: int | None
    """The duration of the lease in seconds; None when the Lease has none."""
    acquire_time: str
    renew_time: str
    transitions: int
    """How often the holder has changed."""


@attrs.frozen
class ObservedLease:
    """A Lease as a read or a write returned it."""

    record: LeaseRecord = attrs.field(eq=False)
    version: str
    """Its resource version. Any write to the Lease counts as a renewal, unlike client-go, which
    compares records: two renewals have equal records where a clock stands still or goes back."""
    uid: str = ""
    source: Any = attrs.field(default=None, eq=False, repr=False)
    """The object, whose resource version a write has to carry."""


class CandidatePhase(enum.Enum):
    """The phases of a candidate."""

    ACQUIRING = "acquiring"
    LEADING = "leading"
    RELEASING = "releasing"
    LOST = "lost"
    STOPPED = "stopped"


class Wait(msgspec.Struct, frozen=True):
    """Wait until ``until``, a time of the monotonic clock."""

    until: float


class ReadLease(msgspec.Struct, frozen=True):
    """Read the Lease; without an answer at ``deadline`` the request has failed."""

    deadline: float


class WriteLease(msgspec.Struct, frozen=True):
    """Write ``record``: update ``base`` at its version, or create the Lease if that is None."""

    record: LeaseRecord
    base: ObservedLease | None
    deadline: float


Action: TypeAlias = Wait | ReadLease | WriteLease | None
"""What to do next; None: the election is over for this candidate."""


@final
class LeaseState:
    """The state of one candidate.

    The caller gets an action from :meth:`next`, carries it out, and reports the result:
    :meth:`on_read` after a read, :meth:`on_write`, :meth:`on_conflict` or :meth:`on_failure` after
    a write. Every ``now`` is in seconds of one monotonic clock; ``wall`` is for the record only.
    One thread drives it; any thread may read ``held_until`` and ``has_led``.
    """

    def __init__(self, options: LeaderElection, identity: str, rng: random.Random) -> None:
        self.phase = CandidatePhase.ACQUIRING
        self.held_until = -math.inf
        """When the lead of this candidate ends, by its own clock."""
        self.has_led = False
        self.own_term = 0
        """The ``transitions`` of the Lease in the present or last lead of this candidate."""
        self.observed: ObservedLease | None = None
        """The Lease as it was last observed, even if it was deleted since."""
        self.observed_at = -math.inf
        """When this version of it was first observed."""
        self.contact_at = -math.inf
        """When the server last answered a read or carried out a write."""
        self.renewed_at = -math.inf
        """When the server confirmed the last write of this candidate."""
        self.slow_paths = 0
        """How many renewals needed a read before the write."""
        self.reason = ""
        """Why the lead was lost."""
        self._options = options
        self._identity = identity
        self._rng = rng
        self._not_before = -math.inf
        self._bound = math.inf  # when the present phase ends at the latest
        self._base: ObservedLease | None = None
        self._is_write_next = False
        self._is_fast = False
        self._sent_at = -math.inf
        self._may_hold = False  # whether the Lease may name this candidate
        self._unanswered: WriteLease | None = None  # the server may still carry it out
        self._conflicts = 0

    # -- actions ----------------------------------------------------------------------------------

    def next(self, now: float, wall: float) -> Action:
        """The next action. Call it again after each result, each wait, and a stop."""
        if now >= self._bound:
            self._run_out()
        if self.phase in (CandidatePhase.LOST, CandidatePhase.STOPPED):
            return None
        if now < self._not_before:
            return Wait(min(self._not_before, self._bound))
        deadline = min(now + self._options.request_timeout, self._bound)
        if not self._is_write_next:
            return ReadLease(deadline)
        # Before the request is sent: the record cannot take effect earlier.
        self._sent_at = now
        self._may_hold = True
        self._unanswered = WriteLease(self._record(wall), self._base, deadline)
        return self._unanswered

    def stop(
        self,
        now: float,
        last_write: Callable[[], float] = lambda: -math.inf,
        *,
        releases: bool = False,
    ) -> None:
        """End the lead at once, and release the Lease if the options say so. Twice is harmless.

        What a candidate may hold that does not lead yet is released in any case.

        Args:
            now: the time.
            last_write: returns when the last write began that the server may still carry out;
                called when no further write can begin. The Lease is released the fence margin after
                that, which is before it would expire.
            releases: release the Lease whatever the options say.
        """
        if self.phase not in (CandidatePhase.ACQUIRING, CandidatePhase.LEADING):
            return
        self.held_until = -math.inf
        releases |= self._options.release_on_cancel or self.phase is CandidatePhase.ACQUIRING
        if not (releases and self._may_hold):
            self.phase = CandidatePhase.STOPPED
            return
        self.phase = CandidatePhase.RELEASING
        begin = max(now, last_write() + self._options.margin)
        self._bound = begin + self._options.renew_deadline
        self._read_at(begin)

    def abandon(self) -> None:
        """End the lead because nothing renews the Lease any more."""
        self.held_until = -math.inf
        if self.phase is not CandidatePhase.LOST:
            self.phase = CandidatePhase.STOPPED

    # -- results ----------------------------------------------------------------------------------

    def on_read(self, now: float, lease: ObservedLease | None) -> None:
        """A read has returned the Lease, or None when there is none."""
        self.contact_at = now
        if lease is not None:
            self._observe(now, lease)
        holder = lease.record.holder if lease is not None else ""
        is_mine = holder == self._identity
        is_awaited = self._unanswered is not None and self._unanswered.base == lease
        self._may_hold = self._may_hold and (is_mine or lease is None or is_awaited)
        match self.phase:
            case CandidatePhase.RELEASING if is_awaited and not is_mine:
                # The read has overtaken a write that acquires the Lease. Of that and the same
                # write once more the server carries out one; what is held then can be released.
                self._write_at(now, lease, is_fast=False)
            case CandidatePhase.RELEASING if not is_mine:
                # Unlike client-go, which checks the record that it remembers instead of the one
                # that it has just read, and so may clear the Lease of the next leader.
                self.phase = CandidatePhase.STOPPED
            case CandidatePhase.LEADING if holder and not is_mine:
                self._lose(f"the Lease was taken over by {holder!r}")
            case CandidatePhase.ACQUIRING if now < (free_at := self._free_at()):
                # Unlike client-go, which waits for its next try, read again right when the Lease
                # expires, so that a take-over is fast.
                self._read_at(min(now + self._pause(), free_at))
            case _:
                self._write_at(now, lease, is_fast=False)

    def on_write(self, now: float, lease: ObservedLease) -> None:
        """A write was carried out and returned ``lease``."""
        self.contact_at = self.renewed_at = now
        self._observe(now, lease)
        self._conflicts = 0
        self._unanswered = None
        if self.phase is CandidatePhase.RELEASING:
            if lease.record.holder == self._identity:
                self._write_at(now, lease, is_fast=False)
            else:
                self.phase = CandidatePhase.STOPPED
        elif self.phase in (CandidatePhase.ACQUIRING, CandidatePhase.LEADING):
            held_until = self._sent_at + self._options.lease_duration
            if self.phase is CandidatePhase.ACQUIRING and now >= held_until:
                self._read_at(now)  # this process slept, and the lease has expired already
                return
            self.own_term = lease.record.transitions
            self.held_until = held_until
            self.has_led = True
            self.phase = CandidatePhase.LEADING
            period = self._options.retry_period
            self._bound = min(now + period + self._options.renew_deadline, held_until)
            self._write_at(now + period, lease, is_fast=True)

    def on_conflict(self, now: float) -> None:
        """A write was refused: the Lease has changed, is gone, or exists already."""
        self._conflicts += 1
        self._unanswered = None
        if self.phase is CandidatePhase.RELEASING and self._conflicts <= _CONFLICTS_AT_ONCE:
            self._read_at(now)
        else:
            self._fall_back(now)

    def on_failure(self, now: float, *, is_refused: bool = False) -> None:
        """A request has failed: read the Lease next.

        Args:
            now: the time.
            is_refused: it was a write that the server will never carry out. Default: it may have
                done so, or may still.
        """
        if is_refused:
            self._unanswered = None
        self._fall_back(now)

    # -- helpers ----------------------------------------------------------------------------------

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
        """When the Lease may be taken over.

        A deleted Lease counts until it would have expired (unlike client-go), or its deletion
        would make two leaders.
        """
        if self.observed is None or self.observed.record.holder in ("", self._identity):
            return -math.inf
        duration = self.observed.record.duration
        return self.observed_at + (
            self._options.record_duration if duration is None else max(0, duration)
        )

    @property
    def _is_release(self) -> bool:
        """Whether the next write releases the Lease."""
        base = self._base
        return (
            self.phase is CandidatePhase.RELEASING
            and base is not None
            and base.record.holder == self._identity
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
            # A write without a change gets no new version from the server.
            stamp = _micro_time(wall + 1e-6)
        transitions = last.transitions if last is not None else 0
        if self._is_release:
            return LeaseRecord("", 1, stamp, stamp, transitions)
        duration = self._options.record_duration
        if last is None:
            return LeaseRecord(self._identity, duration, stamp, stamp, 0)
        if last.holder == self._identity:
            acquired = last.acquire_time or stamp
            return LeaseRecord(self._identity, duration, acquired, stamp, transitions)
        return LeaseRecord(self._identity, duration, stamp, stamp, transitions + 1)


def _micro_time(wall: float) -> str:
    """Format a time as Kubernetes' MicroTime.

    >>> _micro_time(1_700_000_000.25)
    '2023-11-14T22:13:20.250000Z'
    """
    moment = dt.datetime.fromtimestamp(wall, dt.UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
