"""The HTTPS server of webhooks: registrations, readiness, limits, time-outs, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import http.client
import json
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from appsdk_operator.cache import Health
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, ThreadGroup
from appsdk_operator.serving import HTTPRequest, HTTPResponse, KeyPair, SelfSigned, TLSOptions
from appsdk_operator.testing import running
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    Webhooks,
    WebhookServer,
    WebhookServerOptions,
    webhook_for,
)
from tests.waiting import eventually
from tests.webhooks.admission_parts import WIDGET, InterruptingClock, review

LOCAL = "127.0.0.1:0"
TIMEOUT = 20.0
TOTAL = "controller_runtime_webhook_requests_total"


@pytest.fixture(scope="module")
def certificate() -> SelfSigned:
    """One certificate for all tests."""
    return SelfSigned("localhost", "127.0.0.1")


@pytest.fixture
def make(certificate: SelfSigned) -> Iterator[Any]:
    """Makes servers, and closes those that did not run."""
    made: list[WebhookServer] = []

    def new(address: str = LOCAL, **options: Any) -> WebhookServer:
        options = {"certificates": certificate, "metrics": Metrics(), **options}
        made.append(WebhookServer(address, **options))
        return made[-1]

    yield new
    for server in made:
        server.close()


def allow(request: AdmissionRequest) -> AdmissionResponse:
    """Allow everything."""
    return AdmissionResponse.allowed()


def client_certificate(folder: Path) -> None:
    """Write ``client.crt``, signed by its own key, and ``client.key``."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "client.crt").write_bytes(certificate.public_bytes(pem))
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    (folder / "client.key").write_bytes(key.private_bytes(pem, form, plain))


def connect(server: WebhookServer, context: ssl.SSLContext | None = None) -> Any:
    """A connection of an API server."""
    if context is None:
        context = ssl.create_default_context(cadata=server.certificates.pem.decode())  # type: ignore[union-attr]
    return http.client.HTTPSConnection("127.0.0.1", server.port, timeout=TIMEOUT, context=context)


def ask(server: WebhookServer, path: str, body: Any = None, connection: Any = None) -> Any:
    """Send a review; the response, with its body read."""
    own = connection or connect(server)
    try:
        data = body if isinstance(body, bytes) else json.dumps(body or review()).encode()
        own.request("POST", path, data, {"Content-Type": "application/json"})
        response = own.getresponse()
        response.text = response.read().decode()
        return response
    finally:
        if connection is None:
            own.close()


def test_a_webhook_may_be_added_before_and_after_the_start(make: Any) -> None:
    server = make()
    server.add("/before", Admission(allow))
    with running(server):
        assert json.loads(ask(server, "/before").text)["response"]["allowed"]
        assert ask(server, "/after").status == 404
        webhook_for(server, WIDGET).validate(create=lambda new: None, path="/after").complete()
        assert json.loads(ask(server, "/after").text)["response"]["allowed"]
        assert [rule.path for rule in server.rules] == ["/after"]
        assert server.webhooks.paths == ("/before", "/after")


def test_one_connection_serves_many_requests(make: Any) -> None:
    server = make()
    server.add("/a", Admission(allow))
    with running(server):
        connection = connect(server)
        for _ in range(5):
            assert ask(server, "/a?timeout=10s", connection=connection).status == 200
        connection.close()


def test_it_is_ready_once_it_accepts_a_connection(make: Any) -> None:
    server = make()
    stop = StopSignal()
    assert server.health() == Health(False, "the webhook server has not been started yet")
    assert not server.wait_until_ready(stop, 0.01)
    with running(server):
        assert server.health().is_ready
        assert server.wait_until_ready(stop, 0.0)
    assert server.health() == Health(False, "the webhook server has ended")
    assert not server.wait_until_ready(stop, None)


def test_a_wait_for_readiness_ends_with_its_stop(make: Any) -> None:
    server, stop = make(), StopSignal()
    found: list[bool] = []
    waiter = threading.Thread(target=lambda: found.append(server.wait_until_ready(stop)))
    waiter.start()
    stop.set()
    waiter.join(TIMEOUT)
    assert found == [False]


