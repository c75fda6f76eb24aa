"""wait_for: by watch and from a local copy; conditions; what it survives and what it says."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.cache import Cache, Informer, NotCachedError
from appsdk_operator.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    ConnectionLost,
    Expired,
    Forbidden,
    Hooks,
    InterceptedClient,
    RequestStopped,
    ServiceUnavailable,
)
from appsdk_operator.controllers import WaitStopped, until, wait_for
from appsdk_operator.resource import Kind, MutableObject, Scope, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, ThreadGroup
from appsdk_operator.testing import APIServer
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
POD = kinds.core.v1.Pod
ZONE = Kind(group="example.com", version="v1", kind="Zone", scope=Scope.CLUSTER)
FOREVER = 20.0  # seconds after which a test has failed


@pytest.fixture(scope="module")
def server():
    with APIServer() as running:
        yield running


@pytest.fixture
def client(server):
    with Client(ClientConfig(server=server.url, retry_backoff=0.0), metrics=Metrics()) as made:
        try:
            made.create(MutableObject.new(kinds.core.v1.Namespace, "x"))
        except AlreadyExists:
            made.delete_collection(CONFIG_MAP, namespace="x")
        yield made


class Readers:
    """The three things one can wait with."""

    def __init__(self, client):
        self.client = client
        self.stop = StopSignal()
        self.threads = []

    def make(self, name):
        if name == "client":
            return self.client
        if name == "cache":
            made = Cache(self.client, metrics=Metrics())
            made.add(CONFIG_MAP)
        else:
            made = Informer(CONFIG_MAP, self.client, metrics=Metrics())
        self.threads.append(threading.Thread(target=made.run, args=(self.stop,)))
        self.threads[-1].start()
        return made

    def close(self):
        self.stop.set()
        for thread in self.threads:
            thread.join(FOREVER)


@pytest.fixture
def readers(client):
    made = Readers(client)
    yield made
    made.close()


@pytest.fixture(params=["client", "cache", "informer"])
def reader(request, readers):
    return readers.make(request.param)


def settings(**fields) -> MutableObject:
    return MutableObject.new(CONFIG_MAP, "a", namespace="x", **fields)


def recolour(client, colour):
    draft = client.get(CONFIG_MAP, "a", namespace="x").mutable_copy()
    draft["data"] = {"color": colour}
    return client.update(draft)


class Step:
    """A condition that does something when it was asked for the n-th time, and then goes on."""

    def __init__(self, inner, *actions):
        self.inner = inner
        self.actions = list(actions)
        self.seen = []

    @property
    def until(self):
        return until.Until(self.inner.text, self, self.inner.describe)

    def __call__(self, obj):
        self.seen.append(obj)
        holds = self.inner(obj)
        if not holds and self.actions:
            self.actions.pop(0)()
        return holds


def wait(reader, condition, **options):
    options = {"namespace": "x", "timeout": FOREVER, **options}
    return wait_for(reader, CONFIG_MAP, "a", condition, **options)


def test_what_is_so_already_needs_no_waiting(client, reader):
    made = client.create(settings(data={"color": "blue"}))
    found = wait(reader, until.exists() & until.field_equals("data.color", "blue"))
    assert found == made


def test_a_creation_a_change_and_a_deletion_are_seen(client, reader):
    client.create(settings())
    client.delete(CONFIG_MAP, "a", namespace="x")
    step = Step(
        until.field_equals("data.color", "red"),
        lambda: client.create(settings()),
        lambda: recolour(client, "blue"),
        lambda: recolour(client, "red"),
    )
    # What a local copy shows of the past is no state of the wait's own.
    found = wait(reader, step.until)
    assert found is not None
    assert found["data"] == {"color": "red"}
    step = Step(until.deleted(found), lambda: client.delete(CONFIG_MAP, "a", namespace="x"))
    assert wait(reader, step.until) is None


def test_a_state_that_lasts_a_moment_only_is_not_missed(client, reader):
    client.create(settings(data={"color": "blue"}))

    def flash():
        recolour(client, "red")
        recolour(client, "green")

    step = Step(until.field_equals("data.color", "red"), flash)
    found = wait(reader, step.until)
    assert found is not None
    assert found["data"] == {"color": "red"}


def test_an_object_that_is_made_anew_is_another(client, reader):
    old = client.create(settings())

    def again():
        client.delete(CONFIG_MAP, "a", namespace="x")
        client.create(settings())

    step = Step(until.exists() & until.deleted(old), again)
    found = wait(reader, step.until)
    assert found is not None
    assert found.uid != old.uid


def test_others_of_the_kind_are_none_of_its_business(client, reader):
    def others_first():
        client.create(MutableObject.new(CONFIG_MAP, "b", namespace="x"))
        client.create(settings())

    step = Step(until.exists(), others_first)
    found = wait(reader, step.until)
    assert step.seen == [None, found]


def test_a_function_is_a_condition(client, reader):
    client.create(settings(data={"color": "blue"}))
    assert wait(reader, lambda obj: obj["data"]["color"] == "blue") is not None


def test_what_a_condition_raises_comes_through(client, reader):
    client.create(settings())
    with pytest.raises(KeyError, match="data"):
        wait(reader, lambda obj: obj["data"]["color"])


def test_a_stop_ends_it_promptly(client, reader):
    stop = StopSignal()
    step = Step(until.exists(), stop.set)
    with pytest.raises(WaitStopped, match="ConfigMap x/a until it exists"):
        wait(reader, step.until, stop=stop, timeout=None)
    with pytest.raises(WaitStopped):
        wait(reader, until.exists(), stop=stop)


def test_zero_seconds_is_one_look(client, readers):
    client.create(settings())
    informer = readers.make("informer")
    assert informer.wait_for_sync(readers.stop, FOREVER)
    for reader in (client, informer):
        assert wait(reader, until.exists(), timeout=0) is not None
        with pytest.raises(TimeoutError, match="waited 0 s"):
            wait(reader, until.deleted(), timeout=0)


def test_the_time_out_says_what_was_seen_last(client):
    pod = MutableObject.new(POD, "p", namespace="x")
    pod["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    made = client.create(pod)
    ready = until.condition_true("Ready")
    failed = until.field_equals("status.phase", "Failed")
    clock = ManualClock()
    step = Step(ready | failed, lambda: clock.advance(0.1))
    with pytest.raises(TimeoutError) as raised:
        wait_for(client, POD, "p", step.until, namespace="x", timeout=0.1, clock=clock)
    text = str(raised.value)
    assert "waited 0.1 s for Pod x/p until (condition Ready is True or status.phase is" in text
    assert "it has no condition Ready; status.phase is 'Pending'" in text
    assert made.uid in text
    draft = made.mutable_copy()
    entry = {"type": "Ready", "status": "False", "reason": "Down", "message": "no disk"}
    draft["status"] = {"conditions": [entry]}
    client.status.update(draft)
    options = {"namespace": "x", "timeout": 0}
    with pytest.raises(TimeoutError, match=r"condition Ready is False \(Down: no disk\)"):
        wait_for(client, POD, "p", ready, **options)
    assert wait_for(client, POD, "p", until.condition_false("Ready"), **options) is not None
    client.delete(POD, "p", namespace="x", grace_period=0)


def test_the_values_of_data_are_in_no_error():
    obj = settings(data={"password": "hunter2"}).freeze()
    for value in ("hunter2", "other"):
        condition = until.field_equals("data.password", value)
        assert value not in condition.text
        assert "hunter2" not in condition.describe(obj)
    assert "hunter2" not in repr(until.field_equals("data.password", "hunter2"))


def test_the_manual_clock_ends_a_wait(client):
    clock = ManualClock()
    errors = []

    def run():
        try:
            wait(client, until.exists(), timeout=3600, clock=clock)
        except TimeoutError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    clock.block_until_waiting(1)
    clock.advance(3600)
    thread.join(FOREVER)
    assert len(errors) == 1


def test_a_limit_whose_thread_begins_late_is_not_later_for_that(client, monkeypatch):
    clock, stop, start = ManualClock(), StopSignal(), ThreadGroup.start

    def late(group, name, target):
        if name == "limit":
            clock.advance(3600)
        return start(group, name, target)

    monkeypatch.setattr(ThreadGroup, "start", late)
    giving_up = threading.Timer(FOREVER, stop.set)
    giving_up.start()
    try:
        with pytest.raises(TimeoutError):
            wait(client, until.exists(), timeout=3600, clock=clock, stop=stop)
    finally:
        giving_up.cancel()
        giving_up.join()


# What a watch has to survive.


def test_watches_that_end_expire_and_break_lose_nothing(client, server):
    first = client.create(settings(data={"color": "blue"}))
    opened = []

    def watch(inner, kind, **options):
        opened.append(options["resource_version"])
        number = len(opened)
        if number == 1:
            recolour(client, "green")  # between the list and the watch
            stream = inner.watch(kind, **{**options, "timeout": 1})
            server.cut_connections()
            return stream
        if number == 2:
            raise ConnectionLost("cut")
        if number == 3:
            raise ServiceUnavailable("not now", status=503)
        if number == 4:
            client.delete(CONFIG_MAP, "a", namespace="x")
            client.create(settings(data={"color": "red"}))
            raise Expired("too old", status=410)
        return inner.watch(kind, **options)

    broken = InterceptedClient(client, Hooks(watch=watch))
    found = wait(broken, until.deleted(first) & until.exists())
    assert found is not None
    assert found.uid != first.uid
    assert opened[0] != ""
    # Resumed, not listed anew, until the version is too old.
    assert all(int(version) >= int(first.resource_version) for version in opened)


def test_a_list_that_fails_for_now_is_made_again_and_named_at_the_end(client):
    calls = []

    def list_page(inner, kind, **options):
        calls.append(kind)
        raise ServiceUnavailable("etcd has no leader", status=503)

    broken = InterceptedClient(client, Hooks(list_page=list_page))
    clock, threads = ManualClock(), ThreadGroup("test")

    def pass_time():
        for seconds in (1, 3600):
            clock.block_until_waiting(2)  # for the end, and for the next list
            clock.advance(seconds)

    threads.start("time", pass_time)
    with pytest.raises(TimeoutError, match=r"could not be read yet: .*etcd has no leader"):
        wait(broken, until.exists(), clock=clock)
    assert threads.join(FOREVER) == []
    assert len(calls) >= 2
    with pytest.raises(TimeoutError, match="etcd has no leader"):
        wait(broken, until.exists(), timeout=0)


def test_a_refusal_ends_it(client):
    def refuse(inner, kind, **options):
        raise Forbidden("no list for you", status=403)

    for hooks in (Hooks(list_page=refuse), Hooks(watch=refuse)):
        with pytest.raises(Forbidden):
            wait(InterceptedClient(client, hooks), until.exists())


def test_a_client_that_is_closed_ends_it(server, client):
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as own:
        step = Step(until.exists(), own.close)
        with pytest.raises(RequestStopped):
            wait(own, step.until)


# What is refused.


def test_what_leads_nowhere_is_refused(client):
    exists = until.exists()
    with pytest.raises(ValueError, match="Give a name"):
        wait_for(client, CONFIG_MAP, "", exists, namespace="x")
    with pytest.raises(ValueError, match="say in which"):
        wait_for(client, CONFIG_MAP, "a", exists)
    with pytest.raises(ValueError, match="leave it out"):
        wait_for(client, ZONE, "a", exists, namespace="x")
    with pytest.raises(ValueError, match="0 or more"):
        wait(client, exists, timeout=-1)
    with pytest.raises(ValueError, match="begin with a field"):
        until.field_equals("", 1)


def test_a_cache_without_the_kind_or_that_does_not_run_says_so(client):
    cache = Cache(client, metrics=Metrics())
    with pytest.raises(NotCachedError):
        wait(cache, until.exists())
    cache.add(CONFIG_MAP)
    with pytest.raises(TimeoutError, match="run its cache or informer"):
        wait(cache, until.exists(), timeout=0.05)


def test_another_object_of_the_name_means_that_the_first_was_gone(client):
    client.create(settings())
    watches = []

    def watch(inner, kind, **options):
        watches.append(kind)
        if len(watches) == 1:
            client.delete(CONFIG_MAP, "a", namespace="x")
            client.create(settings())
            raise Expired("too old", status=410)
        return inner.watch(kind, **options)

    reader = InterceptedClient(client, Hooks(watch=watch))
    assert wait(reader, until.deleted()) is None


def test_a_cache_that_ends_before_it_is_complete_ends_the_wait(client):
    listing, leave = threading.Event(), threading.Event()

    def list_page(inner, kind, **options):
        listing.set()
        leave.wait(FOREVER)
        return inner.list_page(kind, **options)

    def watch(inner, kind, **options):
        listing.set()
        leave.wait(FOREVER)
        return inner.watch(kind, **options)

    hooked = InterceptedClient(client, Hooks(list_page=list_page, watch=watch))
    informer = Informer(CONFIG_MAP, hooked, metrics=Metrics())
    stop = StopSignal()
    running = threading.Thread(target=informer.run, args=(stop,))
    running.start()
    assert listing.wait(FOREVER)
    caught = []

    def waiting():
        try:
            wait(informer, until.exists(), timeout=None)
        except TimeoutError as error:
            caught.append(str(error))

    waiter = threading.Thread(target=waiting)
    waiter.start()
    # Until it waits, and does not find an informer that has stopped already.
    eventually(lambda: informer._waiters.waiting)
    stop.set()
    leave.set()
    waiter.join(FOREVER)
    running.join(FOREVER)
    assert "gave up waiting for ConfigMap x/a until it exists" in caught[0]


def test_a_copy_that_stopped_before_the_wait_is_looked_at_once(client, readers):
    client.create(settings(data={"color": "blue"}))
    stopped = [readers.make("cache"), readers.make("informer")]
    for reader in stopped:
        assert reader.wait_for_sync(readers.stop, FOREVER)
    readers.close()
    blue, red = (until.field_equals("data.color", colour) for colour in ("blue", "red"))
    for reader in stopped:
        assert wait(reader, blue, timeout=None) is not None
        with pytest.raises(
            TimeoutError, match=r"gave up .* rv=.*use a cache or informer that runs"
        ):
            wait(reader, red)


@pytest.mark.parametrize("kind_of_reader", ["cache", "informer"])
def test_a_copy_that_stopped_before_it_was_complete_shows_no_absence(
    client, readers, kind_of_reader
):
    """As for a wait that began a moment before the stop."""
    readers.stop.set()
    reader = readers.make(kind_of_reader)
    readers.close()
    for condition in (until.exists(), until.deleted()):
        with pytest.raises(TimeoutError, match=r"gave up .*could not be read yet.*that runs"):
            wait(reader, condition, timeout=None)


def test_an_informer_of_another_kind_is_refused(client):
    informer = Informer(POD, client, metrics=Metrics())
    with pytest.raises(ValueError, match=r"informer of pods: wait with one of configmaps"):
        wait(informer, until.exists())


# Conditions as values.


@pytest.mark.parametrize("path", ["data.password", "['data']['password']", "stringData.password"])
def test_values_that_may_be_secret_are_in_no_text(path):
    condition = until.field_equals(path, "hunter2")
    assert "hunter2" not in condition.text
    secret = settings(data={"password": "hunter3"}, stringData={"password": "hunter3"}).freeze()
    assert "hunter" not in condition.describe(secret)


def test_conditions_are_combined():
    blue, red = settings(data={"c": "blue"}).freeze(), settings(data={"c": "red"}).freeze()
    is_blue = until.field_equals("data.c", "blue")
    is_there = until.exists()
    assert [(~is_blue)(o) for o in (blue, red, None)] == [False, True, True]
    assert [(~is_blue & is_there)(o) for o in (blue, red, None)] == [False, True, False]
    assert [(is_blue | until.deleted())(o) for o in (blue, red, None)] == [True, False, True]
    assert (~is_there).text == "not it exists"


def test_a_field_that_is_absent_is_null_but_the_object_has_to_be_there():
    absent = until.field_equals("metadata.labels['app']", None)
    labelled = settings()
    labelled.labels["app"] = "web"
    assert absent(settings().freeze())
    assert not absent(labelled.freeze())
    assert not absent(None)
    assert not until.field_equals("spec.paused", 1)(
        MutableObject.new(ZONE, "z", spec={"paused": True}).freeze()
    )


def test_an_object_that_is_being_deleted_says_what_holds_it():
    draft = settings()
    draft.metadata.update(deletionTimestamp="2024-01-01T00:00:00Z", finalizers=["a/b"])
    assert until.deleted().describe(draft.freeze()) == "finalizers: a/b"


def test_a_condition_that_was_not_made_is_refused(client):
    with pytest.raises(TypeError, match=r"until\.deleted makes a condition: call it"):
        wait_for(client, CONFIG_MAP, "a", until.deleted, namespace="default")
