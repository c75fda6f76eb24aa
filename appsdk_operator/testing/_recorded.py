"""Watchers and reconcilers whose calls are noted in a world's journal."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from appsdk_operator.client import ConnectionLost
from appsdk_operator.controllers import controller_for
from appsdk_operator.manager import LeaderElection, Manager
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import settle
from appsdk_operator.testing._story import Entry
from appsdk_operator.watchers import (
    InformerController,
    KubernetesInformer,
    ResourceWatcher,
    SelectiveWatcher,
)

if TYPE_CHECKING:
    from appsdk_operator.testing._replica import Replica

__all__ = ["as_runnable", "current", "recorded"]


def as_runnable(replica: Replica, made: Any, kind: Kind, *, leader_election: bool) -> Any:
    """What ``make`` returned as something to run: itself, or a controller of watchers, or a manager
    with a reconciler.

    Raises:
        TypeError: it is none of those.
    """
    targets = list(made) if isinstance(made, (list, tuple)) else [made]
    if len(targets) == 1 and hasattr(targets[0], "run"):
        return targets[0]
    clock, metrics = replica.clock, replica.metrics
    if all(isinstance(target, ResourceWatcher) for target in targets):
        controller = InformerController(clock=clock, metrics=metrics)
        informer = KubernetesInformer(kind, replica.client, clock=clock, metrics=metrics)
        controller.add_informer(informer, kind)
        for target in targets:
            controller.add_watcher(replica.recorded(target), kind)
        return controller
    if not all(callable(target) or hasattr(target, "reconcile") for target in targets):
        raise TypeError(
            f"{made!r} cannot be run: make must return watchers, a reconciler (a function of the "
            "request, or an object with reconcile), or anything with run(stop)"
        )
    election = None
    if leader_election:
        election = LeaderElection(
            id="operator", namespace="default", identity=f"{replica.name}-{replica.process}"
        )
    manager = Manager(replica.config, clock=clock, metrics=metrics, leader_election=election)
    for number, target in enumerate(targets):
        controller_for(manager).named(f"reconciler-{number}").for_(kind).complete(
            replica.recorded(target)
        )
    return manager


def recorded(replica: Replica, target: Any, number: int) -> Any:
    """``target`` with its calls noted."""
    if isinstance(target, SelectiveWatcher):
        return _SelectiveWatcher(replica, target, number)
    if isinstance(target, ResourceWatcher):
        return _Watcher(replica, target, number)
    reconcile = getattr(target, "reconcile", target)
    if not callable(reconcile):
        raise TypeError(f"{target!r} is neither a watcher nor a reconciler")
    return _Reconciler(replica, reconcile, number)


current: Final = threading.local()
"""``entry``: the call that the thread is in."""


class _Calls:
    def __init__(self, replica: Replica, target: Any, number: int) -> None:
        self._replica = replica
        self._target = target
        self._number = number

    def _call(self, entry: Entry, do: Callable[[], Any]) -> Any:
        replica, world = self._replica, self._replica.world
        if not replica.is_alive:
            raise ConnectionLost("the process is dead")
        entry.process, entry.watcher = replica.process, self._number
        world.journal.add(entry)
        before, current.entry = getattr(current, "entry", None), entry
        try:
            outcome = settle(do())
            again = getattr(outcome, "requeue_after", None)
            if again:
                entry.outcome = f"wants to be called again in {again:g} s"
            return outcome
        except BaseException as error:
            entry.error = error
            if replica.is_alive:
                entry.outcome = f"fails with {type(error).__name__}"
            raise
        finally:
            current.entry = before
            entry.ended = world.journal.step()
            world.look_at_call(replica, entry)


class _Watcher(_Calls):
    def add(self, obj: Object) -> Any:
        self._call(self._entry("CREATE", obj, "is told of"), lambda: self._target.add(obj))

    def update(self, old: Object, new: Object) -> Any:
        action, text = ("RESYNC", "is reminded of") if old is new else ("UPDATE", "is told that")
        entry = self._entry(action, new, text)
        if action == "UPDATE":
            entry.text += " changed"
        self._call(entry, lambda: self._target.update(old, new))

    def delete(self, obj: Object) -> Any:
        entry = self._entry("DELETE", obj, "is told that")
        entry.text += " is gone"
        self._call(entry, lambda: self._target.delete(obj))

    def _entry(self, action: str, obj: Object, text: str) -> Entry:
        return Entry(
            self._replica.clock.monotonic(),
            self._replica.name,
            "call",
            f"{text} {obj.name}",
            key=f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name,
            action=action,
            uid=obj.uid,
            version=int(obj.resource_version),
        )


class _SelectiveWatcher(_Watcher):
    def _entry(self, action: str, obj: Object, text: str) -> Entry:
        entry = super()._entry(action, obj, text)
        entry.is_selective = True
        return entry

    def concerns(self, old: Object, new: Object) -> bool:
        return bool(self._target.concerns(old, new))


class _Reconciler(_Calls):
    def reconcile(self, request: Any, /) -> Any:
        # A request of the controllers' half, or of the watchers', which carries the object.
        of = getattr(request, "object", request)
        name, namespace = getattr(of, "name", str(of)), getattr(of, "namespace", "")
        entry = Entry(
            self._replica.clock.monotonic(),
            self._replica.name,
            "call",
            f"reconciles {name}",
            key=f"{namespace}/{name}" if namespace else name,
        )
        return self._call(entry, lambda: self._target(request))

    __call__ = reconcile
