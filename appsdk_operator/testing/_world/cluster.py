"""A simulated cluster: an API server in memory, its other clients, and an operator's processes.

What a :class:`World` and a :class:`Simulation` have in common; they differ in who runs it.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from appsdk_operator.apiserver import FaultRule, Route, parse_path
from appsdk_operator.client import (
    ApiError,
    Client,
    ClientConfig,
    ClientLike,
    ConnectionLost,
    MergePatch,
)
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    Scope,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing._memory.server import MemoryServer
from appsdk_operator.testing._world.journal import Entry, Journal, timeline_of
from appsdk_operator.testing._world.recording import CallRecorder, recorded
from appsdk_operator.testing.strategies import part_of
from appsdk_operator.watchers import OpinionatedReconciler, OpinionatedWatcher

if TYPE_CHECKING:
    from appsdk_operator.testing._memory.connection import MemoryConnection

NO_CHANGE: Final = "no change"
"""The outcome of a write that changed nothing."""
_SOMEBODY: Final = "somebody"
_VERBS: Final = {"POST": "creates", "PUT": "updates", "PATCH": "patches", "DELETE": "deletes"}
_UNRECORDED: Final = frozenset({"leases", "events"})
"""Kinds whose writes are not recorded: they are not result of a reconcile."""


class SimulatedCluster:
    """An API server in memory, other clients that write objects of one kind, and a journal."""

    def __init__(
        self,
        kind: Kind,
        *,
        seed: int,
        crds: Iterable[Mapping[str, Any]] = (),
        ends_idle_watches: bool = False,
    ) -> None:
        """A server without objects, whose clock stands still."""
        self.kind: Kind = kind
        self.clock: ManualClock = ManualClock(seed=seed)
        """The clock on which everything waits."""
        self.journal: Journal = Journal()
        """What happened so far, in order."""
        self.write_faults: list[str | Callable[[], object]] = []
        """Faults of the operator's next writes, one each: ``""`` for none, ``lost``, ``409`` or
        another status, ``crash before``, ``crash after``; or what another client does right before
        it."""
        self.takes_write_faults: bool = True
        """Whether :attr:`write_faults` are applied."""
        self.is_traced: bool = False
        """Whether the lines of the operator that calls run are noted, for a report."""
        self.failures: dict[str, list[str]] = {"function": [], "timer": [], "read": []}
        """Failures of the next calls of an App's functions and timers, one each: ``""`` for none,
        ``fails`` (instead of a call), ``fails late`` (after it), ``fails for good`` (with a
        ``TerminalError``); and the statuses of the operator's next reads."""
        self.concerns: dict[int, Callable[[Object], bool]] = {}
        """By number of the watcher or reconciler, whether changes of an object pass its filters."""
        self.metadata: defaultdict[str, dict[str, dict[str, str]]] = defaultdict(dict)
        """By name, the labels and annotations that a history gives to objects."""
        self.created: list[Object] = []
        """The objects that :meth:`create` made."""
        self.created_at: dict[str, float] = {}
        """When :meth:`create` made each object, by uid, on the simulation's clock."""
        self.on_write: Callable[[Entry], None] = lambda _entry: None
        """Called before each write of the operator to an object of the kind; may raise instead."""
        self.on_answer: Callable[[Entry], None] = lambda _entry: None
        """Called after each of these writes."""
        self.recorded: set[int] = set()
        """The numbers of the watchers and reconcilers whose calls are recorded, in add order; see
        :meth:`Process.recorded`. Where it is empty, only writes are known."""
        self.finalizer_lifecycles: list[Any] = []
        """The finalizer lifecycles of the kit's own watchers and reconcilers for the kind."""
        self.server: MemoryServer = MemoryServer(
            clock=self.clock, crds=_definitions(kind, crds), ends_idle_watches=ends_idle_watches
        )
        """The API server."""
        self.client: Client = self.server.client(metrics=Metrics(), user_agent=_SOMEBODY)
        """The client of other users and controllers; faults do not apply to it."""
        self._made: dict[tuple[Kind, str, str], None] = {}

    @property
    def finalizers(self) -> set[str]:
        """The finalizers of the kit's own recorded watchers and reconcilers for the kind."""
        return {name for one in self.finalizer_lifecycles for name in one.all_names}

    @property
    def working(self) -> Sequence[Process]:
        """The processes that should have handled everything at rest."""
        raise NotImplementedError

    # -- for processes -----------------------------------------------------------------------

    def before_call(self, process: Process, entry: Entry) -> None:
        """Called at the start of each call of a watcher or reconciler."""

    def after_call(self, entry: Entry) -> None:
        """Called with each call that has ended."""

    def before_write(self, process: Process, entry: Entry) -> None:
        """Called before each write of a process; passes those to the kind to :attr:`on_write`."""
        del process
        if entry.kind == self.kind.qualified_name:
            self.on_write(entry)

    def after_write(self, entry: Entry) -> None:
        """Pass a write that was answered to :attr:`on_answer`."""
        if entry.kind == self.kind.qualified_name:
            self.on_answer(entry)

    def before_connection(self) -> None:
        """Called before each connection of a process."""

    def pass_turn(self) -> None:
        """Let other threads run; for good where the process of this one has crashed."""

    def bury(self, process: Process) -> None:
        """End a process at once."""
        process.is_alive = False

    # -- other clients -----------------------------------------------------------------------

    def create(self, name: str, spec: Any = None, **metadata: Any) -> Object:
        """Create an object of the kind, as another client."""
        obj = self._new(name, metadata)
        if spec is not None:
            self._set_spec(obj, spec)
        text = "" if spec is None else f" {json.dumps(spec, ensure_ascii=False, sort_keys=True)}"
        if metadata:
            text += f" with {json.dumps(metadata, ensure_ascii=False, sort_keys=True)}"
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
        """Note what the operator is about to make, unless it is of the kind."""
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
        wanted = (self.namespace, name)
        return next((obj for obj in self.objects() if (obj.namespace, obj.name) == wanted), None)

    def get(self, name: str) -> Object:
        """The object of that name.

        Raises:
            AssertionError: there is none.
        """
        found = self.find(name)
        if found is None:
            there = ", ".join(sorted(obj.name for obj in self.objects())) or "none"
            raise AssertionError(f"there is no {self.kind.kind} {name}; there are: {there}")
        return found

    def objects(self, kind: Kind | None = None) -> list[Object]:
        """The objects of a kind; default: those that this is about."""
        kind = kind or self.kind
        with self.server.changed:
            found = self.server.api.json_of(kind)
        return [Object.from_json(kind, raw) for raw in found]

    def compact(self) -> None:
        """Compact the history: watches at older versions get 410 and list again."""
        self.note("the server", "fault", "forgets its history")
        self.server.api.compact()

    # -- the journal -------------------------------------------------------------------------

    def note(self, who: str, what: str, text: str, key: str = "") -> Entry:
        """Add an entry to the journal."""
        return self.journal.add(Entry(self.clock.monotonic(), who, what, text, key=key))

    def outside(
        self, text: str, name: str, *, asks: bool = False, kind: Kind | None = None
    ) -> Entry:
        """Add a step of another client to the journal."""
        entry = self.note(_SOMEBODY, "step", text, self.key(name))
        entry.kind, entry.asks = (kind or self.kind).qualified_name, asks
        return entry

    def key(self, name: str) -> str:
        """The key of an object of the kind."""
        return f"{self.namespace}/{name}" if self.namespace else name

    def timeline(self, name: str = "") -> str:
        """The timeline so far, in a few lines: of one object, or of all."""
        return timeline_of(self.journal.entries, self.key(name) if name else "")


