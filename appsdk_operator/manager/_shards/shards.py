"""Shards: several active replicas, each of which reconciles the objects of the shards it holds."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar, final

import attrs

from appsdk_operator.cache import Event, Health
from appsdk_operator.client import ClientError, ClientLike, Forbidden, requests_end_with
from appsdk_operator.controllers import ReconcileFunction, Reconciler
from appsdk_operator.manager._election.client import LEASE, observed_lease
from appsdk_operator.manager._election.elector import Elector
from appsdk_operator.manager._election.fence import FencedClient
from appsdk_operator.manager._election.options import LeaderElection, LeadershipLost
from appsdk_operator.manager._election.unanswered_writes import TrackedWrite
from appsdk_operator.manager._shards.assignment import ObservedLeases, decide, shard_of
from appsdk_operator.manager._shards.gain_notifier import GainNotifier
from appsdk_operator.manager._shards.reconciler import (
    ShardClaim,
    ShardedReconciler,
    ShardSource,
    current_claim,
)
from appsdk_operator.resource import DecodeError, ObjectKey
from appsdk_operator.runtime import (
    NO_THREAD,
    Clock,
    Family,
    Metrics,
    OneProcess,
    Sample,
    StillRunning,
    StopSignal,
    ThreadGroup,
    after_fork,
    entered_metrics,
    get_logger,
    present_clock,
    present_metrics,
    random_of,
)
from appsdk_operator.runtime.validation import check_function, checked_seconds

_log = get_logger("appsdk_operator.manager")

SHARDS_LABEL = "appsdk-operator.io/shards"
"""The label of the Leases of one set of shards; its value is the set's id."""

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,50}[A-Za-z0-9])?")
_STOP_TIMEOUT = 30.0
_NOBODY = "?"
_FORGET_AFTER = 10.0  # lease durations until the Lease of a dead member is deleted

_COUNT = Family("shards", "gauge", "The shards of a set, held or not.", ("name",))
_HELD = Family("shards_held", "gauge", "The shards that this replica holds.", ("name",))
_MEMBERS = Family(
    "shards_members", "gauge", "The live replicas, as this one last counted them.", ("name",)
)

R = TypeVar("R", bound=Any)


