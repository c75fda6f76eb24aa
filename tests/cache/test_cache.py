from __future__ import annotations

import asyncio
import threading

import attrs
import pytest

from appsdk_operator import client as c
from appsdk_operator.cache import Cache, CachedClient, CacheOptions, Informer, NotCachedError
from appsdk_operator.cache._cache import switchover
from appsdk_operator.resource import SelectorError
from appsdk_operator.runtime import Metrics, StopSignal
from tests.cache.conftest import (
    PATIENCE,
    PLACE,
    THING,
    BatchRecorder,
    Recorder,
    Stream,
    line,
    page,
    thing,
)
from tests.cache.test_waiting import Waiter
from tests.waiting import eventually


class Server:
    """A client with fixed objects, whose watches stay open until the test ends them."""

    def __init__(self, *objects):
        self.objects = list(objects)
        self.condition = threading.Condition()
        self.streams = {}
        self.lists = []
        self.held = set()
        self.errors = {}

    def list_page(self, kind, *, namespace, stop, **options):
        with self.condition:
            self.lists.append((str(kind), namespace))
            detach = stop.on_set(self.wake)
            self.condition.notify_all()
            while (kind, namespace) in self.held and not stop.is_set():
                self.condition.wait(PATIENCE)
            detach()
        if namespace in self.errors:
            raise self.errors[namespace]
        found = [o for o in self.objects if o.kind == kind and namespace in ("", o.namespace)]
        return page(*found)

    def watch(self, kind, *, namespace, stop, send_initial_events, **options):
        if send_initial_events:
            raise c.error_from_status({"code": 422})
        stream = Stream(then=None)
        stop.on_set(stream.close)
        with self.condition:
            self.streams[kind, namespace] = stream
            self.condition.notify_all()
        return stream

    def wake(self):
        with self.condition:
            self.condition.notify_all()

    def hold(self, kind, namespace=""):
        self.held.add((kind, namespace))

    def release(self):
        self.held.clear()
        self.wake()

    def stream(self, kind, namespace=""):
        with self.condition:
            assert self.condition.wait_for(lambda: (kind, namespace) in self.streams, PATIENCE)
            return self.streams[kind, namespace]


@pytest.fixture
def start():
    """Make a cache; it runs in a thread until the end of the test."""
    running = []

    def start(server, *kinds, run=True, options=None, **more):
        cache = Cache(server, metrics=Metrics(), on_error=lambda _: None, **more)
        for kind in kinds:
            cache.add(kind, options)
        if run:
            stop = StopSignal()
            thread = threading.Thread(target=cache.run, args=(stop,))
            thread.start()
            running.append((stop, thread))
            if kinds and not server.held and not server.errors:
                assert cache.wait_for_sync(stop, PATIENCE)
        return cache

    yield start
    for stop, thread in running:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def names(objects):
    return sorted(f"{obj.namespace}/{obj.name}" for obj in objects)


A, B, OTHER = thing("a"), thing("b", labels={"app": "web"}), thing("a", namespace="y")
HERE = thing("here", kind=PLACE)


# Reading.


def test_who_reads_waits_for_nobody_who_changes_the_cache(start):
    server = Server(A)
    cache = start(
        server, THING, namespaces=["x"], options=CacheOptions(indexes={"all": lambda _: "*"})
    )
    client = CachedClient(server, cache, metrics=Metrics())
    looks = [
        lambda: cache.get(THING, "a", namespace="x"),
        lambda: cache.list(THING),
        lambda: cache.by_index(THING, "all", "*"),
        lambda: client.get(THING, "a", namespace="x"),
        lambda: list(client.list(THING)),
        lambda: client.by_index(THING, "all", "*"),
        lambda: cache.informers(THING),
        lambda: cache.has_synced,
        lambda: cache.health().is_ready,
        lambda: cache.kinds,
    ]
    seen = []
    reader = threading.Thread(target=lambda: seen.extend(look() for look in looks), daemon=True)
    with cache._lock:
        reader.start()
        reader.join(PATIENCE)
        assert len(seen) == len(looks)
    assert all(seen)


