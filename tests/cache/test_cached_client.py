"""The client that reads from a cache: its reads, its errors, and its overlay."""

from __future__ import annotations

import sys
import threading

import pytest

from appsdk_operator.cache import (
    Cache,
    CachedClient,
    CacheOptions,
    NotCachedError,
    NotFollowedError,
)
from appsdk_operator.cache._client.overlay import Overlay, WrittenObject, resolved
from appsdk_operator.cache._informer.informer import access_to
from appsdk_operator.cache._informer.watch_state import next_order
from appsdk_operator.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    ClientLike,
    ClientWrapper,
    ConnectionLost,
    DryRunClient,
    FieldOwnerClient,
    MergePatch,
    NamespacedClient,
    NotFound,
)
from appsdk_operator.resource import MutableObject, ObjectKey, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer, FaultRule, running
from tests.cache.conftest import PATIENCE, THING, thing

ConfigMap, Secret, Namespace = (
    kinds.core.v1.ConfigMap,
    kinds.core.v1.Secret,
    kinds.core.v1.Namespace,
)


@pytest.fixture
def live():
    server = APIServer().start()
    try:
        with Client(ClientConfig(server=server.url)) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture
def start():
    running = []

    def start(live, *kinds_, run=True, options=None, **more):
        metrics = Metrics()
        cache = Cache(live, metrics=metrics, **more.pop("cache", {}))
        for kind in kinds_:
            cache.add(kind, options)
        stop = StopSignal()
        if run:
            thread = threading.Thread(target=cache.run, args=(stop,))
            thread.start()
            running.append((stop, thread))
            assert cache.wait_for_sync(stop, PATIENCE)
        return CachedClient(live, cache, metrics=metrics, **more)

    yield start
    for stop, thread in running:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive()


def draft(name="a", kind=ConfigMap, **labels):
    made = MutableObject.new(kind, name, namespace="default", data={"n": "MQ=="})
    made.labels.update(labels)
    return made


def test_it_is_a_client(live, start):
    client: ClientLike = start(live, ConfigMap)
    assert client.live is live
    client.close()


def test_what_was_written_is_read_at_once(live, start):
    client = start(live, ConfigMap)
    for number in range(30):
        made = client.create(draft(f"o{number}"))
        assert client.get(ConfigMap, made.name, namespace="default") == made
        patched = client.patch(
            ConfigMap, made.name, MergePatch({"data": {"n": "Mg=="}}), namespace="default"
        )
        assert client.get(ConfigMap, made.name, namespace="default") == patched
        assert patched in list(client.list(ConfigMap, namespace="default"))
        client.delete(ConfigMap, made.name, namespace="default", uid=made.uid)
        with pytest.raises(NotFound):
            client.get(ConfigMap, made.name, namespace="default")
        assert made.uid not in {o.uid for o in client.list(ConfigMap)}


def test_absence_reads_as_from_the_server(live, start):
    client = start(live, ConfigMap)
    with pytest.raises(NotFound) as of_server:
        live.get(ConfigMap, "none", namespace="default")
    with pytest.raises(NotFound) as of_cache:
        client.get(ConfigMap, "none", namespace="default")
    told, expected = of_cache.value, of_server.value
    assert (told.message, told.details) == (expected.message, expected.details)
    assert (told.status, told.reason) == (404, "NotFound")


def test_what_the_cache_does_not_keep_is_an_error_that_names_the_remedies(live, start):
    client = start(live, ConfigMap, cache={"namespaces": ["default"]})
    for read in (
        lambda: client.get(Secret, "a", namespace="default"),
        lambda: client.list(Secret),
        lambda: client.by_index(Secret, "i", "v"),
    ):
        with pytest.raises(NotCachedError) as caught:
            read()
        for remedy in ("cache.add(kind)", "lazy=True", "uncached=[kind]", "live client"):
            assert remedy in str(caught.value)
    with pytest.raises(NotFollowedError, match=r"not in namespace 'other'.*live client"):
        client.get(ConfigMap, "a", namespace="other")
    with pytest.raises(NotFollowedError, match="not followed in namespace 'other'"):
        client.wait_until_seen(thing("a", kind=ConfigMap, namespace="other"), StopSignal())
    with pytest.raises(TypeError, match=r"uncached=configmaps\.v1: give a list of kinds"):
        CachedClient(live, client.cache, uncached=ConfigMap)
    with pytest.raises(ValueError, match="overlay_limit=0"):
        CachedClient(live, client.cache, overlay_limit=0)