def test_a_signal_handler_ends_the_wait_for_readiness_of_its_own_thread(make: Any) -> None:
    clock = InterruptingClock()
    server, found = make(clock=clock), list[bool]()
    waiter = threading.Thread(
        target=lambda: found.append(server.wait_until_ready(clock.stop)), daemon=True
    )
    waiter.start()
    waiter.join(TIMEOUT)
    assert found == [False]


class Late:
    """Certificates that come after a while."""

    def __init__(self, source: SelfSigned) -> None:
        self.source = source
        self.pem = source.pem
        self.has_one = threading.Event()
        self.attached: dict[str, Any] = {}

    def pair(self) -> KeyPair:
        if not self.has_one.is_set():
            raise FileNotFoundError("no Secret yet")
        return self.source.pair()

    def run(self, stop: StopSignal, /) -> None:
        stop.wait()

    def close(self) -> None:
        """Nothing to close."""

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None, /) -> bool:
        return self.has_one.wait(TIMEOUT if timeout is None else timeout)

    def health(self) -> Health:
        return Health(self.has_one.is_set(), "no Secret webhooks/tls yet")

    def attach(self, **parts: Any) -> None:
        self.attached = parts


def test_it_is_ready_only_with_its_certificate(make: Any, certificate: SelfSigned) -> None:
    source = Late(certificate)
    server = make(certificates=source)
    with running(server, wait=False):
        assert not server.wait_until_ready(StopSignal(), 0.05)
        # Its thread may have begun only now.
        eventually(lambda: server.health() == Health(False, "no Secret webhooks/tls yet"))
        assert not server.wait_until_ready(StopSignal(), 0.05)
        source.has_one.set()
        assert server.wait_until_ready(StopSignal(), TIMEOUT)
        assert server.health().is_ready


def test_a_certificate_that_is_not_trusted_yet_is_waited_for(
    make: Any, certificate: SelfSigned
) -> None:
    class Untrusted(Late):
        def pair(self) -> KeyPair:
            return self.source.pair()

    source = Untrusted(certificate)
    server = make(certificates=source)
    with running(server, wait=False):
        eventually(lambda: server.health() == Health(False, "no Secret webhooks/tls yet"))
        assert not server.wait_until_ready(StopSignal(), 0.05)
        source.has_one.set()
        assert server.wait_until_ready(StopSignal(), TIMEOUT)


class Hanging(Late):
    """Certificates that keep a handshake waiting."""

    def __init__(self, source: SelfSigned) -> None:
        super().__init__(source)
        self.has_one.set()
        self.asked, self.goes_on = threading.Event(), threading.Event()

    def pair(self) -> KeyPair:
        self.asked.set()
        self.goes_on.wait(TIMEOUT)
        return self.source.pair()


@pytest.mark.parametrize("ends", ["stop", "timeout"])
def test_a_handshake_that_hangs_does_not_hold_up_a_wait_for_readiness(
    make: Any, certificate: SelfSigned, ends: str
) -> None:
    source, stop, found = Hanging(certificate), StopSignal(), list[bool]()
    source.goes_on.set()
    server = make(certificates=source)
    source.goes_on.clear()
    source.asked.clear()
    with running(server, wait=False):
        timeout = 0.1 if ends == "timeout" else None
        waiter = threading.Thread(
            target=lambda: found.append(server.wait_until_ready(stop, timeout))
        )
        waiter.start()
        assert source.asked.wait(TIMEOUT)
        if ends == "stop":
            stop.set()
        waiter.join(5.0)
        assert found == [False]
        source.goes_on.set()
        waiter.join()


def test_a_manager_gives_the_certificates_a_client(make: Any, certificate: SelfSigned) -> None:
    source = Late(certificate)
    server = make(certificates=source)
    client: Any = object()
    server.attach(client=client)
    assert source.attached["client"] is client
    assert source.attached["webhooks"] is server.webhooks
    assert set(source.attached) == {"client", "clock", "metrics", "webhooks"}