def test_reads_come_from_the_local_copy(start):
    server = Server(A, B, OTHER, HERE)
    cache = start(server, THING, PLACE)
    assert cache.get(THING, "a", namespace="x") is A
    assert cache.get(THING, "none", namespace="x") is None
    assert (
        names(cache.list(THING))
        == names(cache.list(THING, namespace=""))
        == [
            "x/a",
            "x/b",
            "y/a",
        ]
    )
    assert names(cache.list(THING, namespace="y")) == ["y/a"]
    assert names(cache.list(THING, label_selector="app=web")) == ["x/b"]
    assert cache.get(PLACE, "here") is HERE
    assert set(cache.kinds) == {THING, PLACE}
    assert len(server.lists) == 2


def test_reading_an_unknown_kind_is_an_error_that_says_what_to_do(start):
    cache = start(Server(), THING)
    for read in (
        lambda: cache.get(PLACE, "a"),
        lambda: cache.list(PLACE),
        lambda: cache.by_index(PLACE, "i", "v"),
        lambda: cache.informers(PLACE),
        lambda: cache.add_event_handler(PLACE, Recorder()),
    ):
        with pytest.raises(NotCachedError) as caught:
            read()
        assert str(caught.value) == (
            "places.example.com has no informer in this cache (it holds: "
            "things.example.com): call cache.add(kind) first, or make the cache with lazy=True"
        )


def test_reading_a_namespace_that_is_not_followed_is_an_error_that_names_those_that_are(start):
    cache = start(Server(A), THING, namespaces=["x", "z"])
    for read in (
        lambda: cache.get(THING, "a", namespace="y"),
        lambda: cache.list(THING, namespace="y"),
    ):
        with pytest.raises(NotCachedError, match=r"cached in x, z only, not in namespace 'y'"):
            read()


def test_a_get_with_too_little_or_too_much_namespace_is_an_error_not_an_absence(start):
    cache = start(Server(A, HERE), THING, PLACE)
    with pytest.raises(ValueError, match="is namespaced, give a namespace"):
        cache.get(THING, "a")
    with pytest.raises(ValueError, match="is cluster-scoped, leave it out"):
        cache.get(PLACE, "here", namespace="x")
    with pytest.raises(ValueError, match="is cluster-scoped, leave it out"):
        cache.list(PLACE, namespace="x")
    assert cache.list(PLACE, namespace="") == [HERE]


def test_a_read_before_the_sync_is_an_error_and_not_an_empty_cluster(start):
    server = Server(A)
    server.hold(THING)
    cache = start(server, THING)
    for read in (lambda: cache.get(THING, "a", namespace="x"), lambda: cache.list(THING)):
        with pytest.raises(NotCachedError, match=r"not synced yet.*wait_for_sync"):
            read()
    server.release()
    assert cache.wait_for_sync(StopSignal(), PATIENCE)
    assert cache.list(THING) == [A]


def test_typed_and_untyped_kinds_share_one_copy(start):
    @attrs.frozen
    class Spec:
        size: int

    server = Server(thing("a", spec={"size": 3}))
    cache = start(server, THING)
    typed = THING.typed(spec=Spec)
    cache.add(typed)
    assert cache.get(typed, "a", namespace="x").spec == Spec(3)
    assert cache.list(typed)[0].spec == Spec(3)
    assert cache.get(THING, "a", namespace="x").spec == {"size": 3}
    assert len(server.lists) == len(cache.informers(typed)) == 1


def test_index_reads_go_over_all_namespaces(start):
    options = CacheOptions(indexes={"name": lambda obj: [obj.name]})
    cache = start(Server(A, B, OTHER), THING, options=options, namespaces=["x", "y"])
    assert names(cache.by_index(THING, "name", "a")) == ["x/a", "y/a"]
    with pytest.raises(KeyError, match="no index 'size'"):
        cache.by_index(THING, "size", "1")


# Options.


def test_namespaces_of_a_kind_come_before_those_of_the_cache(start):
    cache = start(Server(A, OTHER), run=False, namespaces=["x"])
    cache.add(THING, CacheOptions(namespaces=["y", "z", "y"]))
    cache.add(PLACE)
    assert [i.namespace for i in cache.informers(THING)] == ["y", "z"]
    assert [i.namespace for i in cache.informers(PLACE)] == [""]
    everywhere = start(Server(), run=False, namespaces=["x"])
    everywhere.add(THING, CacheOptions(namespaces=[]))
    assert [i.namespace for i in everywhere.informers(THING)] == [""]