def test_uncached_kinds_are_read_from_the_server(live, start):
    client = start(live, ConfigMap, uncached=[Secret, ConfigMap])
    client.create(draft(kind=Secret))
    assert client.get(Secret, "a", namespace="default").name == "a"
    assert [o.name for o in client.list(Secret, namespace="default")] == ["a"]
    client.create(draft())
    live.delete(ConfigMap, "a", namespace="default")
    with pytest.raises(NotFound):
        client.get(ConfigMap, "a", namespace="default")


def test_an_index_shows_own_writes_of_an_uncached_kind(live, start):
    """An index is always read from the cache."""
    client = start(live, ConfigMap, run=False, uncached=[ConfigMap])
    client.cache.add_index(ConfigMap, "name", lambda obj: [obj.name])
    with running(client.cache):
        (access,) = (access_to(each) for each in client.cache.informers(ConfigMap))
        with access.lock:  # the watch brings nothing
            last = client.create(draft("last"))
            assert client.by_index(ConfigMap, "name", "last") == [last]
            client.delete(ConfigMap, "last", namespace="default", uid=last.uid)
            assert client.by_index(ConfigMap, "name", "last") == []


def test_pages_and_watches_are_live(live, start):
    client = start(live, run=False)
    made = live.create(draft())
    assert made in client.list_page(ConfigMap, namespace="default").items
    with client.watch(ConfigMap, namespace="default", timeout=5) as stream:
        event = next(iter(stream.events()))
    assert event.object is not None


def test_dry_runs_and_lost_answers_lay_nothing_over(live, start):
    class Losing(ClientWrapper):
        def create(self, obj, **options):
            raise ConnectionLost("the answer is lost")

    client = start(live, ConfigMap)
    losing = CachedClient(Losing(live), client.cache)
    with pytest.raises(ConnectionLost):
        losing.create(draft("dry"))
    client.create(draft("dry"), dry_run=True)
    DryRunClient(client).create(draft("dry"))
    inside = CachedClient(DryRunClient(live), client.cache)
    inside.create(draft("dry"))
    inside.delete_collection(ConfigMap, namespace="default")
    for each in (client, inside, losing):
        with pytest.raises(NotFound):
            each.get(ConfigMap, "dry", namespace="default")
        assert not each._overlay.counts().get(ConfigMap)


class LosingAnswers(ClientWrapper):
    """Carries each write out, and loses its answer; reads fail as often as is wanted."""

    failing_reads = 0

    def _send(self, call, forward):
        if not call.is_write and self.failing_reads:
            self.failing_reads -= 1
            raise ConnectionLost("the server is away")
        answer = forward(call)
        if call.is_write:
            raise ConnectionLost("the answer is lost")
        return answer


def behind(live, start):
    """A client that loses answers, and reads from a cache whose watch delivers nothing more."""
    live.create(draft("old"))
    cache = start(live, ConfigMap).cache
    for informer in cache.informers(ConfigMap):
        access_to(informer).freeze()
    losing = LosingAnswers(live)
    return CachedClient(losing, cache), losing


