"""Hostile and failing clients: clear answers, bounded memory, and others are served."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from appsdk_operator.resource import JsonPatch
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.serving import HTTPLimits, SelfSigned
from appsdk_operator.testing import running
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    WebhookServer,
    webhook_for,
)
from tests.waiting import eventually
from tests.webhooks.admission_parts import WIDGET, patched, review

TIMEOUT = 60.0
SEVEN_MIB = 7 * 1024 * 1024
HEAD = (
    "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Type: {content_type}\r\n"
    "Content-Length: {length}\r\n\r\n"
)
GOOD = json.dumps(review()).encode()


def count(request: AdmissionRequest) -> AdmissionResponse:
    """Reads the whole object, and allows it."""
    if request.object is not None:
        request.object.to_dict()
    return AdmissionResponse.allowed()


def paint(draft: Any) -> None:
    draft["spec"]["color"] = "blue"


class Answer(NamedTuple):
    """What the server sent."""

    status: int
    body: bytes

    @property
    def response(self) -> dict[str, Any]:
        review: dict[str, Any] = json.loads(self.body)
        response: dict[str, Any] = review["response"]
        return response

    @property
    def refusal(self) -> tuple[int, str, str]:
        """The code, text and uid of a verdict."""
        assert self.status == 200
        assert self.response["allowed"] is False
        status = self.response["status"]
        return status["code"], status["message"], self.response["uid"]


class Target:
    """A server, and connections to it."""

    def __init__(self, port: int, pem: bytes, server: WebhookServer | None = None) -> None:
        self.port = port
        self.server = server
        self.context = ssl.create_default_context(cadata=pem.decode())

    def count(self, phase: str) -> int:
        """The number of connections in a phase."""
        assert self.server is not None
        assert self.server._http is not None
        connections = list(self.server._http._pool._connections)
        return sum(connection.phase == phase for connection in connections)

    def connect(self) -> ssl.SSLSocket:
        plain = socket.create_connection(("127.0.0.1", self.port), TIMEOUT)
        return self.context.wrap_socket(plain, server_hostname="127.0.0.1")

    def talk(self, data: bytes) -> Answer:
        """Send bytes, and read one answer."""
        with self.connect() as client:
            with contextlib.suppress(OSError):  # it may have answered before it has read all
                client.sendall(data)
            return answer_of(client)

    def post(
        self, body: bytes, content_type: str = "application/json", path: str = "/count"
    ) -> Answer:
        head = HEAD.format(path=path, content_type=content_type, length=len(body))
        return self.talk(head.encode() + body)


def answer_of(client: ssl.SSLSocket) -> Answer:
    """The answer that a client reads."""
    response = http.client.HTTPResponse(client)
    with contextlib.closing(response):
        response.begin()
        return Answer(response.status, response.read())


@pytest.fixture(scope="module")
def certificate() -> SelfSigned:
    return SelfSigned("localhost", "127.0.0.1")


@contextlib.contextmanager
def serving(certificate: SelfSigned, **options: Any) -> Iterator[Target]:
    """A server with a handler and a defaulter."""
    options = {"metrics": Metrics(), **options}
    server = WebhookServer("127.0.0.1:0", certificates=certificate, **options)
    server.add("/count", Admission(count))
    webhook_for(server, WIDGET).default(paint, path="/paint").complete()
    with running(server):
        yield Target(server.port, certificate.pem, server)


@pytest.fixture(scope="module")
def target(certificate: SelfSigned) -> Iterator[Target]:
    with serving(certificate) as target:
        yield target
        assert target.post(GOOD).response["allowed"]


def nested(levels: int, opening: bytes = b'{"a":', closing: bytes = b"}") -> bytes:
    """A review of an object with so many levels."""
    marked = json.dumps(review(object=_widget("@@"))).encode()
    return marked.replace(b'"@@"', opening * levels + b"1" + closing * levels)


def _widget(inner: Any) -> dict[str, Any]:
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": "a"},
        "spec": {"inner": inner},
    }


# -- Bodies ----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SEVEN_MIB, SEVEN_MIB + 1])
def test_a_body_of_seven_mebibytes_is_answered_with_413_in_a_review(
    target: Target, size: int
) -> None:
    code, text, uid = target.post(b"x" * size).refusal
    assert (code, uid) == (413, "")
    assert text == "request entity is too large; limit is 7340032 bytes"


def test_a_smaller_body_is_read(target: Target) -> None:
    whole = json.dumps(review(object=_widget("@@"))).encode()
    body = whole.replace(b"@@", b"x" * (SEVEN_MIB - 1 - len(whole) + 2))
    assert len(body) == SEVEN_MIB - 1
    assert target.post(body).response["allowed"]


@pytest.mark.parametrize("size", [SEVEN_MIB + 2, 100 * SEVEN_MIB])
def test_a_larger_body_is_refused_by_its_length_alone(target: Target, size: int) -> None:
    head = HEAD.format(path="/count", content_type="application/json", length=size)
    answer = target.talk(head.encode())
    assert answer == (413, b"413 the body is longer than 7340033 bytes\n")


def test_a_body_in_chunks_is_limited_as_well(target: Target) -> None:
    head = b"POST /count HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    assert target.talk(head + chunk * 7 + b"2\r\nxx\r\n").status == 413


@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
@pytest.mark.parametrize("levels", [100, 498])
def test_deep_objects_are_read_and_changed(
    target: Target, levels: int, opening: bytes, closing: bytes
) -> None:
    body = nested(levels, opening, closing)
    assert target.post(body).response["allowed"]
    response = target.post(body, path="/paint").response
    assert response["allowed"]
    changed = patched(response, {"spec": {"inner": 1}})
    assert changed == {"spec": {"inner": 1, "color": "blue"}}


@pytest.mark.parametrize("levels", [499, 900, 9_900, 100_000])
def test_deeper_objects_are_refused_by_name(target: Target, levels: int) -> None:
    for body in (nested(levels), nested(levels, b"[", b"]"), nested(levels, b"[", b"}")):
        code, text, uid = target.post(body).refusal
        assert (code, uid) == (400, "")
        assert "more than 500 levels deep" in text


@pytest.mark.parametrize(
    "body",
    [
        nested(100_000)[:-100_050],
        nested(100_000).replace(b"1}", b"nonsense}"),
        nested(100_000, b"[", b"}"),
        nested(100_000).replace(b'"uid": "', b'"uid": 5, "x": "'),
        b"[" * 7_000_000,
        b'{"request":' * 600_000,
    ],
    ids=["truncated", "word", "crossed", "uid", "brackets", "requests"],
)
def test_deep_and_malformed_bodies_are_refused(target: Target, body: bytes) -> None:
    code, text, uid = target.post(body).refusal
    assert (code, uid) == (400, "")
    assert "not an AdmissionReview" in text
    assert len(text) < 300


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "request body is empty"),
        (b"{", "Input data was truncated"),
        (GOOD[:-1], "Input data was truncated"),
        (GOOD + b"}", "trailing characters"),
        (b"[]", "Expected `object`, got `array`"),
        (b"null", "Expected `object`, got `null`"),
        (b'"' + b"x" * 5_000 + b'"', "Expected `object`, got `str`"),
        (b"\xff\xfe{\x00}\x00", "JSON is malformed"),
        (b"\xef\xbb\xbf" + GOOD, "JSON is malformed"),
        (b"\x1f\x8b\x08\x00", "JSON is malformed"),
        (b'{"request":[]}', "Expected `object | null`, got `array`"),
        (b'{"kind":5}', "Expected `str | null`, got `int`"),
        (GOOD.replace(b"Widget", b"\xc3\x28"), "UTF-8"),
        (json.dumps(review(uid=5)).encode(), "$.request.uid"),
        (json.dumps(review(dryRun="yes")).encode(), "$.request.dryRun"),
        (b"kind: AdmissionReview\n", "JSON is malformed"),
    ],
)
def test_malformed_bodies_are_refused_without_their_text(
    target: Target, body: bytes, text: str
) -> None:
    code, message, uid = target.post(body).refusal
    assert (code, uid) == (400, "")
    assert text.casefold() in message.casefold()  # versions of msgspec differ
    assert "xxxx" not in message
    # Neither an apiVersion nor a kind, so that API servers take it for a failure.
    assert json.loads(target.post(body).body).keys() == {"response"}


@pytest.mark.parametrize("body", [b"{}", b'{"request":null}', b'{"kind":"Other","request":null}'])
def test_a_review_without_a_request_is_refused(target: Target, body: bytes) -> None:
    assert target.post(body).refusal == (400, "the review has no request", "")


def test_an_object_that_is_none_is_refused_with_the_uid(target: Target) -> None:
    for wrong in (5, [], {"metadata": 5}, {"kind": "Other", "apiVersion": "v1", "metadata": {}}):
        fields = review(object=wrong)
        code, _, uid = target.post(json.dumps(fields).encode()).refusal
        assert (code, uid) == (400, fields["request"]["uid"])


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-8", "APPLICATION/JSON", "text/plain", "application/yaml", ""],
)
def test_another_content_type_is_refused(target: Target, content_type: str) -> None:
    expected = f"contentType={content_type}, expected application/json"
    assert target.post(GOOD, content_type).refusal == (400, expected, "")


# -- Identities ------------------------------------------------------------------------------


def test_the_answer_has_the_uid_of_its_request(target: Target) -> None:
    for uid in ("", "a", "x" * 100_000, '"\\\u0000\u2028é😀', "705AB4F5"):
        body = json.dumps(review(uid=uid)).encode()
        assert target.post(body).response["uid"] == uid
    without = review()
    del without["request"]["uid"]
    assert target.post(json.dumps(without).encode()).response["uid"] == ""


def test_a_replay_gets_the_same_answer(target: Target) -> None:
    body = json.dumps(review()).encode()
    answers = {target.post(body, path="/paint") for _ in range(5)}
    assert len(answers) == 1
    operation = {"op": "add", "path": "/spec/color", "value": "blue"}
    [answer] = answers
    assert patched(answer.response, {"spec": {}}) == {"spec": {"color": "blue"}}
    assert JsonPatch([operation]).body()


def test_requests_in_one_pipeline_get_their_own_answers(target: Target) -> None:
    uids = [f"uid-{n}" for n in range(50)]
    data = b""
    for uid in uids:
        body = json.dumps(review(uid=uid)).encode()
        head = HEAD.format(path="/count", content_type="application/json", length=len(body))
        data += head.encode() + body
    with target.connect() as client:
        client.sendall(data)
        reader = client.makefile("rb")
        with contextlib.closing(reader):
            found = [_read_one(reader) for _ in uids]
    assert found == uids


def _read_one(reader: Any) -> str:
    length = 0
    while (line := reader.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    uid: str = json.loads(reader.read(length))["response"]["uid"]
    return uid


# -- Connections -----------------------------------------------------------------------------


def test_http2_is_answered_with_505(target: Target) -> None:
    answer = target.talk(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0")
    assert answer == (505, b"505 HTTP/1.1 is spoken here\n")


def test_a_client_that_could_speak_http2_is_not_offered_it(target: Target) -> None:
    context = ssl.create_default_context(cadata=None)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2", "http/1.1"])
    plain = socket.create_connection(("127.0.0.1", target.port), TIMEOUT)
    with context.wrap_socket(plain) as client:
        assert client.selected_alpn_protocol() in (None, "http/1.1")


def test_a_client_without_tls_is_told_so(target: Target) -> None:
    with socket.create_connection(("127.0.0.1", target.port), TIMEOUT) as client:
        client.sendall(b"POST /count HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"this server speaks HTTPS" in client.recv(65536)


def test_a_body_that_ends_early_is_refused(target: Target) -> None:
    head = HEAD.format(path="/count", content_type="application/json", length=len(GOOD))
    with target.connect() as client:
        client.sendall(head.encode() + GOOD[:50])
        # Without the end of the TLS session: an alert says that something is missing.
        socket.socket.shutdown(client, socket.SHUT_WR)
        found: object
        try:
            found = answer_of(client).status
        except ssl.SSLError as error:
            found = error.reason
        # Before 3.11.4 Python took that for an end like any other.
        assert found in ("TLSV1_ALERT_DECODE_ERROR", "SSLV3_ALERT_DECODE_ERROR", 400)


def test_connections_that_end_anywhere_harm_nobody(target: Target) -> None:
    data = HEAD.format(path="/count", content_type="application/json", length=len(GOOD)).encode()
    data += GOOD
    for end in range(0, len(data), 37):
        with target.connect() as client:
            client.sendall(data[:end])
    assert target.post(GOOD).response["allowed"]


def test_a_slow_body_is_given_up_and_others_are_served_meanwhile(certificate: SelfSigned) -> None:
    clock = ManualClock()
    with serving(certificate, clock=clock) as target, contextlib.ExitStack() as clients:
        head = HEAD.format(path="/count", content_type="application/json", length=len(GOOD))
        slow = []
        for _ in range(20):
            client = clients.enter_context(target.connect())
            client.sendall(head.encode() + GOOD[:-1])
            slow.append(client)
        eventually(lambda: target.count("reading") == 20)
        assert target.post(GOOD).response["allowed"]
        clock.advance(40.0)
        answered = [b"".join(iter(functools.partial(client.recv, 65_536), b"")) for client in slow]
        assert [answer.split()[1] for answer in answered] == [b"408"] * 20
        assert answered[0].endswith(b"\r\n\r\n408 no complete body in time (32 s)\n")
        assert target.post(GOOD).response["allowed"]


def test_idle_connections_keep_nobody_out(certificate: SelfSigned) -> None:
    limits = HTTPLimits(max_connections=16)
    with serving(certificate, limits=limits) as target, contextlib.ExitStack() as clients:
        threads = threading.active_count()
        for number in range(100):
            clients.enter_context(target.connect())
            if number % 10 == 0:
                assert target.post(GOOD).response["allowed"]
        # A thread whose connection was closed for a newer one ends a moment later.
        eventually(lambda: threading.active_count() <= threads + 16)


# -- Memory ----------------------------------------------------------------------------------

PROGRAM = """
import sys
from pathlib import Path
from appsdk_operator.runtime import StopSignal
from appsdk_operator.serving import HTTPLimits, SelfSigned
from appsdk_operator.webhooks import Admission, AdmissionResponse, WebhookServer

