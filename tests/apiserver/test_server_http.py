"""How the server speaks HTTP, with clients that do it well and with those that do not."""

from __future__ import annotations

import gzip
import json
import socket
import threading
from typing import Any

import pytest
import urllib3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appsdk_operator.apiserver import APIServer
from tests.hypothesis_profiles import scaled

JSON_TYPE = "application/json"


def connect_to(server: APIServer) -> socket.socket:
    host, port = server.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def exchange(server: APIServer, data: bytes) -> bytes:
    """Send bytes; all that comes back until the server closes."""
    with connect_to(server) as connection:
        connection.sendall(data)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


def request(path: str, method: str = "GET", body: bytes = b"", *headers: str) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: x", *headers]
    if body:
        lines += [f"Content-Length: {len(body)}", f"Content-Type: {JSON_TYPE}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


# -- headers ------------------------------------------------------------------------------------


def test_every_answer_can_be_found_again_in_the_logs(api: Any) -> None:
    first, second = api.get("/api"), api.get("/none")
    assert first.headers["Audit-Id"] != second.headers["Audit-Id"]
    assert api.get("/api", Audit_Id="mine").headers["Audit-Id"] == "mine"
    assert len(api.get("/api", Audit_Id="x" * 100).headers["Audit-Id"]) == 64
    assert first.headers["Cache-Control"] == "no-cache, private"
    assert first.headers["X-Kubernetes-Pf-Flowschema-Uid"]
    stream = api.watch(api.maps)
    assert stream.response.headers["Audit-Id"]


def test_who_is_not_let_in_belongs_to_no_flow(connect: Any) -> None:
    with APIServer(token="t") as server:
        refused = connect(server, "wrong").get("/api")
    assert refused.status == 401
    assert "X-Kubernetes-Pf-Flowschema-Uid" not in refused.headers


# -- forms --------------------------------------------------------------------------------------


def test_people_get_lines_and_programs_do_not(api: Any, server: Any) -> None:
    api.map("a")
    pool = urllib3.PoolManager()

    def text(query: str = "", agent: str = "test") -> bytes:
        url = f"{server.url}{api.maps}/a{query}"
        return pool.request("GET", url, headers={"User-Agent": agent}).data

    assert b"\n  " not in text()
    assert b'\n  "kind": "ConfigMap"' in text("?pretty=true")
    assert b'\n  "kind": "ConfigMap"' in text(agent="curl/8.5")
    assert b"\n  " not in text("?pretty=false", agent="curl/8.5")
    pool.clear()


def test_yaml_is_written_for_those_who_prefer_it(api: Any) -> None:
    api.map("a")
    reply = api.get(f"{api.maps}/a", Accept="application/yaml")
    assert reply.headers["Content-Type"] == "application/yaml"
    assert "kind: ConfigMap\n" in reply.body
    failed = api.get(f"{api.maps}/b", Accept="application/yaml")
    assert 'message: configmaps "b" not found' in failed.body
    either = api.get(f"{api.maps}/a", Accept="application/json, application/yaml")
    assert either.headers["Content-Type"] == JSON_TYPE


PROTOBUF = "application/vnd.kubernetes.protobuf"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@pytest.mark.parametrize(
    ("accept", "chosen"),
    [
        # As kube-apiserver 1.20 answers them.
        ("", JSON_TYPE),
        ("application/json;q=0.1, application/yaml", "application/yaml"),
        ("application/json, application/yaml;q=0.9", JSON_TYPE),
        ("application/json;q=0, application/yaml", "application/yaml"),
        ("application/json;q=0", JSON_TYPE),
        ("*/*, application/yaml", "application/yaml"),
        ("application/*, application/yaml", "application/yaml"),
        ("*/*;q=0.8, application/yaml", "application/yaml"),
        (f"{PROTOBUF};q=0.9, application/json;q=0.5", PROTOBUF),
        (f"application/json;q=0.1, {TABLE}", "Table"),
        (f"{PROTOBUF};as=Table;g=meta.k8s.io;v=v1, {TABLE}", "Table"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", JSON_TYPE),
        ("application/json,", JSON_TYPE),
    ],
)
def test_the_form_that_a_client_prefers_is_sent(api: Any, accept: str, chosen: str) -> None:
    found = api.get("/api/v1/namespaces/default", Accept=accept)
    assert found.status == 200
    kind = found.headers["Content-Type"]
    assert (found["kind"] if kind == JSON_TYPE and chosen == "Table" else kind) == chosen


@pytest.mark.parametrize("accept", ["application/yaml", f"application/yaml, {JSON_TYPE}"])
def test_a_watch_has_no_yaml(api: Any, accept: str) -> None:
    refused = api.get(f"{api.maps}?watch=1", Accept=accept)
    assert refused.status == 406
    assert "application/json;stream=watch" in refused.body


def test_a_state_in_the_future_cannot_be_read(api: Any) -> None:
    version = api.map("a").version
    assert api.get(f"{api.maps}/a?resourceVersion={version}").status == 200
    refused = api.get(f"{api.maps}/a?resourceVersion={int(version) + 1}")
    assert (refused.status, refused["reason"]) == (504, "Timeout")


def test_large_answers_are_zipped_for_those_who_can_unzip(api: Any, server: Any) -> None:
    for name in ("a", "b"):
        api.create(api.maps, {"metadata": {"name": name}, "data": {"k": "x" * 100_000}})
    pool = urllib3.PoolManager()

    def get(path: str, encoding: str) -> Any:
        headers = {"Accept-Encoding": encoding}
        return pool.request("GET", server.url + path, headers=headers, decode_content=False)

    large = get(api.maps, "deflate, gzip")
    assert large.headers["Content-Encoding"] == "gzip"
    assert len(large.data) < 10_000
    assert len(json.loads(gzip.decompress(large.data))["items"]) == 2
    assert "Content-Encoding" not in get(api.maps, "identity").headers
    assert "Content-Encoding" not in get(f"{api.maps}/a", "gzip").headers
    pool.clear()


# -- connections ----------------------------------------------------------------------------------


def test_requests_may_follow_each_other_without_waiting(server: Any) -> None:
    requests = request("/healthz") * 3 + request("/livez", "GET", b"", "Connection: close")
    answer = exchange(server, requests)
    assert answer.count(b"HTTP/1.1 200") == 4
    assert answer.count(b"\r\n\r\nok") == 4


def test_a_body_may_come_in_chunks(server: Any) -> None:
    body = b'{"metadata":{"name":"a"}}'
    head = request(
        "/api/v1/namespaces/default/configmaps",
        "POST",
        b"",
        "Transfer-Encoding: chunked",
        f"Content-Type: {JSON_TYPE}",
        "Connection: close",
    )
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    assert exchange(server, head + chunks).startswith(b"HTTP/1.1 201")


def test_a_client_may_ask_before_it_sends(server: Any) -> None:
    body = b'{"metadata":{"name":"a"}}'
    data = request(
        "/api/v1/namespaces/default/configmaps",
        "POST",
        body,
        "Expect: 100-continue",
        "Connection: close",
    )
    with connect_to(server) as connection:
        connection.sendall(data[: -len(body)])
        assert connection.recv(1000).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(65536).startswith(b"HTTP/1.1 201")


def test_a_body_that_is_announced_too_large_is_not_read(server: Any) -> None:
    head = request(
        "/api/v1/namespaces/default/configmaps",
        "POST",
        b"",
        "Content-Length: 100000000",
        f"Content-Type: {JSON_TYPE}",
    )
    assert exchange(server, head).startswith(b"HTTP/1.1 413")


def test_a_client_of_old_gets_an_answer(server: Any) -> None:
    answer = exchange(server, b"GET /healthz HTTP/1.0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.")
    assert answer.endswith(b"\r\n\r\nok")


def test_clients_that_stop_reading_stop_nobody_else(api: Any, server: Any) -> None:
    for number in range(10):
        name = f"a{number}"
        api.create(api.maps, {"metadata": {"name": name}, "data": {"k": "x" * 200_000}})
    deaf = [connect_to(server) for _ in range(20)]
    for connection in deaf:
        connection.sendall(request(api.maps) + request(f"{api.maps}?watch=1"))
    assert api.get("/readyz").body == "ok"
    assert api.map("b").status == 201
    stopper = threading.Thread(target=server.stop)
    stopper.start()
    stopper.join(30)
    assert not stopper.is_alive()
    for connection in deaf:
        connection.close()


def test_more_connections_than_fit_are_closed(server: Any) -> None:
    server.start()
    http = server._http
    http.most_connections = 2
    held = [connect_to(server) for _ in range(2)]
    for connection in held:
        connection.sendall(request("/healthz"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200")
    with connect_to(server) as third:
        try:
            third.sendall(request("/healthz"))
            answer = third.recv(1000)
        except ConnectionError:
            answer = b""
        assert answer == b""
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("%2E%2E", "Name parameter invalid: \"..\": may not be '..'"),
        ("a%25b", "Name parameter invalid: \"a%b\": may not contain '%'"),
    ],
)
def test_a_name_that_no_object_can_have_is_refused(api: Any, name: str, said: str) -> None:
    refused = api.get(f"{api.maps}/{name}")
    assert (refused.status, refused["message"]) == (400, said)


@pytest.mark.parametrize("path", ["/api/v1/namespaces/%zz", "/api/v1/namespaces/a%2", "/%"])
def test_a_path_with_a_broken_escape_is_no_request(server: Any, path: str) -> None:
    answer = exchange(server, request(path, "GET", b"", "Connection: close"))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"\r\n\r\n400 Bad Request")


def test_a_path_may_be_a_whole_url_or_none(api: Any, server: Any) -> None:
    api.map("a")
    end = "Connection: close"
    whole = exchange(server, request(f"http://x{api.maps}?limit=1", "GET", b"", end))
    assert whole.startswith(b"HTTP/1.1 200")
    assert b'"name":"a"' in whole
    for method, path in (("OPTIONS", "*"), ("CONNECT", "x:80")):
        assert exchange(server, request(path, method, b"", end)).startswith(b"HTTP/1.1 404")


def test_a_body_is_read_as_it_is_whatever_its_encoding(api: Any) -> None:
    named = {"metadata": {"name": "a"}}
    assert api("POST", api.maps, named, Content_Encoding="gzip").status == 201
    zipped = gzip.compress(json.dumps(named).encode())
    assert api("POST", api.maps, zipped, Content_Encoding="gzip").status == 400


# -- nonsense -------------------------------------------------------------------------------------


def words(text: str) -> list[str]:
    return text.split()


END = request("/readyz", "GET", b"", "Connection: close")
METHODS = st.sampled_from(
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "FOO", ""]
)
WORDS = st.text(st.characters(max_codepoint=255, exclude_characters="\r\n"), max_size=20)
PATHS = st.lists(
    st.sampled_from(
        words(
            "api apis v1 example.com namespaces default configmaps widgets a status scale .. "
            "%2e%2f %00 %zz ? ?watch=1 ?limit=x ?continue=zz ?labelSelector=( openapi v3 version "
            "?resourceVersion=-1 # healthz ?fieldSelector=a=b\\ ?timeout=9"
        )
    ),
    max_size=7,
).map("/".join)
STARTS = st.sampled_from(["/", "/", "/", "http://x/", "x:80", "*", ""])
HEADERS = st.lists(
    st.one_of(
        st.tuples(WORDS, WORDS).map(": ".join),
        st.sampled_from(
            [
                "Host: x",
                "Content-Length: 5",
                "Content-Length: -1",
                "Content-Length: 5, 6",
                "Transfer-Encoding: chunked",
                "Transfer-Encoding: gzip, chunked",
                "Connection: upgrade",
                "Upgrade: websocket",
                "Expect: 100-continue",
                "Expect: more",
                "Authorization: Bearer \x80",
                "Impersonate-User: \xff",
                "Impersonate-Extra-%zz: a",
                "Accept: ;;,;as=Table",
                "Accept-Encoding: gzip;q=x",
                "Content-Encoding: gzip",
                "Content-Type: application/json;charset=\x00",
                "If-None-Match: \"'",
                " folded",
            ]
        ),
    ),
    max_size=5,
)