def test_a_write_whose_answer_was_lost_is_read_all_the_same(live, start):
    client, _ = behind(live, start)
    with pytest.raises(ConnectionLost, match="the answer is lost"):
        client.create(draft("new"))
    assert client.get(ConfigMap, "new", namespace="default")["data"] == {"n": "MQ=="}
    assert [obj.name for obj in client.list(ConfigMap, namespace="default")] == ["new", "old"]
    two = MergePatch({"data": {"n": "Mg=="}})
    for name in ("old", "new"):
        with pytest.raises(ConnectionLost, match="the answer is lost"):
            client.patch(ConfigMap, name, two, namespace="default")
        assert client.get(ConfigMap, name, namespace="default")["data"] == {"n": "Mg=="}
        with pytest.raises(ConnectionLost, match="the answer is lost"):
            client.delete(ConfigMap, name, namespace="default")
        with pytest.raises(NotFound):
            client.get(ConfigMap, name, namespace="default")
    assert list(client.list(ConfigMap, namespace="default")) == []


def test_what_exists_already_and_the_cache_does_not_show_is_read(live, start):
    client, _ = behind(live, start)
    theirs = live.create(draft("new"))
    with pytest.raises(AlreadyExists):
        client.create(draft("new"))
    assert client.get(ConfigMap, "new", namespace="default") == theirs
    # What it shows is as new as the cache: others' changes come with the watch.
    shown = client.get(ConfigMap, "old", namespace="default")
    live.patch(ConfigMap, "old", MergePatch({"data": {"n": "Mg=="}}), namespace="default")
    with pytest.raises(AlreadyExists):
        client.create(draft("old"))
    assert client.get(ConfigMap, "old", namespace="default") == shown


def test_a_look_that_fails_changes_neither_the_error_nor_what_is_read(live, start):
    client, losing = behind(live, start)
    losing.failing_reads = 1
    with pytest.raises(ConnectionLost, match="the answer is lost"):
        client.create(draft("new"))
    assert not losing.failing_reads
    with pytest.raises(NotFound):
        client.get(ConfigMap, "new", namespace="default")
    with pytest.raises(AlreadyExists):  # the next try comes upon it
        client.create(draft("new"))
    assert client.get(ConfigMap, "new", namespace="default").name == "new"


def test_reads_from_the_cache_do_not_pass_the_hook_and_all_others_do(live, start, monkeypatch):
    passed = []

    def send(self, call, forward):
        passed.append(call.verb)
        return forward(call)

    client = start(live, ConfigMap, uncached=[Secret])
    client.create(draft("a"))
    monkeypatch.setattr(CachedClient, "_send", send)
    client.get(ConfigMap, "a", namespace="default")
    assert list(client.list(ConfigMap))
    assert passed == []
    with pytest.raises(NotFound):
        client.get(Secret, "a", namespace="default")
    assert not list(client.list(Secret))
    client.list_page(ConfigMap, namespace="default")
    client.delete_collection(ConfigMap, namespace="default")
    assert passed == ["get", "list", "list_page", "delete_collection"]


def test_wrappers_go_around_it(live, start):
    client = start(live, ConfigMap)
    wrapped = FieldOwnerClient(NamespacedClient(client, "default"), "me")
    made = wrapped.create(MutableObject.new(ConfigMap, "a"))
    assert wrapped.get(ConfigMap, "a") == made
    assert client.get(ConfigMap, "a", namespace="default") == made
    assert made in list(wrapped.list(ConfigMap))


def test_what_the_cache_would_not_hold_does_not_show(live, start):
    options = CacheOptions(label_selector="tier=web")
    client = start(live, ConfigMap, options=options, cache={"namespaces": ["default"]})
    client.create(draft("b", tier="db"))
    with pytest.raises(NotFound):
        client.get(ConfigMap, "b", namespace="default")
    made = client.create(draft("w", tier="web"))
    assert list(client.list(ConfigMap)) == [made]
    moved = made.mutable_copy()
    moved.labels["tier"] = "db"
    client.update(moved)
    assert list(client.list(ConfigMap)) == []
    live.create(MutableObject(Namespace, {"metadata": {"name": "other"}}))
    elsewhere = MutableObject.new(ConfigMap, "e", namespace="other")
    elsewhere.labels["tier"] = "web"
    client.create(elsewhere)
    assert list(client.list(ConfigMap)) == []


