"""A world: an API server, other clients, and whole operators with their threads, on a manual clock.

Time costs nothing, only events do. What runs is real; the threads run one at a time (see
``scheduler``).
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, final

import attrs

from appsdk_operator.apiserver import FaultRule, Route, parse_path
from appsdk_operator.app import App
from appsdk_operator.client import (
    ApiError,
    Client,
    ClientConfig,
    ConnectionLost,
    MergePatch,
    NotFound,
)
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    Scope,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, environment, settle
from appsdk_operator.testing._broken_promise import BrokenPromise, hides_kit_frames
from appsdk_operator.testing._memory.connection import MemoryConnection
from appsdk_operator.testing._memory.server import MemoryServer
from appsdk_operator.testing._world.apps import definitions_of, kind_of, maker_of
from appsdk_operator.testing._world.journal import Entry, Journal, story_of
from appsdk_operator.testing._world.recording import CallRecorder, recorded
from appsdk_operator.testing._world.runnable import as_runnable
from appsdk_operator.testing._world.scheduler import StuckError, ThreadScheduler
from appsdk_operator.testing.strategies import part_of
from appsdk_operator.watchers import OpinionatedReconciler, OpinionatedWatcher

__all__ = ["LEASE", "NO_CHANGE", "Replica", "World"]

__tracebackhide__ = hides_kit_frames

LEASE: Final = kinds.coordination.v1.Lease
NO_CHANGE: Final = "no change"
"""The outcome of a write that changed nothing."""
_SOMEBODY: Final = "somebody"
_HOT_LOOP_WINDOW: Final = 600.0
_MOST_PROCESSES: Final = 50
_END_WITHIN: Final = 900.0
_VERBS: Final = {"POST": "creates", "PUT": "updates", "PATCH": "patches", "DELETE": "deletes"}
_UNRECORDED: Final = frozenset({"leases", "events"})
"""Kinds whose writes are not recorded: they are no result of a reconcile."""


@final
class World:
    """An API server, other clients that write to it, and an operator, simulated on a manual clock.

    The operator runs with its real threads, caches and leader election. One thread runs at a time,
    until it waits; when all threads wait, the clock moves to the earliest deadline. So an hour
    takes as long as what happens in it: milliseconds where an operator requeues now and then, some
    seconds where two replicas renew leases. A seed always gives the same run.

    Use it in a ``with`` block; the thread of the block drives the simulation. Simulated are waits
    on the kit's clock, on conditions, events and joins of ``threading``, and on ``queue.Queue``.
    Other blocking calls are not: the operator must not use sockets or ``time.sleep``.

    >>> from appsdk_operator import kinds
    >>> from appsdk_operator.controllers import Result
    >>> def make(replica):
    ...     return lambda request: Result(requeue_after=3600.0)
    >>> with World(kinds.core.v1.ConfigMap, make) as world:
    ...     _ = world.create("a")
    ...     world.run(2 * 3600.0)
    ...     print(len(world.journal.of("call", "default/a")))
    3

    Args:
        kind: the kind that the operator manages; its CRD is installed unless it is a built-in kind.
            Or the operator as an :class:`~appsdk_operator.app.App`: then it is the first kind that
            the App handles, and the CRDs are the App's.
        make: an App, for another one of its kinds; or what makes the operator of a replica, again
            after each crash and restart: a watcher or a reconciler, or several, called in that
            order for each event; or an object with ``run(stop)`` that uses ``replica.clock`` and
            ``replica.config`` or ``replica.client``.
        replicas: the number of replicas; default 1.
        leader_election: whether the watchers or reconcilers that ``make`` returns run on the
            leader only; default: on all replicas. A manager that ``make`` returns has its own
            ``leader_election=``; that of an App stays.
        seed: of jitter, uids, and the choice of the next thread; default 0: threads go on in the
            order in which they became ready.
        crds: further CustomResourceDefinitions, or the one of ``kind``.
    """

    def __init__(
        self,
        kind: Kind | App,
        make: Callable[[Replica], Any] | App | None = None,
        *,
        replicas: int = 1,
        leader_election: bool = False,
        seed: int = 0,
        crds: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """See the class."""
        if isinstance(kind, App):
            app, kind = kind, kind_of(kind)
            make = app
        if isinstance(make, App):
            crds = [*definitions_of(make), *crds]
            make, leader_election = maker_of(make, leader_election=leader_election), False
        if make is None:
            raise TypeError("give World(kind, make) what makes the operator, or an App")
        self.kind: Kind = kind
        self.clock: ManualClock = ManualClock(seed=seed)
        self.journal: Journal = Journal()
        self.fates: list[str] = []
        """Faults of the operator's next writes, one each: ``""`` for none, ``lost``, ``409`` or
        another status, ``crash before``, ``crash after``."""
        self.takes_fates: bool = True
        """Whether :attr:`fates` are applied; False after :meth:`end_faults`."""
        self.created_at: dict[str, float] = {}
        """When :meth:`create` made each object, by uid, on the simulation's clock."""
        self.failures: dict[str, list[str]] = {"function": [], "timer": [], "read": []}
        """Failures of the next calls of an App's functions and timers, one each: ``""`` for none,
        ``fails`` (instead of a call), ``fails late`` (after it), ``fails for good`` (with a
        ``TerminalError``); and the statuses of the operator's next reads."""
        self.elsewhere: dict[str, Any] = {}
        """For what an operator makes outside of the cluster; it survives crashes."""
        self.created: list[Object] = []
        """The objects that :meth:`create` made."""
        self.on_write: Callable[[Entry], None] = lambda _entry: None
        """Called before each write of the operator to an object of the kind."""
        self.on_answer: Callable[[Entry], None] = lambda _entry: None
        """Called after each of these writes."""
        self.checks_lease = True
        """Whether a write by a replica that has lost the Lease breaks a promise."""
        self.recorded: set[int] = set()
        """The numbers of the watchers and reconcilers whose calls are recorded, in add order; see
        :meth:`Replica.recorded`. Where it is empty, only writes are known."""
        self.finalizer_lifecycles: list[Any] = []
        """The finalizer lifecycles of the kit's own watchers and reconcilers for the kind."""
        self.most_calls = 100
        """The calls, or writes, for one object in ten minutes without a change from outside above
        which :meth:`run` reports a hot loop."""
        self.schedule: ThreadScheduler = ThreadScheduler(self.clock, seed=seed)
        self.server: MemoryServer = MemoryServer(clock=self.clock, crds=_definitions(kind, crds))
        self.client: Client = self.server.client(metrics=Metrics(), user_agent=_SOMEBODY)
        """The client of other users and controllers; faults do not apply to it."""
        self.replicas: list[Replica] = []
        self._made: dict[tuple[Kind, str, str], None] = {}
        self._make = make
        self._leader_election = leader_election
        self._names = self.names_of(replicas)
        # When each fault is over, and what ends it.
        self._faults: dict[object, tuple[float, Callable[[], None]]] = {}
        self._crashed: list[Replica] = []
        self._is_down = False
        self._counts: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._broken: BrokenPromise | None = None
        self._restarts = 0
        self._is_open = False

    @staticmethod
    def names_of(replicas: int) -> list[str]:
        """The names of so many replicas."""
        if replicas == 1:
            return ["operator"]
        return [f"operator-{number + 1}" for number in range(replicas)]

    # -- life --------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.schedule.__enter__()
        self._is_open = True
        try:
            for number in range(len(self._names)):
                self.replicas.append(self._start(number, 1))
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes as a crash would. A second call does nothing.

        Raises:
            RuntimeError: a thread does not end.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            for replica in (*self._crashed, *self.replicas):
                replica.is_alive = False
                self.schedule.thaw(replica)
                replica.stop.set()
                replica.client.close()
            self.schedule.is_interrupted = False
            self._faults.clear()
            end = self.clock.monotonic() + _END_WITHIN
            self.schedule.run_ready()
            while self.schedule.fibers and self.schedule.jump(until=end):
                self.schedule.run_ready()
            self.server.close()
            self.schedule.run_ready()
            left = sorted(fiber.name for fiber in self.schedule.fibers)
        finally:
            self.schedule.__exit__()
        if left:
            raise StuckError(f"still running {_END_WITHIN:g} s after their stop: {', '.join(left)}")

    def _start(self, number: int, process: int) -> Replica:
        replica = Replica(self, self._names[number], process)
        if process > 1:
            self.note(replica.name, "life", f"starts again as process {process}")
        with self.schedule.owned_by(replica), environment(metrics=replica.metrics):
            try:
                made = self._make(replica)
            except Exception as error:
                if process == 1:
                    raise
                # It is started again, as any process that ends by itself.
                replica.ends_with(error)
                return replica
            runnable = as_runnable(replica, made, self.kind, leader_election=self._leader_election)
            replica.thread = threading.Thread(
                target=replica.run, args=(runnable,), name=f"{replica.name}-{process}"
            )
            replica.thread.start()
        return replica

    @property
    def finalizers(self) -> set[str]:
        """The finalizers of the kit's own recorded watchers and reconcilers for the kind."""
        return {name for one in self.finalizer_lifecycles for name in one.all_names}

    # -- time --------------------------------------------------------------------------------

    def run(self, seconds: float = 0.0) -> None:
        """Let ``seconds`` pass, and run everything that is due in that time.

        Raises:
            BrokenPromise: a check failed, or a replica ends again and again.
            RuntimeError: a thread blocks in a call that is not simulated.
        """
        end = self.clock.monotonic() + seconds
        while True:
            self.schedule.run_ready()
            self.raise_broken()
            if self._start_ended():
                continue
            due = min((until for until, _ in self._faults.values()), default=end)
            if self.schedule.jump(until=min(due, end)):
                continue
            if due > end or not self._faults:
                break
            self.clock.advance(max(0.0, due - self.clock.monotonic()))
            for fault in [each for each, (until, _) in self._faults.items() if until <= due]:
                self._faults.pop(fault)[1]()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))

    def settle(self, *, horizon: float = 7200.0) -> bool:
        """Let time pass until the operator is at rest: no write and no failed call for a minute.

        Args:
            horizon: the most seconds to wait; default two hours.

        Returns:
            Whether it came to rest.
        """
        end = self.clock.monotonic() + horizon
        quiet = 0
        while quiet < 3 and self.clock.monotonic() < end:
            so_far = len(self.journal.entries)
            self.run(20.0)
            news = [
                e
                for e in self.journal.entries[so_far:]
                # A timer is called, or fails, for ever; what it writes is news.
                if (e.error if e.what in ("call", "function") else e.outcome != NO_CHANGE)
                and e.what != "timer"
            ]
            quiet = 0 if news or self._has_calls_to_come(end) or self._faults else quiet + 1
        return quiet >= 3

    def _has_calls_to_come(self, end: float) -> bool:
        """Whether a call runs, will be repeated, or polls what was changed since it began."""
        calls = self.journal.of("call")
        last = {(e.who, e.process, e.watcher, e.kind, e.key): e for e in calls}
        alive = {(replica.name, replica.process) for replica in self.replicas}
        ours = self.kind.qualified_name
        changed = max((e.began for e in self.journal.of("step") if e.kind != ours), default=0)
        return any(
            e.error or not e.ended or (e.began < changed and e.at + e.again < end)
            for e in last.values()
            if (e.who, e.process) in alive
        )

    def _end_after(self, seconds: float, fault: object, end: Callable[[], None]) -> None:
        """Call ``end`` after ``seconds``; later if the same fault goes on for longer already."""
        until = self.clock.monotonic() + seconds
        present, _ = self._faults.get(fault, (until, end))
        self._faults[fault] = max(until, present), end

    # -- other clients -----------------------------------------------------------------------

    def create(self, name: str, spec: Any = None, **metadata: Any) -> Object:
        """Create an object of the kind, as another client."""
        obj = self._new(name, metadata)
        if spec is not None:
            self._set_spec(obj, spec)
        text = "" if spec is None else f" {json.dumps(spec, ensure_ascii=False, sort_keys=True)}"
        self.outside(f"creates {name}{text}", name, asks=True)
        made = self.client.create(obj)
        self.created.append(made)
        self.created_at[made.uid] = self.clock.monotonic()
        return made

    def replace(self, name: str, spec: Any) -> Object:
        """Replace the spec of an object of the kind, as another client."""
        text = json.dumps(spec, ensure_ascii=False, sort_keys=True)
        entry = self.outside(f"changes {name} to {text}", name)
        obj = self.client.get(self.kind, name, namespace=self.namespace).mutable_copy()
        self._set_spec(obj, spec)
        changed = self.client.update(obj)
        entry.asks = changed.resource_version != obj.resource_version
        entry.outcome = "" if entry.asks else NO_CHANGE
        return changed

    def _set_spec(self, obj: MutableObject, wanted: Any) -> None:
        part = part_of(self.kind)
        if part:
            obj[part] = wanted
            return
        for field in set(obj.to_dict()) - {"apiVersion", "kind", "metadata", "status"}:
            del obj[field]
        for field, value in wanted.items():
            obj[field] = value

    def _new(self, name: str, metadata: dict[str, Any]) -> MutableObject:
        namespace = "default" if self.kind.is_namespaced else ""
        obj = MutableObject.new(self.kind, name, namespace=namespace)
        obj.metadata.update(metadata)
        return obj

    def patch(self, name: str, patch: Mapping[str, Any], *, subresource: str = "") -> Object:
        """Patch an object of the kind with a merge patch, as another client."""
        part = f"{subresource} of " if subresource else ""
        text = json.dumps(patch, ensure_ascii=False, sort_keys=True)
        self.outside(f"changes {part}{name}: {text}", name)
        client: Any = self.client.subresource(subresource) if subresource else self.client
        changed: Object = client.patch(
            self.kind, name, MergePatch(dict(patch)), namespace=self.namespace
        )
        return changed

    def delete(self, name: str) -> None:
        """Delete an object of the kind, as another client."""
        self.outside(f"deletes {name}", name, asks=True)
        self.client.delete(self.kind, name, namespace=self.namespace)

    def note_made(self, route: Route, name: str, body: bytes) -> None:
        """Note what the operator is about to make, unless it is of the world's kind."""
        try:
            of = json.loads(body)["kind"]
        except (ValueError, KeyError, TypeError):
            return
        scope = Scope.NAMESPACED if route.namespace else Scope.CLUSTER
        kind = Kind(
            group=route.group, version=route.version, kind=of, plural=route.plural, scope=scope
        )
        if kind.qualified_name != self.kind.qualified_name:
            self._made.setdefault((kind, route.namespace, name))

    def made(self) -> list[Object]:
        """The objects of other kinds that the operator made and that exist, in their order."""
        found = []
        for kind, namespace, name in self._made:
            with contextlib.suppress(ApiError):
                found.append(self.client.get(kind, name, namespace=namespace))
        return found

    @property
    def namespace(self) -> str:
        """The namespace of the objects; empty for a cluster-scoped kind."""
        return "default" if self.kind.is_namespaced else ""

    def find(self, name: str) -> Object | None:
        """The object of that name, None where there is none."""
        try:
            return self.client.get(self.kind, name, namespace=self.namespace)
        except NotFound:
            return None

    def objects(self, kind: Kind | None = None) -> list[Object]:
        """The objects of a kind; default: of the world's kind."""
        return list(self.client.list(kind or self.kind))

    # -- faults ------------------------------------------------------------------------------

    def crash(self, number: int = 0) -> None:
        """Crash a replica; it starts again as another process."""
        self._reset_counts()
        self.replicas[number].crash()

    def down(self, seconds: float) -> None:
        """Crash all replicas; they start again after ``seconds``."""
        self._reset_counts()
        self.note("the operator", "fault", f"is down for {seconds:g} s")
        self._is_down = True
        for replica in self.replicas:
            self.bury(replica)
        self._end_after(seconds, "down", self._end_down)

    def _end_down(self) -> None:
        self._is_down = False

    def bury(self, replica: Replica) -> None:
        """End a process at once: none of its threads runs again, and its watches are cut."""
        if not replica.is_alive:
            return
        replica.is_alive = False
        self._crashed.append(replica)
        self._faults.pop(replica, None)
        self.schedule.freeze(replica)
        for watch in replica.watches:
            watch.abort()

    def restart(self, number: int = 0) -> None:
        """Stop a replica, wait until it has ended, and start it again.

        Raises:
            BrokenPromise: it does not end in 15 minutes.
        """
        replica = self.replicas[number]
        if self._is_down:
            return
        self._reset_counts()
        self.note(replica.name, "life", "is told to stop")
        replica.stop.set()
        end = self.clock.monotonic() + _END_WITHIN
        while replica.is_alive and replica.thread is not None and replica.thread.is_alive():
            if self.clock.monotonic() > end:
                raise BrokenPromise(f"{replica.name} has not ended {_END_WITHIN:g} s after a stop")
            self.run(0.5)
        self._start_ended()

    def freeze(self, seconds: float, number: int = 0) -> None:
        """Suspend all threads of a replica for ``seconds``, as a paused machine does."""
        replica = self.replicas[number]
        if not replica.is_alive:
            return
        self._reset_counts()
        self.note(replica.name, "fault", f"stands still for {seconds:g} s")
        self.schedule.freeze(replica)
        self._end_after(seconds, replica, lambda: self.schedule.thaw(replica))

    def lag(self, seconds: float) -> None:
        """Withhold watch events for ``seconds``, so that caches lag."""
        self._reset_counts()
        self.note("the server", "fault", f"tells watches nothing for {seconds:g} s")
        self.server.api.stall_watches(True)
        self._end_after(seconds, "lag", lambda: self.server.api.stall_watches(False))

    def cut(self) -> None:
        """Cut all connections, those of watches included."""
        self._reset_counts()
        self.note("the network", "fault", "cuts all watches")
        self.server.cut_connections()

    def compact(self) -> None:
        """Compact the history: watches at older versions get 410 and list again."""
        self._reset_counts()
        self.note("the server", "fault", "forgets its history")
        self.server.api.compact()

    def end_faults(self) -> None:
        """End all faults: lags and freezes now, :attr:`fates` and :attr:`failures` for good."""
        self.takes_fates = False
        self.fates.clear()
        for failures in self.failures.values():
            failures.clear()
        for _, end in self._faults.values():
            end()
        self._faults.clear()

    # -- the journal -------------------------------------------------------------------------

    def note(self, who: str, what: str, text: str, key: str = "") -> Entry:
        """Add an entry to the journal."""
        return self.journal.add(Entry(self.clock.monotonic(), who, what, text, key=key))

    def outside(
        self, text: str, name: str, *, asks: bool = False, kind: Kind | None = None
    ) -> Entry:
        """Add a step of another client, and start counting for hot loops again."""
        self._reset_counts()
        entry = self.note(_SOMEBODY, "step", text, self.key(name))
        entry.kind, entry.asks = (kind or self.kind).qualified_name, asks
        return entry

    def key(self, name: str) -> str:
        """The key of an object of the kind."""
        return f"{self.namespace}/{name}" if self.namespace else name

    def story(self, name: str = "") -> str:
        """The story so far, in a few lines: of one object, or of all."""
        return story_of(self.journal.entries, self.key(name) if name else "")

    # -- checks while it runs ----------------------------------------------------------------

    def after_call(self, entry: Entry) -> None:
        """Count a call that has ended."""
        self._count("call", entry)

    def before_write(self, replica: Replica, entry: Entry) -> None:
        """Check a write that a replica is about to make."""
        self._count("write", entry)
        if replica.identity and self.checks_lease:
            leases = [lease["spec"].get("holderIdentity") for lease in self.server.objects(LEASE)]
            if replica.identity not in leases:
                holder = leases[0] or "nobody" if leases else "nobody"
                self.break_promise(
                    f"no writes after the lease is lost: {entry.line}, but {holder} has it",
                    entry.key,
                )
        if entry.kind == self.kind.qualified_name:
            self.on_write(entry)

    def after_write(self, entry: Entry) -> None:
        """Pass a write that was answered to :attr:`on_answer`."""
        if entry.kind == self.kind.qualified_name:
            self.on_answer(entry)

    def _count(self, what: str, entry: Entry) -> None:
        counted, now = (what, entry.kind, entry.key), self.clock.monotonic()
        since, count = self._counts.get(counted, (now, 0))
        since, count = (since, count + 1) if now - since <= _HOT_LOOP_WINDOW else (now, 1)
        self._counts[counted] = (since, count)
        if count > self.most_calls:
            act = "writes" if what == "write" else "is called for"
            name = entry.key.rpartition("/")[2]
            self.break_promise(
                f"no hot loop: {entry.who} {act} {name} {count} times although nothing "
                "happened from outside",
                entry.key,
            )

    def _reset_counts(self) -> None:
        self._counts.clear()

    def break_promise(self, text: str, key: str = "") -> None:
        """Record a broken promise; :meth:`run` raises the first one."""
        if self._broken is None and self._is_open:
            self._broken = BrokenPromise(f"{text}\n{story_of(self.journal.entries, key)}")
            self.schedule.is_interrupted = True

    def raise_broken(self) -> None:
        """Raise the broken promise that was recorded, if any."""
        if self._broken is not None:
            raise self._broken

    def _start_ended(self) -> bool:
        """Start the replicas again whose process has ended; whether there was one."""
        started = False
        for number, replica in enumerate(() if self._is_down else self.replicas):
            thread = replica.thread
            if replica.is_alive and thread is not None and thread.is_alive():
                continue
            if replica.is_alive and not replica.stop.is_set():
                self._restarts += 1
            if self._restarts > _MOST_PROCESSES:
                raise BrokenPromise(
                    f"{replica.name} ends again and again: {replica.error!r}\n{self.story()}"
                ) from replica.error
            replica.is_alive = False
            replica.client.close()
            self.replicas[number] = self._start(number, replica.process + 1)
            started = True
        return started


