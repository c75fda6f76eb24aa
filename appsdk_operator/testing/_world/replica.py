"""One process of an operator in a world: what it is given, and what it asks of the server."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from appsdk_operator.apiserver import FaultRule, Route, parse_path
from appsdk_operator.client import Client, ClientConfig, ConnectionLost
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, settle
from appsdk_operator.testing._memory.connection import MemoryConnection
from appsdk_operator.testing._simulation.story import Entry
from appsdk_operator.testing._world.recorded import current, recorded
from appsdk_operator.watchers import OpinionatedReconciler, OpinionatedWatcher

if TYPE_CHECKING:
    from appsdk_operator.testing._world.world import World

__all__ = ["NO_CHANGE", "Replica"]

NO_CHANGE: Final = "no change"
_VERBS: Final = {"POST": "creates", "PUT": "updates", "PATCH": "patches", "DELETE": "deletes"}
_SILENT: Final = frozenset({"leases", "events"})
"""Kinds whose writes are no work of the operator's."""


@final
class Replica:
    """One process of an operator in a :class:`World`, as the function that makes it gets it."""

    def __init__(self, world: World, name: str, process: int) -> None:
        """Made by :meth:`World.start`."""
        self.world = world
        self.name = name
        """``operator``, or ``operator-1`` and so on where there are several."""
        self.process = process
        """1, then 2 after the first restart, …"""
        self.clock: ManualClock = world.clock
        self.metrics: Metrics = Metrics()
        """Of its own, as each process has them."""
        self.config: ClientConfig = attrs.evolve(
            world.server.config, connector=self._connect, user_agent=name
        )
        """For a :class:`~appsdk_operator.manager.Manager`."""
        self.client: Client = Client(self.config, clock=self.clock, metrics=self.metrics)
        """For everything else."""
        self.stop: StopSignal = StopSignal(clock=self.clock)
        """Ends the process in good order."""
        self.is_alive: bool = True
        """False once it crashed: no request leaves it any more."""
        self.identity = ""
        """As whom it last wrote a Lease."""
        self.error: BaseException | None = None
        """What ended it, if it was not told to end."""
        self.thread: threading.Thread | None = None
        self._recorded = 0

    def __repr__(self) -> str:
        return f"<Replica {self.name}, process {self.process}>"

    def recorded(self, target: Any, *, kind: Kind | None = None) -> Any:
        """``target``, a watcher or reconciler, so that the story tells of its calls.

        What the world runs by itself is recorded already; an operator of your own gives this to
        its controllers, or the checkers see its writes only. Watchers and reconcilers of other
        kinds may be recorded, too: the story tells of them, and their calls are held to the order
        and to no overlap, while what is checked of the world's objects goes by calls of its kind.

        Args:
            target: a watcher, or a reconciler of either half.
            kind: of the objects that it is called for; default: of those that it is shown, and
                for a reconciler, which is shown names, the world's.

        Raises:
            TypeError: it is neither a watcher nor a reconciler, or ``kind`` is no kind.
        """
        if not (kind is None or isinstance(kind, Kind)):
            raise TypeError(
                f"kind={kind!r} is no Kind: give the kind that {target!r} is called for"
            )
        number = self._recorded
        made = recorded(self, target, number, kind or self.world.kind)
        self._recorded += 1
        self.world.recorded.add(number)
        if (
            isinstance(target, (OpinionatedWatcher, OpinionatedReconciler))
            and target.kind.qualified_name == self.world.kind.qualified_name
        ):
            self.world.custodies.append(target.custody)
        return made

    def crash(self) -> None:
        """End it where it stands: from now on nothing it does reaches anybody."""
        if self.is_alive:
            self.is_alive = False
            self.world.note(self.name, "life", "crashes")
            self.stop.set()

    def run(self, runnable: Any) -> None:
        """Run it to its end, in the thread made for it."""
        try:
            settle(runnable.run(self.stop))
        except BaseException as error:
            self.error = error
        if self.is_alive and not self.stop.is_set():
            why = f" with {self.error!r}" if self.error else ""
            self.world.note(self.name, "life", f"ends by itself{why}")

    def _connect(self) -> MemoryConnection:
        # Before the fence of a manager looks whether it may write: what stands still here and
        # writes later is a defect of the client, not of the fence.
        self.world.schedule.give_way()
        return MemoryConnection(self.world.server, observer=_Requests(self))


@final
class _Requests:
    """Sees one connection's request and its answer."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._entry: Entry | None = None

    def before(self, method: str, target: str, body: bytes) -> None:
        replica, world = self._replica, self._replica.world
        if not replica.is_alive:
            raise ConnectionLost("the process is dead")
        route = parse_path(target)
        if method not in _VERBS or route is None:
            return
        name = route.name or _name_in(body)
        if route.plural == "leases":
            replica.identity = _holder_in(body) or replica.identity
        if route.plural in _SILENT or "dryRun=" in target:
            return
        fate = world.fates.pop(0) if world.fates and world.takes_fates else ""
        if fate == "crash before":
            replica.crash()
            raise ConnectionLost("the process is dead")
        if fate == "lost":
            world.server.api.inject([FaultRule.lose(times=1, user_agent=replica.name)])
        elif fate.isdigit():
            world.server.api.inject([FaultRule.answer(int(fate), times=1, user_agent=replica.name)])
        self._fate = fate
        call = getattr(current, "entry", None)
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
        world.look_at_write(replica, self._entry)
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
        world.look_at_answer(entry)
        if self._fate == "crash after" and status and status < 400:
            self._replica.crash()
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
    try:
        return str(json.loads(body)["spec"]["holderIdentity"] or "")
    except (ValueError, KeyError, TypeError):
        return ""