def test_an_unreachable_server_is_unready(make: Any, certificate: SelfSigned) -> None:
    class Broken(Late):
        wait_until_ready = None  # type: ignore[assignment]
        health = None  # type: ignore[assignment]

    server = make(certificates=Broken(certificate))
    with running(server, wait=False):
        eventually(lambda: server.health().text.startswith("the webhook server is not reachable: "))
        assert not server.wait_until_ready(StopSignal(), 0.05)


def test_clients_may_need_a_certificate(make: Any, tmp_path: Path) -> None:
    client_certificate(tmp_path)
    server = make(tls=TLSOptions(client_ca_file=tmp_path / "client.crt", minimum_version="TLSv1.3"))
    seen: list[Any] = []

    def look(request: AdmissionRequest) -> AdmissionResponse:
        assert request.http is not None
        seen.append(request.http.client_certificate)
        return AdmissionResponse.allowed()

    server.add("/a", Admission(look))
    with running(server):
        assert server.health().is_ready
        with pytest.raises((ssl.SSLError, OSError)):
            ask(server, "/a")
        context = ssl.create_default_context(cadata=server.certificates.pem.decode())
        context.load_cert_chain(tmp_path / "client.crt", tmp_path / "client.key")
        connection = connect(server, context)
        assert ask(server, "/a", connection=connection).status == 200
        connection.close()
    assert seen[0]["subject"]


def test_old_tls_is_refused(make: Any) -> None:
    server = make()
    with running(server):
        context = ssl.create_default_context(cadata=server.certificates.pem.decode())
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        connection = connect(server, context)
        with pytest.raises((ssl.SSLError, OSError)):
            ask(server, "/a", connection=connection)
        connection.close()


def test_the_size_of_a_body_is_limited_by_its_webhook(make: Any) -> None:
    server = make()
    server.add("/large", Admission(allow))
    server.add("/small", lambda request: HTTPResponse(body=str(len(request.body)).encode()))
    with running(server):
        assert ask(server, "/small", b" " * ((1 << 20) + 1)).text == str((1 << 20) + 1)
        refused = ask(server, "/small", b" " * ((1 << 20) + 2))
        assert refused.status == 413
        answered = ask(server, "/large", b" " * (7 << 20))
        assert (answered.status, json.loads(answered.text)["response"]["status"]["code"]) == (
            200,
            413,
        )
        # Refused by its length alone.
        connection = connect(server)
        connection.putrequest("POST", "/large")
        connection.putheader("Content-Length", str((7 << 20) + 2))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()
        assert ask(server, "/unknown", b" " * ((1 << 20) + 1)).status == 413


