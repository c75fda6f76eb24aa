"""Operators that break one promise each, as people's operators do; and some that keep them all."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import threading
from collections.abc import Callable
from typing import Any

from appsdk_operator import Manager, controller_for, kinds
from appsdk_operator.client import AlreadyExists, ApiError, Conflict, MergePatch, NotFound
from appsdk_operator.controllers import (
    Request,
    create_or_update,
    finalizing,
    generation_changed,
    set_controller_reference,
)
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import StopSignal, ThreadGroup
from appsdk_operator.testing import Replica, World
from appsdk_operator.watchers import (
    InformerController,
    KubernetesInformer,
    OpinionatedWatcher,
    SimpleWatcher,
)

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
SECRET = kinds.core.v1.Secret
LEASE = kinds.coordination.v1.Lease
FINALIZER = "example.com/bucket"


def with_widget(
    replica: Replica, do: Callable[[Object], object]
) -> Callable[[Request | Object], None]:
    """A reconciler that reads the widget of that name and does something with it."""

    def reconcile(request: Request | Object) -> None:
        try:
            widget = replica.client.get(WIDGET, request.name, namespace=request.namespace)
            do(widget)
        except NotFound:
            pass

    return reconcile


def write_status(replica: Replica, widget: Object, **status: Any) -> None:
    patch = MergePatch({"status": status})
    replica.client.status.patch(WIDGET, widget.name, patch, namespace=widget.namespace)


def shows_its_size(world: World) -> None:
    for widget in world.objects():
        status = widget.status or {}
        assert status.get("size") == widget.spec["size"], f"{widget.name} does not show its size"


# -- right ------------------------------------------------------------------------------------


def size_in_status(replica: Replica) -> Any:
    """Copies the size into the status."""

    def show(widget: Object) -> None:
        if (widget.status or {}).get("size") != widget.spec["size"]:
            write_status(replica, widget, size=widget.spec["size"])

    return with_widget(replica, show)


def size_in_status_by_watcher(replica: Replica) -> Any:
    """The same as a watcher."""

    def show(widget: Object) -> None:
        with contextlib.suppress(NotFound):
            write_status(replica, widget, size=widget.spec["size"])

    return SimpleWatcher(add=show, update=lambda _old, new: show(new))


def tries_once(replica: Replica) -> Any:
    """Copies the size into the status; takes a failed write for done."""

    def show(widget: Object) -> None:
        with contextlib.suppress(ApiError):
            write_status(replica, widget, size=widget.spec["size"])

    return with_widget(replica, show)


def bucket(replica: Replica) -> Any:
    """Keeps a bucket outside of the cluster for each widget."""
    buckets = replica.world.elsewhere

    def keep(widget: Object) -> None:
        finalizing(
            replica.client,
            widget,
            FINALIZER,
            apply=lambda obj: buckets.setdefault(obj.uid, obj.name),
            cleanup=lambda obj: buckets.pop(obj.uid, None),
        )

    return with_widget(replica, keep)


def _bucket_callbacks(replica: Replica) -> dict[str, Any]:
    buckets = replica.world.elsewhere

    def keep(widget: Object) -> None:
        buckets[widget.name] = widget.uid

    return {"add": keep, "sync": keep, "delete": lambda widget: buckets.pop(widget.name, None)}


def bucket_by_name(replica: Replica) -> Any:
    """Keeps a bucket of its name for each widget, by the kit's own watcher."""
    return [OpinionatedWatcher(WIDGET, replica.client, **_bucket_callbacks(replica))]


def bucket_by_name_in_a_controller(replica: Replica) -> Any:
    """The same with a finalizer of its own, in a controller of its own."""
    watcher = OpinionatedWatcher(
        WIDGET, replica.client, finalizer=lambda kind: FINALIZER, **_bucket_callbacks(replica)
    )
    return _informed(replica, replica.recorded(watcher))


def bucket_of_its_name_is_gone(world: World, widget: Object) -> bool:
    """Asked for a widget that is gone: nobody else has its name."""
    return widget.name not in world.elsewhere


def bucket_is_gone(world: World, widget: Object) -> bool:
    return widget.uid not in world.elsewhere


def secret_of_its_name(replica: Replica) -> Any:
    """Makes a Secret for each widget, and makes it again when it is deleted."""
    controller = InformerController(clock=replica.clock, metrics=replica.metrics)

    def shape(widget: Object) -> None:
        secret = MutableObject.new(SECRET, widget.name, namespace=widget.namespace)
        create_or_update(
            replica.client, secret, lambda made: set_controller_reference(widget, made)
        )

    widgets = SimpleWatcher(add=shape, update=lambda _old, new: shape(new))
    secrets = SimpleWatcher(delete=with_widget(replica, shape))
    for kind, watcher in ((WIDGET, widgets), (SECRET, secrets)):
        informer = KubernetesInformer(
            kind, replica.client, clock=replica.clock, metrics=replica.metrics
        )
        controller.add_informer(informer, kind)
        controller.add_watcher(replica.recorded(watcher), kind)
    return controller