@final
class Replica:
    """One process of an operator in a :class:`World`; the argument of ``make``."""

    def __init__(self, world: World, name: str, process: int) -> None:
        """Made by the :class:`World`."""
        self.world = world
        self.name = name
        """``operator``; where there are several, ``operator-1``, ``operator-2``, …"""
        self.process = process
        """The number of the process: 1, then 2 after the first crash or restart, …"""
        self.clock: ManualClock = world.clock
        self.metrics: Metrics = Metrics()
        """The registry of this process."""
        self.config: ClientConfig = attrs.evolve(
            world.server.config, connector=self._connect, user_agent=name
        )
        """For a :class:`~appsdk_operator.manager.Manager`."""
        self.client: Client = Client(self.config, clock=self.clock, metrics=self.metrics)
        """For operators without a manager."""
        self.stop: StopSignal = StopSignal(clock=self.clock)
        """Stops the process."""
        self.is_alive: bool = True
        """False after a crash: its requests fail from then on."""
        self.identity = ""
        """The holder identity in the last Lease that it wrote."""
        self.error: BaseException | None = None
        """The error that ended it, None where there was none."""
        self.thread: threading.Thread | None = None
        self.watches: list[MemoryConnection] = []
        """The connections of its watches."""
        self._recorded = 0
        self.recorder: CallRecorder = CallRecorder(
            who=name,
            process=process,
            clock=world.clock,
            journal=world.journal,
            kind=world.kind,
            is_alive=lambda: self.is_alive,
            on_end=world.after_call,
        )
        """Records the calls of this process."""

    def __repr__(self) -> str:
        return f"<Replica {self.name}, process {self.process}>"

    def recorded(self, target: Any, *, kind: Kind | None = None) -> Any:
        """A wrapper of a watcher or reconciler that records its calls in the journal.

        The world records the watchers and reconcilers that ``make`` returns. An operator with a
        ``run`` of its own gives these wrappers to its controllers; without them the checks see its
        writes only. Watchers and reconcilers of other kinds can be recorded as well: their calls
        are checked for order and overlap, but not for convergence.

        Args:
            target: a watcher, or a reconciler of a Controller or an InformerController.
            kind: of the objects that it is called for; default: that of the objects it gets, and
                the world's for a reconciler, whose requests are names.

        Raises:
            TypeError: it is neither a watcher nor a reconciler, or ``kind`` is no kind.
        """
        if not (kind is None or isinstance(kind, Kind)):
            raise TypeError(
                f"kind={kind!r} is no Kind: give the kind that {target!r} is called for"
            )
        number = self._recorded
        wrapper = recorded(self.recorder, target, number, kind or self.world.kind)
        self._recorded += 1
        self.world.recorded.add(number)
        if (
            isinstance(target, (OpinionatedWatcher, OpinionatedReconciler))
            and target.kind.qualified_name == self.world.kind.qualified_name
        ):
            self.world.finalizer_lifecycles.append(target.finalizer_lifecycle)
        return wrapper

    def crash(self) -> None:
        """Crash: from now on none of its threads runs, not even a ``finally``."""
        if self.is_alive:
            self.world.note(self.name, "life", "crashes")
            self.world.bury(self)

    def ends_with(self, error: BaseException | None) -> None:
        """Note that the process has ended without being told to."""
        self.error = error
        if self.is_alive and not self.stop.is_set():
            why = f" with {error!r}" if error else ""
            self.world.note(self.name, "life", f"ends by itself{why}")

    def run(self, runnable: Any) -> None:
        """Run the operator until it ends; the body of its thread."""
        try:
            settle(runnable.run(self.stop))
        except BaseException as error:
            self.ends_with(error)
        else:
            self.ends_with(None)

    def _connect(self) -> MemoryConnection:
        # A thread switch here comes before the manager's fence checks the lease. A switch after
        # that check would be a defect of the client, not of the fence.
        self.world.schedule.maybe_switch()
        observer = _RequestObserver(self)
        observer.connection = MemoryConnection(self.world.server, observer=observer)
        return observer.connection