class Process:
    """One process of an operator on a simulated cluster; the argument of ``make``."""

    def __init__(self, cluster: SimulatedCluster, name: str, process: int, **client: Any) -> None:
        """A process that lives; ``client`` has options of its client."""
        self.cluster: SimulatedCluster = cluster
        """The :class:`Simulation` or :class:`World`."""
        self.name = name
        """``operator``; where a world has several replicas, ``operator-1``, ``operator-2``, …"""
        self.process = process
        """The number of the process: 1, then 2 after the first crash or restart, …"""
        self.clock: ManualClock = cluster.clock
        self.metrics: Metrics = Metrics()
        """The registry of this process."""
        self.config: ClientConfig = attrs.evolve(
            cluster.server.config, connector=self._connect, user_agent=name, **client
        )
        """For a :class:`~appsdk_operator.manager.Manager`."""
        own = Client(self.config, clock=self.clock, metrics=self.metrics)
        self.client: ClientLike = own
        """For operators without a manager; its requests fail once the process is dead, and with
        ``leader_election=True`` its writes once the lead is lost."""
        self.close: Callable[[], None] = own.close
        """Ends what waits for an answer."""
        self.stop: StopSignal = StopSignal(clock=self.clock)
        """Stops the process."""
        self.is_alive: bool = True
        """False after a crash: its requests fail from then on."""
        self.identity = ""
        """The holder identity in the last Lease that it wrote."""
        self.watches: list[MemoryConnection] = []
        """The connections of its watches."""
        self._recorded = 0
        self.has_several_targets = False
        """Whether ``make`` returned several watchers or reconcilers: timelines number them."""
        self.recorder: CallRecorder = CallRecorder(
            who=name,
            process=process,
            clock=cluster.clock,
            journal=cluster.journal,
            kind=cluster.kind,
            is_alive=lambda: self.is_alive,
            has_several=lambda: self.has_several_targets,
            on_begin=lambda entry: cluster.before_call(self, entry),
            on_end=cluster.after_call,
            is_traced=lambda: cluster.is_traced,
        )
        """Records the calls of this process."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}, process {self.process}>"

    def recorded(
        self,
        target: Any,
        *,
        kind: Kind | None = None,
        concerns: Callable[[Object], bool] = lambda _: True,
    ) -> Any:
        """Wrap a watcher or reconciler so that the journal records its calls.

        The world records the watchers and reconcilers that ``make`` returns. If your operator has
        its own ``run``, give these wrappers to its controllers; without them the checks only see
        its writes. You can also record watchers and reconcilers of other kinds: their calls are
        checked for order and overlap, but not for convergence.

        Args:
            target: a watcher, or a reconciler of a Controller or an InformerController.
            kind: the kind of its objects; default: read from the objects, or for a reconciler,
                whose requests are names, the kind of the cluster.
            concerns: whether changes of an object pass the filters of a reconciler whose requests
                are names; default: all do. Where they do not, no call is expected.

        Raises:
            TypeError: ``target`` is neither a watcher nor a reconciler, or ``kind`` is not a kind.
        """
        if not (kind is None or isinstance(kind, Kind)):
            raise TypeError(
                f"kind={kind!r} is not a Kind: give the kind that {target!r} is called for"
            )
        number, cluster = self._recorded, self.cluster
        wrapper = recorded(self.recorder, target, number, kind or cluster.kind)
        self._recorded += 1
        cluster.recorded.add(number)
        cluster.concerns[number] = concerns
        if (
            isinstance(target, (OpinionatedWatcher, OpinionatedReconciler))
            and target.kind.qualified_name == cluster.kind.qualified_name
        ):
            cluster.finalizer_lifecycles.append(target.finalizer_lifecycle)
        return wrapper

    def crash(self) -> None:
        """Crash: from now on its requests fail, and none of its threads runs."""
        if self.is_alive:
            self.cluster.note(self.name, "life", "crashes")
            self.cluster.bury(self)

    def check_alive(self) -> None:
        """Raise when the process is dead."""
        if not self.is_alive:
            raise ConnectionLost("the process is dead")

    def _connect(self) -> MemoryConnection:
        from appsdk_operator.testing._memory.connection import MemoryConnection

        # A thread switch here comes before the manager's fence checks the lease. A switch after
        # that check would be a defect of the client, not of the fence.
        self.cluster.before_connection()
        observer = _RequestObserver(self)
        observer.connection = MemoryConnection(self.cluster.server, observer=observer)
        return observer.connection


@final
class _RequestObserver:
    """Records the write that a connection makes, and applies the fault of a write or read."""

    connection: MemoryConnection

    def __init__(self, process: Process) -> None:
        self._process = process
        self._entry: Entry | None = None
        self._holder: str | None = None

    def before(self, method: str, target: str, body: bytes) -> None:
        process, cluster = self._process, self._process.cluster
        process.check_alive()
        route = parse_path(target)
        if route is None:
            return
        if method not in _VERBS:
            self._before_read(target, route)
            return
        name = route.name or _name_in(body)
        if route.plural == "leases":
            self._holder = "" if method == "DELETE" else _holder_in(body) or process.identity
        if route.plural in _UNRECORDED or "dryRun=" in target:
            return
        write_fault = (
            cluster.write_faults.pop(0)
            if cluster.write_faults and cluster.takes_write_faults
            else ""
        )
        if callable(write_fault):
            write_fault()
            write_fault = ""
        if write_fault == "crash before":
            self._die()
        if write_fault == "lost":
            cluster.server.api.inject([FaultRule.lose(times=1, user_agent=process.name)])
        self._answer_with(write_fault)
        self._write_fault = write_fault
        call = CallRecorder.current()
        self._entry = cluster.journal.add(
            Entry(
                cluster.clock.monotonic(),
                process.name,
                "write",
                f"{_VERBS[method]} {_described(route, name)}",
                key=f"{route.namespace}/{name}" if route.namespace else name,
                kind=f"{route.plural}.{route.group}" if route.group else route.plural,
                process=process.process,
                within=call,
            )
        )
        if call is not None:
            call.writes.append(self._entry)
        if method in ("POST", "PATCH") and not route.subresource:
            cluster.note_made(route, name, body)
        cluster.before_write(process, self._entry)
        process.check_alive()
        self._revision = cluster.server.api.resource_version

    def after(self, status: int) -> None:
        entry, cluster = self._entry, self._process.cluster
        if self._holder is not None and 0 < status < 400:
            self._process.identity = self._holder
        if entry is None:
            return
        entry.status, entry.ended = status, cluster.journal.step()
        if not status:
            entry.outcome = "the answer is lost"
        elif status >= 400:
            entry.outcome = str(status)
        elif cluster.server.api.resource_version == self._revision:
            entry.outcome = NO_CHANGE
        cluster.after_write(entry)
        self._process.check_alive()
        if self._write_fault == "crash after" and status and status < 400:
            self._die()

    def _before_read(self, target: str, route: Route) -> None:
        if "watch=" in target:
            self._process.watches.append(self.connection)
        elif route.plural not in _UNRECORDED:
            reads = self._process.cluster.failures["read"]
            self._answer_with(reads.pop(0) if reads else "")

    def _answer_with(self, write_fault: str) -> None:
        if write_fault.isdigit():
            process = self._process
            rule = FaultRule.answer(int(write_fault), times=1, user_agent=process.name)
            process.cluster.server.api.inject([rule])

    def _die(self) -> None:
        self._process.crash()
        self._process.cluster.pass_turn()
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
        and kind.qualified_name not in _builtin_names()
        and kind.qualified_name not in names
    ):
        made = custom_resource_definition(kind)
        # API servers want it for groups of Kubernetes; for a test nobody has to have approved it.
        made.annotations.setdefault("api-approved.kubernetes.io", "unapproved, in a test")
        given.append(made.to_dict())
    return given


@functools.cache
def _builtin_names() -> frozenset[str]:
    return frozenset(each.kind.qualified_name for each in kinds.builtin_kinds())
