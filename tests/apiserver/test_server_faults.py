"""Faults on demand, bad requests, and the life of the server itself."""

from __future__ import annotations

import json
import signal
import socket
import stat
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from appsdk_operator.apiserver import APIServer, command
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import ManualClock, RealClock, StopSignal
from appsdk_operator.testing import FaultProxy, FaultRule


def raw(server: Any, data: bytes) -> tuple[int, bytes]:
    """Send bytes as they are; the status and the body of what comes back."""
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(data)
        answer = b""
        while part := connection.recv(65536):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


# -- faults ----------------------------------------------------------------------------------


def test_the_next_requests_fail_as_told_and_the_others_do_not(api: Any, server: Any) -> None:
    server.fail(verb="create", kind=kinds.core.v1.ConfigMap, status=429, times=2, retry_after=3)
    assert api.get(api.maps).status == 200
    assert (
        api.create("/api/v1/namespaces/default/secrets", {"metadata": {"name": "s"}}).status == 201
    )
    for _ in range(2):
        failed = api.create(api.maps, {"metadata": {"name": "a"}})
        assert (failed.status, failed["reason"]) == (429, "TooManyRequests")
        assert failed.headers["Retry-After"] == "3"
    assert api.create(api.maps, {"metadata": {"name": "a"}}).status == 201


@pytest.mark.parametrize(
    ("verb", "method", "path", "body"),
    [
        ("get", "GET", "/a", None),
        ("list", "GET", "", None),
        ("watch", "GET", "?watch=1", None),
        ("update", "PUT", "/a", {"metadata": {"name": "a"}}),
        ("patch", "PATCH", "/a", {}),
        ("delete", "DELETE", "/a", None),
        ("deletecollection", "DELETE", "", None),
    ],
)
def test_every_verb_can_fail(
    api: Any, server: Any, verb: str, method: str, path: str, body: Any
) -> None:
    api.map("a")
    server.fail(verb=verb, kind="configmaps", status=503)
    type_ = "application/merge-patch+json" if verb == "patch" else "application/json"
    failed = api(method, api.maps + path, body, type_=type_)
    assert (failed.status, failed["reason"]) == (503, "ServiceUnavailable")
    assert api.names(api.maps) == ["a"]


def test_rules_that_were_cleared_do_not_apply(api: Any, server: Any) -> None:
    server.fail(times=100)
    server.clear_faults()
    assert api.get(api.maps).status == 200


