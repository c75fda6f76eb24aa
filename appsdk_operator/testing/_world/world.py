"""Whole operators with all their threads, on a clock that jumps: hours in milliseconds."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, Self, final

from appsdk_operator.client import Client, MergePatch, NotFound
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    custom_resource_definition,
    kinds,
)
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.testing._memory.server import MemoryServer
from appsdk_operator.testing._simulation.story import BrokenPromise, Entry, Journal, is_told, tell
from appsdk_operator.testing._world.one_at_a_time import Schedule, StuckError
from appsdk_operator.testing._world.recorded import as_runnable
from appsdk_operator.testing._world.replica import NO_CHANGE, Replica
from appsdk_operator.testing.strategies import part_of

__all__ = ["Replica", "World"]

__tracebackhide__ = is_told

SOMEBODY: Final = "somebody"
_WINDOW: Final = 600.0
LEASE: Final = kinds.coordination.v1.Lease
_MOST_PROCESSES: Final = 50
_END_WITHIN: Final = 900.0


@final
class World:
    """An API server, others who write to it, and an operator: one thing happens at a time.

    The operator runs as it is, with its threads, its caches, its leader election; but of all
    threads one runs at a time, until it waits, and where all wait for a time the clock is moved to
    the first of them. So hours pass in milliseconds, and one seed gives one run, always.

    Use it in a ``with`` block; its thread is the one that drives. Whatever blocks otherwise than
    on the kit's clock, on ``threading``'s conditions, events and joins, or on ``queue.Queue`` is
    not simulated: no sockets and no ``time.sleep`` in what is run.

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
        kind: what the operator is about; its CRD is installed unless it is a built-in kind.
        make: makes the operator, anew after each crash and restart: watchers, or a reconciler,
            or several of both, called in that order for each event; or anything with
            ``run(stop)`` that was given ``replica.clock`` and ``replica.config`` or
            ``replica.client``.
        replicas: how many of it there are; default 1.
        leader_election: whether the watchers or reconcilers that ``make`` returns run on the one
            of them that leads; default: all of them do. A manager that ``make`` returns has its
            own ``leader_election=``.
        seed: decides on jitter, uids, and who is next where several could go on; default 0: who
            could first.
        crds: further CustomResourceDefinitions, or the one of ``kind``.
    """

    def __init__(
        self,
        kind: Kind,
        make: Callable[[Replica], Any],
        *,
        replicas: int = 1,
        leader_election: bool = False,
        seed: int = 0,
        crds: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        """See the class."""
        self.kind = kind
        self.clock: ManualClock = ManualClock(seed=seed)
        self.journal: Journal = Journal()
        self.fates: list[str] = []
        """What befalls the next writes of the operator, in turn: ``""`` nothing, ``lost``, ``409``
        or another status, ``crash before``, ``crash after``."""
        self.takes_fates: bool = True
        """Whether :attr:`fates` strike; False while an operator comes to rest."""
        self.elsewhere: dict[str, Any] = {}
        """For what an operator makes outside of the cluster, which no crash takes away."""
        self.created: list[Object] = []
        """What :meth:`create` made."""
        self.on_write: Callable[[Entry], None] = lambda _entry: None
        """Called before each write of the operator to an object of the kind."""
        self.on_answer: Callable[[Entry], None] = lambda _entry: None
        """Called after each of them."""
        self.checks_lease = True
        """Whether a write of a replica that another one has taken the Lease from is an error."""
        self.recorded: set[int] = set()
        """The places of the watchers and reconcilers whose calls are noted, see
        :meth:`Replica.recorded`; if there are none, only writes are known."""
        self.custodies: list[Any] = []
        """What writes the finalizers of the kit's own watchers and reconcilers for the kind."""
        self.most_calls = 100
        """Calls, or writes, for one object in ten minutes without anything from outside that are
        still no hot loop."""
        self.schedule: Schedule = Schedule(self.clock, seed=seed)
        self.server: MemoryServer = MemoryServer(clock=self.clock, crds=_definitions(kind, crds))
        self.client: Client = self.server.client(metrics=Metrics(), user_agent=SOMEBODY)
        """The client of somebody else; no fault befalls it."""
        self.replicas: list[Replica] = []
        self._make = make
        self._leader_election = leader_election
        self._names = [
            "operator" if replicas == 1 else f"operator-{number + 1}" for number in range(replicas)
        ]
        self._timers: list[tuple[float, Callable[[], None]]] = []
        self._busy: dict[tuple[str, str, str], tuple[float, int]] = {}
        self._broken: BrokenPromise | None = None
        self._restarts = 0
        self._is_open = False

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
        """End all processes, as a crash would. Harmless when done twice.

        Raises:
            StuckError: a thread does not end.
        """
        if not self._is_open:
            return
        self._is_open = False
        try:
            for replica in self.replicas:
                replica.is_alive = False
                self.schedule.thaw(replica)
                replica.stop.set()
                replica.client.close()
            self.schedule.is_interrupted = False
            self._timers.clear()
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
        with self.schedule.owned_by(replica):
            made = self._make(replica)
            runnable = as_runnable(replica, made, self.kind, leader_election=self._leader_election)
            replica.thread = threading.Thread(
                target=replica.run, args=(runnable,), name=f"{replica.name}-{process}"
            )
            replica.thread.start()
        return replica

    @property
    def finalizers(self) -> set[str]:
        """Those of the kit's own watchers and reconcilers that are recorded for the kind."""
        return {name for custody in self.custodies for name in custody.all_names}

    # -- time --------------------------------------------------------------------------------

    def run(self, seconds: float = 0.0) -> None:
        """Let that much time pass, with everything that happens in it.

        Raises:
            BrokenPromise: something happened that must never happen.
            StuckError: a thread blocks in something that is not simulated.
        """
        end = self.clock.monotonic() + seconds
        while True:
            self.schedule.run_ready()
            self.raise_broken()
            if self._revive():
                continue
            due = min((at for at, _ in self._timers), default=end)
            if self.schedule.jump(until=min(due, end)):
                continue
            if due > end or not self._timers:
                break
            self.clock.advance(max(0.0, due - self.clock.monotonic()))
            ready = [timer for timer in self._timers if timer[0] <= due]
            self._timers = [timer for timer in self._timers if timer[0] > due]
            for _, do in ready:
                do()
        self.clock.advance(max(0.0, end - self.clock.monotonic()))

    def settle(self, *, horizon: float = 7200.0) -> bool:
        """Let time pass until the operator has nothing left to do.

        It is at rest when for a minute it wrote nothing and no call failed.

        Args:
            horizon: seconds to wait for that at most; default two hours.

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
                if (e.error if e.what == "call" else e.outcome != NO_CHANGE)
            ]
            quiet = 0 if news or self._has_failing_calls() or self._timers else quiet + 1
        return quiet >= 3

    def _has_failing_calls(self) -> bool:
        calls = self.journal.of("call")
        last = {(e.who, e.process, e.watcher, e.kind, e.key): e for e in calls}
        alive = {(replica.name, replica.process) for replica in self.replicas}
        return any(e.error or not e.ended for e in last.values() if (e.who, e.process) in alive)

    def later(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something when that much time has passed."""
        self._timers.append((self.clock.monotonic() + seconds, do))

    # -- what others do ----------------------------------------------------------------------

    def create(self, name: str, spec: Any = None, **metadata: Any) -> Object:
        """Create an object of the kind, as somebody else."""
        obj = self._new(name, metadata)
        if spec is not None:
            self._ask_for(obj, spec)
        told = "" if spec is None else f" {json.dumps(spec, ensure_ascii=False, sort_keys=True)}"
        self.outside(f"creates {name}{told}", name, asks=True)
        made = self.client.create(obj)
        self.created.append(made)
        return made

    def replace(self, name: str, spec: Any) -> Object:
        """Give an object of the kind another spec, as somebody else."""
        told = json.dumps(spec, ensure_ascii=False, sort_keys=True)
        entry = self.outside(f"changes {name} to {told}", name)
        obj = self.client.get(self.kind, name, namespace=self.namespace).mutable_copy()
        self._ask_for(obj, spec)
        changed = self.client.update(obj)
        entry.asks = changed.resource_version != obj.resource_version
        entry.outcome = "" if entry.asks else NO_CHANGE
        return changed

    def _ask_for(self, obj: MutableObject, wanted: Any) -> None:
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
        """Change an object of the kind by a merge patch, as somebody else."""
        part = f"{subresource} of " if subresource else ""
        told = json.dumps(patch, ensure_ascii=False, sort_keys=True)
        self.outside(f"changes {part}{name}: {told}", name)
        client: Any = self.client.subresource(subresource) if subresource else self.client
        changed: Object = client.patch(
            self.kind, name, MergePatch(dict(patch)), namespace=self.namespace
        )
        return changed

    def delete(self, name: str) -> None:
        """Delete an object of the kind, as somebody else."""
        self.outside(f"deletes {name}", name, asks=True)
        self.client.delete(self.kind, name, namespace=self.namespace)

    @property
    def namespace(self) -> str:
        """Where the objects are."""
        return "default" if self.kind.is_namespaced else ""

    def find(self, name: str) -> Object | None:
        """The object of that name, None when there is none."""
        try:
            return self.client.get(self.kind, name, namespace=self.namespace)
        except NotFound:
            return None

    def objects(self, kind: Kind | None = None) -> list[Object]:
        """The objects of a kind; default: of the operator's."""
        return list(self.client.list(kind or self.kind))

    # -- what goes wrong ---------------------------------------------------------------------

    def crash(self, number: int = 0) -> None:
        """End a replica where it stands; another process takes its place."""
        self._forgive()
        self.replicas[number].crash()

    def restart(self, number: int = 0) -> None:
        """Stop a replica in good order, and start it anew."""
        replica = self.replicas[number]
        self._forgive()
        self.note(replica.name, "life", "is told to stop")
        replica.stop.set()
        end = self.clock.monotonic() + _END_WITHIN
        while replica.thread is not None and replica.thread.is_alive():
            if self.clock.monotonic() > end:
                raise BrokenPromise(f"{replica.name} has not ended {_END_WITHIN:g} s after a stop")
            self.run(0.5)
        self._revive()

    def freeze(self, seconds: float, number: int = 0) -> None:
        """Let nothing of a replica run for a time, as when its machine stands still."""
        replica = self.replicas[number]
        self._forgive()
        self.note(replica.name, "fault", f"stands still for {seconds:g} s")
        self.schedule.freeze(replica)
        self.later(seconds, lambda: self.schedule.thaw(replica))

    def lag(self, seconds: float) -> None:
        """Let watches tell nothing for a time, so that caches are behind."""
        self._forgive()
        self.note("the server", "fault", f"tells watches nothing for {seconds:g} s")
        self.server.api.stall_watches(True)
        self.later(seconds, lambda: self.server.api.stall_watches(False))

    def cut(self) -> None:
        """Cut all connections, watches too."""
        self._forgive()
        self.note("the network", "fault", "cuts all watches")
        self.server.cut_connections()

    def compact(self) -> None:
        """Forget the history, so that whoever watches from before has to list anew."""
        self._forgive()
        self.note("the server", "fault", "forgets its history")
        self.server.api.compact()

    def end_faults(self) -> None:
        """From now on nothing goes wrong any more."""
        self.takes_fates = False
        self.fates.clear()
        for _, do in self._timers:
            do()
        self._timers.clear()
        for replica in self.replicas:
            self.schedule.thaw(replica)

    # -- the story ---------------------------------------------------------------------------

    def note(self, who: str, what: str, text: str, key: str = "") -> Entry:
        """Put something into the journal."""
        return self.journal.add(Entry(self.clock.monotonic(), who, what, text, key=key))

    def outside(self, text: str, name: str, *, asks: bool = False) -> Entry:
        """Note what somebody does, which gives the operator reason to work."""
        self._forgive()
        entry = self.note(SOMEBODY, "step", text, self.key(name))
        entry.kind, entry.asks = self.kind.qualified_name, asks
        return entry

    def key(self, name: str) -> str:
        """The key of an object of the kind."""
        return f"{self.namespace}/{name}" if self.namespace else name

    def story(self, name: str = "") -> str:
        """What happened so far, in a few lines; to one object, or to all."""
        return tell(self.journal.entries, self.key(name) if name else "")

    # -- what is looked at while it happens --------------------------------------------------

    def look_at_call(self, _replica: Replica, entry: Entry) -> None:
        """A call has ended."""
        self._count("call", entry)

    def look_at_write(self, replica: Replica, entry: Entry) -> None:
        """A replica is about to write."""
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

    def look_at_answer(self, entry: Entry) -> None:
        """A replica's write was answered."""
        if entry.kind == self.kind.qualified_name:
            self.on_answer(entry)

    def _count(self, what: str, entry: Entry) -> None:
        counted, now = (what, entry.kind, entry.key), self.clock.monotonic()
        since, count = self._busy.get(counted, (now, 0))
        since, count = (since, count + 1) if now - since <= _WINDOW else (now, 1)
        self._busy[counted] = (since, count)
        if count > self.most_calls:
            act = "writes" if what == "write" else "is called for"
            name = entry.key.rpartition("/")[2]
            self.break_promise(
                f"no hot loop: {entry.who} {act} {name} {count} times although nothing "
                "happened from outside",
                entry.key,
            )

    def _forgive(self) -> None:
        self._busy.clear()

    def break_promise(self, text: str, key: str = "") -> None:
        """Remember what must not happen; the next :meth:`run`, or this one, raises it."""
        if self._broken is None:
            self._broken = BrokenPromise(f"{text}\n{tell(self.journal.entries, key)}")
            self.schedule.is_interrupted = True

    def raise_broken(self) -> None:
        """Raise what :meth:`break_promise` remembers, if anything."""
        if self._broken is not None:
            raise self._broken

    def _revive(self) -> bool:
        """Start processes in the place of those that have ended."""
        revived = False
        for number, replica in enumerate(self.replicas):
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
            revived = True
        return revived


def _definitions(kind: Kind, crds: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    given = list(crds)
    names = [crd["metadata"]["name"] for crd in given]
    if (
        "." in kind.group
        and not kind.group.endswith(".k8s.io")
        and kind.qualified_name not in names
    ):
        given.append(custom_resource_definition(kind).to_dict())
    return given