def secret_of_its_name_by_reconcilers(replica: Replica) -> Any:
    """The same with a controller for each of the kinds."""
    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
    shape = with_widget(replica, lambda widget: make_secret(replica, widget.name))
    widgets = controller_for(manager).named("widgets").for_(WIDGET)
    widgets.complete(replica.recorded(shape))
    secrets = controller_for(manager).named("secrets").for_(SECRET)
    secrets.complete(replica.recorded(shape, kind=SECRET))
    return manager


def make_secret(replica: Replica, name: str) -> None:
    """Make a Secret, unless it is there."""
    with contextlib.suppress(AlreadyExists):
        replica.client.create(MutableObject.new(SECRET, name, namespace="default"))


# -- wrong ------------------------------------------------------------------------------------


def looks_at_secrets_only(replica: Replica) -> Any:
    """Has a controller for widgets that lets nothing pass, and one for Secrets of their names."""
    make_secret(replica, "a")
    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
    widgets = controller_for(manager).named("widgets").for_(WIDGET)
    widgets.with_event_filter(lambda _event: False)
    widgets.complete(replica.recorded(lambda request: None))
    secrets = controller_for(manager).named("secrets").for_(SECRET)
    secrets.complete(replica.recorded(lambda request: None, kind=SECRET))
    return manager


def goes_on_after_an_error(replica: Replica) -> Any:
    """Takes every error of the server for one that passes by itself."""

    def show(widget: Object) -> None:
        if (widget.status or {}).get("size") != widget.spec["size"]:
            with contextlib.suppress(ApiError):  # somebody else will have changed it
                write_status(replica, widget, size=widget.spec["size"])

    return with_widget(replica, show)


class RetriesWithWhatItHad:
    """Keeps events that failed, and hands them on again with the next one."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._failed: list[Object] = []

    def add(self, obj: Object) -> None:
        self.update(obj, obj)

    def update(self, _old: Object, new: Object) -> None:
        again, self._failed = self._failed, []
        for obj in (new, *again):
            try:
                self._inner.add(obj)
            except ApiError:
                self._failed.append(obj)

    def delete(self, obj: Object) -> None:
        self._inner.delete(obj)


def retries_with_what_it_had(replica: Replica) -> Any:
    watcher = RetriesWithWhatItHad(replica.recorded(size_in_status_by_watcher(replica)))
    return _informed(replica, watcher)


def _informed(replica: Replica, watcher: Any) -> InformerController:
    controller = InformerController(clock=replica.clock, metrics=replica.metrics)
    informer = KubernetesInformer(
        WIDGET, replica.client, clock=replica.clock, metrics=replica.metrics
    )
    controller.add_informer(informer, WIDGET)
    controller.add_watcher(watcher, WIDGET)
    return controller


def works_in_threads_of_its_own(replica: Replica) -> Any:
    """Hands each request to a new thread, so that the queue knows nothing of it."""
    threads = ThreadGroup("workers")

    def slowly(request: Request) -> None:
        replica.stop.wait(5.0)
        size_in_status(replica)(request)

    work = replica.recorded(slowly)

    def reconcile(request: Request) -> None:
        threads.start("worker", functools.partial(_without_errors, work, request))

    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
    controller_for(manager).named("threads").for_(WIDGET).complete(reconcile)
    return manager


def _without_errors(work: Callable[[Request], None], request: Request) -> None:
    with contextlib.suppress(Exception):
        work(request)


def begins_with_what_comes(replica: Replica) -> Any:
    """Watches from now on, and never lists what is there already."""
    reconcile = replica.recorded(size_in_status(replica))

    class Operator:
        def run(self, stop: StopSignal) -> None:
            while not stop.is_set():
                try:
                    self.follow(stop)
                except Exception:
                    stop.wait(1.0)

        def follow(self, stop: StopSignal) -> None:
            now = replica.client.list_page(WIDGET, limit=1).resource_version
            with replica.client.watch(WIDGET, resource_version=now, stop=stop) as stream:
                for event in stream.events():
                    if event.object is not None:
                        reconcile(Request(name=event.object.name, namespace="default"))

    return Operator()


def looks_at_new_objects_only(replica: Replica) -> Any:
    """Has a predicate that lets creations pass, and nothing else."""
    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
    reconcile = replica.recorded(size_in_status(replica))
    builder = controller_for(manager).named("new").for_(WIDGET)
    builder.with_event_filter(lambda event: event.old is None).complete(reconcile)
    return manager


def makes_the_bucket_first(replica: Replica) -> Any:
    """Puts its finalizer on only after it has made what the finalizer is for."""
    buckets = replica.world.elsewhere

    def keep(widget: Object) -> None:
        if widget.is_deleting:
            buckets.pop(widget.uid, None)
            set_finalizers(replica, widget, [f for f in widget.finalizers if f != FINALIZER])
            return
        buckets[widget.uid] = widget.name
        if FINALIZER not in widget.finalizers:
            set_finalizers(replica, widget, [*widget.finalizers, FINALIZER])

    return with_widget(replica, keep)


def forgets_the_bucket(replica: Replica) -> Any:
    """The kit's own watcher, told to do nothing at the end."""
    keep = _bucket_callbacks(replica)["add"]
    return [OpinionatedWatcher(WIDGET, replica.client, add=keep, sync=keep)]