def test_a_late_handler_is_answered_for(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    clock, metrics = ManualClock(), Metrics()
    server = make(clock=clock, metrics=metrics)
    begun, ended = threading.Event(), threading.Event()

    def check_size(request: AdmissionRequest) -> AdmissionResponse:
        begun.set()
        ended.wait(TIMEOUT)
        return AdmissionResponse.allowed()

    server.add("/slow", Admission(check_size, name="check_size"))
    server.add("/quick", Admission(allow))
    with running(server), caplog.at_level(logging.ERROR):
        found: list[Any] = []
        client = threading.Thread(target=lambda: found.append(ask(server, "/slow?timeout=10s")))
        client.start()
        assert begun.wait(TIMEOUT)
        clock.advance(9.4)
        assert ask(server, "/quick").status == 200
        assert not found
        clock.advance(0.1)
        client.join(TIMEOUT)
        [response] = found
        assert response.status == 500
        assert response.text == "the webhook check_size did not answer within 9.5 s\n"
        assert response.headers["Connection"] == "close"
        assert "its answer, if it comes, is dropped" in caplog.text
        # Others are served while it hangs.
        assert ask(server, "/quick").status == 200
        ended.set()
    assert metrics.value(TOTAL, webhook="/slow", code="500") == 1
    assert metrics.value(TOTAL, webhook="/slow", code="200") == 0


def test_a_handler_in_time_is_not_answered_for(make: Any) -> None:
    clock = ManualClock()
    server = make(clock=clock)

    def slow(request: AdmissionRequest) -> AdmissionResponse:
        clock.advance(9.0)
        return AdmissionResponse.allowed()

    server.add("/a", Admission(slow))
    with running(server):
        connection = connect(server)
        for _ in range(3):
            found = ask(server, "/a?timeout=10s", connection=connection)
            assert json.loads(found.text)["response"]["allowed"]
        connection.close()


def test_async_handlers_share_the_servers_event_loop(make: Any) -> None:
    server = make()
    threads: set[str] = set()

    async def look(request: AdmissionRequest) -> AdmissionResponse:
        threads.add(threading.current_thread().name)
        return AdmissionResponse.allowed()

    server.add("/a", Admission(look))
    with running(server):
        for _ in range(3):
            assert json.loads(ask(server, "/a").text)["response"]["allowed"]
    assert threads == {"webhooks/loop"}


def test_a_stop_waits_for_requests_under_way(make: Any) -> None:
    server = make()
    begun, ended = threading.Event(), threading.Event()

    def slow(request: AdmissionRequest) -> AdmissionResponse:
        begun.set()
        assert ended.wait(TIMEOUT)
        return AdmissionResponse.denied("after the stop")

    server.add("/a", Admission(slow))
    found: list[Any] = []
    with running(server) as stop:
        client = threading.Thread(target=lambda: found.append(ask(server, "/a")))
        client.start()
        assert begun.wait(TIMEOUT)
        stop.set()
        ended.set()
        client.join(TIMEOUT)
    assert "after the stop" in found[0].text
    with pytest.raises(OSError):
        ask(server, "/a")


def test_a_handler_that_ends_after_the_grace_is_named(make: Any) -> None:
    server = make(shutdown_timeout=0.05)
    begun, ended = threading.Event(), threading.Event()

    def stuck(request: HTTPRequest) -> HTTPResponse:
        begun.set()
        ended.wait(TIMEOUT)
        return HTTPResponse()

    server.add("/stuck", stuck)

    def send() -> None:
        with pytest.raises(OSError):
            ask(server, "/stuck")

    client = threading.Thread(target=send)

    def run() -> None:
        with running(server):
            client.start()
            assert begun.wait(TIMEOUT)

    with pytest.raises(TimeoutError, match="still handles /stuck"):
        run()
    ended.set()
    client.join(TIMEOUT)
    server._http._threads.join(TIMEOUT)


def test_a_server_that_is_off_takes_webhooks_and_is_ready(make: Any) -> None:
    server = make("")
    server.add("/a", Admission(allow))
    assert (server.address, server.port, server.url) == ("", 0, "")
    with running(server):
        assert server.wait_until_ready(StopSignal(), TIMEOUT)
        assert server.health() == Health(True, "the webhook server is off")
    assert repr(server) == "<webhook server without a port>"


def test_it_runs_once(make: Any) -> None:
    server = make()
    with running(server), pytest.raises(RuntimeError, match="ran before"):
        server.run(StopSignal())
    with pytest.raises(RuntimeError, match="make a new one"):
        server.run(StopSignal())


@pytest.mark.parametrize("address", ["127.0.0.1:0", ""])
def test_a_server_that_runs_is_stopped_by_its_close(make: Any, address: str) -> None:
    server = make(address)
    stop, threads = StopSignal(), ThreadGroup("server")
    threads.start("run", lambda: server.run(stop))
    assert server.wait_until_ready(StopSignal(), TIMEOUT)
    server.close()
    server.close()
    assert not threads.join(TIMEOUT)
    assert not stop.is_set()  # which may be the stop signal of others
    assert server.health().is_ready is (not address)
    if address:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.port), TIMEOUT)
    server.close()
    with pytest.raises(RuntimeError, match="make a new one"):
        server.run(stop)