@final
class _RequestObserver:
    """Records the write that a connection makes, and applies the fault of a write or read."""

    connection: MemoryConnection

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._entry: Entry | None = None

    def before(self, method: str, target: str, body: bytes) -> None:
        replica, world = self._replica, self._replica.world
        if not replica.is_alive:
            raise ConnectionLost("the process is dead")
        route = parse_path(target)
        if route is None:
            return
        if method not in _VERBS:
            self._before_read(target, route)
            return
        name = route.name or _name_in(body)
        if route.plural == "leases":
            replica.identity = "" if method == "DELETE" else _holder_in(body) or replica.identity
        if route.plural in _UNRECORDED or "dryRun=" in target:
            return
        fate = world.fates.pop(0) if world.fates and world.takes_fates else ""
        if fate == "crash before":
            self._die()
        if fate == "lost":
            world.server.api.inject([FaultRule.lose(times=1, user_agent=replica.name)])
        self._answer_with(fate)
        self._fate = fate
        call = CallRecorder.current()
        self._entry = world.journal.add(
            Entry(
                world.clock.monotonic(),
                replica.name,
                "write",
                f"{_VERBS[method]} {_described(route, name)}",
                key=f"{route.namespace}/{name}" if route.namespace else name,
                kind=f"{route.plural}.{route.group}" if route.group else route.plural,
                process=replica.process,
                within=call,
            )
        )
        if call is not None:
            call.writes.append(self._entry)
        if method in ("POST", "PATCH") and not route.subresource:
            world.note_made(route, name, body)
        world.before_write(replica, self._entry)
        self._revision = world.server.api.resource_version

    def after(self, status: int) -> None:
        entry, world = self._entry, self._replica.world
        if entry is None:
            return
        entry.status, entry.ended = status, world.journal.step()
        if not status:
            entry.outcome = "the answer is lost"
        elif status >= 400:
            entry.outcome = str(status)
        elif world.server.api.resource_version == self._revision:
            entry.outcome = NO_CHANGE
        world.after_write(entry)
        if self._fate == "crash after" and status and status < 400:
            self._die()

    def _before_read(self, target: str, route: Route) -> None:
        if "watch=" in target:
            self._replica.watches.append(self.connection)
        elif route.plural not in _UNRECORDED:
            reads = self._replica.world.failures["read"]
            self._answer_with(reads.pop(0) if reads else "")

    def _answer_with(self, fate: str) -> None:
        if fate.isdigit():
            replica = self._replica
            rule = FaultRule.answer(int(fate), times=1, user_agent=replica.name)
            replica.world.server.api.inject([rule])

    def _die(self) -> None:
        self._replica.crash()
        self._replica.world.schedule.yield_now()
        raise ConnectionLost("the process is dead")


