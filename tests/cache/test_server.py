"""The whole path from the socket to the handler, on the kit's API server."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.cache import Cache, CacheOptions, Informer
from appsdk_operator.client import Client, ClientConfig, NotFound, WatchSilent
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer
from tests.cache.conftest import PATIENCE, THING, Recorder
from tests.waiting import eventually

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.example.com"},
    "spec": {
        "group": "example.com",
        "names": {
            "kind": "Thing",
            "listKind": "ThingList",
            "plural": "things",
            "singular": "thing",
        },
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}


class FastBackoff:
    """No wait between tries, and nothing else: what is waited for is the server."""

    def delay(self, now, *, first=None):
        return 0.01 if first is None else first

    def reset(self):
        pass


@pytest.fixture
def server():
    with APIServer(crds=[CRD]) as server:
        yield server


@pytest.fixture
def client(server):
    with Client(ClientConfig(server=server.url, max_retries=0), metrics=Metrics()) as client:
        yield client


@pytest.fixture
def follow(client):
    """Run an informer with a recorder on a kind."""
    running = []

    def follow(kind=THING, wait=True, through=None, **options):
        errors = []
        informer = Informer(
            kind, through or client, on_error=errors.append, metrics=Metrics(), **options
        )
        informer._state._refused = informer._state._broken = FastBackoff()
        recorder = Recorder()
        informer.add_event_handler(recorder)
        stop = StopSignal()
        thread = threading.Thread(target=informer.run, args=(stop,))
        thread.start()
        running.append((stop, thread))
        if wait:
            assert informer.wait_for_sync(stop, PATIENCE), informer.health().text
        return informer, recorder, errors, stop

    yield follow
    for stop, thread in running:
        stop.set()
        thread.join(PATIENCE)
        assert not thread.is_alive(), "the informer did not stop"


def create(client, *names, **spec):
    for name in names:
        client.create(
            MutableObject(THING, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        )


def change(client, name, **spec):
    copy = client.get(THING, name, namespace="default").mutable_copy()
    copy["spec"] = spec
    return client.update(copy)


def told(recorder):
    """The calls of a handler, without versions."""
    return [text.split("@")[0] for text in recorder.calls]


def wait_for(recorder, count):
    recorder.wait_for_count(count)
    return told(recorder)


@pytest.mark.parametrize("stream", [True, False])
def test_a_first_sync_and_what_follows(server, client, follow, stream):
    create(client, "a", "b", "c")
    informer, recorder, errors, _ = follow(stream_first_sync=stream, page_size=2)
    assert len(informer.store) == 3
    assert sorted(wait_for(recorder, 3)) == ["add a", "add b", "add c"]
    change(client, "a", size=2)
    wait_for(recorder, 4)
    client.delete(THING, "b", namespace="default")
    create(client, "d")
    assert wait_for(recorder, 6)[3:] == ["update a", "delete b", "add d"]
    assert errors == []
    lists = [r for r in server.requests if r.method == "GET" and "watch=" not in r.query]
    assert len([r for r in lists if r.path.endswith("/things")]) == (0 if stream else 2)


def test_a_server_that_does_not_stream_lists_is_listed(follow):
    with (
        APIServer(crds=[CRD], streaming_lists=False) as server,
        Client(ClientConfig(server=server.url), metrics=Metrics()) as client,
    ):
        create(client, "a")
        informer, _, errors, stop = follow(through=client)
        assert len(informer.store) == 1
        assert errors == []
        stop.set()


def test_a_history_that_was_compacted_is_listed_and_nothing_is_lost(server, client, follow):
    create(client, "a", "b")
    informer, recorder, _, _ = follow()
    wait_for(recorder, 2)
    server.fail(verb="watch", times=3)
    server.cut_connections()
    change(client, "a", size=2)
    client.delete(THING, "b", namespace="default")
    create(client, "b", "c")
    server.compact()
    seen = sorted(wait_for(recorder, 6)[2:])
    assert seen == ["add b", "add c", "delete b", "update a"]
    assert {o.name for o in informer.store} == {"a", "b", "c"}


def test_connections_that_are_cut_are_resumed_without_a_list(server, client, follow):
    create(client, "a")
    _, recorder, errors, _ = follow()
    wait_for(recorder, 1)
    for size in range(3):
        server.cut_connections()
        change(client, "a", size=size)
        wait_for(recorder, 2 + size)
    assert told(recorder) == ["add a", *["update a"] * 3]
    assert {type(error).__name__ for error in errors} == {"ConnectionLost"}
    gets = [r for r in server.requests if r.method == "GET" and r.path.endswith("/v1/things")]
    assert [r for r in gets if "watch=" not in r.query] == []


def test_a_stalled_watch_is_noticed_and_replaced(server, client, follow):
    """A connection that a load balancer dropped silently leaves no blind informer."""
    create(client, "a")
    _, recorder, errors, _ = follow(silence_limit=0.1)
    wait_for(recorder, 1)
    server.stall_watches()
    change(client, "a", size=2)
    eventually(lambda: any(isinstance(error, WatchSilent) for error in errors))
    server.stall_watches(False)
    assert wait_for(recorder, 2) == ["add a", "update a"]


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503, 504])
@pytest.mark.parametrize("verb", ["list", "watch"])
def test_refusals_pass_and_the_copy_recovers(server, client, follow, status, verb):
    create(client, "a")
    server.fail(verb=verb, kind=THING, status=status, times=2)
    informer, recorder, errors, _ = follow(stream_first_sync=False)
    eventually(lambda: server.open_watches(THING))
    change(client, "a", size=2)
    assert wait_for(recorder, 2) == ["add a", "update a"]
    assert {error.status for error in errors} == {status}
    assert informer.health().is_ready


def test_a_server_that_restarts_on_its_port_is_followed_again(server, client, follow):
    create(client, "a")
    informer, recorder, _, _ = follow()
    wait_for(recorder, 1)
    server.stop()
    eventually(lambda: informer.last_error is not None)
    server.start()
    create(client, "b")
    assert wait_for(recorder, 2) == ["add a", "add b"]


def test_a_kind_that_is_deleted_and_defined_anew_is_followed_again(server, client, follow):
    create(client, "a")
    informer, recorder, errors, _ = follow()
    wait_for(recorder, 1)
    client.delete(kinds.apiextensions.v1.CustomResourceDefinition, "things.example.com")
    assert wait_for(recorder, 2) == ["add a", "delete a"]
    server.cut_connections()
    eventually(lambda: any(isinstance(error, NotFound) for error in errors))
    server.apply_crds([CRD])
    create(client, "a")
    assert wait_for(recorder, 3)[2:] == ["add a"]
    assert len(informer.store) == 1


@pytest.mark.parametrize("phase", ["a list", "a watch"])
def test_a_stop_is_prompt_while_the_server_does_not_answer(phase):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(ClientConfig(server=url), metrics=Metrics()) as client:
            informer = Informer(
                THING, client, stream_first_sync=phase == "a watch", metrics=Metrics()
            )
            stop = StopSignal()
            thread = threading.Thread(target=informer.run, args=(stop,))
            thread.start()
            connection, _ = listener.accept()
            connection.recv(65536)
            stop.set()
            thread.join(5.0)
            assert not thread.is_alive()
            connection.close()


def test_objects_that_leave_a_selector_are_deleted(client, follow):
    labels = {"labels": {"app": "web"}}
    client.create(
        MutableObject(THING, {"metadata": {"name": "a", "namespace": "default", **labels}})
    )
    create(client, "b")
    _, recorder, _, _ = follow(label_selector="app=web")
    assert wait_for(recorder, 1) == ["add a"]
    copy = client.get(THING, "a", namespace="default").mutable_copy()
    del copy["metadata"]["labels"]
    client.update(copy)
    assert wait_for(recorder, 2) == ["add a", "delete a"]


def test_a_cache_follows_namespaces_as_they_are_set(server, client):
    for space in ("x", "y"):
        client.create(MutableObject(kinds.core.v1.Namespace, {"metadata": {"name": space}}))
        client.create(MutableObject(THING, {"metadata": {"name": "a", "namespace": space}}))
    cache = Cache(client, namespaces=["x"], metrics=Metrics())
    cache.add(THING, CacheOptions(indexes={"name": lambda obj: [obj.name]}))
    recorder, stop = Recorder(), StopSignal()
    cache.add_event_handler(THING, recorder)
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    try:
        assert cache.wait_for_sync(stop, PATIENCE)
        assert [o.namespace for o in cache.list(THING)] == ["x"]
        recorder.wait_for_count(1)
        cache.set_namespaces(["y"])
        assert cache.wait_for_sync(stop, PATIENCE)
        assert [o.namespace for o in cache.by_index(THING, "name", "a")] == ["y"]
        recorder.wait_for_count(3)
        assert [e.key.namespace for e in recorder.events] == ["x", "x", "y"]
    finally:
        stop.set()
        thread.join(PATIENCE)