def test_options_are_checked(start):
    cache = start(Server(), run=False)
    with pytest.raises(ValueError, match="cluster-scoped"):
        cache.add(PLACE, CacheOptions(namespaces=["x"]))
    with pytest.raises(ValueError, match="give a list of names"):
        CacheOptions(namespaces="x")
    with pytest.raises(ValueError, match="give a list of names"):
        Cache(Server(), namespaces=[""])
    with pytest.raises(ValueError, match="sync_timeout=0"):
        Cache(Server(), sync_timeout=0)
    with pytest.raises(ValueError, match="give a list of names"):
        cache.set_namespaces("x")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"transform": 5}, TypeError),
        ({"indexes": {"a": 5}}, TypeError),
        ({"label_selector": 5}, TypeError),
        ({"field_selector": 5}, TypeError),
        ({"resync": float("nan")}, ValueError),
    ],
)
def test_options_of_a_kind_are_checked_where_they_are_made(options, error):
    with pytest.raises(error, match=next(iter(options))):
        CacheOptions(**options)


def test_options_of_a_cache_and_its_handlers_have_to_have_the_right_type(start):
    for options in ({"transform": 5}, {"on_error": 7}):
        with pytest.raises(TypeError, match="give a function"):
            Cache(Server(), **options)
    with pytest.raises(ValueError, match="sync_timeout=nan"):
        Cache(Server(), sync_timeout=float("nan"))
    with pytest.raises(TypeError, match=r"use Overflow\.COALESCE"):
        start(Server(), THING).add_event_handler(THING, Recorder(), overflow="block")


def test_selectors_of_a_kind_are_equal_in_whatever_form_they_come():
    text, mapping = CacheOptions(label_selector="a=b"), CacheOptions(label_selector={"a": "b"})
    assert text.label_selector == mapping.label_selector


@pytest.mark.parametrize(
    ("options", "error"),
    [({"label_selector": "a in ("}, SelectorError), ({"resync": -1.0}, ValueError)],
)
def test_a_kind_that_cannot_be_added_is_not_kept(start, options, error):
    """Else it would have no informers, and read as if there were no objects."""
    cache = start(Server(A), run=False)
    with pytest.raises(error):
        cache.add(THING, CacheOptions(**options))
    assert list(cache.kinds) == []
    with pytest.raises(NotCachedError):
        cache.list(THING)


def test_adding_a_kind_twice_is_harmless_unless_the_options_differ(start):
    cache = start(Server(), run=False)
    cache.add(THING, CacheOptions(label_selector="a=b"))
    cache.add(THING, CacheOptions(label_selector="a=b"))
    with pytest.raises(ValueError, match="in the cache already, with other options"):
        cache.add(THING, CacheOptions())


def test_adding_a_kind_without_options_keeps_those_that_are_there(start):
    cache = start(Server(), run=False)
    cache.add(THING, CacheOptions(label_selector="a=b"))
    cache.add(THING)
    assert str(cache.informers(THING)[0].label_selector) == "a=b"


def test_a_transform_of_the_kind_comes_before_that_of_the_cache(start):
    def keep(size):
        return lambda obj: thing(obj.name, 1, namespace=obj.namespace, spec=size, kind=obj.kind)

    cache = start(Server(A, HERE), transform=keep(1))
    cache.add(THING, CacheOptions(transform=keep(2)))
    cache.add(PLACE)
    assert cache.wait_for_sync(StopSignal(), PATIENCE)
    assert cache.get(THING, "a", namespace="x").spec == 2
    assert cache.get(PLACE, "here").spec == 1


# Namespaces that come and go, and handlers.