def test_a_handler_may_close_its_server(make: Any) -> None:
    server = make()

    def close(request: AdmissionRequest) -> AdmissionResponse:
        server.close()
        return AdmissionResponse.allowed()

    server.add("/a", Admission(close))
    threads = ThreadGroup("server")
    threads.start("run", lambda: server.run(StopSignal()))
    assert server.wait_until_ready(StopSignal(), TIMEOUT)
    assert ask(server, "/a").status == 200
    assert not threads.join(TIMEOUT)


def test_two_servers_may_share_webhooks(make: Any) -> None:
    webhooks = Webhooks(metrics=Metrics())
    webhooks.add("/a", Admission(allow))
    first, second = make(webhooks=webhooks), make(webhooks=webhooks)
    with running(first), running(second):
        assert ask(first, "/a").status == ask(second, "/a").status == 200


def test_a_taken_port_is_named_at_once(make: Any) -> None:
    server = make()
    with pytest.raises(OSError, match="webhooks server"):
        make(server.address)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"address": 9443}, "give host:port as text"),
        ({"address": "9443"}, "is not an address"),
        ({"certificates": "tls.crt"}, "is not a source of certificates"),
        ({"certificates": SelfSigned}, "is not a source of certificates"),
        ({"shutdown_timeout": -1}, "shutdown_timeout=-1"),
        ({"webhooks": []}, "is not of type Webhooks"),
        ({"clock": 7}, "is not of type Clock"),
    ],
)
def test_mistakes_are_named_when_they_are_made(options: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError), match=text):
        WebhookServer(**{"address": LOCAL, **options})


def test_missing_certificates_are_named(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match=r"serving-certs/tls\.crt and .*tls\.key"):
        WebhookServer(LOCAL)
    with pytest.raises(ValueError, match="serving-certs"):
        WebhookServer.of_options(WebhookServerOptions(address=LOCAL))


def test_a_thread_that_an_async_handler_waits_for_does_not_hold_the_end(make: Any) -> None:
    entered, release = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    async def slow(request: AdmissionRequest) -> AdmissionResponse:
        entered.set()
        await asyncio.to_thread(release.wait)
        return AdmissionResponse.allowed()

    server = make(shutdown_timeout=0.0, shutdown_delay=0.0)
    server.add("/a", Admission(slow))

    def run() -> None:
        try:
            server.run(stop)
        except TimeoutError as error:
            errors.append(error)

    def call() -> None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            ask(server, "/a")

    stop, threads = StopSignal(), ThreadGroup("server")
    running = threads.start("run", run)
    assert server.wait_until_ready(StopSignal(), TIMEOUT)
    threads.start("call", call)
    assert entered.wait(TIMEOUT)
    stop.set()
    running.join(TIMEOUT)
    is_held = running.is_alive()
    release.set()
    assert not threads.join(TIMEOUT)
    assert not is_held
    assert "async handlers of the webhook server still run" in str(errors[0])
    assert not server._loop.close(TIMEOUT)


def test_a_review_that_somebody_else_has_answered_is_no_success_to_observers() -> None:
    clock = ManualClock()

    def late(request: AdmissionRequest) -> AdmissionResponse:
        clock.advance(float(request.name))
        return AdmissionResponse.allowed()

    class Observer:
        """Notes what becomes of reviews."""

        def __init__(self) -> None:
            self.outcomes: list[Any] = []

        def call_began(self, call: Any) -> None:
            pass

        def call_ended(self, call: Any) -> None:
            self.outcomes.append((call.outcome, call.cause.text if call.cause else ""))

        request_began = request_ended = call_began

    webhooks, observer = Webhooks(clock=clock, metrics=Metrics()), Observer()
    webhooks.add("/a", Admission(late, name="slow"))
    webhooks.observe_activity(observer)
    for seconds in ("1", "2"):
        webhooks.answer(
            HTTPRequest(
                method="POST",
                path="/a",
                query_string="timeout=2s",
                headers={"content-type": "application/json"},
                body=json.dumps(review(name=seconds)).encode(),
            )
        )
    assert observer.outcomes == [
        ("done", ""),
        ("given up", "the webhook slow did not answer within 1.9 s"),
    ]