def test_a_deletion_that_waits_for_a_finalizer_reads_as_such_until_it_is_released(live, start):
    client = start(live, ConfigMap)
    held = draft()
    held.finalizers.append("example.com/f")
    client.create(held)
    client.delete(ConfigMap, "a", namespace="default")
    marked = client.get(ConfigMap, "a", namespace="default")
    assert marked.is_deleting
    client.patch(
        ConfigMap, "a", MergePatch({"metadata": {"finalizers": None}}), namespace="default"
    )
    with pytest.raises(NotFound):
        client.get(ConfigMap, "a", namespace="default")


def test_a_collection_that_was_deleted_is_gone_but_for_what_is_left(live, start):
    client = start(live, ConfigMap)
    held = draft("held", tier="web")
    held.finalizers.append("example.com/f")
    for each in (held, draft("gone", tier="web"), draft("other", tier="db")):
        client.create(each)
    client.delete_collection(ConfigMap, namespace="default", label_selector={"tier": "web"})
    left = {o.name: o for o in client.list(ConfigMap, namespace="default")}
    assert "gone" not in left
    assert left["held"].is_deleting
    assert not left["other"].is_deleting


def test_waiting_until_a_write_was_seen(live, start):
    client = start(live, ConfigMap)
    made = client.create(draft())
    assert client.wait_until_seen(made, StopSignal(), PATIENCE)
    assert client.cache.get(ConfigMap, "a", namespace="default") == made
    stop = StopSignal()
    stop.set()
    future = thing("a", 10**12, kind=ConfigMap, namespace="default")
    assert client.wait_until_seen(future, stop) is False


def test_metrics_show_what_is_laid_over(live, start):
    client = start(live, ConfigMap)
    text = client.cache._metrics.render()
    assert 'cache_overlay_objects{kind="configmaps.v1"} 0.0' in text
    assert "cache_overlay_dropped_total 0.0" in text
    client.close()
    assert "cache_overlay_objects{" not in client.cache._metrics.render()


# What counts of two writes; the overlay alone.


class Informer:
    """The part of an informer that the overlay uses."""

    def __init__(self):
        self.has_synced, self.resource_version, self.list_order = True, "10", 0
        self.objects = {}
        self.store = self

    def get(self, name, namespace):
        return self.objects.get(name)


KEY = ObjectKey("x", "a")


@pytest.fixture
def informer():
    return Informer()


def entry(version, uid="u", *, deleted=False):
    return WrittenObject(
        uid=uid,
        version=str(version),
        object=None if deleted else thing("a", version, uid=uid),
        is_deleted=deleted,
        deleted_version=str(version) if deleted else "",
    )


@pytest.mark.parametrize(
    ("writes", "counts"),
    [
        ([(20, "u", False), (21, "u", False)], (21, "u", False)),
        ([(21, "u", False), (20, "u", False)], (21, "u", False)),
        ([(20, "u", False), (20, "u", True)], (20, "u", True)),
        # The answer to an update comes after that to the deletion.
        ([(20, "u", True), (21, "u", False)], (21, "u", True)),
        # A deletion whose answer comes after that to the next creation.
        ([(25, "v", False), (20, "u", True)], (25, "v", False)),
        ([(20, "u", True), (25, "v", False)], (25, "v", False)),
        ([(20, "u", False), (25, "v", True)], (25, "v", True)),
        ([(25, "v", False), ("", "u", True)], (25, "v", False)),
    ],
)
def test_of_two_writes_whose_answers_come_in_any_order_the_newer_counts(informer, writes, counts):
    overlay = Overlay(10, lambda kind, namespace: informer)
    for version, uid, gone in writes:
        overlay.add(THING, KEY, entry(version, uid, deleted=gone))
    found = resolved(overlay.current(THING, KEY, informer), KEY, informer)
    version, uid, gone = counts
    assert found == (None if gone else thing("a", version, uid=uid))


