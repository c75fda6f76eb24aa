"""The client against an API server that keeps state."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from appsdk_operator import client as c
from appsdk_operator.client import Client, ClientConfig, JsonPatch, MergePatch
from appsdk_operator.resource import Kind, MutableObject, Object, Scope, WatchEventType
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer

CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap")
NAMESPACE = Kind(group="", version="v1", kind="Namespace", scope=Scope.CLUSTER)
POD = Kind(group="", version="v1", kind="Pod")


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer(token="tok") as server:
        yield server


@pytest.fixture
def client(server: APIServer) -> Iterator[Client]:
    config = ClientConfig(server=server.url, token="tok", retry_backoff=0.0)
    with Client(config, metrics=Metrics()) as client:
        yield client


def config_map(name: str, **data: str) -> MutableObject:
    return MutableObject.new(CONFIG_MAP, name, namespace="default", data=data)


def test_an_object_lives_its_life(client):
    made = client.create(config_map("a", color="blue"))
    assert made.uid
    draft = made.mutable_copy()
    draft["data"]["color"] = "red"
    changed = client.update(draft)
    assert changed.resource_version != made.resource_version
    with pytest.raises(c.Conflict):
        client.update(draft)
    with pytest.raises(c.AlreadyExists):
        client.create(config_map("a"))
    patched = client.patch(
        CONFIG_MAP, "a", MergePatch({"data": {"size": "1"}}), namespace="default"
    )
    assert patched["data"] == {"color": "red", "size": "1"}
    patched = client.patch(
        CONFIG_MAP,
        "a",
        JsonPatch([{"op": "remove", "path": "/data/color"}]),
        namespace="default",
    )
    assert patched["data"] == {"size": "1"}
    names = {obj.name for obj in client.list(CONFIG_MAP, namespace="default")}
    assert "a" in names
    with pytest.raises(c.Conflict):
        client.delete(CONFIG_MAP, "a", namespace="default", uid="another")
    client.delete(CONFIG_MAP, "a", namespace="default", uid=made.uid)
    with pytest.raises(c.NotFound):
        client.get(CONFIG_MAP, "a", namespace="default")


def test_a_dry_run_stores_nothing(client):
    assert client.create(config_map("a"), dry_run=True).name == "a"
    with pytest.raises(c.NotFound):
        client.get(CONFIG_MAP, "a", namespace="default")


def test_an_object_with_a_finalizer_is_returned_by_delete(client):
    draft = config_map("a")
    draft.finalizers.append("example.com/hold")
    client.create(draft)
    waiting = client.delete(CONFIG_MAP, "a", namespace="default")
    assert waiting is not None
    assert waiting.is_deleting


def test_an_invalid_object_is_refused(client):
    with pytest.raises(c.Invalid) as caught:
        client.create(config_map("Not A Name"))
    assert caught.value.causes


def test_pages_and_selectors(client):
    for n in range(7):
        draft = config_map(f"m{n}")
        draft.labels["even"] = str(n % 2 == 0)
        client.create(draft)
    evens = client.list(CONFIG_MAP, namespace="default", label_selector={"even": "True"}, limit=2)
    assert [o.name for o in evens] == ["m0", "m2", "m4", "m6"]
    client.delete_collection(CONFIG_MAP, namespace="default", label_selector="even=True")
    left = [o.name for o in client.list(CONFIG_MAP, namespace="default") if o.name[0] == "m"]
    assert left == ["m1", "m3", "m5"]


def test_a_token_that_is_gone_is_an_error(client, server):
    server.token = "other"
    with pytest.raises(c.Unauthorized):
        client.get(NAMESPACE, "default")


def test_status_is_written_on_its_own(client):
    pod = MutableObject.new(
        POD, "p", namespace="default", spec={"containers": [{"name": "c", "image": "i"}]}
    )
    draft = client.create(pod).mutable_copy()
    draft.status = {"phase": "Running"}
    assert client.status.update(draft).status["phase"] == "Running"


def test_a_watch_follows_what_happens(client, server):
    with client.watch(CONFIG_MAP, namespace="default", send_initial_events=True) as stream:
        events = stream.events()
        for event in events:
            if event.initial_events_end:
                break
        client.create(config_map("a"))
        client.delete(CONFIG_MAP, "a", namespace="default")
        added, deleted = next(events), next(events)
        assert (added.type, deleted.type) == (WatchEventType.ADDED, WatchEventType.DELETED)
        assert isinstance(added.object, Object)
        server.send_bookmarks()
        assert next(events).type is WatchEventType.BOOKMARK


def test_a_watch_from_a_forgotten_version_is_expired(client, server):
    version = client.create(config_map("a")).resource_version
    client.create(config_map("b"))
    server.compact()
    with (
        pytest.raises(c.Gone),
        client.watch(CONFIG_MAP, resource_version=version) as stream,
    ):
        list(stream.events())


def test_a_stalled_watch_is_noticed(client, server):
    with client.watch(CONFIG_MAP, silence_limit=0.1) as stream:
        server.stall_watches()
        with pytest.raises(c.WatchSilent):
            list(stream)


def test_a_cut_watch_is_noticed(client, server):
    with client.watch(CONFIG_MAP, namespace="default", resource_version="1") as stream:
        done = threading.Event()
        errors = []

        def read():
            try:
                list(stream)
            except c.TransportError as error:
                errors.append(error)
            done.set()

        thread = threading.Thread(target=read)
        thread.start()
        server.cut_connections()
        assert done.wait(10)
        thread.join(10)
    assert all(isinstance(error, c.ConnectionLost) for error in errors)


def test_a_write_whose_answer_was_lost_is_repeated_where_that_is_safe(client, server):
    made = client.create(config_map("a"))
    server.fail(verb="delete", after_write=True)
    # It was done the first time, so the repeated one finds nothing.
    with pytest.raises(c.NotFound) as caught:
        client.delete(CONFIG_MAP, "a", namespace="default", uid=made.uid)
    assert any("may have been carried out" in note for note in caught.value.__notes__)
    server.fail(verb="create", after_write=True)
    with pytest.raises(c.ConnectionLost):
        client.create(config_map("b"))
    assert client.get(CONFIG_MAP, "b", namespace="default").name == "b"


def test_overload_is_waited_for(client, server):
    server.fail(status=429, times=2, retry_after=0)
    assert client.get(NAMESPACE, "default").name == "default"


def test_kinds_are_discovered(client):
    assert str(client.discovery.kind_for("deploy")) == "deployments.v1.apps"
    assert client.discovery is client.discovery
    assert client.discovery.server_version().major == 1


def test_the_servers_own_kubeconfig_leads_to_it_over_tls(tmp_path):
    with APIServer(tls=True, token="tok") as server:
        server.write_kubeconfig(tmp_path / "config")
        config = ClientConfig.load(tmp_path / "config")
        with Client(config, metrics=Metrics()) as client:
            assert client.get(NAMESPACE, "default").name == "default"