@pytest.mark.parametrize("wrong", [{"verb": "touch"}, {"status": 200}, {"times": 0}])
def test_rules_that_make_no_sense_are_refused(server: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        server.fail(**wrong)


def test_a_write_can_take_effect_and_not_be_answered(api: Any, server: Any) -> None:
    server.fail(verb="create", after_write=True)
    with pytest.raises(urllib3.exceptions.HTTPError):
        api.create(api.maps, {"metadata": {"name": "a"}})
    assert api.names(api.maps) == ["a"]
    statuses = [request.status for request in server.requests]
    assert statuses == [0, 200]


def test_a_cache_that_lags_has_objects_that_are_gone_and_lacks_new_ones(
    api: Any, server: Any
) -> None:
    first = api.map("a")
    api.patch(f"{api.maps}/a", {"data": {"x": "2"}})
    api.map("b")
    server.inject([FaultRule.stale(2)])
    assert api.get(f"{api.maps}/a?resourceVersion=0")["metadata"] == first["metadata"]
    assert api.get(f"{api.maps}/b?resourceVersion=0").status == 404
    assert api.get(f"{api.maps}/b").status == 200
    version = api.get(f"{api.maps}/b").version
    assert api.get(f"{api.maps}/b?resourceVersion={version}").status == 200


def test_a_slow_answer_is_the_same_answer(api: Any, server: Any) -> None:
    server.inject([FaultRule.slow(1e6)])
    found = api.get(api.maps, Accept="application/yaml", Audit_Id="mine")
    assert found.body.startswith("kind: ConfigMapList")
    assert found.headers["Audit-Id"] == "mine"
    # On one connection: what follows a HEAD is the next answer.
    assert api("HEAD", api.widgets).status == 200
    assert api.get(api.widgets).status == 200


def test_connections_can_be_cut(api: Any, server: Any) -> None:
    stream = api.watch(api.maps)
    api.map("a")
    assert stream.events(1) == [("ADDED", "a")]
    server.cut_connections()
    with pytest.raises(urllib3.exceptions.HTTPError):
        stream.event()
    assert api.get(api.maps).status == 200
    server.cut_connections(watches_only=False)
    assert server.open_watches() == 0


def test_requests_are_remembered(api: Any, server: Any) -> None:
    api.get(f"{api.maps}?limit=5", User_Agent="me/1.0")
    (request,) = server.requests
    assert (request.method, request.path, request.query) == ("GET", api.maps, "limit=5")
    assert (request.user_agent, request.status) == ("me/1.0", 200)


# -- bad requests ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api HTTP/1.1\r\nno colon\r\n\r\n",
        b"GET /api HTTP/1.1\r\nX: " + b"x" * 100_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_http_is_answered_with_a_status(
    server: Any, data: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    code, body = raw(server, data)
    assert 400 <= code < 500
    assert json.loads(body)["kind"] == "Status"
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/api/v1/namespaces/default/configmaps", b"{bad", 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b"[]", 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b"", 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b"\xff\xfe", 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b"[" * 100_000, 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b'{"a":' * 400 + b"1" + b"}" * 400, 422),
        ("POST", "/api/v1/namespaces/default/configmaps", b'{"metadata":5}', 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b'{"metadata":{"labels":{"a":1}}}', 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b'{"metadata":{"finalizers":[1]}}', 400),
        ("POST", "/api/v1/configmaps", b'{"metadata":{"name":"a"}}', 405),
        ("PUT", "/api/v1/namespaces/default/configmaps", b"{}", 405),
        ("PUT", "/api/v1/namespaces/default/configmaps/a", b"{}", 400),
        ("OPTIONS", "/api/v1/namespaces/default/configmaps", None, 405),
        ("GET", "/api/v1/unknowns", None, 404),
        ("GET", "/api/v1/namespaces/default/configmaps/a/unknown", None, 404),
        ("GET", "/apis/authorization.k8s.io/v1/subjectaccessreviews", None, 405),
        ("DELETE", "/api/v1/namespaces/default/configmaps/a", b"[]", 400),
        ("POST", "/api/v1/namespaces/default/configmaps", b"x" * 3_200_000, 413),
    ],
)
def test_a_request_that_makes_no_sense_is_answered_with_a_status(
    api: Any, method: str, path: str, body: bytes | None, code: int
) -> None:
    refused = api(method, path, body)
    assert (refused.status, refused["kind"], refused["code"]) == (code, "Status", code)


def test_a_body_of_another_type_is_not_read(api: Any) -> None:
    refused = api("POST", api.maps, b"a: b", type_="text/plain")
    assert (refused.status, refused["reason"]) == (415, "UnsupportedMediaType")


def test_an_encoded_slash_leads_nowhere_else(api: Any) -> None:
    refused = api.get(f"{api.maps}/..%2f..%2fsecrets")
    assert (refused.status, refused["reason"]) == (404, "NotFound")


# -- life ------------------------------------------------------------------------------------


def test_a_restart_keeps_port_and_state(connect: Any) -> None:
    server = APIServer()
    with server:
        url, api = server.url, connect(server)
        api.map("a")
        version = api.map("b").version
        stream = api.watch(api.maps)
        assert len(stream.events(2)) == 2
    assert [obj["metadata"]["name"] for obj in server.objects(kinds.core.v1.ConfigMap)] == [
        "a",
        "b",
    ]
    with server:
        assert server.url == url
        api = connect(server)
        assert api.names(api.maps) == ["a", "b"]
        api.map("c")
        stream = api.watch(api.maps, f"resourceVersion={version}")
        assert stream.events(1) == [("ADDED", "c")]


def test_stopping_and_starting_twice_is_harmless() -> None:
    server = APIServer()
    server.stop()
    assert server.start() is server.start()
    server.stop()
    server.stop()


def test_a_stop_is_prompt_with_open_watches(api: Any, server: Any) -> None:
    streams = [api.watch(api.maps) for _ in range(20)]
    server.stall_watches(True)
    stopped = threading.Event()

    def stop() -> None:
        server.stop()
        stopped.set()

    stopper = threading.Thread(target=stop)
    stopper.start()
    assert stopped.wait(30)
    stopper.join()
    for stream in streams:
        assert stream.rest() == []


def test_a_port_that_is_taken_is_told() -> None:
    with APIServer() as first:
        second = APIServer(port=int(first.url.rpartition(":")[2]))
        with pytest.raises(OSError, match="in use"):
            second.start()
        second.stop()


def test_a_server_without_a_thread_says_so_and_can_be_started_later(monkeypatch: Any) -> None:
    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    server = APIServer()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="start new thread"):
            server.start()
        server.stop()
    with server:
        assert server.requests == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": -1},
        {"history": 0},
        {"bookmark_interval": 0},
        {"bookmark_interval": float("nan")},
        {"token": ""},
        {"services": {"hooks": "https://127.0.0.1:1"}},
        {"services": {"default/hooks": "http://127.0.0.1:1"}},
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        APIServer(**wrong)


