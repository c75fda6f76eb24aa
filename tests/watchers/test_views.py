"""Whoever is shown objects reads them with the types of its own kind, never in turn."""

from __future__ import annotations

import queue
import threading

import attrs
import pytest

from appsdk_operator.cache import Cache
from appsdk_operator.controllers import Result
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import Simulation
from appsdk_operator.watchers import OpinionatedReconciler, OpinionatedWatcher, SimpleWatcher
from tests.simulations import Others, change


@attrs.frozen
class Spec:
    n: int = 0


PLAIN = Kind(group="example.com", version="v1", kind="Widget")
TYPED = Kind(group="example.com", version="v1", kind="Widget", spec=Spec)
VIEWS = {
    PLAIN.spec: type(Object.from_dict(PLAIN, {"metadata": {}, "spec": {}}).spec),
    TYPED.spec: Spec,
}

both_ways = pytest.mark.parametrize(
    ("informer", "own"), [(PLAIN, TYPED), (TYPED, PLAIN)], ids=["typed watcher", "typed informer"]
)


class Views:
    """Notes with which types it was shown what."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, type]] = []

    def note(self, what: str, *objects: object) -> None:
        self.seen += [(what, type(obj.spec)) for obj in objects if obj is not None]

    def concerns(self, old, new) -> bool:
        self.note("concerns", old, new)
        return True

    def callbacks(self):
        return {
            "add": lambda obj: self.note("add", obj),
            "update": lambda old, new: self.note("update", old, new),
            "delete": lambda obj: self.note("delete", obj),
        }

    def reconcile(self, request) -> Result | None:
        self.note(request.action.name, request.object, request.old)
        return None

    def check(self, kind: Kind, *expected: str) -> None:
        assert {view for _, view in self.seen} == {VIEWS[kind.spec]}, self.seen
        assert set(expected) <= {what for what, _ in self.seen}


def live(simulation: Simulation) -> None:
    """An object's life, with failures, a resync and a restart."""
    failures = [ConnectionError("once")] * 2

    def fail(call):
        if failures and call.action in ("CREATE", "UPDATE"):
            raise failures.pop()

    simulation.during_call = fail
    simulation.create("a", spec={"n": 1})
    simulation.settle()
    change(simulation, "a", spec={"n": 2})
    simulation.settle()
    simulation.restart()
    simulation.settle()
    simulation.delete("a")
    simulation.settle()


@both_ways
def test_an_opinionated_watcher_is_shown_objects_of_its_own_kind(informer, own):
    views = Views()

    def make(process):
        return [
            OpinionatedWatcher(
                own,
                process.client,
                **views.callbacks(),
                sync=lambda obj: views.note("sync", obj),
                concerns=views.concerns,
            )
        ]

    with Simulation(informer, make, resync=0.0) as simulation:
        live(simulation)
    views.check(own, "add", "update", "sync", "delete", "concerns")


@both_ways
def test_an_opinionated_reconciler_is_shown_objects_of_its_own_kind(informer, own):
    views = Views()

    def make(process):
        return [OpinionatedReconciler(views, own, process.client)]

    with Simulation(informer, make, resync=20.0) as simulation:
        live(simulation)
    views.check(own, "CREATE", "UPDATE", "RESYNC", "DELETE", "concerns")


class Plain(Views):
    def add(self, obj):
        self.note("add", obj)

    def update(self, old, new):
        self.note("resync" if old is new else "update", old, new)

    def delete(self, obj):
        self.note("delete", obj)


@both_ways
@pytest.mark.parametrize("form", ["watcher", "reconciler"])
def test_plain_ones_are_shown_objects_of_the_kind_they_were_added_under(
    rig, widget, informer, own, form
):
    first, late = Plain(), Plain()
    rig.controller.remove_informer(rig.informer)
    source = rig.add_informer(informer)
    add = rig.controller.add_watcher if form == "watcher" else rig.controller.add_reconciler
    add(first, own)
    one, two, three = (widget("x", n, kind=informer, spec={"n": n}) for n in (1, 2, 3))
    source.add(one)
    rig.work()
    rig.controller.add_watcher(late, own)
    source.update(one, two)
    rig.work()
    source.resync(two)
    rig.work()
    source.update(two, three)
    source.delete(three)
    rig.work()
    if form == "watcher":
        first.check(own, "add", "update", "resync", "delete", "concerns")
    else:
        first.check(own, "CREATE", "UPDATE", "RESYNC", "DELETE", "concerns")
    late.check(own, *(["update"] if late.seen else []))


@both_ways
def test_a_retry_is_shown_the_newest_object_of_its_own_kind(rig, widget, informer, own):
    views = Views()
    plan = [ConnectionError("once")]

    def add(obj):
        views.note("add", obj)
        if plan:
            raise plan.pop()

    rig.controller.remove_informer(rig.informer)
    source = rig.add_informer(informer)

    class Adds(Plain):
        def concerns(self, old, new):
            return False

    watcher = Adds()
    watcher.add = add
    rig.controller.add_watcher(watcher, own)
    source.add(widget("x", 1, kind=informer, spec={"n": 1}))
    rig.work()
    source.update(
        widget("x", 1, kind=informer, spec={"n": 1}), widget("x", 2, kind=informer, spec={"n": 2})
    )
    rig.work()
    rig.after(5.0)
    assert len(views.seen) == 2
    views.check(own, "add")


def test_one_that_was_added_under_a_string_is_shown_what_the_informer_has(rig, widget):
    views = Plain()
    source = rig.add_informer("things")
    rig.controller.add_watcher(views, "things")
    source.add(widget("x", kind=TYPED, spec={"n": 1}))
    rig.work()
    views.check(TYPED, "add")


def test_a_resync_is_shown_with_the_same_object_twice(rig, widget):
    seen = []
    rig.controller.remove_informer(rig.informer)
    source = rig.add_informer(PLAIN)
    rig.controller.add_watcher(SimpleWatcher(update=lambda *pair: seen.append(pair)), TYPED)
    obj = widget("x", spec={"n": 1})
    source.add(obj)
    rig.work()
    source.resync(obj)
    rig.work()
    ((old, new),) = seen
    assert old is new
    assert isinstance(new.spec, Spec)


@both_ways
def test_handlers_of_a_cache_are_shown_objects_of_the_kind_they_were_added_for(
    informer, own, running_cache
):
    views = Views()

    class Handler:
        def on_add(self, obj, *, is_initial):
            views.note("add", obj)

        def on_update(self, old, new):
            views.note("update", old, new)
            resyncs.put(old is new)

        def on_delete(self, obj, *, is_final_state_unknown):
            views.note("delete", obj)

    resyncs = queue.Queue()
    cache = running_cache(informer)
    registration = cache.add_event_handler(own, Handler(), resync=0.05)
    assert registration.wait_for_sync(running_cache.stop, 10)
    assert resyncs.get(timeout=10), "a resync has the same object twice"
    views.check(own, "add", "update")


@pytest.fixture
def running_cache():
    """Runs a cache of one object in a thread."""
    threads, stop = [], StopSignal()

    def make(kind: Kind) -> Cache:
        server = Others(kind)
        server.create("a", spec={"n": 1})
        cache = Cache(server, metrics=Metrics())
        cache.add(kind)
        thread = threading.Thread(target=cache.run, args=(stop,))
        threads.append(thread)
        thread.start()
        return cache

    make.stop = stop
    yield make
    stop.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