def test_handlers_follow_the_namespaces_as_they_change(start):
    server = Server(A, OTHER)
    cache = start(server, THING, namespaces=["x"])
    recorder = Recorder()
    registration = cache.add_event_handler(THING, recorder)
    recorder.wait_for("add a@1 initial")
    server.stream(THING, "x")
    cache.set_namespaces(["y"])
    recorder.wait_for("delete a@1 unknown")
    recorder.wait_for("add a@1 initial", 2)
    assert cache.wait_for_sync(StopSignal(), PATIENCE)
    assert cache.list(THING) == [OTHER]
    with pytest.raises(NotCachedError):
        cache.list(THING, namespace="x")
    server.stream(THING, "x").send(line("ADDED", thing("late", 11)))
    server.stream(THING, "y").send(line("ADDED", thing("b", 11, namespace="y")))
    recorder.wait_for("add b@11")
    assert "add late@11" not in recorder.calls
    assert registration.has_synced


def test_a_handler_of_many_namespaces_is_never_called_twice_at_once(start):
    spaces = [f"n{number}" for number in range(6)]
    server = Server(*(thing(f"o{n}", namespace=s) for s in spaces for n in range(20)))
    cache = start(server, THING, namespaces=spaces)
    running, threads, twice = [], set(), []
    recorder = Recorder()

    def check(text):
        threads.add(threading.current_thread())
        running.append(text)
        twice.extend(running[1:])
        running.pop()

    recorder.hook = check
    registration = cache.add_event_handler(THING, recorder)
    recorder.wait_for_count(120)
    assert len(threads) == 1
    assert twice == []
    registration.remove()
    assert all(not thread.is_alive() for thread in threads)


def test_a_handler_has_synced_when_it_has_handled_every_namespace(start):
    server = Server(A, OTHER)
    server.hold(THING, "y")
    cache = start(server, THING, namespaces=["x", "y"])
    recorder = Recorder()
    registration = cache.add_event_handler(THING, recorder)
    recorder.wait_for("add a@1 initial")
    assert not registration.has_synced
    server.release()
    recorder.wait_for("add a@1 initial", 2)
    # Its objects come before the informer says that these are all.
    assert registration.wait_for_sync(StopSignal(), PATIENCE)
    assert registration.has_synced


def test_a_wait_for_a_handler_outlives_an_informer_that_never_ran(start):
    server = Server(A, OTHER)
    cache = start(server, run=False, namespaces=["x"])
    cache.add(THING)
    [informer] = cache.informers(THING)
    registration = cache.add_event_handler(THING, Recorder())
    waiter = Waiter(lambda: registration.wait_for_sync(StopSignal()))
    eventually(lambda: informer._waiters.waiting or cache._changed.waiting)
    cache.set_namespaces(["y"])
    stop = StopSignal()
    runner = Waiter(lambda: cache.run(stop))
    try:
        assert waiter.end()
    finally:
        stop.set()
        runner.end()


def test_a_wait_for_a_handler_outlives_an_informer_whose_successor_takes_over(start, monkeypatch):
    server = Server(A, OTHER)
    server.hold(THING, "x")
    cache = start(server, THING, namespaces=["x"])
    [old] = cache.informers(THING)
    registration = cache.add_event_handler(THING, Recorder())
    waiter = Waiter(lambda: registration.wait_for_sync(StopSignal()))
    eventually(lambda: old._waiters.waiting or cache._changed.waiting)
    behind = switchover.behind

    def behind_once_the_old_one_has_ended(*informers):
        eventually(lambda: old.health().text.endswith("stopped"))
        eventually(lambda: cache._changed.waiting or not waiter.thread.is_alive())
        return behind(*informers)

    monkeypatch.setattr(switchover, "behind", behind_once_the_old_one_has_ended)
    cache.set_namespaces([])
    assert waiter.end()


def test_a_removed_handler_has_synced_if_it_had(start):
    server = Server(A, OTHER)
    server.hold(THING, "y")
    cache = start(server, THING, namespaces=["x", "y"])
    early, late = (cache.add_event_handler(THING, BatchRecorder()) for _ in range(2))
    early.remove()
    server.release()
    assert late.wait_for_sync(StopSignal(), PATIENCE)
    late.remove()
    late.remove()
    assert (early.has_synced, late.has_synced) == (False, True)
    assert not any(each.wait_for_sync(StopSignal(), PATIENCE) for each in (early, late))


