"""The replay server answers as clients expect it of an API server."""

from __future__ import annotations

import json
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest

from appsdk_operator import Client, ClientConfig, Kind, Object, StopSignal
from appsdk_operator.cache import Informer
from benchmarks._objects import FIRST_VERSION
from benchmarks._replay import ReplayServer, Spec
from benchmarks.contestants.floors import Wire

WIDGETS = "/apis/example.com/v1/widgets"
WIDGET = Kind(group="example.com", version="v1", kind="Widget")

pytestmark = pytest.mark.programs


@pytest.fixture(scope="module")
def server() -> Iterator[ReplayServer]:
    with ReplayServer(Spec(objects=7, events=20, pause=0.0)) as server:
        yield server


def get(server: ReplayServer, path: str) -> Any:
    with urllib.request.urlopen(server.url + path) as answer:
        return json.load(answer)


def events(server: ReplayServer, path: str, count: int) -> list[dict[str, Any]]:
    """The first events of a watch."""
    with urllib.request.urlopen(server.url + path) as answer:
        return [json.loads(answer.readline()) for _ in range(count)]


def test_pages_follow_each_other_to_the_end(server: ReplayServer) -> None:
    names, token = [], ""
    while True:
        page = get(server, f"{WIDGETS}?limit=3&continue={token}")
        names += [item["metadata"]["name"] for item in page["items"]]
        token = page["metadata"].get("continue", "")
        if not token:
            break
        assert len(page["items"]) == 3
    assert page["kind"] == "WidgetList"
    assert names == [f"widget-{number:07}" for number in range(7)]
    everything = get(server, WIDGETS.replace("widgets", "namespaces/default/widgets"))
    assert len(everything["items"]) == 7


def test_a_watch_gets_the_whole_stream_however_many_there_were_before(
    server: ReplayServer,
) -> None:
    for _ in range(2):
        found = events(server, f"{WIDGETS}?watch=true", 20)
        assert {event["type"] for event in found} == {"MODIFIED"}
        versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
        assert versions == list(range(FIRST_VERSION + 8, FIRST_VERSION + 28))


def test_a_streamed_list_ends_with_a_bookmark_and_the_events_follow(server: ReplayServer) -> None:
    found = events(server, f"{WIDGETS}?watch=1&sendInitialEvents=true", 9)
    assert [event["type"] for event in found] == ["ADDED"] * 7 + ["BOOKMARK", "MODIFIED"]
    annotations = found[7]["object"]["metadata"]["annotations"]
    assert annotations == {"k8s.io/initial-events-end": "true"}


def test_a_server_that_does_not_stream_refuses_it() -> None:
    with ReplayServer(Spec(objects=1, streaming=False)) as server:
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(server, f"{WIDGETS}?watch=1&sendInitialEvents=true")
        with caught.value as error:
            assert error.code == 422


def test_what_clients_ask_first_is_answered(server: ReplayServer) -> None:
    assert get(server, "/version")["major"] == "1"
    for group in get(server, "/apis")["groups"]:
        path = f"/apis/{group['preferredVersion']['groupVersion']}"
        assert get(server, path)["resources"]
        assert get(server, f"/apis/{group['name']}")["name"] == group["name"]
    assert {one["name"] for one in get(server, "/api/v1")["resources"]} >= {"pods", "namespaces"}
    assert get(server, "/api/v1/namespaces")["kind"] == "NamespaceList"
    definitions = get(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    assert definitions["kind"] == "CustomResourceDefinitionList"
    assert definitions["items"] == []


def test_a_single_object_and_what_is_written_come_back(server: ReplayServer) -> None:
    path = "/apis/example.com/v1/namespaces/default/widgets"
    assert get(server, f"{path}/widget-0000003")["metadata"]["name"] == "widget-0000003"
    body = json.dumps({"metadata": {"labels": {"app": None, "new": "yes"}}}).encode()
    request = urllib.request.Request(f"{server.url}{path}/widget-0000003", body, method="PATCH")
    with urllib.request.urlopen(request) as answer:
        assert json.load(answer)["metadata"]["labels"] == {"new": "yes"}
    request = urllib.request.Request(f"{server.url}{path}", b'{"a":1}', method="POST")
    with urllib.request.urlopen(request) as answer:
        assert (answer.status, json.load(answer)) == (201, {"a": 1})


def test_a_call_takes_its_time() -> None:
    with ReplayServer(Spec(objects=1, call_ms=30)) as server:
        began = time.monotonic()
        get(server, "/apis/example.com/v1/namespaces/default/widgets/widget-0000000")
        assert time.monotonic() - began >= 0.03


def test_added_objects_are_new_ones() -> None:
    with ReplayServer(Spec(objects=0, events=3, added=True, pause=0.0)) as server:
        assert get(server, WIDGETS)["items"] == []
        found = events(server, f"{WIDGETS}?watch=1", 3)
        assert [event["object"]["metadata"]["name"] for event in found] == [
            f"widget-{number:07}" for number in range(3)
        ]


def test_a_paced_stream_has_the_time_of_sending_and_never_goes_back() -> None:
    with ReplayServer(Spec(objects=3, events=50, rate=1000, pause=0.0)) as server:
        began = time.monotonic_ns()
        found = events(server, f"{WIDGETS}?watch=1", 50)
        ended = time.monotonic_ns()
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in found]
    assert sorted(set(versions)) == versions
    assert began < versions[0]
    assert versions[-1] < ended
    assert versions[-1] - versions[0] > 40e6


def test_with_tls_each_event_is_a_record_of_its_own() -> None:
    with ReplayServer(Spec(objects=2, events=5, tls=True, pause=0.2)) as server:
        assert server.ca_file
        parts = urlsplit(server.url)
        context = ssl.create_default_context(cafile=server.ca_file)
        raw = socket.create_connection((parts.hostname, parts.port), timeout=10)
        with closing(raw), context.wrap_socket(raw, server_hostname="127.0.0.1") as connection:
            connection.sendall(f"GET {WIDGETS}?watch=1 HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            # One read gives one record at most.
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
            for _ in range(5):
                assert connection.recv(65536).endswith(b"}\n\r\n")


@pytest.mark.parametrize("tls", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
def test_an_informer_follows_it(tls: bool, streaming: bool) -> None:
    spec = Spec(objects=20, events=40, tls=tls, streaming=streaming, pause=0.0)
    with ReplayServer(spec) as server:
        with Client(ClientConfig(server=server.url, ca_file=server.ca_file)) as client:
            informer, stop = Informer(WIDGET, client), StopSignal()

            class Last:
                def on_add(self, obj: Object, *, is_initial: bool) -> None: ...
                def on_delete(self, obj: Object, *, is_final_state_unknown: bool) -> None: ...
                def on_update(self, old: Object, new: Object) -> None:
                    if new.resource_version == str(FIRST_VERSION + 60):
                        stop.set()

            informer.add_event_handler(Last())
            informer.run(stop)
        assert len(informer.store) == 20
        assert informer.last_error is None or not streaming


def test_the_floors_wire_reads_a_body(server: ReplayServer) -> None:
    from benchmarks._contestant import Options

    wire = Wire(Options(server=server.url))
    with closing(wire.socket):
        wire.get(WIDGETS)
        assert len(json.loads(wire.body())["items"]) == 7