@final
class Shards:
    """Divides objects between replicas: each object belongs to a shard, each shard to one replica.

    Every shard has a Lease, acquired and renewed as in a leader election. Every replica has its own
    member Lease. The replicas count these Leases, and each takes its fair share: once settled, the
    numbers of shards of two replicas differ by at most one. Replicas may come and go at any time.

    Guarantees:
        * One replica at a time reconciles an object. A replica that hands over a shard lets its
          reconciles end first. A replica that loses a shard is fenced before its lease expires, and
          so before another replica can take the shard.
        * A replica that wins a shard reconciles all its objects.

    It runs on all replicas, and so must the controllers that use the shards:
    ``ControllerOptions(needs_leader_election=False)``. Thread-safe.

    Args:
        client: reads and writes the Leases; its account needs the verbs get, list, create, update
            and delete on leases.
        election: name, namespace and times as in a leader election. The Leases are called
            ``<id>-shard-<number>`` and ``<id>-member-<digest>``. ``release_on_cancel`` has no
            effect: a stop always hands over the shards.
        count: the number of shards, the same in all replicas, best a few times the largest number
            of replicas. To change it, stop all replicas first: an object's shard depends on it.
        clock, rng, metrics: as in :class:`Elector`; the default metrics are its Manager's.
        stop_timeout: seconds to wait at a stop for running reconciles; default 30. After that the
            Leases of their shards expire without a release.

    Raises:
        TypeError, ValueError: the count is not 1 to 1000, the id is not valid as a label, no
            namespace is known, or ``stop_timeout`` is not a number of seconds.
    """

    needs_leader_election = False

    def __init__(
        self,
        client: ClientLike,
        election: LeaderElection,
        count: int,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
        stop_timeout: float = _STOP_TIMEOUT,
    ) -> None:
        if not 1 <= count <= 1000:
            raise ValueError(
                f"count={count}: use 1 to 1000 shards, a few times as many as replicas"
            )
        if not _LABEL_VALUE.fullmatch(election.id):
            raise ValueError(
                f"id={election.id!r} is also the value of a label on the Leases: use up to 52 "
                "letters, digits, '-', '_' and '.'"
            )
        checked_seconds("stop_timeout", stop_timeout)
        self.count = count
        """The number of shards."""
        self._client = client
        clock = present_clock(clock)
        self.clock: Clock = clock
        """The clock of the Leases and of all waits."""
        self._rng = rng or random_of(clock)
        self._metrics = entered_metrics(metrics)
        self._stop_timeout = stop_timeout
        labels = {**election.labels, SHARDS_LABEL: election.id}
        base = attrs.evolve(election, labels=labels, release_on_cancel=True)
        # Only for its identity and namespace, which are to be the same for all Leases of this
        # replica.
        probe = Elector(client, base, metrics=Metrics())
        self.identity: str = probe.identity
        """The holder in the Leases of this replica."""
        self.namespace: str = probe.namespace
        self._election = attrs.evolve(base, identity=self.identity, namespace=self.namespace)
        digest = hashlib.blake2b(self.identity.encode(), digest_size=8).hexdigest()
        self._member_prefix = f"{election.id}-member-"
        self._member = self._member_prefix + digest
        self._leases = ObservedLeases(election.record_duration)
        self._threads = ThreadGroup("shards")
        self._changed = threading.Condition()
        self._claims: dict[int, ShardClaim] = {}
        self._gains = GainNotifier(self._threads, election.retry_period, self._hand_over)
        self._members: frozenset[str] = frozenset()
        self._problem = "not started"
        self._has_run = False
        self._is_stopping = False
        # A forked child has copies of the Leases' states, and no thread that renews them.
        self._process = OneProcess(repr(self), "make new Shards in the child")
        after_fork(self._on_fork)

    def _on_fork(self) -> None:
        # Another thread may have held the lock, and is not there to let go of it.
        self._changed = threading.Condition()
        self._claims = {}
        self._members = frozenset()

    def __repr__(self) -> str:
        return f"<Shards {self._election.id} of {self.identity}>"

    # -- status ----------------------------------------------------------------------------------

    @property
    def held(self) -> frozenset[int]:
        """The shards that this replica holds."""
        return frozenset(claim.shard for claim in self._held_now())

    @property
    def members(self) -> frozenset[str]:
        """The live replicas at the last list of the Leases, this one included."""
        return self._members

    def shard_of(self, key: ObjectKey) -> int:
        """The shard of an object; see :func:`shard_of`."""
        return shard_of(key, self.count)

    def owns(self, key: ObjectKey) -> bool:
        """Whether this replica holds the shard of an object."""
        return self._claim_of(key) is not None

    def predicate(self, event: Event) -> bool:
        """A predicate that drops events of other replicas' objects.

        Use it for the kind that is reconciled. If a handler maps events to other objects,
        :meth:`reconciler` drops the requests for other replicas' objects.
        """
        return self.owns(event.object.key)

    def debug_snapshot(self) -> dict[str, Any]:
        """The shards that this replica holds, and the live replicas, as JSON values."""
        return {
            "shards": self._election.id,
            "count": self.count,
            "held": sorted(self.held),
            "members": sorted(self.members),
            "identity": self.identity,
        }

    def health(self) -> Health:
        """Not ready while the Leases cannot be listed; the text has the number of held shards."""
        if self._process.inherited:
            return Health(False, "shards: they belong to the process that this one was forked from")
        if self._problem:
            return Health(self._problem == "not started", f"shards: {self._problem}")
        return Health(True, f"holds {len(self.held)} of {self.count} shards")

    # -- for controllers -------------------------------------------------------------------------

    def reconciler(
        self,
        reconciler: Reconciler[R] | ReconcileFunction[R],
        *,
        key_of: Callable[[R], ObjectKey] | None = None,
    ) -> ShardedReconciler[R]:
        """Wrap ``reconciler`` so that it drops requests for objects of other replicas.

        Args:
            reconciler: a :class:`Reconciler` or a function; it may be ``async def``.
            key_of: returns the key of the object that decides on the shard, for requests that are
                not keys.
        """
        function: Any = getattr(reconciler, "reconcile", reconciler)
        if not callable(function):
            raise TypeError(f"{reconciler!r} is not a reconciler: give it reconcile(request)")
        check_function("key_of", key_of)
        return ShardedReconciler(self, function, key_of or _as_key)

    def client(self, inner: ClientLike) -> FencedClient:
        """Wrap ``inner`` so that it refuses writes for shards that this replica has lost.

        The shard is that of the running reconcile, or of :meth:`acting_for`. A write outside of
        both raises RuntimeError.
        """
        return FencedClient(inner, self)

    def source(self, keys: Callable[[], Iterable[ObjectKey]]) -> ShardSource:
        """A source for controllers: it queues all objects of each shard that this replica wins.

        Args:
            keys: returns the keys of all objects, of any shard, for example from a cache; may be
                ``async def``.
        """
        return ShardSource(self, keys)

    def on_gain(self, callback: Callable[[int], None]) -> Callable[[], None]:
        """Call ``callback`` with each shard held now or won later; it may be ``async def``.

        If it fails, it is called again after each retry period, as long as this replica holds the
        shard.

        Returns:
            A function that removes the callback.
        """
        check_function("callback", callback, required=True, is_awaited=True)
        with self._changed:  # a shard is either held now or won later, and never both
            remove, held = self._gains.add(callback), self._held_now()
        self._gains.held(callback, held)
        return remove

    @contextlib.contextmanager
    def acting_for(self, key: ObjectKey) -> Iterator[bool]:
        """Work on an object outside of a reconcile; yields False for another replica's object.

        Until the block ends, this replica does not hand over the shard, and writes through
        :meth:`client` belong to it.
        """
        claim = self.enter(key)
        token = current_claim.set(claim)
        try:
            yield claim is not None
        finally:
            # First: the reset raises in an asynchronous generator that ends in another context.
            self.leave(claim)
            current_claim.reset(token)

    def term(self) -> int:
        """The fencing token of the current shard; see :attr:`Elector.term`.

        Raises:
            RuntimeError: called outside of a reconcile and of :meth:`acting_for`.
        """
        claim = current_claim.get()
        if claim is None:
            raise RuntimeError(
                "a term belongs to a shard: call term() in a reconcile, or in 'with "
                "shards.acting_for(key)'"
            )
        return claim.elector.term

    def check_write(self) -> None:
        """Check that a write for the current shard may begin; see :meth:`client`.

        Raises:
            LeadershipLost: the shard's lease has expired, or is about to.
            RuntimeError: the write belongs to no shard.
        """
        self._current_claim().elector.check_write()

    def track_write(self) -> TrackedWrite:
        """For :class:`FencedClient`: track a write for the current shard."""
        return self._current_claim().elector.track_write(self.check_write)

    def _current_claim(self) -> ShardClaim:
        claim = current_claim.get()
        if claim is None:
            raise RuntimeError(
                "a write through the client of shards belongs to no shard: write in a reconcile, "
                "or in 'with shards.acting_for(key)'; for objects without a shard use another "
                "client"
            )
        return claim

    # -- running ---------------------------------------------------------------------------------

    def run(self, stop: StopSignal) -> None:
        """Hold shards until ``stop``, then hand over all of them. Blocks.

        Raises:
            RuntimeError: it was run before.
            StillRunning: callbacks for won shards still run after ``stop_timeout`` plus a lease
                duration.
            ForkedError: this process was forked from the one that made it.
        """
        self._process.check()
        with self._changed:
            if self._has_run:
                raise RuntimeError("the shards were run before: make new ones")
            self._has_run = True
        self._metrics = present_metrics(self._metrics)
        retire = self._metrics.add_source(self._samples)
        # Within a lease duration each elector releases its Lease, or cannot any more.
        limit = self._stop_timeout + self._election.lease_duration
        member_stop = StopSignal(clock=self.clock)
        self._threads.start("member", functools.partial(self._be_member, member_stop))
        try:
            while not stop.is_set():
                self._sync(stop)
                stop.wait(self._election.retry_period * (0.8 + 0.4 * self._rng.random()))
        finally:
            try:
                self._leave_all()
            finally:
                # Whatever happens: a member that goes on would be left its share by the others.
                member_stop.set()
                running = self._threads.join(limit)
                retire()
        if running:
            raise StillRunning(
                f"still running {limit:g} s after the shards were handed over: "
                f"{', '.join(running)}: set a time-out for what callbacks for won shards wait for",
                running=lambda: self._threads.join(0.0),
            )

    def _samples(self) -> Iterable[Sample]:
        labels = (self._election.id,)
        yield Sample(_COUNT, labels, self.count)
        yield Sample(_HELD, labels, len(self.held))
        yield Sample(_MEMBERS, labels, len(self._members))

    def _sync(self, stop: StopSignal) -> None:
        """List all Leases, and acquire or release shards."""
        try:
            # The list alone: each request of the electors has to go on after the stop.
            with requests_end_with(stop):
                found = self._client.list(
                    LEASE,
                    namespace=self.namespace,
                    label_selector={SHARDS_LABEL: self._election.id},
                )
                leases = {lease.name: observed_lease(lease) for lease in found}
        except (ClientError, DecodeError) as error:
            if stop.is_set():
                return
            if str(error) != self._problem:
                _log.warning("%r cannot list the Leases: %s", self, error)
            self._problem = str(error)
            return
        self._problem = ""
        now = self.clock.monotonic()
        self._leases.update(now, leases)
        members = {
            name: self._leases.holder(now, name)
            for name in leases
            if name.startswith(self._member_prefix)
        }
        self._members = frozenset({*filter(None, members.values()), self.identity})
        self._delete_dead_members(now, members)
        # Before its own member Lease exists, other replicas would take this one's share.
        if self._member in leases:
            self._balance(now)

    def _balance(self, now: float) -> None:
        holders = {
            shard: holder
            for shard in range(self.count)
            if (holder := self._leases.holder(now, self._name(shard)))
        }
        with self._changed:
            own = list(self._claims.values())
        for shard, holder in holders.items():
            if holder == self.identity and all(claim.shard != shard for claim in own):
                # Released since the list, or held by an earlier run of this process: free soon.
                holders[shard] = _NOBODY
        for claim in own:
            other = holders.get(claim.shard, self.identity)
            if not claim.is_held and other != self.identity:
                # Another replica was faster. If this one has won it since the list, no reconcile
                # may begin.
                self._hand_over(claim)
                continue
            # A shard in hand-over counts as released: otherwise a reconcile that does not end would
            # block the release of further shards, too.
            is_released = claim.is_held and claim.is_handing_over
            holders[claim.shard] = _NOBODY if is_released else self.identity
        decision = decide(self.identity, self.count, holders, self._members)
        for shard in decision.acquire:
            self._acquire(shard)
        if decision.release is not None:
            with self._changed:
                claim_or_none = self._claims.get(decision.release)
            if claim_or_none is not None:
                self._hand_over(claim_or_none)

    def _delete_dead_members(self, now: float, members: dict[str, str]) -> None:
        limit = _FORGET_AFTER * self._election.lease_duration
        for name in members:
            known = self._leases.known(name)
            if known is None or self._leases.expired_for(now, name) <= limit:
                continue
            self._delete(name, uid=known[0].uid, resource_version=known[0].version)

    def _delete(self, name: str, *, uid: str = "", resource_version: str = "") -> None:
        """Delete a Lease; one that stays is deleted by another member later."""
        try:
            self._client.delete(
                LEASE,
                name,
                namespace=self.namespace,
                uid=uid,
                resource_version=resource_version,
            )
        except Forbidden as error:  # for the others as well
            _log.warning("%r cannot delete unused Leases: %s", self, error)
        except (ClientError, DecodeError) as error:
            _log.debug("%r did not delete the Lease %s: %s", self, name, error)

    # -- claims ----------------------------------------------------------------------------------

    def _name(self, shard: int) -> str:
        return f"{self._election.id}-shard-{shard}"

    def _elector(self, name: str) -> Elector:
        return Elector(
            self._client,
            attrs.evolve(self._election, id=name),
            clock=self.clock,
            rng=self._rng,
            metrics=self._metrics,
        )

    def _acquire(self, shard: int) -> None:
        elector = self._elector(self._name(shard))
        known = self._leases.known(self._name(shard))
        if known is not None:
            elector.start_from(*known)
        claim = ShardClaim(shard, elector, StopSignal(clock=self.clock))
        with self._changed:
            if self._is_stopping or shard in self._claims:
                return
            self._claims[shard] = claim
        try:
            self._threads.start(f"shard-{shard}", functools.partial(self._hold, claim))
        except NO_THREAD as error:
            _log.warning("%r cannot start a thread for shard %d: %s", self, shard, error)
            with self._changed:
                del self._claims[shard]
            elector.retire()

    def _hold(self, claim: ShardClaim) -> None:
        try:
            claim.elector.run(claim.stop, functools.partial(self._gained, claim))
        except LeadershipLost as error:
            _log.warning("%r lost shard %d: %s", self, claim.shard, error)
        finally:
            with self._changed:
                claim.is_held = False
                self._claims.pop(claim.shard, None)
                self._changed.notify_all()
            # Callbacks that failed for it are not called again.
            claim.stop.set()
            claim.elector.retire()
            claim.elector.join()

    def _gained(self, claim: ShardClaim) -> None:
        with self._changed:
            claim.is_held = True
            callbacks = self._gains.callbacks
        _log.info("%r has won shard %d", self, claim.shard)
        self._gains.won(claim, callbacks)

    def _hand_over(self, claim: ShardClaim) -> None:
        """Begin no more reconciles; release the Lease when the last one has ended."""
        with self._changed:
            claim.is_handing_over = True
            is_idle = not claim.running
        if is_idle:
            claim.stop.set()

    def _leave_all(self) -> None:
        with self._changed:
            self._is_stopping = True
            claims = list(self._claims.values())
        for claim in claims:
            self._hand_over(claim)
        deadline = self.clock.monotonic() + self._stop_timeout
        with self._changed:
            while self._claims and (left := deadline - self.clock.monotonic()) > 0:
                self.clock.wait(self._changed, left)
            stuck = [claim for claim in self._claims.values() if claim.running]
        for claim in stuck:
            _log.error(
                "%r: reconciles of shard %d did not end within %g s. Another replica gets the "
                "shard when its Lease has expired",
                self,
                claim.shard,
                self._stop_timeout,
            )
            claim.elector.keep_lease()
            claim.stop.set()

    def _be_member(self, stop: StopSignal) -> None:
        while not stop.is_set():
            elector = self._elector(self._member)
            try:
                elector.run(stop, _nothing)
            except LeadershipLost as error:
                _log.warning("%r could not renew the Lease of this member: %s", self, error)
            finally:
                elector.retire()
                if stop.is_set():  # a late request would make the Lease again
                    elector.join()
        self._delete(self._member)

    # -- reconciles ------------------------------------------------------------------------------

    def _held_now(self) -> list[ShardClaim]:
        with self._changed:
            return [claim for claim in self._claims.values() if claim.accepts_work]

    def _claim_of(self, key: ObjectKey) -> ShardClaim | None:
        with self._changed:
            claim = self._claims.get(self.shard_of(key))
        return claim if claim is not None and claim.accepts_work else None

    def enter(self, key: ObjectKey) -> ShardClaim | None:
        """For sharded reconcilers: begin a reconcile; None for another replica's object."""
        with self._changed:
            claim = self._claims.get(self.shard_of(key))
            if claim is None or not claim.accepts_work:
                return None
            claim.running += 1
            return claim

    def leave(self, claim: ShardClaim | None) -> None:
        """For sharded reconcilers: end a reconcile."""
        if claim is None:
            return
        with self._changed:
            claim.running -= 1
            is_over = claim.is_handing_over and not claim.running
        if is_over:
            claim.stop.set()


def _nothing() -> None:
    pass


def _as_key(request: Any) -> ObjectKey:
    if not isinstance(request, ObjectKey):
        raise TypeError(
            f"request {request!r} is not an ObjectKey, so its shard is not known: give "
            "shards.reconciler(…, key_of=…)"
        )
    return request