def test_a_removed_handler_hears_no_more_and_removal_is_harmless_twice(start):
    server = Server(A)
    cache = start(server, THING)
    gone, stays = Recorder(), BatchRecorder()
    registration = cache.add_event_handler(THING, gone)
    cache.add_event_handler(THING, stays)
    gone.wait_for_count(1)
    registration.remove()
    registration.remove()
    other = Recorder()
    cache.add_event_handler(THING, other)
    server.stream(THING).send(line("ADDED", thing("b", 11)))
    other.wait_for("add b@11")
    assert gone.calls == ["add a@1 initial"]
    assert stays.calls == ["add a@1 initial", "add b@11"]


def test_what_is_no_kind_is_refused_by_name():
    cache = Cache(Server(), lazy=True, metrics=Metrics())
    for use in (
        lambda: Informer("ConfigMap", Server()),
        lambda: cache.add("ConfigMap"),
        lambda: cache.get("ConfigMap", "a", namespace="x"),
        lambda: cache.list("ConfigMap"),
        lambda: cache.list("ConfigMap", namespace="x"),
    ):
        with pytest.raises(TypeError, match=r"'ConfigMap' is not a Kind.*kinds\.core\.v1"):
            use()


def test_a_handler_that_was_refused_does_not_come_back_with_the_next_namespace(start):
    cache = start(Server(A, OTHER), THING, namespaces=["x"])
    with pytest.raises(TypeError, match="handles no events"):
        cache.add_event_handler(THING, object())
    with pytest.raises(ValueError, match="resync=-1"):
        cache.add_event_handler(THING, Recorder(), resync=-1)
    cache.set_namespaces(["x", "y"])
    assert cache.wait_for_sync(StopSignal(), PATIENCE)
    assert names(cache.list(THING)) == ["x/a", "y/a"]


def test_cluster_scoped_kinds_stay_when_namespaces_change(start):
    cache = start(Server(A, HERE), THING, PLACE, namespaces=["x"])
    before = cache.informers(PLACE)
    cache.set_namespaces([])
    assert cache.informers(PLACE) == before
    assert cache.wait_for_sync(StopSignal(), PATIENCE)
    assert [i.namespace for i in cache.informers(THING)] == [""]


def test_waiting_for_the_sync_forgets_a_namespace_that_is_given_up_meanwhile(start):
    server = Server(A, OTHER)
    server.hold(THING, "y")
    cache = start(server, THING, namespaces=["x", "y"])
    results = []
    waiter = threading.Thread(
        target=lambda: results.append(cache.wait_for_sync(StopSignal(), PATIENCE))
    )
    waiter.start()
    cache.set_namespaces(["x"])
    waiter.join(PATIENCE)
    assert results == [True]


# Lazy caches.


def test_a_lazy_read_adds_the_kind_and_waits_for_its_sync(start):
    cache = start(Server(A), lazy=True)
    eventually(lambda: cache._stop is not None)
    assert cache.get(THING, "a", namespace="x") is A
    assert list(cache.kinds) == [THING]


def test_two_lazy_reads_at_once_both_wait_for_the_sync(start):
    server = Server(A)
    server.hold(THING)
    cache = start(server, lazy=True)
    eventually(lambda: cache._stop is not None)
    results = []
    readers = [threading.Thread(target=lambda: results.append(cache.list(THING))) for _ in range(3)]
    for reader in readers:
        reader.start()
    with server.condition:
        assert server.condition.wait_for(lambda: server.lists, PATIENCE)
    server.release()
    for reader in readers:
        reader.join(PATIENCE)
    assert results == [[A]] * 3


def test_a_lazy_read_that_does_not_sync_in_time_says_why(start):
    server = Server(A)
    server.hold(THING)
    cache = start(server, lazy=True, sync_timeout=0.01)
    eventually(lambda: cache._stop is not None)
    with pytest.raises(TimeoutError, match=r"not synced yet.*waited 0.01 s"):
        cache.list(THING)


