"""A model of managed certificates: replicas, a Secret, configurations, API servers with caches.

Each replica runs the real decisions (``_certificates/plan.py``) and stops after each request, so
that the requests of several can be in any order, and a crash can be between any two. An API server
uses versions of the configurations that are up to :data:`LAG` seconds old. Clocks differ by
minutes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import attrs

from appsdk_operator.serving import KeyPair
from appsdk_operator.webhooks._certificates import plan
from appsdk_operator.webhooks._certificates.content import (
    Authority,
    Certificate,
    Content,
    Pair,
)

LAG = 30.0
LIFETIME = 20_000.0
CA_LIFETIME = 50_000.0
SKEW = 400.0
TARGETS = ("validating", "conversion")

POLICY = plan.Policy(
    names=frozenset({"web"}), lifetime=LIFETIME, propagation=LAG, poll_interval=60.0
)


class FakeIssuer:
    """Makes certificates without keys, with a number each."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def authority(self, now: float) -> Authority:
        name = f"ca-{next(self._numbers)}"
        now = float(int(now))
        return Authority(Certificate(name, name.encode(), now, now + CA_LIFETIME), b"key")

    def pair(self, authority: Authority, names: frozenset[str], now: float) -> Pair:
        name, now = f"pair-{next(self._numbers)}", float(int(now))
        end = min(now + LIFETIME, authority.certificate.expires)
        return Pair(KeyPair(name.encode(), b"key"), authority.fingerprint, now, end, names)


@attrs.define
class Stored:
    """A version of a configuration, or of the Secret."""

    version: int
    since: float
    value: Any
    """The bundle, or the content; None: it does not exist, or the Secret is garbage."""
    is_ours: bool = True
    exists: bool = True
    lost: frozenset[str] = frozenset()
    """The authorities that somebody else has taken out, and that are not in again."""
    unknown: frozenset[str] = frozenset()
    """The authorities that the Secret had once, but not when the writer of this read it."""
    known: frozenset[str] = frozenset()
    """The authorities that there were when this was written."""


class ConflictError(Exception):
    """The object has changed since it was read."""


class Cluster:
    """The storage, and the caches of API servers."""

    def __init__(self, api_servers: int = 2) -> None:
        self.now = 1_000_000.0
        self.last_version = 0
        self.secret = Stored(0, self.now, None, exists=False)
        self.secret_was_touched = False
        self.history: dict[str, list[Stored]] = {
            name: [Stored(self._next_version(), self.now, (), is_ours=False)] for name in TARGETS
        }
        self.unreadable: set[str] = set()
        self.seen = [dict.fromkeys(TARGETS, 0) for _ in range(api_servers)]
        self.skews = [0.0] * api_servers
        self.authorities: dict[str, Certificate] = {}

    def _next_version(self) -> int:
        self.last_version += 1
        return self.last_version

    def put_secret(self, version: int | None, content: Content) -> None:
        """Write it in the version that was read; None: it did not exist."""
        if version != (self.secret.version if self.secret.exists else None):
            raise ConflictError
        if self.secret.exists and self.secret.value is not None:
            self._check_kept(self.secret.value.trust, content.trust)
        for each in content.trust:
            self.authorities[each.fingerprint] = each
        self.secret = Stored(self._next_version(), self.now, content)

    def touch_secret(self, content: Content | None, *, exists: bool) -> None:
        """Somebody else deletes it, makes it garbage, or restores an old state."""
        self.secret_was_touched = True
        self.secret = Stored(self._next_version(), self.now, content, exists=exists)

    def target(self, name: str) -> Stored:
        return self.history[name][-1]

    def put_target(
        self,
        name: str,
        version: int | None,
        bundle: tuple[Certificate, ...] | None,
        ours: bool,
        content: Content | None = None,
    ) -> None:
        """Write it in the version that was read, by a replica that has read ``content``."""
        before = self.target(name)
        if version is not None and before.version != version:
            raise ConflictError
        old = {c.fingerprint for c in before.value or ()}
        new = {c.fingerprint for c in bundle or ()}
        lost = (before.lost if ours else before.lost | old) - new
        stored = set() if content is None else {c.fingerprint for c in content.trust}
        unknown = frozenset(self.authorities.keys() - stored)
        if ours:
            self._check_kept(before.value or (), bundle or ())
        version, known = self._next_version(), frozenset(self.authorities)
        self.history[name].append(
            Stored(version, self.now, bundle, ours, bundle is not None, lost, unknown, known)
        )

    def _check_kept(self, before: tuple[Certificate, ...], after: tuple[Certificate, ...]) -> None:
        """No replica takes trust away from an authority that is valid by some clock."""
        valid = {c.fingerprint for c in before if self.now - SKEW < c.expires}
        lost = valid - {c.fingerprint for c in after}
        assert not lost, f"{lost} lost trust"

    def pass_time(self, seconds: float) -> None:
        """Let time pass; API servers read what has become older than the lag."""
        self.now += seconds
        for seen in self.seen:
            for name, history in self.history.items():
                # The state of LAG seconds ago is the oldest that may still be in use.
                index = seen[name]
                while index + 1 < len(history) and history[index + 1].since <= self.now - LAG:
                    index += 1
                seen[name] = index

    def refresh(self, api_server: int, name: str) -> None:
        """An API server reads the next version of a configuration."""
        seen = self.seen[api_server]
        seen[name] = min(seen[name] + 1, len(self.history[name]) - 1)


