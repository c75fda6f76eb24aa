"""Who should hold which shard: decisions without I/O, from what the Leases show."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import final

import attrs

from appsdk_operator.manager._election.lease_state import ObservedLease
from appsdk_operator.resource import ObjectKey

__all__ = ["Decision", "ObservedLeases", "decide", "shard_of"]


def shard_of(key: ObjectKey, count: int) -> int:
    """The shard of an object, by its namespace and name: the same in each process, for ever.

    The first 8 bytes of the BLAKE2b digest of ``namespace/name`` as a big-endian number, modulo
    ``count``.

    >>> [shard_of(ObjectKey("default", name), 4) for name in ("a", "b", "c")]
    [0, 3, 0]
    """
    digest = hashlib.blake2b(f"{key.namespace}/{key.name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % count


def _score(identity: str, shard: int) -> bytes:
    """How much a replica likes a shard; spreads the first choices of several replicas."""
    return hashlib.blake2b(f"{identity}/{shard}".encode(), digest_size=8).digest()


@attrs.frozen
class Decision:
    """What a replica should do now."""

    acquire: tuple[int, ...] = ()
    """Shards to take, all of them free."""
    release: int | None = None
    """A shard to hand over; the next one when this counts as nobody's."""


def decide(
    identity: str, count: int, holders: Mapping[int, str], members: frozenset[str]
) -> Decision:
    """What ``identity`` should do.

    Fair is: every shard is held, and nobody holds more than one shard more than any other. Each
    replica takes what is free up to the smaller share, and to the larger one where that leaves
    enough for the others; who has too much gives one shard at a time. What is fair stays as it is.

    Args:
        identity: the replica that asks.
        count: how many shards there are.
        holders: who holds which shard; those that are missing are free.
        members: the replicas that live.
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
    # Somebody may lack a shard although nobody has more than the larger share. Then the one who
    # has most gives; all see the same, so there is one of them.
    poorest = min(held.values())
    giver = max(members, key=lambda member: (held[member], member))
    gives = mine > large or (identity == giver and poorest < small < mine)
    if gives and not free:
        own = (shard for shard, holder in holders.items() if holder == identity)
        return Decision(release=min(own, key=lambda shard: _score(identity, shard)))
    return Decision()


@final
class ObservedLeases:
    """What this replica has seen of the Leases of shards and members, and since when.

    As in an election, a Lease counts for as long as its record says from the moment in which it was
    first seen as it is, by the own clock. One that is gone counts on until then.
    """

    def __init__(self, default_duration: float) -> None:
        self._default = default_duration
        self._seen: dict[str, tuple[ObservedLease, float]] = {}
        self._present: frozenset[str] = frozenset()

    def update(self, now: float, leases: Mapping[str, ObservedLease]) -> None:
        """Take in all Leases that there are, by name."""
        for name, seen in leases.items():
            known = self._seen.get(name)
            self._seen[name] = (seen, known[1] if known and known[0] == seen else now)
        self._present = frozenset(leases)
        for name in [n for n in self._seen if n not in leases and not self.holder(now, n)]:
            del self._seen[name]

    def holder(self, now: float, name: str) -> str:
        """Who holds it; "" when it is free."""
        known = self._seen.get(name)
        if known is None:
            return ""
        record = known[0].record
        duration = self._default if record.duration is None else record.duration
        return record.holder if now < known[1] + duration else ""

    def known(self, name: str) -> tuple[ObservedLease, float] | None:
        """How it was last seen, and since when."""
        return self._seen.get(name)

    def expired_for(self, now: float, name: str) -> float:
        """For how many seconds nobody has renewed a Lease that is there; 0 for one that counts."""
        known = self._seen.get(name)
        if known is None or name not in self._present or self.holder(now, name):
            return 0.0
        return now - known[1]
