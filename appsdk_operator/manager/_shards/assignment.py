"""The assignment of shards to replicas: decisions without I/O, from the observed Leases."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import final

import attrs

from appsdk_operator.manager._election.lease_state import ObservedLease
from appsdk_operator.resource import ObjectKey


def shard_of(key: ObjectKey, count: int) -> int:
    """The shard of an object, by its namespace and name: the same in every process and version.

    The first 8 bytes of the BLAKE2b digest of ``namespace/name`` as a big-endian number, modulo
    ``count``.

    >>> [shard_of(ObjectKey("default", name), 4) for name in ("a", "b", "c")]
    [0, 3, 0]
    """
    digest = hashlib.blake2b(f"{key.namespace}/{key.name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def _score(identity: str, shard: int) -> bytes:
    """A replica's preference for a shard, which differs between replicas to avoid conflicts."""
    return hashlib.blake2b(f"{identity}/{shard}".encode(), digest_size=8).digest()


@attrs.frozen
class Decision:
    """The next step of a replica: shards to acquire, or one to release."""

    acquire: tuple[int, ...] = ()
    """Free shards to acquire."""
    release: int | None = None
    """A shard to hand over. The next one follows once this one has no holder."""


def decide(
    identity: str, count: int, holders: Mapping[int, str], members: frozenset[str]
) -> Decision:
    """The next step of the replica ``identity`` towards a fair assignment.

    An assignment is fair when every shard is held, and no replica holds more than one shard more
    than another. Each replica acquires free shards up to the smaller share, or the larger one where
    enough are left for the others. A replica with too many releases one shard at a time. A fair
    assignment does not change.

    Args:
        identity: the replica.
        count: the number of shards.
        holders: the holders by shard; missing shards are free.
        members: the live replicas.
    """
    members |= {identity}
    held = Counter(dict.fromkeys(members, 0))
    held.update(holder for holder in holders.values() if holder in members)
    small, rest = divmod(count, len(members))
    large = small + (rest > 0)
    free = [shard for shard in range(count) if shard not in holders]
    mine = held[identity]
    lacking = sum(max(0, small - held[other]) for other in members if other != identity)
    room = max(small - mine, min(large - mine, len(free) - lacking))
    if free and room > 0:
        wanted = sorted(free, key=lambda shard: _score(identity, shard), reverse=True)
        return Decision(acquire=tuple(wanted[:room]))
    # A replica may lack a shard although none has more than the larger share. Then the one with
    # most shards releases one; all replicas compute the same one.
    poorest = min(held.values())
    giver = max(members, key=lambda member: (held[member], member))
    gives = mine > large or (identity == giver and poorest < small < mine)
    if gives and not free:
        own = (shard for shard, holder in holders.items() if holder == identity)
        return Decision(release=min(own, key=lambda shard: _score(identity, shard)))
    return Decision()


@final
class ObservedLeases:
    """The Leases of shards and members, as this replica has observed them, and since when.

    As in an election, a Lease counts for the duration in its record from the moment in which this
    version of it was first observed, by the own clock; a deleted one, too.
    """

    def __init__(self, default_duration: float) -> None:
        self._default = default_duration
        self._seen: dict[str, tuple[ObservedLease, float]] = {}
        self._present: frozenset[str] = frozenset()

    def update(self, now: float, leases: Mapping[str, ObservedLease]) -> None:
        """Update from a list of all present Leases, by name."""
        for name, seen in leases.items():
            known = self._seen.get(name)
            self._seen[name] = (seen, known[1] if known and known[0] == seen else now)
        self._present = frozenset(leases)
        for name in [n for n in self._seen if n not in leases and not self.holder(now, n)]:
            del self._seen[name]

    def holder(self, now: float, name: str) -> str:
        """The holder of a Lease; "" when it is free."""
        known = self._seen.get(name)
        if known is None:
            return ""
        record = known[0].record
        duration = self._default if record.duration is None else record.duration
        return record.holder if now < known[1] + duration else ""

    def known(self, name: str) -> tuple[ObservedLease, float] | None:
        """The last observation of a Lease, and the time of the first with its version."""
        return self._seen.get(name)

    def expired_for(self, now: float, name: str) -> float:
        """Seconds since the last renewal of an expired Lease that still exists; 0 for others."""
        known = self._seen.get(name)
        if known is None or name not in self._present or self.holder(now, name):
            return 0.0
        return now - known[1]