class Replica:
    """A replica: decisions of the plan, one request at a time."""

    def __init__(self, cluster: Cluster, issuer: FakeIssuer, skew: float) -> None:
        self.cluster = cluster
        self.last_seen = 0
        self.issuer = issuer
        self.skew = skew
        self.memory = plan.Memory()
        self.next_look = cluster.now
        self.missing: tuple[str, ...] = ()
        self._work = self._run()

    def step(self) -> None:
        """Send one request, or decide."""
        next(self._work)

    def now(self) -> float:
        return self.cluster.now + self.skew

    @property
    def is_ready(self) -> bool:
        serving = self.memory.serving
        return self.memory.is_ready and serving is not None and serving.is_valid(self.now())

    def _run(self) -> Iterator[None]:
        while True:
            yield from self._look()

    def _look(self) -> Iterator[None]:
        cluster = self.cluster
        self.last_seen = cluster.last_version
        targets, versions = [], {}
        for name in TARGETS:
            stored = cluster.target(name)
            versions[name] = stored.version
            targets.append(_target(name, stored, cluster))
            yield
        secret = cluster.secret
        yield
        observed = plan.Observed(
            content=secret.value if secret.exists else None,
            problem="" if secret.exists and secret.value else "no Secret",
            targets=tuple(targets),
        )
        decision = plan.decide(
            POLICY, self.memory, observed, now=self.now(), tick=cluster.now, issuer=self.issuer
        )
        self.memory, self.missing = decision.memory, decision.missing
        self.next_look = cluster.now + decision.wait
        yield
        try:
            if decision.store is not None:
                cluster.put_secret(secret.version if secret.exists else None, decision.store)
                self.next_look = cluster.now
                return
            for name, bundles in decision.inject.items():
                cluster.put_target(name, versions[name], bundles[0], True, secret.value)
                self.next_look = cluster.now
                yield
        except ConflictError:
            self.next_look = cluster.now


def _target(name: str, stored: Stored, cluster: Cluster) -> plan.Target:
    if name in cluster.unreadable:
        return plan.Target(name=name, problem=f"{name} is forbidden")
    if not stored.exists:
        return plan.Target(name=name)
    return plan.Target(name=name, version=str(stored.version), bundles=(stored.value,))


def _was_lost(authority: str, history: list[Stored]) -> bool:
    """Whether the last version lacks it because neither the Secret nor the one before had it."""
    return authority in history[-1].unknown and any(
        not each.is_ours
        and authority in each.known
        and authority not in {c.fingerprint for c in each.value or ()}
        for each in history
    )