@st.composite
def nearly_http(draw: st.DrawFn) -> bytes:
    version = draw(st.sampled_from(["HTTP/1.1", "HTTP/1.0", "HTTP/2.0", "HTTP/9", "", "http/1.1"]))
    lines = [f"{draw(METHODS)} {draw(STARTS)}{draw(PATHS)} {version}", *draw(HEADERS), "", ""]
    end = draw(st.sampled_from(["\r\n", "\n", "\r"]))
    body = draw(
        st.sampled_from([b"", b"{}", b"5\r\nhello\r\n0\r\n\r\n", b"ffffffffffffffffff\r\n"])
    )
    return end.join(lines).encode("latin-1") + body


BOUNDED = settings(
    max_examples=scaled(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.parametrize(
    "line", [b"GET /", b"CONNECT  HTTP/1.1", b"GET /healthz HTTP/0.9", b"GET /healthz HTTP/2.0"]
)
def test_a_request_of_another_version_of_http_is_refused_in_one_that_clients_read(
    server: Any, line: bytes
) -> None:
    with connect_to(server) as connection:
        connection.sendall(line + b"\r\n\r\n")
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.0 505 ")
    assert b"unsupported protocol version" in answer


@BOUNDED
@given(data=st.one_of(nearly_http(), st.binary(max_size=200)))
def test_whatever_bytes_come_the_server_goes_on(server: Any, data: bytes) -> None:
    with connect_to(server) as connection:
        connection.settimeout(0.1)
        answer = b""
        try:
            connection.sendall(data + b"\r\n\r\n" + END)
            while part := connection.recv(65536):
                answer += part
        except (TimeoutError, ConnectionError):
            pass  # it waits for the rest of a body, or it hung up
    assert not answer or answer.startswith(b"HTTP/1.")
    assert b" 500 " not in answer.partition(b"\r\n")[0]


VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
        st.sampled_from(["v1", "a", "example.com/v1", "Role", "1h", "2020-01-01T00:00:00Z"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                words(
                    "kind apiVersion metadata spec status rules roleRef subjects name namespace "
                    "labels annotations finalizers ownerReferences data verbs apiGroups resources "
                    "op path value token audiences resourceAttributes nonResourceAttributes user "
                    "groups extra boundObjectRef expirationSeconds aggregationRule uid replicas "
                    "clusterRoleSelectors resourceVersion generateName managedFields $patch size "
                    "preconditions propagationPolicy free matchLabels matchExpressions"
                )
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)
TARGETS = [
    "/api/v1/namespaces/default/configmaps",
    "/api/v1/namespaces/default/serviceaccounts/a/token",
    "/apis/example.com/v1/namespaces/default/widgets",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
    "/apis/authentication.k8s.io/v1/tokenreviews",
    "/apis/authorization.k8s.io/v1/subjectaccessreviews",
    "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
]
PATCHES = [
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
]


@BOUNDED
@given(
    method=st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
    target=st.sampled_from(TARGETS),
    body=VALUES,
    type_=st.sampled_from(PATCHES),
)
def test_whatever_json_comes_is_answered(
    api: Any, method: str, target: str, body: Any, type_: str
) -> None:
    kind = type_ if method == "PATCH" else JSON_TYPE
    name = "" if method == "POST" or target.endswith("token") else "/a"
    reply = api(method, target + name, json.dumps(body).encode(), type_=kind)
    assert reply.status < 500 or "Internal error occurred" not in reply["message"], reply.body