def test_tls_is_verified_by_the_authority_of_the_server(connect: Any, tmp_path: Path) -> None:
    with APIServer(tls=True, token="let-me-in") as server:
        api = connect(server, "let-me-in")
        api.map("a")
        stream = api.watch(api.maps)
        assert stream.events(1) == [("ADDED", "a")]
        config = tmp_path / "kubeconfig"
        server.write_kubeconfig(config)
        assert stat.S_IMODE(config.stat().st_mode) == 0o600
        loaded = yaml.safe_load(config.read_text())
        assert loaded == server.kubeconfig()
        assert loaded["clusters"][0]["cluster"]["server"] == server.url
        assert loaded["users"][0]["user"] == {"token": "let-me-in"}
    stream.close()


def test_time_stamps_come_from_the_clock(connect: Any) -> None:
    clock = ManualClock(epoch=1_000_000_000.0)
    with APIServer(clock=clock) as server:
        api = connect(server)
        assert api.map("a")["metadata"]["creationTimestamp"] == "2001-09-09T01:46:40Z"
        clock.advance(60)
        assert api.map("b")["metadata"]["creationTimestamp"] == "2001-09-09T01:47:40Z"


def test_certificates_are_valid_whatever_the_clock_says(connect: Any) -> None:
    with APIServer(clock=ManualClock(epoch=1_000_000_000.0), tls=True) as server:
        assert connect(server).get("/readyz").status == 200
        with FaultProxy(server.client_config(), clock=ManualClock(epoch=1.0)) as proxy:
            assert connect(proxy).get("/readyz").status == 200


def test_discovery_names_every_kind(api: Any) -> None:
    assert api.get("/version")["major"] == "1"
    assert api.get("/api")["versions"] == ["v1"]
    groups = {group["name"] for group in api.get("/apis")["groups"]}
    assert {"apps", "batch", "example.com", "coordination.k8s.io"} <= groups
    served = {
        (resource["name"], resource["kind"])
        for path in ("/api/v1", "/apis/apps/v1", "/apis/example.com/v1")
        for resource in api.get(path)["resources"]
    }
    assert {("configmaps", "ConfigMap"), ("deployments/scale", "Scale"), ("widgets", "Widget")} <= (
        served
    )
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    aggregated = api.get("/apis", Accept=accept)
    assert aggregated["kind"] == "APIGroupDiscoveryList"
    assert aggregated.headers["Content-Type"] == accept
    assert api.get("/apis/nope").body == "404 page not found\n"
    assert api.get("/apis/apps/v9")["reason"] == "NotFound"


def test_reviews_allow_everything(api: Any) -> None:
    path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
    review = api.create(path, {"spec": {"resourceAttributes": {"verb": "get"}}})
    assert (review.status, review["status"]) == (201, {"allowed": True})


