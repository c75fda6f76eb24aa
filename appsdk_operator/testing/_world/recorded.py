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
from appsdk_operator.testing._simulation.story import Entry
from appsdk_operator.watchers import (
    InformerController,
    KeyReconciler,
    KubernetesInformer,
    OpinionatedReconciler,
    ResourceWatcher,
    SelectiveReconciler,
    SelectiveWatcher,
    SimpleReconciler,
)

if TYPE_CHECKING:
    from appsdk_operator.testing._world.replica import Replica

__all__ = ["as_runnable", "current", "recorded"]


def as_runnable(replica: Replica, made: Any, kind: Kind, *, leader_election: bool) -> Any:
    """What ``make`` returned as something to run: itself, or a controller of watchers and of the
    reconcilers beside them, in add order, or a manager with reconcilers; where one is to lead, a
    manager in any case.

    Raises:
        TypeError: it is none of those.
        ValueError: what runs by itself was to be given leader election.
    """
    targets = list(made) if isinstance(made, (list, tuple)) else [made]
    if len(targets) == 1 and hasattr(targets[0], "run"):
        if leader_election:
            raise ValueError(
                f"leader_election=True is for watchers and reconcilers, and make returned "
                f"{targets[0]!r}, which runs by itself: leave it out here, and give its Manager "
                'leader_election=LeaderElection(id="…", namespace="default", '
                'identity=f"{replica.name}-{replica.process}")'
            )
        return targets[0]
    clock, metrics = replica.clock, replica.metrics
    if not targets or not all(map(_is_target, targets)):
        raise TypeError(
            f"{made!r} cannot be run: make must return watchers, a reconciler (a function of the "
            "request, or an object with reconcile), several of them, or anything with run(stop)"
        )
    if any(isinstance(target, (ResourceWatcher, *_OF_WATCHERS)) for target in targets):
        controller = InformerController(clock=clock, metrics=metrics)
        informer = KubernetesInformer(kind, replica.client, clock=clock, metrics=metrics)
        controller.add_informer(informer, kind)
        for target in targets:
            noted = replica.recorded(target)
            if isinstance(target, ResourceWatcher):
                controller.add_watcher(noted, kind)
            elif hasattr(target, "reconcile"):
                controller.add_reconciler(noted, kind)
            else:
                # A function is one of a Controller's requests, wherever it is called.
                controller.add_reconciler(KeyReconciler(noted), kind)
        if not leader_election:
            return controller
        manager = _manager(replica, leader_election=True)
        manager.add(controller)
        return manager
    manager = _manager(replica, leader_election=leader_election)
    for number, target in enumerate(targets):
        controller_for(manager).named(f"reconciler-{number}").for_(kind).complete(
            replica.recorded(target)
        )
    return manager


# Reconcilers that have the object in their request, so that an InformerController calls them.
_OF_WATCHERS: Final = (OpinionatedReconciler, SimpleReconciler, KeyReconciler)


def _is_target(target: Any) -> bool:
    is_one = isinstance(target, ResourceWatcher) or hasattr(target, "reconcile")
    return is_one or callable(target)


def _manager(replica: Replica, *, leader_election: bool) -> Manager:
    election = None
    if leader_election:
        election = LeaderElection(
            id="operator", namespace="default", identity=f"{replica.name}-{replica.process}"
        )
    return Manager(
        replica.config, clock=replica.clock, metrics=replica.metrics, leader_election=election
    )


def recorded(replica: Replica, target: Any, number: int, kind: Kind) -> Any:
    """``target`` with its calls noted; they are for ``kind`` where nothing says otherwise."""
    if isinstance(target, SelectiveWatcher):
        return _SelectiveWatcher(replica, target, number, kind)
    if isinstance(target, ResourceWatcher):
        return _Watcher(replica, target, number, kind)
    reconcile = getattr(target, "reconcile", target)
    if not callable(reconcile):
        raise TypeError(f"{target!r} is neither a watcher nor a reconciler")
    if isinstance(target, SelectiveReconciler):
        return _SelectiveReconciler(replica, reconcile, number, kind)
    return _Reconciler(replica, reconcile, number, kind)


current: Final = threading.local()
"""``entry``: the call that the thread is in."""


class _Calls:
    def __init__(self, replica: Replica, target: Any, number: int, kind: Kind) -> None:
        self._replica = replica
        self._target = target
        self._number = number
        self._kind = kind
        # What writes finalizers; of a reconciler we have the method.
        whole = getattr(target, "__self__", target)
        self.custody = getattr(whole, "custody", None)
        self.is_by_key = getattr(whole, "is_by_key", False)

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
            if again is not None:
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

    def _told(self, kind: Kind, name: str) -> str:
        """The object in words; one of another kind than the world's with its kind."""
        of = kind.qualified_name
        return name if of == self._replica.world.kind.qualified_name else f"{kind.plural} {name}"


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
            f"{text} {self._told(obj.kind, obj.name)}",
            key=f"{obj.namespace}/{obj.name}" if obj.namespace else obj.name,
            kind=obj.kind.qualified_name,
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
        kind = of.kind if isinstance(of, Object) else self._kind
        entry = Entry(
            self._replica.clock.monotonic(),
            self._replica.name,
            "call",
            f"reconciles {self._told(kind, name)}",
            key=f"{namespace}/{name}" if namespace else name,
            kind=kind.qualified_name,
        )
        return self._call(entry, lambda: self._target(request))

    __call__ = reconcile


class _SelectiveReconciler(_Reconciler):
    def concerns(self, old: Object, new: Object) -> bool:
        return bool(self._target.__self__.concerns(old, new))
