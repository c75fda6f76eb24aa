"""The proxy that reads requests: credentials, odd messages, other servers, what it refuses."""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from appsdk_operator.client import Client, ClientConfig, Conflict, TransportError, Unauthorized
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.testing import APIServer, ControlPlane, FaultProxy, FaultRule, FaultSchedule
from tests.shared_plane import SharedPlane

CONFIG_MAP, NAMESPACE = kinds.core.v1.ConfigMap, kinds.core.v1.Namespace

Answer = Callable[[bytes], bytes]


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], str]]:
    """Serves connections by a function of what was received; its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []

    def talk(connection: socket.socket, answer: Answer) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(65536):
                said = answer(data)
                connection.sendall(said)
                if b"\r\nConnection: close" in said or said.startswith(b"nonsense"):
                    break

    def start(answer: Answer) -> str:
        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    thread = threading.Thread(target=talk, args=(listener.accept()[0], answer))
                    threads.append(thread)
                    thread.start()

        threads.append(threading.Thread(target=accept))
        threads[0].start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    for thread in threads:
        thread.join(30)


def asked(proxy: FaultProxy, request: bytes) -> bytes:
    """What is answered to these bytes, up to the end of the connection."""
    host, port = proxy.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(request)
        data = b""
        while piece := connection.recv(65536):
            data += piece
        return data


GET = b"GET /api/v1/pods HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"\r\n\r\nok"),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nto the end", b"to the end"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"No Content\r\n\r\n"),
        (
            b"HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nok\r\n0\r\nA: b\r\n\r\n",
            b"\r\n\r\n2\r\nok\r\n0\r\n\r\n",
        ),
        (
            b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            b"\r\n\r\nok",
        ),
        (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", b"\r\n\r\n"),
    ],
)
def test_answers_are_forwarded_with_any_framing(
    serve: Callable[[Answer], str], answer: bytes, end: bytes
) -> None:
    with FaultProxy(ClientConfig(server=serve(lambda _: answer))) as proxy:
        assert asked(proxy, GET).endswith(end)
        assert [(r.verb, r.status // 100) for r in proxy.requests] == [("list", 2)]


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 9\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_a_server_that_speaks_no_http_is_cut_off(
    serve: Callable[[Answer], str], answer: bytes
) -> None:
    config = ClientConfig(server=serve(lambda _: answer))
    with FaultProxy(config) as proxy, Client(proxy.client_config(max_retries=0)) as client:
        with pytest.raises(TransportError):
            client.get(CONFIG_MAP, "a", namespace="default")
        assert proxy.wait_for(lambda proxy: proxy.connections == 0)


@pytest.mark.parametrize(
    "request_",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /api HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
        b"GET /api HTTP/1.1\r\nHost: a\r\nX: b\rY: c\r\n\r\n",
        b"x" * 400_000,
    ],
)
def test_a_client_that_speaks_no_http_is_cut_off(request_: bytes) -> None:
    with APIServer() as server, FaultProxy(server.client_config()) as proxy:
        with contextlib.suppress(ConnectionError):
            assert asked(proxy, request_) == b""
        assert proxy.wait_for(lambda proxy: proxy.connections == 0)
        assert not server.requests


def test_a_connection_that_changes_its_protocol_is_a_tunnel(
    serve: Callable[[Answer], str],
) -> None:
    switched = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"

    def answer(data: bytes) -> bytes:
        return switched + b"\nfirst\n" if data.startswith(b"POST ") else data.upper()

    request = (
        b"POST /api/v1/namespaces/a/pods/b/exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n"
        b"Upgrade: x\r\nContent-Length: 0\r\n\r\n"
    )
    with FaultProxy(ClientConfig(server=serve(answer))) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            file = connection.makefile("rb")
            connection.sendall(request + b"early\n")
            assert b"".join(iter(file.readline, b"\r\n")) + b"\r\n" == switched
            assert {file.readline() for _ in range(3)} == {b"\n", b"first\n", b"EARLY\n"}
            connection.sendall(b"\nlate\n")
            assert [file.readline() for _ in range(2)] == [b"\n", b"LATE\n"]
            file.close()


@pytest.mark.parametrize("resets", [False, True])
def test_the_end_of_a_tunnel_is_the_end_of_both_its_sides(
    serve: Callable[[Answer], str], caplog: pytest.LogCaptureFixture, resets: bool
) -> None:
    def answer(data: bytes) -> bytes:
        if data.startswith(b"GET "):
            return b"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
        return b"bye\r\nConnection: close"

    request = b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"
    with FaultProxy(ClientConfig(server=serve(answer))) as proxy:
        host, port = proxy.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            connection.sendall(request)
            assert connection.recv(1000).startswith(b"HTTP/1.1 101")
            if resets:
                linger = struct.pack("ii", 1, 0)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            else:
                connection.sendall(b"end")
                assert connection.makefile("rb").read().startswith(b"bye")
        assert proxy.wait_for(lambda proxy: proxy.connections == 0)
    gc.collect()
    assert not caplog.records


def test_requests_that_are_sent_at_once_are_answered_in_order() -> None:
    first = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    post = (
        b"POST /none HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\n\r\n"
    )
    with APIServer() as server, FaultProxy(server.client_config()) as proxy:
        data = asked(proxy, first + post + first + GET)
        assert data.count(b"HTTP/1.1 200 OK") == 3
        assert [r.path for r in proxy.requests] == ["/version", "/none", "/version", "/api/v1/pods"]


def test_requests_keep_their_credentials_or_get_the_config_s() -> None:
    users = {"bobs": {"username": "bob"}}
    with (
        APIServer(tls=True, token="admins", users=users) as server,
        FaultProxy(server.client_config()) as proxy,
    ):
        bare = ClientConfig(server=proxy.url, ca_data=proxy.ca_data)
        for config in (bare, proxy.client_config(), proxy.client_config(token="bobs")):
            with Client(config) as client:
                assert list(client.list(CONFIG_MAP, namespace="default")) == []
        with (
            Client(proxy.client_config(token="wrong")) as client,
            pytest.raises(Unauthorized),
        ):
            list(client.list(CONFIG_MAP, namespace="default"))


def test_a_request_is_duplicated_though_its_connection_ends_with_it() -> None:
    with APIServer() as server, FaultProxy(server.client_config()) as proxy:
        proxy.inject([FaultRule.duplicate()])
        assert asked(proxy, GET).startswith(b"HTTP/1.1 200")
        assert len(server.requests) == 2


@pytest.mark.parametrize("rule", [FaultRule.answer(503), FaultRule.slow(1e6)], ids=repr)
def test_the_answer_to_a_head_has_no_body(rule: FaultRule) -> None:
    head = b"HEAD /api/v1/none HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with APIServer() as server, FaultProxy(server.client_config(), faults=[rule]) as proxy:
        answer = asked(proxy, head)
    assert answer.endswith(b"\r\n\r\n")
    assert answer.lower().count(b"content-length: 0\r\n") == 0


def test_network_faults_and_request_faults_apply_together() -> None:
    with APIServer() as server, FaultProxy(server.client_config()) as proxy:
        proxy.inject([FaultRule.answer(409, name="a*", times=1)])
        proxy.delay(0.01)
        with Client(proxy.client_config(max_retries=0)) as client:
            draft = MutableObject.new(CONFIG_MAP, "a1", namespace="default")
            with pytest.raises(Conflict):
                client.create(draft)
            assert client.create(draft).name == "a1"
            with client.watch(CONFIG_MAP, namespace="default") as watch:
                assert next(watch.events()).object.name == "a1"
                proxy.cut()
                with pytest.raises(TransportError):
                    list(watch)


def test_a_proxy_in_front_of_an_address_says_that_it_needs_a_config() -> None:
    proxy = FaultProxy("http://127.0.0.1:9")
    rules = [FaultRule.drop()]
    for use in (
        lambda: proxy.inject(rules),
        lambda: proxy.requests,
        proxy.client_config,
        lambda: FaultProxy("http://127.0.0.1:9", faults=rules),
    ):
        with pytest.raises(ValueError, match=r"client_config\(\) of the server"):
            use()
    assert proxy.ca_data == b""
    with pytest.raises(ValueError, match="only the embedded server"):
        FaultProxy(ClientConfig(server="http://127.0.0.1:9"), faults=[FaultRule.stale(1)])


def test_a_target_behind_a_proxy_is_refused_and_other_proxies_are_not_used() -> None:
    target = ClientConfig(server="https://api.test", proxy_url="http://proxy:3128")
    with pytest.raises(ValueError, match="http://proxy:3128"):
        FaultProxy(target)
    with APIServer() as server:
        config = server.client_config(proxy_url="http://proxy:3128", no_proxy=["127.0.0.1"])
        with FaultProxy(config) as proxy, Client(proxy.client_config(max_retries=0)) as client:
            assert client.get(NAMESPACE, "default").name == "default"


def test_a_server_that_is_not_there_is_a_connection_that_ends(refusing_port: int) -> None:
    config = ClientConfig(server=f"http://127.0.0.1:{refusing_port}")
    with (
        FaultProxy(config) as proxy,
        Client(proxy.client_config(max_retries=0)) as client,
        pytest.raises(TransportError),
    ):
        client.get(CONFIG_MAP, "a", namespace="default")


@pytest.fixture(scope="module")
def plane(shared_plane: SharedPlane) -> Iterator[ControlPlane]:
    with shared_plane.lent() as plane:
        yield plane


@pytest.mark.real
def test_a_schedule_applies_to_the_requests_to_a_real_server(plane: ControlPlane) -> None:
    faults = FaultSchedule(
        [
            FaultRule.lose(verb="create", kind="ConfigMap", times=1),
            FaultRule.answer(409, verb="update", kind=CONFIG_MAP, times=1),
            FaultRule.end_watch(410, after=1, times=1),
        ]
    )
    with (
        FaultProxy(plane.client_config(), faults=faults) as proxy,
        Client(proxy.client_config(max_retries=0)) as client,
    ):
        with pytest.raises(TransportError):
            client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
        made = client.get(CONFIG_MAP, "a", namespace="default")
        with pytest.raises(Conflict):
            client.update(made.mutable_copy())
        client.create(MutableObject.new(CONFIG_MAP, "b", namespace="default"))
        for expected in (1, 2):
            with client.watch(CONFIG_MAP, namespace="default", timeout=1) as watch:
                events = []
                with contextlib.suppress(Exception):
                    events.extend(event.object.name for event in watch.events())
                assert len(events) >= expected
