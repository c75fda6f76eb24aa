"""What an operator's ``make`` returned, as one thing to run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from appsdk_operator.controllers import controller_for
from appsdk_operator.manager import LeaderElection, Manager
from appsdk_operator.resource import Kind
from appsdk_operator.testing._world.cluster import Process
from appsdk_operator.watchers import (
    InformerController,
    KeyReconciler,
    KubernetesInformer,
    OpinionatedReconciler,
    ResourceWatcher,
    SimpleReconciler,
)

# Reconcilers whose request carries the object: an InformerController calls them.
_OF_WATCHERS: Final = (OpinionatedReconciler, SimpleReconciler, KeyReconciler)


def as_runnable(
    process: Process, make: Callable[[Any], Any], kind: Kind, *, leader_election: bool
) -> Any:
    """Build something to run from what ``make`` returns.

    That is the object itself where it has ``run``; an InformerController where there are watchers,
    with the reconcilers among them in add order; else a Manager with a controller for each
    reconciler. With leader election it is a Manager in any case.

    Args:
        process: the process that runs it; with leader election its client writes while it leads.
        make: makes one target, or several.
        kind: the kind that watchers and reconcilers are called for.
        leader_election: whether it runs on the leader only.

    Raises:
        TypeError: what is made is neither a watcher, nor a reconciler, nor has it ``run``.
        ValueError: leader election was asked for, and what is made has ``run``.
    """
    if not leader_election:
        return _built(process, make(process), kind, None)
    identity = f"{process.name}-{process.process}"
    election = LeaderElection(id="operator", namespace="default", identity=identity)
    manager = _manager(process, leader_election=election)
    process.client = manager.live_client
    try:
        return _built(process, make(process), kind, manager)
    except BaseException:
        manager.close()
        raise


def _built(process: Process, made: Any, kind: Kind, leading: Manager | None) -> Any:
    """What runs ``made``: the manager ``leading``, if there is one."""
    targets = list(made) if isinstance(made, (list, tuple)) else [made]
    if len(targets) == 1 and hasattr(targets[0], "run"):
        if leading is not None:
            raise ValueError(
                f"leader_election=True is for watchers and reconcilers, but make returned "
                f"{targets[0]!r}, which runs by itself: leave it out here, and give its Manager "
                'leader_election=LeaderElection(id="…", namespace="default", '
                'identity=f"{replica.name}-{replica.process}")'
            )
        return targets[0]
    clock, metrics = process.clock, process.metrics
    if not targets or not all(map(_is_target, targets)):
        raise TypeError(
            f"{made!r} cannot be run: make must return watchers, a reconciler (a function of the "
            "request, or an object with reconcile), several of them, or anything with run(stop)"
        )
    if any(isinstance(target, (ResourceWatcher, *_OF_WATCHERS)) for target in targets):
        controller = InformerController(clock=clock, metrics=metrics)
        informer = KubernetesInformer(kind, process.client, clock=clock, metrics=metrics)
        controller.add_informer(informer, kind)
        add_targets(process, controller, targets, kind)
        if leading is not None:
            leading.add(controller)
        return leading or controller
    manager = leading or _manager(process)
    for number, target in enumerate(targets):
        controller_for(manager).named(f"reconciler-{number}").for_(kind).complete(
            process.recorded(target)
        )
    return manager


def add_targets(
    process: Process, controller: InformerController, targets: Sequence[Any], kind: Kind
) -> None:
    """Add watchers and reconcilers to a controller, and record their calls."""
    process.has_several_targets = len(targets) > 1
    for target in targets:
        wrapped = process.recorded(target)
        if isinstance(target, ResourceWatcher):
            controller.add_watcher(wrapped, kind)
        elif hasattr(target, "reconcile"):
            controller.add_reconciler(wrapped, kind)
        else:
            # A function takes the request of a Controller, which is a name.
            controller.add_reconciler(KeyReconciler(wrapped.reconcile), kind)


def _is_target(target: Any) -> bool:
    is_one = isinstance(target, ResourceWatcher) or hasattr(target, "reconcile")
    return is_one or callable(target)


def _manager(process: Process, **options: Any) -> Manager:
    return Manager(process.config, clock=process.clock, metrics=process.metrics, **options)