class Model:
    """A cluster with replicas, and the promise."""

    def __init__(self, replicas: int, skews: list[float], api_skews: list[float]) -> None:
        self.cluster = Cluster()
        self.cluster.skews = api_skews
        self.issuer = FakeIssuer()
        self.skews = skews
        self.replicas: list[Replica] = [self._new(number) for number in range(replicas)]
        self.old_contents: list[Content] = []
        self.old_bundles: list[tuple[Certificate, ...]] = [()]

    def _new(self, number: int) -> Replica:
        return Replica(self.cluster, self.issuer, self.skews[number % len(self.skews)])

    # What happens.

    def step(self, number: int, count: int = 1) -> None:
        for _ in range(count):
            self.replicas[number].step()
            self.check()

    def crash(self, number: int) -> None:
        self.replicas[number] = self._new(number)

    def pass_time(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)
        self.check()

    def refresh(self, api_server: int, name: str) -> None:
        self.cluster.refresh(api_server, name)
        self.check()

    def remember(self) -> None:
        """Keep the present states, which a backup or a GitOps tool may bring back later."""
        if self.cluster.secret.exists and self.cluster.secret.value is not None:
            self.old_contents.append(self.cluster.secret.value)
        self.old_bundles += [
            s.value for h in self.cluster.history.values() for s in h[-1:] if s.value
        ]

    # The promise.

    def check(self) -> None:
        """Each ready replica serves what each API server accepts."""
        cluster = self.cluster
        for number, replica in enumerate(self.replicas):
            pair = replica.memory.serving
            if not replica.is_ready or pair is None:
                continue
            for api_server, seen in enumerate(cluster.seen):
                now = cluster.now + cluster.skews[api_server]
                if now >= pair.expires:
                    continue  # the replica cannot reach the server for most of a lifetime
                for name, index in seen.items():
                    self._check(cluster.history[name][index], name, pair, now, (number, api_server))

    def _check(
        self, stored: Stored, name: str, pair: Pair, now: float, who: tuple[int, int]
    ) -> None:
        if not stored.exists or not stored.is_ours:
            return
        trusted = {c.fingerprint: c for c in stored.value if now < c.expires}
        if not trusted:
            return  # as at the first installation: nothing worked before
        if pair.authority not in trusted:
            history = self.cluster.history[name]
            gone = frozenset[str]().union(*(e.lost for e in history[history.index(stored) :]))
            if self.cluster.secret_was_touched and (
                _was_lost(pair.authority, history[: history.index(stored) + 1])
                or gone >= trusted.keys()
            ):
                return  # it was taken out of the Secret and of the configuration at once
            raise AssertionError(
                f"replica {who[0]} serves {pair.authority}; API server {who[1]} trusts "
                f"{sorted(trusted)} in {name}"
            )
        assert now >= pair.issued - 900.0, "it is not valid yet"

    def settle(self, seconds: float = 4 * LAG) -> None:
        """Run all replicas without faults, each as soon as it wants to, for a while."""
        self.cluster.unreadable.clear()
        end = self.cluster.now + seconds
        while True:
            for _ in range(100):
                woken = [r for r in self.replicas if self._wants_to_look(r)]
                if not woken:
                    break
                for replica in woken:
                    self.step(self.replicas.index(replica), 5)
            else:
                raise AssertionError("the replicas never rest")
            if self.cluster.now >= end:
                return
            due = min(replica.next_look for replica in self.replicas)
            self.pass_time(min(max(due - self.cluster.now, 0.5), end - self.cluster.now))

    def _wants_to_look(self, replica: Replica) -> bool:
        # A watch tells of changes.
        cluster = self.cluster
        return replica.next_look <= cluster.now or replica.last_seen != cluster.last_version

    def check_settled(self) -> None:
        """All have come to the same state, which works."""
        content = self.cluster.secret.value
        assert content is not None
        for replica in self.replicas:
            assert replica.is_ready, replica.missing
            assert not replica.missing
            assert replica.memory.serving == content.pair
            assert content.pair.is_valid(replica.now())
        for name in TARGETS:
            held = {c.fingerprint for c in self.cluster.target(name).value or ()}
            assert content.authority.fingerprint in held
            assert {
                c.fingerprint for c in content.trust if self.cluster.now + SKEW < c.expires
            } <= held
