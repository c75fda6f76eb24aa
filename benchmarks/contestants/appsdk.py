"""This kit, as its own pages show it.

* watcher-untouched, watcher-read, watcher-typed: an informer's store is updated, and a
  ``SimpleWatcher`` of an ``InformerController`` is called; it does not look into the object, reads
  a field of its spec, or reads it through a type.
* app-update: an ``on_update`` of an ``App`` with one worker, too, which does not look into the
  object either. It gets fewer events: an App would merge those of an object that wait for long.
* reconciler: the same with a ``SimpleReconciler``, which is handed each event in the same order.
* controller: a manager's controller, whose queue merges what waits for one object; only in the job
  ``reconcile``, where there is nothing to merge.
"""

from __future__ import annotations

import time
from typing import Any

import attrs

from appsdk_operator import (
    App,
    Client,
    ClientConfig,
    InformerController,
    Kind,
    Manager,
    Object,
    Request,
    SimpleWatcher,
    StopSignal,
    controller_for,
    kinds,
)
from appsdk_operator.cache import Informer, Overflow
from appsdk_operator.controllers import ControllerOptions
from appsdk_operator.manager import ManagerOptions
from appsdk_operator.watchers import ReconcileRequest, SimpleReconciler
from benchmarks._contestant import Laps, Latencies, Memory, Options, main
from benchmarks._job import Contestant, Group, Variant
from benchmarks._objects import KINDS, widget_fields

CONTESTANT = Contestant(
    name="appsdk",
    group=Group.OURS,
    requires="appsdk-operator",
    variants=(
        Variant(name="watcher-untouched", jobs=("watch", "list", "latency")),
        Variant(name="watcher-read", jobs=("watch",)),
        Variant(name="watcher-typed", jobs=("watch",), kinds=("widgets",)),
        # So few that an App merges none, and so many that what is read before the first call, and
        # not counted, is a small part.
        Variant(name="app-update", jobs=("watch",), most_events=8_000),
        Variant(name="reconciler", jobs=("watch", "reconcile")),
        Variant(name="controller", jobs=("reconcile",)),
    ),
)


def _kind(options: Options) -> Kind:
    if options.kind == "pods":
        return kinds.core.v1.Pod
    names = KINDS["widgets"]
    spec = None
    if options.variant == "watcher-typed":
        fields = {f"field{number}": str for number in range(widget_fields(options.size))}
        spec = attrs.make_class(
            "WidgetSpec",
            {name: attrs.field(type=kind) for name, kind in fields.items()},
            frozen=True,
        )
    return Kind(group=names.group, version=names.version, kind=names.kind, spec=spec)


def _read(obj: Object, options: Options) -> object:
    """A field of the spec, as a callback would read it."""
    spec: Any = obj.spec
    if options.variant == "watcher-typed":
        return spec.field1
    return spec["field1" if options.kind == "widgets" else "nodeName"]


def _controller(options: Options) -> InformerController:
    # Each event counts: the informer waits where the watcher is slower, and nothing is merged.
    return InformerController(workers=options.workers, overflow=Overflow.BLOCK)


def _config(options: Options) -> ClientConfig:
    return ClientConfig(server=options.server, ca_file=options.ca)


def watch(options: Options) -> dict[str, float]:
    """Callbacks for all events."""
    kind, stop, laps = _kind(options), StopSignal(), Laps(options.events)
    count = laps.count_one

    def untouched(_old: Object, _new: Object) -> None:
        count()
        if not laps.left:
            stop.set()

    def read(_old: Object, new: Object) -> None:
        _read(new, options)
        untouched(new, new)

    def reconcile(request: ReconcileRequest) -> None:
        if request.old is not None:
            untouched(request.old, request.object)

    if options.variant == "app-update":
        app = App("benchmark", workers=options.workers)
        app.on_update(kind)(untouched)
        with app.manager(_config(options)) as manager:
            manager.run(stop)
        return laps.numbers()
    with Client(_config(options)) as client:
        controller = _controller(options)
        controller.add_informer(Informer(kind, client), kind)
        if options.variant == "reconciler":
            controller.add_reconciler(SimpleReconciler(reconcile), kind)
        else:
            update = untouched if options.variant == "watcher-untouched" else read
            controller.add_watcher(SimpleWatcher(update=update), kind)
        controller.run(stop)
    return laps.numbers()


def list_all(options: Options) -> dict[str, float]:
    """Until the watcher has been called for every object that there is."""
    kind, stop = _kind(options), StopSignal()
    left = options.objects

    def add(_: Object) -> None:
        nonlocal left
        left -= 1
        if not left:
            stop.set()

    with Client(_config(options)) as client:
        informer = Informer(kind, client)
        controller = _controller(options)
        controller.add_informer(informer, kind)
        controller.add_watcher(SimpleWatcher(add=add), kind)
        memory = Memory()
        ends: list[tuple[float, float]] = []
        stop.on_set(lambda: ends.append((time.perf_counter(), time.process_time())))
        began, used_before = time.perf_counter(), time.process_time()
        controller.run(stop)
        assert len(informer.store) == options.objects
        numbers = memory.numbers()
    ended, used = ends[0]
    timed = {"seconds": ended - began, "cpu": used - used_before}
    return {**timed, "objects": options.objects, **numbers}


def latency(options: Options) -> dict[str, float]:
    """From the sending of an event to the watcher."""
    kind, stop, latencies = _kind(options), StopSignal(), Latencies(options.events)

    def update(_: Object, new: Object) -> None:
        latencies.note(new.resource_version)
        if latencies.done.is_set():
            stop.set()

    with Client(_config(options)) as client:
        controller = _controller(options)
        controller.add_informer(Informer(kind, client), kind)
        controller.add_watcher(SimpleWatcher(update=update), kind)
        controller.run(stop)
    return latencies.numbers()


def reconcile(options: Options) -> dict[str, float]:
    """Reconciles of new objects, with a call of the server in each or without."""
    if options.variant == "controller":
        return _reconcile_keys(options)
    kind, stop = _kind(options), StopSignal()
    laps = Laps(options.events, is_shared=True)

    with Client(_config(options)) as client:

        def reconcile_one(request: ReconcileRequest) -> None:
            if options.call_ms:
                client.get(kind, request.key.name, namespace=request.key.namespace)
            laps.count_one()
            if not laps.left:
                stop.set()

        controller = _controller(options)
        controller.add_informer(Informer(kind, client), kind)
        controller.add_reconciler(SimpleReconciler(reconcile_one), kind)
        controller.run(stop)
    return laps.numbers("reconciles")


def _reconcile_keys(options: Options) -> dict[str, float]:
    kind, stop = _kind(options), StopSignal()
    laps = Laps(options.events, is_shared=True)
    workers = ControllerOptions(max_concurrent_reconciles=options.workers)
    with Manager(_config(options), ManagerOptions(controller_options=workers)) as manager:
        client = manager.live_client

        def reconcile_one(request: Request) -> None:
            if options.call_ms:
                client.get(kind, request.name, namespace=request.namespace)
            laps.count_one()
            if not laps.left:
                stop.set()

        controller_for(manager).for_(kind).complete(reconcile_one)
        manager.run(stop)
    return laps.numbers("reconciles")


if __name__ == "__main__":
    main({"watch": watch, "list": list_all, "latency": latency, "reconcile": reconcile})
