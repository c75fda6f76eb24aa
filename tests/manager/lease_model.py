"""What the models of elections and of shards share: a Lease on a server, and clocks that differ."""

from __future__ import annotations

import itertools
from typing import Any

import attrs

from appsdk_operator.manager._election.lease_state import LeaseRecord, ObservedLease, WriteLease

LATENCY = 0.05

TIMES = [
    {"lease_duration": 15.0, "renew_deadline": 10.0, "retry_period": 2.0},
    {"lease_duration": 3.0, "renew_deadline": 2.0, "retry_period": 0.5},
    {"lease_duration": 1.5, "renew_deadline": 1.0, "retry_period": 0.25},
    {"lease_duration": 10.0, "renew_deadline": 9.9, "retry_period": 8.0},
]


class Server:
    """One Lease with optimistic locking, and a look at each write."""

    def __init__(self) -> None:
        self.lease: ObservedLease | None = None
        self.last: LeaseRecord | None = None
        self.versions = itertools.count(1)

    def write(self, identity: str, action: WriteLease) -> ObservedLease | None:
        """What became of it; None when it was refused."""
        before = self.lease
        if (before is None) != (action.base is None):
            return None
        if before is not None and action.base is not None and before.version != action.base.version:
            return None
        self.check(identity, before.record if before else None, action.record)
        if before is not None and before.record == action.record:
            return before  # nothing changes, so there is no new version
        self.lease = ObservedLease(action.record, str(next(self.versions)))
        return self.lease

    def check(self, identity: str, before: LeaseRecord | None, after: LeaseRecord) -> None:
        if after.holder == "":
            assert before is not None
            assert before.holder == identity, "a release of another's Lease"
            assert (after.duration, after.transitions) == (1, before.transitions)
        elif before is not None:
            changed = before.holder != after.holder
            assert after.transitions == before.transitions + changed
            assert changed or after.acquire_time == before.acquire_time
        assert after.holder in ("", identity)


@attrs.define(eq=False)
class Process:
    """A candidate, in the life that it lives at the moment."""

    number: int
    rate: float
    offset: float = 0.0
    life: int = 0
    state: Any = None
    awake_at: float = 0.0
    request: int = 0
    alive: bool = False

    def clock(self, now: float) -> float:
        return self.offset + self.rate * now

    def when(self, reading: float) -> float:
        """The moment in which its clock shows ``reading``."""
        # No timer fires early; without the microsecond some would, by rounding, and for ever.
        return (reading - self.offset) / self.rate + 1e-6

    @property
    def identity(self) -> str:
        return f"process-{self.number}.{self.life}"