def test_the_command_serves_until_it_is_told_to_stop(
    tmp_path: Path, widget_crd: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    crds = tmp_path / "crds.yaml"
    crds.write_text(yaml.safe_dump(widget_crd))
    config = tmp_path / "kubeconfig"
    seen: list[int] = []

    def visit(server: APIServer) -> None:
        url = yaml.safe_load(config.read_text())["clusters"][0]["cluster"]["server"]
        assert url == server.url
        with urllib3.PoolManager() as pool:
            seen.append(pool.request("GET", f"{url}/apis/example.com/v1/widgets").status)

    arguments = ["--kubeconfig", str(config), "--crd", str(crds)]
    assert command.main(arguments, until=visit) == 0
    assert command.main([*arguments, "--rbac"], until=visit) == 0
    assert seen == [200, 403]
    assert command.main(["--host", "0.0.0.0"], until=visit) == 1
    assert "other machines can reach the server" in capsys.readouterr().err
    assert command.main(arguments, until=visit) == 0
    assert "http://127.0.0.1:" in capsys.readouterr().out
    assert command.main(["--crd", str(tmp_path / "missing.yaml")], until=visit) == 1
    assert "missing.yaml" in capsys.readouterr().err


class _SignalDuringWait:
    """A clock during whose waits another thread gets a signal, which does not interrupt them."""

    def __init__(self) -> None:
        self._waits = threading.Lock()
        self._waits.acquire()
        self.sender = threading.Thread(target=self._send)

    def _send(self) -> None:
        self._waits.acquire()
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    def monotonic(self) -> float:
        return RealClock().monotonic()

    def time(self) -> float:
        return RealClock().time()

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        if not self.sender.ident:
            self.sender.start()
            self._waits.release()
        RealClock().wait(condition, timeout)


def test_the_command_ends_by_a_signal_that_does_not_interrupt_its_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As one that comes when the wait has all but begun.
    clock = _SignalDuringWait()
    monkeypatch.setattr(command, "StopSignal", lambda: StopSignal(clock=clock))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)  # the other threads run while this one waits
    try:
        assert command.main([]) == 0
    finally:
        sys.setswitchinterval(interval)
        clock.sender.join()


def test_what_is_nested_too_deeply_for_the_schema_is_refused(
    api: Any, new_widget: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    body = json.dumps(new_widget("a")).encode().replace(b'"size": 1', b'"size":1,"free":' + deep)
    refused = api("POST", api.widgets, body)
    assert (refused.status, refused["kind"]) in [(400, "Status"), (201, "Widget")]
    assert api.get(api.widgets).status == 200
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    "body", [b"", b"k8s", b"k8s\x00\xff", b"k8s\x00\x12\x7f", b"k8s\x00\x0a\x00"]
)
def test_what_is_no_protobuf_is_refused(api: Any, body: bytes) -> None:
    refused = api("POST", api.maps, body, type_="application/vnd.kubernetes.protobuf")
    assert refused.status in (400, 415)


@pytest.mark.parametrize("way", ["file", "environment", "argument"])
def test_the_command_takes_its_token_from_where_nobody_else_reads_it(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str | None] = []
    path = tmp_path / "token"
    path.write_text("secret-word\n")
    arguments = {"file": ["--token-file", str(path)], "argument": ["--token", "secret-word"]}
    if way == "environment":
        monkeypatch.setenv("APPSDK_OPERATOR_APISERVER_TOKEN", "secret-word")
    given = arguments.get(way, [])
    assert command.main(given, until=lambda server: seen.append(server.token)) == 0
    assert seen == ["secret-word"]
    said = capsys.readouterr()
    assert ("everybody who lists processes can read --token" in said.err) == (way == "argument")
    assert "secret-word" not in said.err + said.out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--token-file", "{path}/none"], "No such file"),
        (["--token-file", "/dev/null"], "must have only a token"),
        (["--token-file", "/dev/zero"], "must have only a token"),
        (["--token-file", "{path}", "--token", "a"], "give only the file"),
    ],
)
def test_a_token_that_cannot_be_read_is_an_error_of_the_command(
    arguments: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument.format(path=tmp_path) for argument in arguments]
    assert command.main(given) == 1
    said = capsys.readouterr().err
    assert said.startswith("error: the API server was not started: ")
    assert text in said