def takes_all_finalizers_off(replica: Replica) -> Any:
    """Empties the list when it is done, instead of taking its own one off."""
    buckets = replica.world.elsewhere

    def keep(widget: Object) -> None:
        if widget.is_deleting:
            buckets.pop(widget.uid, None)
            set_finalizers(replica, widget, [])
        elif FINALIZER not in widget.finalizers:
            set_finalizers(replica, widget, [*widget.finalizers, FINALIZER])
        else:
            buckets[widget.uid] = widget.name

    return with_widget(replica, keep)


def set_finalizers(replica: Replica, widget: Object, finalizers: list[str]) -> None:
    """Replace the list as a whole."""
    changed = widget.mutable_copy()
    changed.metadata["finalizers"] = finalizers
    replica.client.update(changed)


def _stamp(replica: Replica) -> Callable[[Request], None]:
    def show(widget: Object) -> None:
        now = dt.datetime.fromtimestamp(replica.clock.time(), dt.UTC).isoformat()
        write_status(replica, widget, size=widget.spec["size"], reconciledAt=now)

    return with_widget(replica, show)


def notes_when_it_ran(replica: Replica) -> Any:
    """Writes the time of each reconcile into the status, but does not react to that."""
    manager = Manager(replica.config, clock=replica.clock, metrics=replica.metrics)
    builder = controller_for(manager).named("stamp").for_(WIDGET)
    builder.with_event_filter(generation_changed).complete(replica.recorded(_stamp(replica)))
    return manager


def counts_its_reconciles(replica: Replica) -> Any:
    """Writes a counter into the status, and so gives itself a reason to count on."""

    def count(widget: Object) -> None:
        seen = (widget.status or {}).get("reconciles", 0)
        write_status(replica, widget, size=widget.spec["size"], reconciles=seen + 1)

    return with_widget(replica, count)


def asks_for_the_lease_once(replica: Replica) -> Any:
    """Takes the Lease when nobody renews it, and then never asks again whether it still has it."""
    me = f"{replica.name}-{replica.process}"
    client, clock = replica.client, replica.clock

    def now() -> str:
        moment = dt.datetime.fromtimestamp(clock.time(), dt.UTC)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def write(lease: Object | None) -> bool:
        spec = {"holderIdentity": me, "leaseDurationSeconds": 15, "renewTime": now()}
        try:
            if lease is None:
                made = MutableObject.new(LEASE, "home-made", namespace="default")
                made["spec"] = spec
                client.create(made)
            else:
                changed = lease.mutable_copy()
                changed["spec"] = spec
                client.update(changed)
        except (Conflict, ApiError):
            return False
        return True

    def is_mine_or_old(lease: Object | None) -> bool:
        if lease is None or lease.spec["holderIdentity"] == me:
            return True
        renewed = dt.datetime.fromisoformat(lease.spec["renewTime"])
        return renewed.timestamp() + 15 < clock.time()

    def renew(stop: StopSignal) -> bool:
        try:
            lease = client.get(LEASE, "home-made", namespace="default")
        except NotFound:
            lease = None
        except Exception:
            return False
        return is_mine_or_old(lease) and write(lease)

    class Operator:
        def run(self, stop: StopSignal) -> None:
            while not renew(stop):
                if stop.wait(2.0):
                    return
            renewing = threading.Thread(target=self.go_on, args=(stop,), name="renewing")
            renewing.start()
            try:
                manager = Manager(replica.config, clock=clock, metrics=replica.metrics)
                show = with_widget(replica, lambda obj: write_status(replica, obj, shownBy=me))
                builder = controller_for(manager).named("leader").for_(WIDGET)
                builder.with_event_filter(generation_changed).complete(replica.recorded(show))
                manager.run(stop)
            finally:
                renewing.join()

        def go_on(self, stop: StopSignal) -> None:
            while not stop.wait(5.0):
                renew(stop)

    return Operator()
