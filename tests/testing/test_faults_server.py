"""What the rules do in the embedded server and in a proxy before one, as clients see it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.client import (
    AlreadyExists,
    Client,
    ClientConfig,
    Conflict,
    Expired,
    NotFound,
    ReadTimeout,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import RealClock
from appsdk_operator.testing import (
    APIServer,
    FaultProxy,
    FaultRule,
    FaultSchedule,
    LoggedRequest,
)
from appsdk_operator.testing._proxy import http_relay

CONFIG_MAP = kinds.core.v1.ConfigMap
SHORT = 0.1  # seconds in which nothing is to happen


@pytest.fixture
def server() -> Iterator[APIServer]:
    """For what only the embedded server does."""
    with APIServer() as server:
        yield server


@attrs.frozen
class Place:
    """Where faults are injected, before or in an API server."""

    server: APIServer
    config: ClientConfig
    inject: Callable[[list[FaultRule]], None]
    clear: Callable[[], None]
    requests: Callable[[], list[LoggedRequest]]


@pytest.fixture(params=["server", "proxy", "proxy with TLS"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """For what both do."""
    if request.param == "server":
        with APIServer() as server:
            yield Place(
                server,
                server.client_config(max_retries=0),
                server.inject,
                server.clear_faults,
                lambda: server.requests,
            )
        return
    options: dict[str, Any] = {"tls": True, "token": "abc"} if "TLS" in request.param else {}
    with APIServer(**options) as server, FaultProxy(server.client_config()) as proxy:
        yield Place(
            server,
            proxy.client_config(max_retries=0),
            proxy.inject,
            proxy.clear,
            lambda: proxy.requests,
        )


@pytest.fixture
def client(request: pytest.FixtureRequest) -> Iterator[Client]:
    if "place" in request.fixturenames:
        config = request.getfixturevalue("place").config
    else:
        config = request.getfixturevalue("server").client_config(max_retries=0)
    with Client(config) as client:
        yield client


def create(client: Client, name: str, **data: str) -> Object:
    return client.create(MutableObject.new(CONFIG_MAP, name, namespace="default", data=data))


def create_at(server: APIServer, name: str) -> None:
    """Create an object, not through a proxy."""
    with Client(server.client_config()) as direct:
        create(direct, name)


def names(client: Client) -> list[str]:
    return [obj.name for obj in client.list(CONFIG_MAP, namespace="default")]


def test_errors_come_with_their_reason_and_with_the_time_to_wait(
    place: Place, client: Client
) -> None:
    place.inject(
        [
            FaultRule.answer(429, retry_after=7, verb="create", times=1),
            FaultRule.answer(409, verb="create", times=1),
            FaultRule.answer(401, verb="create", times=2),  # a client tries once more
        ]
    )
    with pytest.raises(TooManyRequests) as caught:
        create(client, "a")
    assert caught.value.retry_after == 7
    with pytest.raises(Conflict, match="has been modified"):
        create(client, "a")
    with pytest.raises(Unauthorized):
        create(client, "a")
    assert create(client, "a").name == "a"
    last = place.requests()[-2:]
    assert [(request.verb, request.namespace, request.status) for request in last] == [
        ("create", "default", 401),
        ("create", "default", 201),
    ]
    assert last[0].fault == "FaultRule.answer(401, verb='create', times=2)"
    assert not last[1].fault
    assert all(0 <= request.duration < 10 for request in last)


def test_rules_may_be_given_from_the_start_and_find_new_objects_by_name() -> None:
    faults = FaultSchedule([FaultRule.answer(409, verb="create", name="b*")], seed=3)
    with (
        APIServer(faults=faults) as server,
        Client(ClientConfig(server=server.url, max_retries=0)) as client,
    ):
        create(client, "a")
        with pytest.raises(Conflict):
            create(client, "b1")
        assert names(client) == ["a"]


def test_a_dropped_request_is_not_carried_out_and_a_lost_one_is(
    place: Place, client: Client
) -> None:
    place.inject([FaultRule.drop(verb="create", times=1), FaultRule.lose(verb="create", times=1)])
    for name in ("dropped", "lost"):
        with pytest.raises(TransportError):
            create(client, name)
    assert names(client) == ["lost"]


def test_an_answer_is_cut_in_the_middle(place: Place, client: Client) -> None:
    place.inject([FaultRule.cut(20, verb="create", times=1)])
    with pytest.raises(TransportError):
        create(client, "a")
    assert names(client) == ["a"]


def test_a_duplicated_request_is_carried_out_twice(place: Place, client: Client) -> None:
    place.inject([FaultRule.duplicate(verb="create")])
    with pytest.raises(AlreadyExists):
        create(client, "a")
    assert names(client) == ["a"]


@pytest.mark.parametrize("rule", [FaultRule.delay(SHORT), FaultRule.hold(SHORT)])
def test_an_answer_is_late(place: Place, client: Client, rule: FaultRule) -> None:
    clock = RealClock()
    place.inject([rule])
    began = clock.monotonic()
    create(client, "a")
    assert clock.monotonic() - began >= SHORT
    place.clear()
    assert place.requests()[-1].duration >= SHORT


def test_an_answer_is_sent_slowly_and_is_whole(place: Place, client: Client) -> None:
    create(client, "a", text="x" * 1000)
    clock = RealClock()
    place.inject([FaultRule.slow(10_000.0)])
    began = clock.monotonic()
    found = client.get(CONFIG_MAP, "a", namespace="default")
    assert found.to_dict()["data"] == {"text": "x" * 1000}
    assert clock.monotonic() - began >= SHORT
    assert place.requests()[-1].status == 200


@pytest.mark.parametrize("rule", [FaultRule.delay(SHORT), FaultRule.hold(SHORT)], ids=repr)
def test_rules_that_slow_down_add_up(place: Place, client: Client, rule: FaultRule) -> None:
    place.inject([rule, rule])
    with pytest.raises(NotFound):
        client.get(CONFIG_MAP, "none", namespace="default")
    assert place.requests()[-1].duration >= 2 * SHORT


def test_an_error_is_cut_in_the_middle_as_any_answer(place: Place, client: Client) -> None:
    place.inject([FaultRule.cut(5)])
    with pytest.raises(TransportError):
        client.get(CONFIG_MAP, "none", namespace="default")
    assert place.requests()[-1].status == 0


def test_a_slow_answer_is_sent_at_once_when_the_faults_are_cleared(
    place: Place, client: Client
) -> None:
    found: list[str] = []
    place.inject([FaultRule.slow(1.0, verb="list")])
    thread = threading.Thread(target=lambda: found.extend(names(client)))
    create_at(place.server, "a")
    thread.start()
    thread.join(SHORT)
    place.clear()
    thread.join(20)
    assert found == ["a"]


def test_a_watch_goes_on_when_the_faults_are_cleared(place: Place, client: Client) -> None:
    place.inject([FaultRule.end_watch(410, after=1), FaultRule.delay(30.0, verb="watch")])
    create_at(place.server, "a")
    with client.watch(CONFIG_MAP, namespace="default", resource_version="0") as watch:
        place.clear()
        create_at(place.server, "b")
        events = watch.events()
        assert [next(events).object.name for _ in range(2)] == ["a", "b"]


def test_a_stalled_request_goes_on_when_the_faults_are_cleared(
    place: Place, client: Client
) -> None:
    place.inject([FaultRule.stall(verb="create")])
    made: list[Object] = []
    thread = threading.Thread(target=lambda: made.append(create(client, "a")))
    thread.start()
    thread.join(SHORT)
    assert thread.is_alive()
    assert not place.server.objects(CONFIG_MAP)
    place.clear()
    thread.join(10)
    assert [obj.name for obj in made] == ["a"]


def test_a_client_may_give_up_what_is_stalled(place: Place) -> None:
    place.inject([FaultRule.stall()])
    config = attrs.evolve(place.config, read_timeout=SHORT)
    with Client(config) as client, pytest.raises(ReadTimeout):
        create(client, "a")


def test_a_stop_does_not_wait_for_what_is_stalled() -> None:
    clock = RealClock()
    server = APIServer(faults=[FaultRule.stall()]).start()
    with Client(ClientConfig(server=server.url, max_retries=0)) as client:
        thread = threading.Thread(target=lambda: give_up(lambda: create(client, "a")))
        thread.start()
        thread.join(SHORT)
        began = clock.monotonic()
        server.stop()
        assert clock.monotonic() - began < 8
        thread.join(10)


def test_a_request_that_is_not_whole_yet_when_the_faults_are_cleared_is_not_stalled_by_them() -> (
    None
):
    body = b'{"metadata":{"name":"a"}}'
    head = (
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: x\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        "Expect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    with APIServer(faults=[FaultRule.stall()]) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(head.encode())
            # The rules were taken when the server asks for the body.
            assert connection.recv(1000).startswith(b"HTTP/1.1 100")
            server.clear_faults()
            connection.sendall(body)
            assert connection.recv(65536).startswith(b"HTTP/1.1 201")


def test_all_waits_of_a_request_at_a_proxy_end_when_the_faults_are_cleared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, wait = threading.Event(), http_relay.wait_for_release

    async def noted(released: asyncio.Event, seconds: float | None) -> None:
        waits.set()
        await wait(released, seconds)

    monkeypatch.setattr(http_relay, "wait_for_release", noted)
    made: list[Object] = []
    with (
        APIServer() as server,
        FaultProxy(server.client_config()) as proxy,
        Client(proxy.client_config(max_retries=0)) as client,
    ):
        proxy.inject([FaultRule.delay(600.0), FaultRule.stall()])
        thread = threading.Thread(target=lambda: made.append(create(client, "a")))
        thread.start()
        assert waits.wait(30)
        proxy.clear()
        thread.join(20)
        assert [obj.name for obj in made] == ["a"]


def test_rules_stall_requests_again_after_a_restart_of_the_server() -> None:
    server = APIServer(faults=[FaultRule.stall()])
    for _ in range(2):
        with server:
            config = ClientConfig(server=server.url, max_retries=0, read_timeout=SHORT)
            with Client(config) as client, pytest.raises(ReadTimeout):
                create(client, "a")


def give_up(call: Callable[[], object]) -> None:
    with contextlib.suppress(TransportError):
        call()


# -- caches that lag -----------------------------------------------------------------------------


def test_only_reads_of_any_state_come_from_a_cache_that_lags(
    server: APIServer, client: Client
) -> None:
    create(client, "a")
    create(client, "b")
    client.delete(CONFIG_MAP, "a", namespace="default")
    server.inject([FaultRule.stale(2, kind=CONFIG_MAP)])
    any_state = client.list_page(CONFIG_MAP, namespace="default", resource_version="0")
    assert [obj.name for obj in any_state.items] == ["a"]
    newest = client.list_page(CONFIG_MAP, namespace="default")
    assert [obj.name for obj in newest.items] == ["b"]
    assert int(any_state.resource_version) < int(newest.resource_version)
    reached = client.list_page(
        CONFIG_MAP,
        namespace="default",
        resource_version=newest.resource_version,
        resource_version_match="NotOlderThan",
    )
    assert [obj.name for obj in reached.items] == ["b"]
    server.clear_faults()
    again = client.list_page(CONFIG_MAP, namespace="default", resource_version="0")
    assert [obj.name for obj in again.items] == ["b"]


def test_a_watch_of_a_cache_that_lags_goes_forward_and_misses_nothing(
    server: APIServer, client: Client
) -> None:
    create(client, "a")
    create(client, "b")
    client.delete(CONFIG_MAP, "a", namespace="default")
    server.inject([FaultRule.stale(2, verb="watch", times=1)])
    with client.watch(CONFIG_MAP, namespace="default", resource_version="0") as watch:
        events = watch.events()
        seen = [next(events) for _ in range(3)]
        create(client, "c")
        seen.append(next(events))
    assert [(event.type.value, event.object.name) for event in seen] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("DELETED", "a"),
        ("ADDED", "c"),
    ]


# -- watches -------------------------------------------------------------------------------------


def test_a_watch_ends_with_an_error_after_some_events(place: Place, client: Client) -> None:
    place.inject([FaultRule.end_watch(410, after=2, times=1)])
    for name in ("a", "b", "c"):
        create(client, name)
    seen: list[str] = []
    with (
        pytest.raises(Expired, match="too old resource version"),
        client.watch(CONFIG_MAP, namespace="default") as watch,
    ):
        seen.extend(event.object.name for event in watch.events())
    assert seen == ["a", "b"]


def test_a_watch_ends_in_good_order(place: Place, client: Client) -> None:
    place.inject([FaultRule.end_watch(after=1)])
    create(client, "a")
    create(client, "b")
    with client.watch(CONFIG_MAP, namespace="default") as watch:
        assert [event.object.name for event in watch.events()] == ["a"]


def test_a_watch_is_cut_in_the_middle_of_a_line(place: Place, client: Client) -> None:
    place.inject([FaultRule.cut(30, verb="watch")])
    create(client, "a")
    with pytest.raises(TransportError), client.watch(CONFIG_MAP, namespace="default") as watch:
        list(watch)


def test_a_watch_goes_silent_and_on_again(place: Place, client: Client) -> None:
    place.inject([FaultRule.stall(after=1, verb="watch")])
    create(client, "a")
    with client.watch(CONFIG_MAP, namespace="default") as watch:
        events = watch.events()
        assert next(events).object.name == "a"
        create(client, "b")
        seen: list[str] = []
        thread = threading.Thread(target=lambda: seen.append(next(events).object.name))
        thread.start()
        thread.join(SHORT)
        assert not seen
        place.clear()
        thread.join(10)
        assert seen == ["b"]


def test_a_stalled_watch_takes_up_no_memory_and_loses_nothing(place: Place, client: Client) -> None:
    place.inject([FaultRule.stall(verb="watch")])
    with client.watch(CONFIG_MAP, namespace="default") as watch:
        for number in range(40):
            create(client, f"m{number:02}", text="x" * 10_000)
        place.clear()
        events = watch.events()
        assert [next(events).object.name for _ in range(40)] == [f"m{n:02}" for n in range(40)]


def test_events_are_late_and_in_order(place: Place, client: Client) -> None:
    place.inject([FaultRule.delay(SHORT, verb="watch")])
    clock = RealClock()
    with client.watch(CONFIG_MAP, namespace="default") as watch:
        began = clock.monotonic()
        create(client, "a")
        create(client, "b")
        events = watch.events()
        assert [next(events).object.name for _ in range(2)] == ["a", "b"]
        assert SHORT <= clock.monotonic() - began < 10


def test_events_come_slowly(place: Place, client: Client) -> None:
    create(client, "a", text="x" * 1000)
    place.inject([FaultRule.slow(10_000.0, verb="watch")])
    clock = RealClock()
    with client.watch(CONFIG_MAP, namespace="default") as watch:
        began = clock.monotonic()
        assert next(watch.events()).object.name == "a"
        assert clock.monotonic() - began >= SHORT