def test_a_lazy_read_of_a_task_that_was_cancelled_waits_no_longer(start):
    server = Server(A)
    server.hold(THING)
    cache = start(server, lazy=True, sync_timeout=5.0)
    eventually(lambda: cache._stop is not None)
    ends = []

    def note(inner, *args, **options):
        try:
            return inner.get(*args, **options)
        except Exception as error:
            ends.append(type(error))
            raise

    def wait_for_list():
        with server.condition:
            assert server.condition.wait_for(lambda: server.lists, PATIENCE)

    async def use():
        client = c.InterceptedClient(CachedClient(server, cache), c.Hooks(get=note))
        task = asyncio.ensure_future(client.aio.get(THING, "a", namespace="x"))
        await asyncio.to_thread(wait_for_list)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(use())
    assert ends == [c.RequestStopped]


def test_a_lazy_read_waits_no_longer_while_what_takes_over_is_listed_again(start, monkeypatch):
    server = Server(A, OTHER)
    server.hold(THING, "y")
    cache = start(server, lazy=True, sync_timeout=0.05, namespaces=["x", "y"])
    eventually(lambda: cache._stop is not None)
    cache.add(THING)
    x, y = cache.informers(THING)
    assert x.wait_for_sync(StopSignal(), PATIENCE)

    def behind(new, old):
        server.hold(THING)
        return new

    monkeypatch.setattr(switchover, "behind", behind)
    cache.set_namespaces([])
    eventually(lambda: y.health().text.endswith("stopped"))

    def read():
        with pytest.raises(TimeoutError, match=r"stopped; waited 0.05 s"):
            cache.list(THING, namespace="y")
        return True

    assert Waiter(read).end()


def test_a_lazy_read_of_a_kind_that_is_removed_meanwhile_is_one_after_the_removal(start):
    server = Server(A)
    server.errors[""] = c.error_from_status({"code": 503})
    cache = start(server, lazy=True)
    eventually(lambda: cache._stop is not None)
    results = []
    reader = threading.Thread(
        target=lambda: results.append(cache.get(THING, "a", namespace="x")), daemon=True
    )
    reader.start()
    with server.condition:
        assert server.condition.wait_for(lambda: server.lists, PATIENCE)
    del server.errors[""]
    cache.remove(THING)
    reader.join(PATIENCE)
    assert results == [A]


def test_a_lazy_read_that_a_stop_ends_says_so(start):
    server = Server(A)
    server.errors[""] = c.error_from_status({"code": 503})
    cache = start(server, lazy=True)
    eventually(lambda: cache._stop is not None)
    errors = []

    def read():
        with pytest.raises(TimeoutError) as caught:
            cache.list(THING)
        errors.append(str(caught.value))

    reader = threading.Thread(target=read)
    reader.start()
    with server.condition:
        assert server.condition.wait_for(lambda: server.lists, PATIENCE)
    cache._stop.set()
    reader.join(PATIENCE)
    assert len(errors) == 1
    assert "the cache does not run" in errors[0]


def test_a_lazy_read_of_a_cache_that_does_not_run_says_so(start):
    with pytest.raises(TimeoutError, match="the cache does not run"):
        start(Server(), run=False, lazy=True).list(THING)


# Health and life.


def test_health_names_what_is_wrong(start):
    server = Server(A)
    server.errors["y"] = c.error_from_status({"code": 403, "reason": "Forbidden", "message": "no"})
    cache = start(server, THING, namespaces=["x", "y"])
    informers = {i.namespace: i for i in cache.informers(THING)}
    assert informers["x"].wait_for_sync(StopSignal(), PATIENCE)
    eventually(lambda: informers["y"].last_error is not None)
    health = cache.health()
    assert not health.is_ready
    assert not cache.has_synced
    assert health.text == ("informer of things.example.com in y: not synced yet: 403 Forbidden: no")
    cache.set_namespaces(["x"])
    assert cache.health().text == "cache: 1 informer ok"
    assert cache.has_synced


def test_a_cache_runs_once(start):
    cache = start(Server(), THING)
    with pytest.raises(RuntimeError, match="was run before"):
        cache.run(StopSignal())