def test_of_a_deletion_and_a_write_whose_order_is_unknown_both_count(informer):
    overlay = Overlay(10, lambda kind, namespace: informer)
    overlay.add(THING, KEY, entry(25, "v"))
    before = next_order()
    overlay.add(THING, KEY, entry("", "u", deleted=True))
    after = next_order()

    def found():
        return resolved(overlay.current(THING, KEY, informer), KEY, informer)

    assert found().uid == "v"
    informer.objects["a"] = thing("a", 30, uid="u")
    assert found().uid == "v"
    informer.resource_version = "30"
    assert found() is None
    # Another write that is under way when the deletion ends changes nothing; a later one does.
    overlay.add(THING, ObjectKey("x", "b"), entry(40), created_after=before)
    (deletion,) = overlay.current(THING, KEY, informer)
    assert deletion.is_open
    overlay.add(THING, ObjectKey("x", "b"), entry(41), created_after=after)
    assert found() is None
    informer.resource_version = "41"
    assert found() is None
    del informer.objects["a"]
    assert not overlay.current(THING, KEY, informer)


def test_what_the_informer_applies_while_it_is_asked_is_seen(informer):
    """The informer reaches the write between the look at its version and the read of its store."""
    written = entry(25)
    newer = thing("a", 30, uid="v")

    def get(name, namespace):
        found = informer.objects.get(name)
        informer.objects["a"], informer.resource_version = newer, "30"
        return found

    informer.get = get
    assert resolved((written,), KEY, informer) is newer


def test_deletions_of_one_name_are_remembered_but_not_for_ever(informer):
    overlay = Overlay(10, lambda kind, namespace: informer)
    for number in range(100):
        overlay.add(THING, KEY, entry("", f"u{number}", deleted=True))
    uids = [each.uid for each in overlay.current(THING, KEY, informer)]
    assert uids == [f"u{number}" for number in range(100 - len(uids), 100)]
    assert 5 <= len(uids) <= 10
    assert overlay.counts() == {THING: 0}


def test_an_overlay_that_is_full_does_not_look_at_all_of_it_for_each_write(informer):
    looks = []
    overlay = Overlay(1000, lambda kind, namespace: looks.append(kind) or informer)
    for number in range(3000):
        overlay.add(THING, ObjectKey("x", str(number)), entry(20 + number))
    assert len(looks) < 60_000
    assert overlay.counts()[THING] <= 1000


def test_what_is_remembered_to_be_on_the_safe_side_goes_first(informer, caplog):
    overlay = Overlay(3, lambda kind, namespace: informer)
    overlay.add(THING, KEY, entry(20))
    for number in range(5):
        open_deletion = entry("", f"u{number}", deleted=True)
        overlay.add(THING, ObjectKey("x", str(number)), open_deletion)
    assert overlay.current(THING, KEY, informer)
    assert overlay.dropped == 0
    assert not caplog.records


@pytest.mark.parametrize("is_replaced", [False, True])
def test_after_a_history_that_went_back_nothing_sticks(informer, is_replaced):
    overlay = Overlay(10, lambda kind, namespace: informer)
    overlay.add(THING, KEY, entry(1000))
    overlay.add(THING, ObjectKey("x", "b"), entry(1000, deleted=True))
    if is_replaced:
        informer = Informer()
    informer.resource_version, informer.list_order = "5", next_order()
    overlay.add(THING, KEY, entry(6))
    assert [each.version for each in overlay.current(THING, KEY, informer)] == ["6"]
    assert overlay.counts() == {THING: 1}


def test_a_list_that_began_before_a_write_was_answered_ends_nothing(informer):
    overlay = Overlay(10, lambda kind, namespace: informer)
    informer.list_order = next_order()
    overlay.add(THING, KEY, entry(1000))
    assert overlay.current(THING, KEY, informer)


