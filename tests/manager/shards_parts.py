"""The parts of a model of shards: replicas, their requests, and what becomes of these."""

from __future__ import annotations

import heapq
import itertools
import random
import threading
import types
from collections.abc import Callable, Generator
from typing import Any

import attrs

from appsdk_operator.client import ClientError
from appsdk_operator.manager import Elector
from appsdk_operator.manager._election.lease_state import ObservedLease
from appsdk_operator.manager._shards.reconciler import ShardClaim
from appsdk_operator.runtime import StopSignal
from tests.manager.lease_model import LATENCY, Process, Server

FAULTS_END = 60.0
STOP_TIMEOUT = 5.0
CALM = FAULTS_END + 40.0 + STOP_TIMEOUT + 15.0 + 5.0
"""Whatever slept, was late or was to come back has come by then: one that is told to stop while it
sleeps wakes after 40 s, leaves, comes back after 15 s, and what it asks for takes its time."""
LONGEST = 1.0
"""Seconds for which a reconcile lasts at most when there are no faults."""


class ListedLease:
    """A Lease as a list shows it."""

    def __init__(self, name: str, seen: ObservedLease) -> None:
        record = seen.record
        self.name = name
        self.resource_version = seen.version
        self.uid = ""
        self._spec = {
            "holderIdentity": record.holder,
            "leaseDurationSeconds": record.duration,
            "acquireTime": record.acquire_time,
            "renewTime": record.renew_time,
            "leaseTransitions": record.transitions,
        }

    def get(self, _: str) -> dict[str, Any]:
        return self._spec


@types.coroutine
def pause(seconds: float) -> Generator[float, None, None]:
    yield seconds


@attrs.define(eq=False)
class Run:
    """An elector's run."""

    elector: Elector
    stop: StopSignal
    claim: ShardClaim | None
    request: int = 0
    was_leading: bool = False
    is_over: bool = False


@attrs.define(eq=False)
class Replica(Process):
    """A process that shares the work, in the life that it lives at the moment."""

    world: Network = attrs.field(kw_only=True)
    shards: Any = None
    listed: list[ListedLease] | None = None
    deaf_until: float = 0.0
    is_stopping: bool = False
    has_left: bool = False
    comes_back: bool | None = None
    runs: int = 0
    look_turn: int = 0
    member_stop: Any = None

    # As a clock and as a client of its ``Shards``.

    def monotonic(self) -> float:
        return self.clock(self.world.now)

    def time(self) -> float:
        return self.world.now

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        raise AssertionError("nothing waits here")

    def list(self, *_: Any, **__: Any) -> list[ListedLease]:
        if self.listed is None:
            raise ClientError("no answer")
        return self.listed

    def delete(self, _: Any, name: str, *, resource_version: str | None = None, **__: Any) -> None:
        self.world.delete(self, name, resource_version)


@attrs.define(eq=False)
class Work:
    """A reconcile that runs."""

    replica: Replica
    shard: int
    elector: Elector
    identity: str
    life: int


class Network:
    """The scheduler and the server: everything happens here, one thing after the other."""

    def __init__(self, seed: int, *, faults: bool) -> None:
        self.rng = random.Random(seed)
        self.has_faults = faults
        self.now = 0.0
        self.versions = itertools.count(1)
        self.servers: dict[str, Server] = {}
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = itertools.count()

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (max(when, self.now), next(self.sequence), what))

    def run(self, until: float) -> None:
        while self.queue and self.queue[0][0] <= until:
            self.now, _, what = heapq.heappop(self.queue)
            what()
        self.now = until

    @property
    def is_troubled(self) -> bool:
        return self.has_faults and self.now < FAULTS_END

    def server(self, name: str) -> Server:
        if name not in self.servers:
            self.servers[name] = Server()
            self.servers[name].versions = self.versions
        return self.servers[name]

    def latency(self) -> float:
        if self.is_troubled and self.rng.random() < 0.1:
            return self.rng.choice([1.0, 6.0, 25.0]) * self.rng.random()
        return LATENCY * self.rng.random()

    def send(
        self, replica: Replica, perform: Callable[[], Any], answer: Callable[[Any, bool], None]
    ) -> None:
        """Have it done, or not; the answer comes, or not."""
        fault = self.rng.random() if self.is_troubled else 1.0
        there, back = self.latency(), self.latency()
        if fault < 0.04 or self.now < replica.deaf_until:
            self.at(self.now + there, lambda: answer(None, False))
            return
        if fault < 0.06:  # it gets lost
            return

        def arrive() -> None:
            done = perform()
            if 0.06 <= fault < 0.10:  # the connection breaks before the answer
                self.at(self.now + back, lambda: answer(None, False))
            elif not 0.10 <= fault < 0.12:  # or no answer ever comes
                self.at(self.now + back, lambda: answer(done, True))

        self.at(self.now + there, arrive)

    def delete(self, replica: Replica, name: str, version: str | None) -> None:
        def perform() -> None:
            lease = self.server(name).lease
            if lease is not None and version in (None, lease.version):
                self.server(name).lease = None

        self.send(replica, perform, lambda *_: None)

    def touch(self) -> None:
        """Somebody who is no member labels a Lease."""
        if self.servers:
            server = self.servers[self.rng.choice(sorted(self.servers))]
            if server.lease is not None:
                server.lease = ObservedLease(server.lease.record, str(next(self.versions)))
        after = self.now + self.rng.expovariate(1 / 10.0)
        if after < FAULTS_END:
            self.at(after, self.touch)
