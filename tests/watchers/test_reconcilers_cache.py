"""An InformerController on the informers of a cache that somebody else runs."""

from __future__ import annotations

import threading

import msgspec
import pytest

from appsdk_operator.cache import Cache, CacheOptions, Informer
from appsdk_operator.client import BadRequest, Client, ClientConfig
from appsdk_operator.controllers import Controller, KindSource, Result, for_object
from appsdk_operator.resource import Kind, ListPage, MutableObject, Object, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import APIServer
from appsdk_operator.watchers import (
    InformerController,
    OpinionatedReconciler,
    SimpleReconciler,
    SimpleWatcher,
    never_retry,
)
from tests.runs import Run

CONFIG_MAP = kinds.core.v1.ConfigMap


class Counted:
    """A client that counts what informers ask for."""

    def __init__(self, client) -> None:
        self.client = client
        self.watches: list[str] = []
        self.lists: list[str] = []

    def list_page(self, kind, **options):
        self.lists.append(options.get("namespace", ""))
        return self.client.list_page(kind, **options)

    def watch(self, kind, **options):
        self.watches.append(options.get("namespace", ""))
        return self.client.watch(kind, **options)


class World:
    """A server, a cache, a controller, and what runs of them until the end."""

    def __init__(self, **cache_options) -> None:
        self.server = APIServer()
        self.server.__enter__()
        self.client = Client(ClientConfig(server=self.server.url))
        self.counted = Counted(self.client)
        self.cache = Cache(self.counted, metrics=Metrics(), **cache_options)
        self.controller = InformerController(metrics=Metrics())
        self.told: list[str] = []
        self.changed = threading.Condition()
        self.stop = StopSignal()
        self.runs: list[Run] = []
        self.raised: list[BaseException] = []

    def note(self, text: str) -> None:
        with self.changed:
            self.told.append(text)
            self.changed.notify_all()

    def wait_for(self, *texts: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: set(texts) <= set(self.told), 20), self.told

    def watcher(self, name: str = "w") -> SimpleWatcher:
        return SimpleWatcher(
            add=lambda obj: self.note(f"{name} add {obj.namespace}/{obj.name}"),
            update=lambda old, new: self.note(f"{name} update {new.namespace}/{new.name}"),
            delete=lambda obj: self.note(f"{name} delete {obj.namespace}/{obj.name}"),
        )

    def create(self, name: str, namespace: str = "default", kind: Kind = CONFIG_MAP) -> None:
        self.client.create(MutableObject.new(kind, name, namespace=namespace, data={}))

    def start(self, *runnables) -> None:
        for runnable in runnables:
            self.runs.append(Run(runnable, self.stop, self.raised).start())

    def close(self) -> None:
        self.stop.set()
        for run in self.runs:
            run.join()
        self.controller.close()
        self.client.close()
        self.server.__exit__(None, None, None)
        assert not self.raised


@pytest.fixture
def make_world():
    worlds: list[World] = []

    def make(**options) -> World:
        worlds.append(World(**options))
        return worlds[-1]

    yield make
    for world in worlds:
        world.close()


@pytest.fixture
def world(make_world) -> World:
    return make_world()


def test_its_watchers_hear_of_what_the_cache_follows(world):
    world.create("a")
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.controller.add_watcher(world.watcher(), CONFIG_MAP)
    world.start(world.cache, world.controller)
    assert world.controller.wait_for_sync(world.stop, 20)
    assert world.controller.has_synced
    assert world.told == ["w add default/a"]
    world.create("b")
    world.client.delete(CONFIG_MAP, "a", namespace="default")
    world.wait_for("w add default/b", "w delete default/a")
    assert world.controller.health().is_ready


def test_a_controller_and_an_informer_controller_share_one_informer(world):
    seen = set()

    def reconcile(request):
        seen.add(request.name)
        world.note(f"reconciled {request.name}")

    other = Controller("other", reconcile, metrics=Metrics())
    other.watch(KindSource(world.cache, CONFIG_MAP, for_object(), metrics=Metrics()))
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.controller.add_watcher(world.watcher(), CONFIG_MAP)
    world.create("a")
    world.start(world.cache, world.controller, other)
    world.wait_for("w add default/a", "reconciled a")
    world.create("b")
    world.wait_for("w add default/b", "reconciled b")
    assert len(world.cache.informers(CONFIG_MAP)) == 1
    assert world.counted.watches == [""], "one watch on the server for both"
    assert len(world.counted.lists) <= 1