@pytest.mark.parametrize("fails", [False, True])
def test_a_cache_outlives_what_runs_beside_it_in_its_thread(caplog, fails):
    cache = Cache(Server(A), metrics=Metrics())
    cache.add(THING)
    stop, seen = StopSignal(), []

    def beside(own):
        seen.append((threading.current_thread(), own))
        assert cache.wait_for_sync(own, PATIENCE)
        if fails:
            raise RuntimeError("no")

    thread = threading.Thread(target=lambda: cache.run(stop, meanwhile=beside))
    thread.start()
    try:
        assert cache.wait_for_sync(stop, PATIENCE)
        assert cache.get(THING, "a", namespace="x") is A
        eventually(lambda: seen)
        assert seen[0][0] is thread
        eventually(lambda: bool(caplog.records) is fails)
        assert thread.is_alive()
    finally:
        stop.set()
        thread.join(PATIENCE)
    assert seen[0][1].is_set()


def test_handlers_begin_no_call_after_the_stop_while_what_runs_beside_the_cache_goes_on():
    cache = Cache(Server(A, B), metrics=Metrics())
    cache.add(THING)
    stop, is_called, goes_on, ends = StopSignal(), *(threading.Event() for _ in range(3))
    calls = []

    class Slow(Recorder):
        def on_add(self, obj, *, is_initial=False):
            calls.append(obj.name)
            is_called.set()
            assert goes_on.wait(PATIENCE)

    registration = cache.add_event_handler(THING, Slow())
    thread = threading.Thread(
        target=lambda: cache.run(stop, meanwhile=lambda _: ends.wait(PATIENCE) and None)
    )
    thread.start()
    try:
        assert is_called.wait(PATIENCE)
        stop.set()
        goes_on.set()
        assert not registration.wait_for_sync(StopSignal(), PATIENCE)
        assert registration.join(PATIENCE) == []
        assert thread.is_alive()
        assert len(calls) == 1
    finally:
        stop.set()
        goes_on.set()
        ends.set()
        thread.join(PATIENCE)


def test_a_removed_kind_stops_and_can_be_added_again(start):
    server = Server(A)
    cache = start(server, THING)
    recorder = Recorder()
    cache.add_event_handler(THING, recorder)
    (informer,) = cache.informers(THING)
    recorder.wait_for_count(1)
    cache.remove(THING)
    cache.remove(THING)
    with pytest.raises(NotCachedError):
        cache.list(THING)
    cache.add(THING, CacheOptions(label_selector="app=web"))
    assert cache.wait_for_sync(StopSignal(), PATIENCE)
    assert cache.informers(THING) != [informer]
    assert len(recorder.calls) == 1


def test_a_kind_that_is_added_while_the_cache_runs_starts_at_once(start):
    cache = start(Server(A, HERE), THING)
    cache.add(PLACE)
    assert cache.wait_for_sync(StopSignal(), PATIENCE)
    assert cache.get(PLACE, "here") is HERE


def test_a_handler_that_never_ends_does_not_hold_up_the_end_for_ever_and_is_named(start):
    cache = start(Server(A), run=False)
    cache.add(THING)
    gate, entered, stop = threading.Event(), threading.Event(), StopSignal()
    recorder = Recorder()
    recorder.hook = lambda _: (entered.set(), gate.wait(PATIENCE))
    cache.add_event_handler(THING, recorder)
    [informer] = cache.informers(THING)

    def stop_when_the_informer_has_ended():
        entered.wait(PATIENCE)
        cache._kind_caches[THING].end()
        eventually(lambda: informer.health().text.endswith("stopped"))
        stop.set()

    stopper = threading.Thread(target=stop_when_the_informer_has_ended)
    stopper.start()
    name = "cache/things.v1.example.com/worker-0"
    with pytest.raises(TimeoutError, match=rf"the cache was stopped.*still run: {name}\."):
        cache.run(stop, stop_timeout=0.2)
    gate.set()
    stopper.join(PATIENCE)


def test_the_end_of_a_run_ends_its_handlers(start):
    cache = Cache(Server(A), metrics=Metrics())
    cache.add(THING)
    recorder, stop = Recorder(), StopSignal()
    cache.add_event_handler(THING, recorder)
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    recorder.wait_for_count(1)
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert not [t for t in threading.enumerate() if t.name.startswith("cache/")]
    assert "stopped" in cache.health().text