def test_what_is_written_while_the_entry_before_is_forgotten_stays():
    class Overtaken(Informer):
        list_order = property(lambda self: writes.pop()() if writes else 0, lambda *_: None)

    informer, writes = Overtaken(), []
    overlay = Overlay(10, lambda kind, namespace: informer)
    overlay.add(THING, KEY, entry(20))
    writes.append(lambda: overlay.add(THING, KEY, entry(21)) or next_order())
    assert not overlay.current(THING, KEY, informer)
    assert [each.version for each in overlay.current(THING, KEY, informer)] == ["21"]


def test_what_was_written_shows_at_each_moment_of_the_next_write(informer):
    overlay = Overlay(10, lambda kind, namespace: informer)
    overlay.add(THING, KEY, entry(20))
    missing, done = [], threading.Event()

    def read():
        while not done.is_set():
            if not overlay.current(THING, KEY, informer):
                missing.append(True)

    reader = threading.Thread(target=read)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    reader.start()
    try:
        for version in range(21, 2000):
            overlay.add(THING, KEY, entry(version))
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(before)
    assert not missing


def test_the_oldest_writes_are_given_up_first_whatever_their_kind(informer):
    overlay = Overlay(3, lambda kind, namespace: informer)
    overlay.add(THING, KEY, entry(11))
    informer.resource_version = "11"
    for name in "abc":
        overlay.add(ConfigMap, ObjectKey("x", name), entry(20))
    overlay.add(THING, KEY, entry(21))
    assert overlay.current(THING, KEY, informer)
    assert list(overlay.keys(ConfigMap)) == [ObjectKey("x", name) for name in "bc"]


def test_the_overlay_is_bounded_and_says_when_it_gives_up(informer, caplog):
    overlay = Overlay(3, lambda kind, namespace: informer)
    for number in range(5):
        overlay.add(THING, ObjectKey("x", str(number)), entry(20 + number))
    assert overlay.counts() == {THING: 3}
    assert overlay.dropped == 2
    assert caplog.text.count("have not yet reported") == 1
    caplog.clear()


def test_what_nobody_follows_any_more_is_swept_away(informer):
    overlay = Overlay(10, lambda kind, namespace: None)
    overlay.add(THING, KEY, entry(20))
    assert overlay.counts() == {THING: 0}


def test_a_field_selector_on_a_namespace_is_as_the_namespace(live):
    cache = Cache(live, namespaces=["default"], metrics=Metrics())
    cache.add(ConfigMap)
    client = CachedClient(live, cache, metrics=Metrics())
    with running(cache):
        assert cache.wait_for_sync(StopSignal(), 10)
        for each in (cache.list, client.list):
            assert list(each(ConfigMap, field_selector="metadata.namespace=default")) == []
            with pytest.raises(NotFollowedError):
                each(ConfigMap, field_selector="metadata.namespace=kube-system")


def test_a_list_during_a_switchover_shows_no_namespace_that_get_refuses():
    with APIServer() as server, Client(server.client_config()) as live:
        cache = Cache(live, on_error=lambda _: None, metrics=Metrics())
        cache.add(ConfigMap, CacheOptions(indexes={"all": lambda _: ["all"]}))
        client = CachedClient(live, cache, metrics=Metrics())
        with running(cache):
            assert cache.wait_for_sync(StopSignal(), 10)
            server.stall_watches()
            server.inject(
                [FaultRule.answer(503, verb=verb, kind=ConfigMap) for verb in ("list", "watch")]
            )
            cache.set_namespaces(["default"])
            client.create(MutableObject.new(ConfigMap, "x", namespace="kube-system", data={}))
            client.create(MutableObject.new(ConfigMap, "y", namespace="default", data={}))
            assert [obj.name for obj in client.list(ConfigMap)] == ["y"]
            assert [obj.name for obj in client.by_index(ConfigMap, "all", "all")] == ["y"]
            with pytest.raises(NotFollowedError):
                client.get(ConfigMap, "x", namespace="kube-system")
            server.clear_faults()