def _described(route: Route, name: str) -> str:
    part = f"{route.subresource} of " if route.subresource else ""
    return f"{part}{route.plural} {name}"


def _name_in(body: bytes) -> str:
    try:
        metadata = json.loads(body or b"{}").get("metadata") or {}
    except (ValueError, AttributeError):
        return ""
    return str(metadata.get("name") or metadata.get("generateName") or "")


def _holder_in(body: bytes) -> str:
    """The holder that a write to a Lease names; a lock without a duration elects no leader."""
    try:
        spec = json.loads(body)["spec"]
        return str(spec["holderIdentity"] or "") if spec.get("leaseDurationSeconds") else ""
    except (ValueError, KeyError, TypeError, AttributeError):
        return ""


def _definitions(kind: Kind, crds: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    given = list(crds)
    names = [crd["metadata"]["name"] for crd in given]
    if (
        "." in kind.group
        and all(kind.qualified_name != each.kind.qualified_name for each in kinds.builtin_kinds())
        and kind.qualified_name not in names
    ):
        made = custom_resource_definition(kind)
        # API servers want it for groups of Kubernetes; for a test nobody has to have approved it.
        made.annotations.setdefault("api-approved.kubernetes.io", "unapproved, in a test")
        given.append(made.to_dict())
    return given
