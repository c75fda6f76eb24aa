"""The embedded server without a socket answers as the one with a socket does, because it is it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator import Manager, controller_for
from appsdk_operator.cache import Informer
from appsdk_operator.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    ClientError,
    Conflict,
    ConnectionLost,
    Hooks,
    InterceptedClient,
    JsonPatch,
    MergePatch,
    NotFound,
    ServiceUnavailable,
    TransportError,
)
from appsdk_operator.controllers import Request
from appsdk_operator.resource import Kind, MutableObject, Object, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import APIServer, MemoryServer, MemoryView, running
from tests.definitions import widget_definition
from tests.testing.event_loops import held_up

CONFIG_MAP = kinds.core.v1.ConfigMap
WIDGET = Kind(group="example.com", version="v1", kind="Widget")
WIDGET_CRD = widget_definition(
    {
        "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}},
            "status": {"type": "object", "properties": {"size": {"type": "integer"}}},
        }
    }
)


def config_map(name: str, **data: str) -> MutableObject:
    obj = MutableObject.new(CONFIG_MAP, name, namespace="default")
    obj["data"] = data
    return obj


def widget(name: str, size: int) -> MutableObject:
    obj = MutableObject.new(WIDGET, name, namespace="default")
    obj["spec"] = {"size": size}
    return obj


def _update(client: Client) -> Object:
    obj = client.get(CONFIG_MAP, "a", namespace="default").mutable_copy()
    obj["data"] = {"x": "3"}
    return client.update(obj)


def _stale_update(client: Client) -> Object:
    obj = client.get(CONFIG_MAP, "a", namespace="default").mutable_copy()
    client.patch(CONFIG_MAP, "a", MergePatch({"data": {"y": "1"}}), namespace="default")
    return client.update(obj)


def _status(client: Client) -> Object:
    return client.status.patch(
        WIDGET, "w", MergePatch({"status": {"size": 2}}), namespace="default"
    )


def _watched(client: Client) -> list[Any]:
    seen = []
    with client.watch(CONFIG_MAP, namespace="default", send_initial_events=True) as stream:
        for event in stream.events():
            seen.append((event.type, event.object.name if event.object else ""))
            if event.type.value == "BOOKMARK":
                break
    return seen


SCRIPT: list[Callable[[Client], Any]] = [
    lambda client: client.create(config_map("a", x="1")),
    lambda client: client.create(config_map("a", x="1")),
    lambda client: client.get(CONFIG_MAP, "b", namespace="default"),
    _update,
    _stale_update,
    lambda client: client.patch(
        CONFIG_MAP,
        "a",
        JsonPatch([{"op": "test", "path": "/data/x", "value": "9"}]),
        namespace="default",
    ),
    lambda client: client.create(widget("w", 3)),
    lambda client: client.create(widget("v", 10)),
    lambda client: client.create(widget("v", 1), dry_run=True),
    lambda client: client.create(MutableObject.new(CONFIG_MAP, "Bad_Name", namespace="default")),
    lambda client: client.create(MutableObject.new(CONFIG_MAP, "c", namespace="nowhere")),
    _status,
    lambda client: [(obj.name, obj.get("spec")) for obj in client.list(WIDGET, limit=1)],
    lambda client: [obj.name for obj in client.list(CONFIG_MAP, label_selector="a=b")],
    _watched,
    lambda client: client.discovery.resources("apps/v1"),
    lambda client: client.request("GET", "/version"),
    lambda client: client.request("GET", "/nothing/here"),
    lambda client: client.delete(WIDGET, "w", namespace="default"),
    lambda client: client.delete_collection(CONFIG_MAP, namespace="default"),
]


def told(step: Callable[[Client], Any], client: Client) -> str:
    try:
        answer = step(client)
    except ClientError as error:
        return repr(error)
    if isinstance(answer, Object):
        plain = answer.to_dict()
        for field in ("uid", "creationTimestamp", "managedFields"):
            plain["metadata"].pop(field, None)
        return repr(plain)
    return repr(answer)


def test_every_answer_is_what_the_server_with_a_socket_gives() -> None:
    with (
        APIServer(crds=[WIDGET_CRD]) as server,
        MemoryServer(crds=[WIDGET_CRD]) as memory,
        Client(ClientConfig(server=server.url), metrics=Metrics()) as remote,
        memory.client(metrics=Metrics()) as near,
    ):
        for step in SCRIPT:
            assert told(step, near) == told(step, remote)


def test_a_view_sees_and_changes_the_state_of_a_server_that_runs() -> None:
    with (
        APIServer() as server,
        Client(ClientConfig(server=server.url), metrics=Metrics()) as remote,
        MemoryView(server).client(metrics=Metrics()) as near,
    ):
        made = remote.create(config_map("a", x="1"))
        assert near.get(CONFIG_MAP, "a", namespace="default") == made
        with near.watch(CONFIG_MAP, resource_version=made.resource_version) as stream:
            near.patch(CONFIG_MAP, "a", MergePatch({"data": {"x": "2"}}), namespace="default")
            event = next(stream.events())
        assert remote.get(CONFIG_MAP, "a", namespace="default") == event.object
        assert {request.path for request in server.requests} >= {
            "/api/v1/namespaces/default/configmaps/a"
        }


def test_a_view_of_a_server_that_does_not_run_says_so() -> None:
    near = MemoryView(APIServer()).client(metrics=Metrics(), max_retries=0)
    with pytest.raises(OSError, match="not running"):
        near.get(CONFIG_MAP, "a", namespace="default")


def test_a_request_whose_client_has_gone_is_not_begun() -> None:
    with APIServer() as server:
        with held_up(server._loop):
            near = MemoryView(server).client(metrics=Metrics(), read_timeout=0.1, max_retries=0)
            with pytest.raises(TransportError):
                near.watch(CONFIG_MAP)
        assert server.open_watches() == 0


class Late:
    """An event loop that is handed something as its server stops."""

    def __init__(self, server: APIServer) -> None:
        self._server, self._loop = server, server._loop

    def call_soon_threadsafe(self, *call: Any) -> None:
        assert self._loop is not None
        thread = self._server._thread
        assert thread._thread is not None
        self._loop.call_soon_threadsafe(thread._stopping.set)
        thread._thread.join(0.5)
        self._loop.call_soon_threadsafe(*call)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def test_a_request_that_comes_as_the_server_stops_is_cut_or_answered() -> None:
    with APIServer() as server:
        near = MemoryView(server).client(metrics=Metrics(), max_retries=0)
        server._loop = Late(server)  # type: ignore[assignment]
        with pytest.raises(ClientError):  # it was cut, or answered: there is no such object
            near.get(CONFIG_MAP, "a", namespace="default")
        with pytest.raises(OSError, match="not running"):
            near.get(CONFIG_MAP, "a", namespace="default")


def test_an_interceptor_replaces_single_verbs_and_leaves_the_rest() -> None:
    def refuse(_inner: Client, _obj: object, **_options: object) -> Object:
        raise Conflict("by order of the test", status=409)

    with MemoryServer() as server:
        client = InterceptedClient(server.client(metrics=Metrics()), Hooks(update=refuse))
        made = client.create(config_map("a"))
        with pytest.raises(Conflict, match="by order of the test"):
            client.update(made)
        assert client.get(CONFIG_MAP, "a", namespace="default") == made


def test_the_servers_fault_rules_hold_here_too() -> None:
    with MemoryServer() as server, server.client(metrics=Metrics()) as client:
        server.api.fail(verb="get", status=503, times=9)
        no_retries = server.client(metrics=Metrics(), max_retries=0)
        with pytest.raises(ServiceUnavailable):
            no_retries.get(CONFIG_MAP, "a", namespace="default")
        server.api.clear_faults()
        server.api.fail(after_write=True)
        with pytest.raises(ConnectionLost, match="may have been carried out"):
            client.create(config_map("a"))
        with pytest.raises(AlreadyExists):
            client.create(config_map("a"))
        assert [request.status for request in server.api.requests] == [503, 0, 409]


def test_tokens_are_asked_for_as_on_the_socket() -> None:
    with MemoryServer(token="right") as server:
        with pytest.raises(NotFound):
            server.client(metrics=Metrics()).get(CONFIG_MAP, "a", namespace="default")
        wrong = server.client(metrics=Metrics(), token="wrong")
        with pytest.raises(ClientError, match="Unauthorized"):
            wrong.get(CONFIG_MAP, "a", namespace="default")


def test_a_watch_waits_for_what_another_thread_writes_and_ends_with_its_client() -> None:
    with MemoryServer() as server:
        stop, came = StopSignal(), StopSignal()
        client = server.client(metrics=Metrics())

        def follow(_stop: StopSignal) -> None:
            with client.watch(CONFIG_MAP, stop=stop) as stream:
                for event in stream.events():
                    if event.object is not None and event.object.name == "late":
                        came.set()

        with running(follow):
            server.client(metrics=Metrics()).create(config_map("late"))
            assert came.wait(10)
            client.close()


def test_watches_can_be_cut_and_can_be_made_to_end_where_they_would_wait() -> None:
    with MemoryServer(ends_idle_watches=True) as server:
        client = server.client(metrics=Metrics())
        client.create(config_map("a"))
        with client.watch(CONFIG_MAP, namespace="default") as stream:
            seen = [event.type.value for event in stream.events()]
            assert seen == ["ADDED", "BOOKMARK"]
        stream = client.watch(CONFIG_MAP, namespace="default")
        server.cut_connections()
        with pytest.raises(ConnectionLost), stream:
            for _ in stream:
                pass


def test_bookmarks_and_the_ends_of_watches_are_timed_by_the_servers_clock() -> None:
    clock = ManualClock()
    with MemoryServer(clock=clock, ends_idle_watches=True, bookmark_interval=60.0) as server:
        client = server.client(metrics=Metrics())
        stream = client.watch(CONFIG_MAP, namespace="default", resource_version="4", timeout=100)
        clock.advance(61.0)
        server.turn()
        clock.advance(40.0)
        server.turn()
        assert [event.type.value for event in stream.events()] == ["BOOKMARK", "BOOKMARK"]


def test_an_informer_lives_on_it_without_a_thread() -> None:
    clock = ManualClock()
    with MemoryServer(clock=clock, ends_idle_watches=True) as server:
        client = server.client(metrics=Metrics())
        informer = Informer(CONFIG_MAP, client, clock=clock, metrics=Metrics())
        client.create(config_map("a"))
        informer.step(StopSignal(clock=clock))
        assert [obj.name for obj in informer.store.list()] == ["a"]


def test_a_manager_runs_on_it_with_its_threads() -> None:
    seen = StopSignal()

    def reconcile(request: Request) -> None:
        if request.name == "a":
            seen.set()

    with MemoryServer() as server:
        manager = Manager(server.config, metrics=Metrics())
        controller_for(manager).named("memory").for_(CONFIG_MAP).complete(reconcile)
        with running(manager):
            server.client(metrics=Metrics()).create(config_map("a"))
            assert seen.wait(10)
