"""Watches: their events, their start and their selection."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from typing import Any

import aiohttp
import pytest

from appsdk_operator.apiserver import APIServer
from appsdk_operator.apiserver._http import representations
from appsdk_operator.resource import kinds
from appsdk_operator.testing import ControlPlane

END = "k8s.io/initial-events-end"
STREAMING = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"


def test_a_watch_without_a_version_begins_with_what_is_there(api: Any) -> None:
    api.map("b")
    api.map("a")
    stream = api.watch(api.maps)
    assert stream.events(2) == [("ADDED", "a"), ("ADDED", "b")]
    api.map("c")
    assert stream.events(1) == [("ADDED", "c")]


def test_a_watch_from_a_version_tells_what_came_after_it(api: Any) -> None:
    version = api.map("a").version
    api.patch(f"{api.maps}/a", {"data": {"k": "v"}})
    api.map("b")
    api.delete(f"{api.maps}/a")
    stream = api.watch(api.maps, f"resourceVersion={version}")
    assert stream.events(3) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


def test_versions_rise_and_a_deletion_has_one_of_its_own(api: Any, server: Any) -> None:
    stream = api.watch(api.maps)
    api.map("a", finalizers=["example.com/x"])
    api.delete(f"{api.maps}/a")
    api.patch(f"{api.maps}/a", {"metadata": {"finalizers": None}})
    events = [stream.event() for _ in range(3)]
    versions = [int(obj["metadata"]["resourceVersion"]) for _, obj in events]
    assert versions == sorted(set(versions))
    assert versions[-1] == server.resource_version
    assert events[-1][0] == "DELETED"
    # The state that was stored last, as on the real server.
    assert events[-1][1]["metadata"]["finalizers"] == ["example.com/x"]
    told = [(revision, kind) for revision, kind, _ in server.history(kinds.core.v1.ConfigMap)]
    assert told == list(zip(versions, ("ADDED", "MODIFIED", "DELETED"), strict=True))


def test_objects_that_enter_and_leave_a_selection_are_added_and_deleted(api: Any) -> None:
    stream = api.watch(api.maps, "labelSelector=a%3Db")
    api.map("m")
    path = f"{api.maps}/m"
    api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    api.patch(path, {"data": {"k": "v"}})
    left = api.patch(path, {"metadata": {"labels": {"a": "c"}}})
    api.patch(path, {"data": {"k": "w"}})
    api.patch(path, {"metadata": {"labels": {"a": "b"}}})
    api.delete(path)
    assert stream.events(2) == [("ADDED", "m"), ("MODIFIED", "m")]
    kind, gone = stream.event()
    assert (kind, gone["metadata"]["labels"]) == ("DELETED", {"a": "b"})
    assert gone["metadata"]["resourceVersion"] == left.version
    assert stream.events(2) == [("ADDED", "m"), ("DELETED", "m")]


def test_a_watch_of_a_namespace_tells_nothing_of_others(api: Any) -> None:
    api.create("/api/v1/namespaces", {"metadata": {"name": "other"}})
    stream = api.watch("/api/v1/namespaces/other/configmaps")
    api.map("here")
    api.create("/api/v1/namespaces/other/configmaps", {"metadata": {"name": "there"}})
    assert stream.events(1) == [("ADDED", "there")]


def test_the_state_can_be_streamed_and_its_end_is_marked(api: Any) -> None:
    api.map("a")
    api.map("b")
    stream = api.watch(api.maps, STREAMING)
    assert stream.events(2) == [("ADDED", "a"), ("ADDED", "b")]
    kind, mark = stream.event()
    assert kind == "BOOKMARK"
    assert mark["metadata"]["annotations"] == {END: "true"}
    api.map("c")
    assert stream.events(1) == [("ADDED", "c")]


@pytest.mark.parametrize("first", [True, False], ids=["initially", "later"])
def test_a_watch_that_cannot_show_an_object_ends_and_no_other_does(
    api: Any, server: Any, monkeypatch: Any, first: bool
) -> None:
    # There is no list of a single object, and a table may break on one, by a bug.
    monkeypatch.setattr(representations, "row", lambda *_: {}["bug"])
    forms = ("PartialObjectMetadataList", "Table")
    accept = [f"application/json;as={form};g=meta.k8s.io;v=v1" for form in forms]
    if first:
        api.map("a")
    failed = [api.watch(api.maps, Accept=each) for each in accept]
    whole = api.watch(api.maps)
    api.map("b")
    assert whole.events(2 if first else 1)[-1] == ("ADDED", "b")
    assert [stream.rest() for stream in failed] == [[], []]
    api.map("c")
    assert whole.events(1) == [("ADDED", "c")]
    assert server.open_watches() == 1


def test_a_head_is_no_watch(api: Any, server: Any) -> None:
    assert api("HEAD", f"{api.widgets}?watch=1").status == 200
    assert [each.verb for each in server.requests][-1:] == ["list"]


def test_a_streamed_state_needs_its_match_and_a_server_that_can(api: Any, connect: Any) -> None:
    refused = api.get(f"{api.maps}?watch=1&sendInitialEvents=true")
    assert refused.status == 422
    assert "sendInitialEvents requires setting resourceVersionMatch" in refused["message"]
    with APIServer(streaming_lists=False) as old:
        refused = connect(old).get(f"{api.maps}?watch=1&{STREAMING}")
        assert refused.status == 422
        assert refused["details"]["causes"][0]["field"] == "sendInitialEvents"


def test_a_version_that_is_forgotten_ends_the_watch_with_410(api: Any, server: Any) -> None:
    version = api.map("a").version
    api.map("b")
    server.compact()
    (kind, status), *rest = api.watch(api.maps, f"resourceVersion={version}").rest()
    assert (kind, status["code"], status["reason"], rest) == ("ERROR", 410, "Expired", [])
    assert status["message"].startswith("too old resource version:")


def test_compaction_does_not_hurt_watches_that_are_up_to_date(api: Any, server: Any) -> None:
    stream = api.watch(api.maps, f"resourceVersion={server.resource_version}")
    api.map("a")
    assert stream.events(1) == [("ADDED", "a")]
    server.compact()
    api.map("b")
    assert stream.events(1) == [("ADDED", "b")]


def test_compaction_does_not_hurt_a_watch_that_waits_for_its_first_row(
    api: Any, server: Any
) -> None:
    table = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    stream = api.watch(api.maps, f"resourceVersion={server.resource_version}", **table)
    for number in range(3):
        api.create("/api/v1/namespaces", {"metadata": {"name": f"n{number}"}})
        server.compact()
    api.map("a")
    assert stream.event()[0] == "ADDED"


def test_a_watch_that_ends_before_all_initial_events_were_sent_ends_without_bookmark(
    api: Any, server: Any
) -> None:
    text = {"text": "x" * 500_000}
    for number in range(12):
        api.widget(f"w{number}", free=text)
    host, port = server.url.removeprefix("http://").split(":")
    query = "watch=1&allowWatchBookmarks=true"
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((host, int(port)))
        head = "HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        lazy.sendall(f"GET {api.widgets}?{query} {head}".encode())
        lazy.recv(1024)
        definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        stream = api.watch(definitions)
        assert stream.event()[0] == "ADDED"
        api.delete(f"{definitions}/widgets.example.com")
        while stream.event()[0] != "DELETED":
            pass
        received = bytearray()
        while part := lazy.recv(1 << 20):
            received += part
    assert received.count(b'"type":"ADDED"') < 12
    assert b'"type":"BOOKMARK"' not in received


def test_bookmarks_say_how_far_a_watch_is(api: Any, server: Any) -> None:
    with_bookmarks = api.watch(api.maps, "allowWatchBookmarks=true")
    without = api.watch(api.maps)
    api.widget("elsewhere")
    server.send_bookmarks()
    kind, mark = with_bookmarks.event()
    assert kind == "BOOKMARK"
    assert mark["kind"] == "ConfigMap"
    assert int(mark["metadata"]["resourceVersion"]) == server.resource_version
    api.map("a")
    assert without.events(1) == [("ADDED", "a")]


def test_bookmarks_leave_nothing_behind(api: Any, server: Any) -> None:
    version = api.map("a").version
    accept = "application/json;as=Table;g=meta.k8s.io;v=v1"
    query = f"allowWatchBookmarks=true&resourceVersion={version}"
    stream = api.watch(api.maps, query, Accept=accept)
    for _ in range(20):
        server.send_bookmarks()
        assert stream.event()[0] == "BOOKMARK"
    assert server._call(lambda: len(server._core.hub._changed)) <= 1


def test_bookmarks_come_by_themselves(connect: Any) -> None:
    with APIServer(bookmark_interval=0.01) as server:
        stream = connect(server).watch("/api/v1/pods", "allowWatchBookmarks=true")
        assert stream.event()[0] == "BOOKMARK"


def test_a_watch_ends_when_its_time_is_over(api: Any) -> None:
    api.map("a")
    events = api.watch(api.maps, "timeoutSeconds=1&allowWatchBookmarks=true").rest()
    assert [kind for kind, _ in events] == ["ADDED", "BOOKMARK"]


def test_a_watch_from_the_future_tells_what_is_beyond_it(api: Any, server: Any) -> None:
    ahead = server.resource_version + 2
    stream = api.watch(api.maps, f"resourceVersion={ahead}")
    for name in "abc":
        api.map(name)
    assert stream.events(1) == [("ADDED", "c")]


def test_a_stalled_watch_gets_nothing_and_then_everything(api: Any, server: Any) -> None:
    stream = api.watch(api.maps)
    api.map("a")
    assert stream.events(1) == [("ADDED", "a")]
    server.stall_watches(True)
    api.map("b")
    late = api.watch(api.maps)
    assert server.open_watches(kinds.core.v1.ConfigMap) == 2
    assert not stream.has_more()
    server.stall_watches(False)
    assert stream.events(1) == [("ADDED", "b")]
    assert late.events(2) == [("ADDED", "a"), ("ADDED", "b")]


def test_a_watch_that_was_stalled_beyond_the_history_must_begin_anew(connect: Any) -> None:
    with APIServer(history=5) as server:
        api = connect(server)
        stream = api.watch(api.maps)
        api.map("first")
        assert stream.events(1) == [("ADDED", "first")]
        server.stall_watches(True)
        for number in range(10):
            api.map(f"m{number}")
        server.stall_watches(False)
        (kind, status), *_ = stream.rest()
        assert (kind, status["code"]) == ("ERROR", 410)


def test_a_reader_that_takes_nothing_holds_nobody_up(api: Any, server: Any) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.socket() as lazy:
        lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        lazy.connect((host, int(port)))
        lazy.sendall(f"GET {api.maps}?watch=1 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        lazy.recv(1024)
        eager = api.watch(api.maps)
        text = "x" * 500_000
        for number in range(12):
            api.create(api.maps, {"metadata": {"name": f"m{number}"}, "data": {"k": text}})
        assert len(eager.events(12)) == 12
        # 6 MB were written, and what waits for the reader is far less.
        waiting = server._call(
            lambda: max(c.transport.get_write_buffer_size() for c in server._http.connections)
        )
        assert waiting < 3_000_000
        received = bytearray()
        while received.count(b'"type":"ADDED"') < 12:
            received += lazy.recv(1 << 20)


def test_every_watch_of_many_sees_every_event_in_order(api: Any, server: Any) -> None:
    streams = [api.watch(api.maps, "labelSelector=a" if n % 2 else "") for n in range(20)]

    def write(part: int) -> None:
        for number in range(25):
            api.map(f"m-{part}-{number}", {"a": "b"})

    writers = [threading.Thread(target=write, args=(part,)) for part in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    wanted = [
        (kind, obj["metadata"]["name"]) for _, kind, obj in server.history(kinds.core.v1.ConfigMap)
    ]
    assert len(wanted) == 100
    for stream in streams:
        assert stream.events(100) == wanted


def test_other_versions_of_a_kind_are_watched_in_their_own(api: Any) -> None:
    stream = api.watch("/apis/example.com/v1beta1/widgets")
    api.widget("a")
    _, obj = stream.event()
    assert obj["apiVersion"] == "example.com/v1beta1"


def test_tables_are_watched_too(api: Any) -> None:
    stream = api.watch(api.maps, "", Accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    api.map("a")
    kind, table = stream.event()
    assert (kind, table["rows"][0]["cells"][0]) == ("ADDED", "a")


def test_the_watches_of_a_definition_end_with_it(api: Any) -> None:
    api.widget("a")
    stream = api.watch(api.widgets)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    assert api.delete(path).status == 200
    assert [kind for kind, _ in stream.rest()] == ["ADDED", "DELETED"]
    assert api.get(api.widgets).status == 404


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({"versions": [..., {"served": False}]}, True),
        ({"versions": [{"schema": {"openAPIV3Schema": {"type": "object"}}}, ...]}, True),
        ({"versions": [{"additionalPrinterColumns": []}, ...]}, True),
        ({"names": {"shortNames": ["wg"]}}, True),
        ({}, False),
    ],
)
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_all_watches_of_a_definition_end_when_it_changes_and_miss_nothing(
    api: Any, widget_crd: Any, change: dict[str, Any], ends: bool, version: str
) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    spec = widget_crd["spec"]
    spec["names"].update(change.get("names", {}))
    for known, given in zip(spec["versions"], change.get("versions", ()), strict=False):
        known.update({} if given is ... else given)
    api.widget("a")
    stream = api.watch(api.widgets.replace("v1", version), "allowWatchBookmarks=true")
    changed = api.patch(path, {"metadata": {"labels": {"a": "b"}}, "spec": spec})
    assert changed.status == 200, changed.body
    api.widget("b")
    if not ends:
        assert stream.events(2) == [("ADDED", "a"), ("ADDED", "b")]
        return
    *told, (last, bookmark) = stream.rest()
    assert [kind for kind, _ in told] == ["ADDED"]
    assert last == "BOOKMARK"
    query = f"resourceVersion={bookmark['metadata']['resourceVersion']}"
    assert api.watch(api.widgets, query).events(1) == [("ADDED", "b")]


def test_a_watch_that_is_ended_while_it_is_stalled_ends_after_that(api: Any, server: Any) -> None:
    server.stall_watches(True)
    stream = api.watch(api.widgets)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    assert api.delete(path).status == 200
    while api.get(api.widgets).status != 404:
        pass
    server.stall_watches(False)
    assert stream.rest() == []


@pytest.mark.parametrize("query", ["resourceVersion=abc", "timeoutSeconds=abc"])
def test_a_watch_that_makes_no_sense_is_refused_before_it_begins(api: Any, query: str) -> None:
    refused = api.get(f"{api.maps}?watch=1&{query}")
    assert refused.status in (400, 500)
    assert refused["kind"] == "Status"


def test_a_name_in_the_path_is_one_object_to_get(api: Any) -> None:
    api.map("a")
    assert api.get(f"{api.maps}/a?watch=1")["kind"] == "ConfigMap"


def test_a_client_of_http_1_0_gets_plain_lines(api: Any, server: Any) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as plain:
        plain.sendall(f"GET {api.maps}?watch=1 HTTP/1.0\r\n\r\n".encode())
        data = plain.recv(65536)
        assert b"chunked" not in data
        api.map("a")
        while b"\n" not in data.partition(b"\r\n\r\n")[2]:
            data += plain.recv(65536)
        assert json.loads(data.partition(b"\r\n\r\n")[2])["type"] == "ADDED"


# -- WebSocket -------------------------------------------------------------------------------------

Messages = list[tuple[str, str]]


async def _read_messages(url: str, **headers: str) -> tuple[Messages, int | None]:
    """Type and name of the events in the messages of a watch, and the code of its end."""
    found: Messages = []
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.ws_connect(url, ssl=False) as connection,
    ):
        await connection.send_str("what a client says is ignored")
        async for message in connection:
            assert message.type is aiohttp.WSMsgType.TEXT
            assert message.data.endswith("}\n")
            event = json.loads(message.data)
            found.append((event["type"], event["object"]["metadata"]["name"]))
        return found, connection.close_code


def _watch_by_websocket(
    api: Any, *, token: str | None = None, seconds: int = 1
) -> tuple[Messages, int | None]:
    version = int(api.map("socket-a").version) - 1
    api.map("socket-b", annotations={"n": "x" * 70_000})
    api.delete(f"{api.maps}/socket-a")
    query = f"watch=true&resourceVersion={version}&timeoutSeconds={seconds}"
    authorization = {"Authorization": f"Bearer {token}"} if token else {}
    url = api.server.url
    return asyncio.run(_read_messages(f"{url}{api.maps}?{query}", Origin=url, **authorization))


EVENTS = [("ADDED", "socket-a"), ("ADDED", "socket-b"), ("DELETED", "socket-a")]


def test_a_watch_over_websocket_sends_a_message_for_each_event(api: Any) -> None:
    assert _watch_by_websocket(api) == (EVENTS, 1000)
    (watch,) = (request for request in api.server.requests if request.verb == "watch")
    assert watch.status == 101


@pytest.mark.real
def test_a_watch_over_websocket_of_the_real_server_is_the_same(
    real_api: Any, control_plane: ControlPlane
) -> None:
    found, code = _watch_by_websocket(real_api, token=control_plane.token, seconds=5)
    assert [event for event in found if event in EVENTS] == EVENTS
    # It does not wait for what its client sends: then the connection ends before its last message.
    assert code in (1000, 1006)


HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Origin": "http://here",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


def test_a_websocket_of_an_invalid_watch_is_refused_as_any_request_is(api: Any) -> None:
    refused = api.get(f"{api.maps}?watch=true&resourceVersion=abc", **HANDSHAKE)
    assert (refused.status, refused["kind"]) == (500, "Status")


def test_a_handshake_with_a_key_that_is_none_is_refused(api: Any) -> None:
    """The real server accepts any text."""
    refused = api.get(f"{api.maps}?watch=true", **{**HANDSHAKE, "Sec-WebSocket-Key": "none"})
    assert (refused.status, refused["kind"]) == (400, "Status")
    assert api.server.open_watches() == 0


REFUSED_HANDSHAKES = [
    ({"Origin": ""}, 403, ""),
    ({"Origin": "null"}, 403, ""),
    ({"Origin": "here.example.com"}, 403, ""),
    ({"Origin": "http://a b"}, 403, ""),
    ({"Sec-WebSocket-Version": "5"}, 400, "missing or bad WebSocket Version"),
    ({"Sec-WebSocket-Key": ""}, 400, "mismatch challenge/response"),
    ({"Sec-WebSocket-Protocol": "one, two"}, 400, ""),
    # The first mistake counts.
    ({"Sec-WebSocket-Version": "5", "Origin": ""}, 400, "missing or bad WebSocket Version"),
    ({"Sec-WebSocket-Protocol": "a,", "Origin": ""}, 403, ""),
]


@pytest.mark.parametrize(("headers", "status", "text"), REFUSED_HANDSHAKES)
def test_a_handshake_of_a_websocket_is_refused_without_a_status(
    api: Any, headers: dict[str, str], status: int, text: str
) -> None:
    refused = api.get(f"{api.maps}?watch=true", **{**HANDSHAKE, **headers})
    assert (refused.status, refused.body) == (status, text)
    assert not {"Cache-Control", "Audit-Id"} & refused.headers.keys()
    assert api.server.open_watches() == 0


@pytest.mark.real
@pytest.mark.parametrize(("headers", "status", "text"), REFUSED_HANDSHAKES)
def test_the_real_server_refuses_these_handshakes_alike(
    real_api: Any, headers: dict[str, str], status: int, text: str
) -> None:
    refused = real_api.get(f"{real_api.maps}?watch=true", **{**HANDSHAKE, **headers})
    assert (refused.status, refused.body) == (status, text)
    assert not {"Cache-Control", "Audit-Id"} & refused.headers.keys()


@pytest.mark.parametrize(
    "origin", ["localhost:8080", "/here", "*", "file://", "chrome-extension://a", "http://[::1]:80"]
)
def test_a_handshake_with_any_address_as_its_origin_is_taken(api: Any, origin: str) -> None:
    query = "watch=true&timeoutSeconds=1&fieldSelector=metadata.name=none"
    address = f"{api.server.url}{api.maps}?{query}"
    assert asyncio.run(_read_messages(address, Origin=origin)) == ([], 1000)


def test_a_watch_over_websocket_ends_with_its_client_and_with_its_server(api: Any) -> None:
    server: APIServer = api.server
    url = f"{server.url}{api.maps}?watch=true&resourceVersion={api.map('a').version}"

    async def run() -> None:
        async with aiohttp.ClientSession(headers={"Origin": server.url}) as session:
            async with session.ws_connect(url, protocols=["v1.example.com"]) as connection:
                assert connection.protocol == "v1.example.com"
                await asyncio.to_thread(api.map, "b")
                assert (await connection.receive_json())["object"]["metadata"]["name"] == "b"
                assert server.open_watches(kinds.core.v1.ConfigMap) == 1
            async with asyncio.timeout(30):
                while server.open_watches(kinds.core.v1.ConfigMap):
                    await asyncio.to_thread(api.get, "/version")
            async with session.ws_connect(url) as connection:
                await asyncio.to_thread(server.stop)
                messages = [message.type async for message in connection]
                assert all(kind is aiohttp.WSMsgType.TEXT for kind in messages)

    asyncio.run(run())