def test_namespaces_that_come_later_come_too(make_world):
    world = make_world(namespaces=["default"])
    for namespace in ("default", "other"):
        if namespace != "default":
            world.client.create(MutableObject.new(kinds.core.v1.Namespace, namespace))
        world.create("a", namespace)
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.controller.add_watcher(world.watcher(), CONFIG_MAP)
    world.start(world.cache, world.controller)
    assert world.controller.wait_for_sync(world.stop, 20)
    assert world.told == ["w add default/a"]
    world.cache.set_namespaces(["default", "other"])
    world.wait_for("w add other/a")
    assert world.controller.wait_for_sync(world.stop, 20)


def test_a_namespace_that_is_followed_no_more_takes_what_is_owed_along_and_is_no_deletion(
    make_world,
):
    clock = ManualClock()
    world = make_world(namespaces=["default", "other"])
    world.client.create(MutableObject.new(kinds.core.v1.Namespace, "other"))
    world.create("a")
    world.create("a", "other")
    controller = InformerController(metrics=Metrics(), clock=clock)
    controller.add_cache(world.cache, CONFIG_MAP, resync=0)

    def again(request):
        world.note(f"{request.action.value} {request.object.namespace}")
        return Result(requeue_after=60.0)

    controller.add_reconciler(SimpleReconciler(again), CONFIG_MAP)
    world.start(world.cache)
    assert world.cache.wait_for_sync(world.stop, 20)
    while controller.process_next():
        pass
    assert sorted(world.told) == ["CREATE default", "CREATE other"]
    world.cache.set_namespaces(["default"])
    world.told.clear()
    for _ in range(2):
        clock.advance(60.0)
        while controller.process_next():
            pass
    assert world.told == ["CREATE default", "CREATE default"]
    assert controller.pending_requeues == 1
    controller.close()


def test_what_the_policy_gave_up_on_comes_back_by_itself(world):
    clock = ManualClock()
    world.create("a")
    controller = InformerController(
        name="c", metrics=Metrics(), clock=clock, retry_policy=never_retry, error_handler=print
    )
    controller.add_cache(world.cache, CONFIG_MAP)
    outcomes = [ConnectionError("not now"), None]

    def add(obj):
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    controller.add_watcher(SimpleWatcher(add=add), CONFIG_MAP)
    world.start(world.cache)
    assert world.cache.wait_for_sync(world.stop, 20)
    while controller.process_next():
        pass
    assert controller.health().text == (
        "c: 1 informer ok; 1 call given up until a resync or a change of the object"
    )
    clock.advance(33.0)
    while controller.process_next():
        pass
    assert outcomes == []
    assert controller.health().text == "c: 1 informer ok"
    controller.close()


def test_a_watcher_that_comes_late_is_told_of_what_all_namespaces_hold(make_world):
    world = make_world(namespaces=["default", "other"])
    world.client.create(MutableObject.new(kinds.core.v1.Namespace, "other"))
    world.create("a")
    world.create("a", "other")
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.controller.add_watcher(world.watcher("early"), CONFIG_MAP)
    world.start(world.cache, world.controller)
    world.wait_for("early add default/a", "early add other/a")
    assert world.controller.wait_for_sync(world.stop, 20)
    world.controller.add_watcher(world.watcher("late"), CONFIG_MAP)
    world.wait_for("late add default/a", "late add other/a")
    assert sorted(t for t in world.told if t.startswith("late")) == [
        "late add default/a",
        "late add other/a",
    ]


def test_a_cache_that_is_not_run_is_not_synced_and_a_stop_ends_the_wait(world):
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.start(world.controller)
    assert not world.controller.has_synced
    assert not world.controller.wait_for_sync(world.stop, 0.0)
    health = world.controller.health()
    assert not health.is_ready
    assert "not started" in health.text
    own = StopSignal()
    own.set()
    assert not world.controller.wait_for_sync(own)