def count(request):
    if request.object is not None:
        request.object.to_dict()
    return AdmissionResponse.allowed()

certificate = SelfSigned("localhost", "127.0.0.1")
server = WebhookServer("127.0.0.1:0", certificates=certificate)
server.add("/count", Admission(count))
Path(sys.argv[1]).write_bytes(certificate.pem)
print(server.port, flush=True)
stop = StopSignal()
import threading
threading.Thread(target=lambda: (sys.stdin.read(), stop.set())).start()
server.run(stop)
"""


class Process:
    """A server in a process of its own, whose memory is its own."""

    def __init__(self, process: subprocess.Popen[str], pem: Path) -> None:
        assert process.stdout is not None
        self.pid = process.pid
        self.target = Target(int(process.stdout.readline()), pem.read_bytes())
        assert self.target.post(GOOD).response["allowed"]

    def mebibytes(self, name: str = "VmHWM") -> int:
        """The most memory so far (``VmHWM``), or that of now (``VmRSS``)."""
        for line in Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) // 1024
        raise AssertionError(name)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    if not Path("/proc/self/status").exists():
        pytest.skip("memory is read from Linux' /proc")
    pem = tmp_path / "ca.crt"
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(pem)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as started:
        try:
            yield Process(started, pem)
        finally:
            assert started.stdin is not None
            started.stdin.close()
            assert started.wait(TIMEOUT) == 0


@pytest.mark.programs
def test_a_thousand_idle_connections_take_little_memory(process: Process) -> None:
    before = process.mebibytes()
    with contextlib.ExitStack() as clients:
        for number in range(1_000):
            clients.enter_context(process.target.connect())
            if number % 100 == 0:
                assert process.target.post(GOOD).response["allowed"]
        assert process.target.post(GOOD).response["allowed"]
        # 256 connections with a thread each; measured: 15 to 40 MiB.
        assert process.mebibytes() - before < 120


@pytest.mark.programs
def test_large_bodies_that_do_not_end_take_bounded_memory(process: Process) -> None:
    before = process.mebibytes()
    head = HEAD.format(path="/count", content_type="application/json", length=SEVEN_MIB - 1)
    body = b'{"x":"' + b"x" * (SEVEN_MIB - 20)
    with contextlib.ExitStack() as clients:
        for number in range(64):  # 448 MiB, of which 128 are taken
            client = clients.enter_context(process.target.connect())
            with contextlib.suppress(OSError):
                client.sendall(head.encode() + body)
            if number % 8 == 0:
                assert process.target.post(GOOD).response["allowed"]
        assert process.mebibytes() - before < 250


@pytest.mark.programs
def test_deep_and_large_bodies_leave_nothing_behind(process: Process) -> None:
    bodies = (nested(10_000), b"[" * 7_000_000, b"x" * SEVEN_MIB)

    def post_all() -> None:
        for body in bodies:
            process.target.post(body)

    post_all()
    before = process.mebibytes("VmRSS")
    for _ in range(20):
        post_all()
    assert process.mebibytes("VmRSS") - before < 40