def test_the_end_of_the_controller_ends_a_wait_for_a_cache(world):
    world.controller.add_cache(world.cache, CONFIG_MAP)
    outcome = []
    waiting = threading.Thread(
        target=lambda: outcome.append(world.controller.wait_for_sync(StopSignal()))
    )
    waiting.start()
    world.controller.close()
    waiting.join(20)
    assert outcome == [False]


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_wait_that_begins_while_a_cache_is_added_waits_for_it(world, is_refused):
    outcomes, add_event_handler = [], world.cache.add_event_handler

    def add_while_others_wait(*arguments, **options):
        waiting = Run(lambda stop: outcomes.append(world.controller.wait_for_sync(stop))).start()
        world.runs.append(waiting)
        (binding,) = world.controller._bindings._bindings
        while not binding._attached.waiting and waiting.thread.is_alive():
            threading.Event().wait(0.001)
        if is_refused:
            raise ZeroDivisionError
        return add_event_handler(*arguments, **options)

    world.cache.add_event_handler = add_while_others_wait
    if is_refused:
        with pytest.raises(ZeroDivisionError):
            world.controller.add_cache(world.cache, CONFIG_MAP)
    else:
        world.controller.add_cache(world.cache, CONFIG_MAP)
        world.start(world.cache)
    world.runs[0].join()
    assert outcomes == [True]


def test_a_wait_for_a_cache_that_begins_after_the_end_says_so_as_well(world):
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.controller.close()
    assert not world.controller.wait_for_sync(StopSignal(), 20)


def test_the_cache_goes_on_when_the_controller_has_stopped(world):
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.start(world.cache)
    own = StopSignal()
    thread = threading.Thread(target=lambda: world.controller.run(own))
    thread.start()
    assert world.controller.wait_for_sync(world.stop, 20)
    own.set()
    thread.join(20)
    [informer] = world.cache.informers(CONFIG_MAP)
    assert not informer._access.registrations, "what is over is not kept"
    assert world.cache.health().is_ready


def test_a_removed_cache_is_heard_of_no_more_and_may_come_back(world):
    world.create("a")
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.controller.add_watcher(world.watcher(), CONFIG_MAP)
    world.start(world.cache, world.controller)
    world.wait_for("w add default/a")
    world.controller.remove_cache(world.cache, CONFIG_MAP)
    world.controller.remove_cache(world.cache, CONFIG_MAP)
    world.create("b")
    assert world.cache.wait_for_sync(world.stop, 20)
    world.told.clear()
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.wait_for("w add default/a", "w add default/b")


def test_a_resync_of_its_own_shows_every_object_again(world):
    world.create("a")
    world.controller.add_cache(world.cache, CONFIG_MAP, resync=0.01)
    world.controller.add_watcher(world.watcher(), CONFIG_MAP)
    world.start(world.cache, world.controller)
    world.wait_for("w update default/a")


def test_objects_are_read_with_the_types_of_the_kind_that_was_added(world):
    class Data(msgspec.Struct, frozen=True):
        replicas: int = 0

    typed = kinds.apps.v1.Deployment.typed(spec=Data)
    plain = kinds.apps.v1.Deployment
    world.cache.add(plain)
    world.controller.add_cache(world.cache, typed)
    world.controller.add_watcher(
        SimpleWatcher(add=lambda obj: world.note(f"early {obj.spec!r}")), typed
    )
    selector = {"matchLabels": {"app": "web"}}
    pod = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 3, "selector": selector, "template": pod}
    made = MutableObject.new(plain, "a", namespace="default", spec=spec)
    world.client.create(made)
    world.start(world.cache, world.controller)
    world.wait_for("early Data(replicas=3)")
    world.controller.add_watcher(
        SimpleWatcher(add=lambda obj: world.note(f"late {obj.spec!r}")), typed
    )
    world.wait_for("late Data(replicas=3)")


def test_an_opinionated_reconciler_lives_on_a_shared_informer(world):
    inner = SimpleReconciler(lambda request: world.note(f"{request.action.value}"))
    reconciler = OpinionatedReconciler(inner, CONFIG_MAP, world.client)
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.controller.add_reconciler(reconciler, CONFIG_MAP)
    world.create("a")
    world.start(world.cache, world.controller)
    world.wait_for("CREATE")
    assert world.controller.wait_for_sync(world.stop, 20)
    world.client.delete(CONFIG_MAP, "a", namespace="default")
    world.wait_for("DELETE")


def test_the_options_of_a_kind_that_is_kept_stay(world):
    world.cache.add(CONFIG_MAP, CacheOptions(label_selector="app=web"))
    world.controller.add_cache(world.cache, CONFIG_MAP)
    assert str(world.cache.informers(CONFIG_MAP)[0].label_selector) == "app=web"


def test_a_controller_that_is_over_leaves_no_handler_in_a_cache(world):
    world.controller.close()
    with pytest.raises(RuntimeError, match="has ended"):
        world.controller.add_cache(world.cache, CONFIG_MAP)
    assert CONFIG_MAP not in world.cache.kinds


def test_a_cache_is_added_once_for_a_kind(world):
    world.controller.add_cache(world.cache, CONFIG_MAP)
    with pytest.raises(ValueError, match="was added already"):
        world.controller.add_cache(world.cache, CONFIG_MAP)
    assert len(world.cache.informers(CONFIG_MAP)[0]._access.registrations) == 1


@pytest.mark.parametrize("is_added_again", [False, True])
def test_health_says_that_the_kind_was_removed_from_the_cache(world, is_added_again):
    world.controller.add_cache(world.cache, CONFIG_MAP)
    world.cache.remove(CONFIG_MAP)
    if is_added_again:
        world.cache.add(CONFIG_MAP)
        world.start(world.cache)
        assert world.cache.wait_for_sync(StopSignal(), 20)
    health = world.controller.health()
    assert not health.is_ready
    assert "was removed from the cache" in health.text
    world.controller.remove_cache(world.cache, CONFIG_MAP)
    world.controller.add_cache(world.cache, CONFIG_MAP)
    assert "was removed from the cache" not in world.controller.health().text
    world.controller.add_watcher(world.watcher(), CONFIG_MAP)


@pytest.mark.parametrize(
    ("cache", "kind", "text"),
    [
        (object(), CONFIG_MAP, "is not a cache"),
        (Cache, CONFIG_MAP, "is not a cache"),
        (None, "ConfigMap", "is not a Kind"),
    ],
)
def test_wrong_arguments_are_refused(world, cache, kind, text):
    with pytest.raises(TypeError, match=text):
        world.controller.add_cache(cache, kind)


def test_what_the_cache_refuses_leaves_nothing_behind(world):
    with pytest.raises(ValueError, match="resync"):
        world.controller.add_cache(world.cache, CONFIG_MAP, resync=-1.0)
    assert world.controller.has_synced
    world.controller.add_cache(world.cache, CONFIG_MAP)


def test_nothing_overlaps_for_an_object_that_an_informer_and_a_cache_show(world):
    running, overlaps, both = set(), [], threading.Barrier(2, timeout=20)
    del both

    def act(request):
        if request.key in running:
            overlaps.append(request.key)
        running.add(request.key)
        world.note(f"{request.action.value} {request.object.name}")
        running.discard(request.key)

    controller = InformerController(workers=4, metrics=Metrics())
    controller.add_informer(Informer(CONFIG_MAP, world.client, metrics=Metrics()), CONFIG_MAP)
    controller.add_cache(world.cache, CONFIG_MAP)
    controller.add_reconciler(SimpleReconciler(act), CONFIG_MAP)
    for name in "abcdefgh":
        world.create(name)
    world.start(world.cache, controller)
    assert controller.wait_for_sync(world.stop, 20)
    assert controller.wait_idle(20)
    assert world.told.count("CREATE a") == 2, "each shows it"
    assert not overlaps


def test_an_event_that_is_begun_when_the_cache_goes_is_shown_with_the_types_of_its_kind():
    class Typed(msgspec.Struct, frozen=True):
        size: int = 0

    plain = Kind(group="example.com", version="v1", kind="Widget")
    typed = Kind(group="example.com", version="v1", kind="Widget", spec=Typed)
    widget = Object.from_dict(
        plain, {"metadata": {"name": "w", "uid": "u", "resourceVersion": "1"}, "spec": {"size": 1}}
    )

    class OneWidget:
        def list_page(self, *_, **__):
            return ListPage([widget], "1", "", None)

        def watch(self, *_, **__):
            raise BadRequest("streams of lists are not known", status=400)

    clock, seen = ManualClock(), []
    cache = Cache(OneWidget(), clock=clock, metrics=Metrics())
    controller = InformerController(clock=clock, metrics=Metrics())
    controller.add_watcher(SimpleWatcher(add=lambda obj: seen.append(obj.spec)), str(typed))
    controller.add_cache(cache, typed)
    handle = controller._delivery._handle_event

    def begun(source, event):
        controller.remove_cache(cache, typed)
        return handle(source, event)

    controller._delivery._handle_event = begun
    for _ in range(2):
        cache.informers(typed)[0].step(StopSignal())
    while controller.process_next():
        pass
    assert seen == [Typed(1)]
    controller.close()
