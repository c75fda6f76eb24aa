"""Managed certificates on the embedded server: made, shared, injected, rotated, restored."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import logging
import re
import socket
import ssl
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from appsdk_operator.client import (
    AlreadyExists,
    ApiError,
    Client,
    ClientConfig,
    ClientLike,
    Conflict,
    Hooks,
    InterceptedClient,
    NotFound,
)
from appsdk_operator.manager import HTTPServer, Manager
from appsdk_operator.resource import Kind, MutableObject
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import APIServer, running
from appsdk_operator.webhooks import KeyPair, ManagedCertificates, WebhookServer
from appsdk_operator.webhooks._certificates.issuing import X509Issuer
from appsdk_operator.webhooks._certificates.secret import read_foreign
from tests.waiting import eventually
from tests.webhooks.certificate_parts import (
    CRD,
    NAMESPACE,
    SECRET,
    SERVICE,
    APIService,
    ConfigMap,
    Mutating,
    Secret,
    Validating,
    bundle_of,
    configuration,
    create_namespace,
    gadgets,
    hooks_server,
    managed,
    metrics_service,
    secret_data,
    served,
    webhook,
)

KEY = re.compile(r"PRIVATE KEY|MIGH|MHcC")


class Proxy:
    """A source whose certificates are chosen after the server's port is known."""

    def __init__(self) -> None:
        self.source: Any = None

    def pair(self) -> KeyPair:
        if self.source is None:
            raise OSError("none yet")
        pair: KeyPair = self.source.pair()
        return pair

    def run(self, stop: StopSignal, /) -> None:
        if self.source is not None:
            self.source.run(stop)

    def close(self) -> None:
        if self.source is not None:
            self.source.close()


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer() as server:
        with Client(ClientConfig(server=server.url)) as client:
            create_namespace(client)
        yield server


@pytest.fixture
def client(server: APIServer) -> Iterator[Client]:
    with Client(ClientConfig(server=server.url)) as client:
        yield client


def test_the_first_replica_makes_them_and_the_others_take_the_same(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.create(configuration())
    replicas = [managed(client) for _ in range(3)]
    with contextlib.ExitStack() as exits:
        for replica in replicas:
            exits.enter_context(running(replica))
        pairs = {replica.pair() for replica in replicas}
        assert len(pairs) == 1
        data = secret_data(client)
        assert pairs == {KeyPair(data["tls.crt"], data["tls.key"])}
        assert client.get(Secret, SECRET, namespace=NAMESPACE).to_dict()["type"] == (
            "kubernetes.io/tls"
        )
        assert bundle_of(client) == data["ca.crt"] == replicas[0].ca_bundle()
        texts = [replica.health().text for replica in replicas]
    assert all("valid for 90 days" in text for text in texts)
    assert caplog.text.count("stored a new CA") == 1
    assert "injected the CA of Secret widgets/hooks-tls" in caplog.text
    said = caplog.text + "".join(map(repr, replicas)) + "".join(texts)
    assert not KEY.search(said + repr(pairs) + repr(replicas[0]._memory))


def test_the_server_is_called_with_the_injected_authority(server: APIServer) -> None:
    proxy = Proxy()
    hooks = hooks_server(proxy)
    services = {f"{NAMESPACE}/{SERVICE}": hooks.url}
    with (
        APIServer(services=services) as api_server,
        Client(ClientConfig(server=api_server.url)) as client,
    ):
        create_namespace(client)
        client.create(configuration())
        source = proxy.source = managed(client)
        with running(hooks) as stop:
            assert source.wait_until_ready(stop, 60.0), source.health()
            client.create(MutableObject.new(ConfigMap, "a", namespace=NAMESPACE))


def test_all_kinds_of_configurations_are_injected_where_they_name_the_service(
    client: Client,
) -> None:
    other = {"service": {"namespace": NAMESPACE, "name": "other"}}
    client.create(
        configuration(
            webhook("a.widgets.test"),
            webhook("b.widgets.test", clientConfig=other),
            webhook("c.widgets.test", clientConfig={"url": "https://hooks.test:8443/c"}),
            kind=Mutating,
        )
    )
    client.create(gadgets())
    client.create(metrics_service())
    source = managed(
        client,
        names=["hooks.test"],
        inject=[
            (Mutating, "widgets"),
            (CRD, "gadgets.test.example"),
            (APIService, "v1.metrics.test"),
        ],
    )
    with running(source):
        authority = source.ca_bundle()
        assert [bundle_of(client, i, Mutating) for i in range(3)] == [authority, b"", authority]
        found = client.get(CRD, "gadgets.test.example").to_dict()["spec"]["conversion"]["webhook"]
        assert base64.b64decode(found["clientConfig"]["caBundle"]) == authority
        found = client.get(APIService, "v1.metrics.test").to_dict()["spec"]
        assert base64.b64decode(found["caBundle"]) == authority


def test_it_is_not_ready_and_says_why_until_the_configuration_names_the_service(
    client: Client,
) -> None:
    source = managed(client)
    assert (
        source.health().text == "certificates of Secret widgets/hooks-tls: it has not started yet"
    )
    with running(source, wait=False) as stop:
        eventually(
            lambda: "ValidatingWebhookConfiguration widgets does not exist" in source.health().text
        )
        assert not source.health().is_ready
        other = {"service": {"namespace": NAMESPACE, "name": "other"}}
        client.create(configuration(webhook(clientConfig=other)))
        eventually(lambda: "widgets names no service widgets/hooks" in source.health().text)
        assert not source.wait_until_ready(stop, 0.01)
        client.delete(Validating, "widgets")
        client.create(configuration())
        assert source.wait_until_ready(stop, 60.0)


def test_what_others_overwrite_is_injected_again(client: Client) -> None:
    client.create(configuration())
    source = managed(client)
    with running(source):
        authority = source.ca_bundle()
        for written in ("", base64.b64encode(b"garbage").decode()):
            changed = client.get(Validating, "widgets").mutable_copy()
            changed["webhooks"][0]["clientConfig"]["caBundle"] = written
            with contextlib.suppress(Exception):  # a server that checks it refuses garbage
                client.update(changed)
            eventually(lambda: bundle_of(client) == authority)
        client.delete(Validating, "widgets")
        client.create(configuration())
        eventually(lambda: bundle_of(client) == authority)
        assert source.health().is_ready


def test_a_secret_that_is_deleted_or_spoiled_comes_back_as_it_was(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.create(configuration())
    source = managed(client)
    with running(source):
        before = secret_data(client)
        client.delete(Secret, SECRET, namespace=NAMESPACE)
        eventually(lambda: secret_data_or_none(client) == before)
        for key, value in [("tls.key", b"garbage"), ("ca.crt", b""), ("ca.key", b"x")]:
            changed = client.get(Secret, SECRET, namespace=NAMESPACE).mutable_copy()
            changed["data"][key] = base64.b64encode(value).decode()
            changed["data"]["mine"] = "AAAA"
            client.update(changed)
            eventually(lambda: {**secret_data(client), "mine": b""} == {**before, "mine": b""})
        eventually(lambda: caplog.text.count(f"restored Secret {NAMESPACE}/{SECRET}") == 4)
        assert caplog.text.count("stored a new CA") == 1, "at the start"
        assert caplog.text.count("stored a new serving certificate") == 1
        assert secret_data(client)["mine"] == b"\0\0\0"
        assert source.health().is_ready


VERSION = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x01"
"""The version of a certificate, and one that no certificate of an authority has."""


def changed_in(pem: bytes, change: tuple[bytes, bytes]) -> bytes:
    """A certificate with other bytes, in the right format."""
    certificate = ssl.PEM_cert_to_DER_cert(pem.decode())
    assert change[0] in certificate
    return ssl.DER_cert_to_PEM_cert(certificate.replace(*change, 1)).encode()


def test_certificates_that_nobody_can_read_are_replaced_in_secret_and_configuration(
    client: Client,
) -> None:
    client.create(configuration())
    source = managed(client)
    with running(source):
        before = secret_data(client)
        spoiled = changed_in(before["ca.crt"], VERSION)
        draft = client.get(Validating, "widgets").mutable_copy()
        bundle = base64.b64encode(spoiled).decode()
        draft["webhooks"][0]["clientConfig"]["caBundle"] = bundle
        client.update(draft)
        eventually(lambda: bundle_of(client) == before["ca.crt"])
        for key in ("ca.crt", "tls.crt"):
            secret = client.get(Secret, SECRET, namespace=NAMESPACE).mutable_copy()
            secret["data"][key] = base64.b64encode(changed_in(before[key], VERSION)).decode()
            client.update(secret)
            eventually(lambda: secret_data(client) == before)


@pytest.mark.parametrize(
    "change",
    [
        VERSION,
        (b"\x2a\x86\x48\xce\x3d\x02\x01", b"\x2a\x86\x48\xce\x3d\x02\x7f"),  # the kind of its key
        (b"\x55\x1d\x23", b"\x55\x1d\x0e"),  # one extension twice
    ],
)
def test_no_certificate_in_the_secret_of_cert_manager_is_an_error(
    change: tuple[bytes, bytes],
) -> None:
    issuer = X509Issuer("CA", key_type="EC-P256", ca_lifetime=1e6, lifetime=1e6)
    authority = issuer.authority(1_800_000_000.0)
    pair = issuer.pair(authority, frozenset(["a.test"]), 1_800_000_000.0).pair
    data = {
        "ca.crt": authority.certificate.pem,
        "tls.crt": changed_in(pair.certificate, change),
        "tls.key": pair.key,
    }
    reading = read_foreign({k: base64.b64encode(v).decode() for k, v in data.items()})
    assert reading.problem or reading.content


def secret_data_or_none(client: Client) -> dict[str, bytes] | None:
    try:
        return secret_data(client)
    except Exception:
        return None


def test_an_empty_secret_installed_before_is_filled_without_the_permission_to_create(
    client: Client,
) -> None:
    client.create(configuration())
    client.create(MutableObject.new(Secret, SECRET, namespace=NAMESPACE, type="Opaque"))
    refused = InterceptedClient(client, Hooks(create=no_create))
    with running(managed(refused)):
        assert secret_data(client)["ca.crt"] == bundle_of(client)


def no_create(*args: Any, **options: Any) -> Any:
    raise AssertionError("create")


def test_a_restarted_operator_goes_on_with_what_is_there(client: Client) -> None:
    client.create(configuration())
    pairs = set()
    for _ in range(2):
        source = managed(client)
        with running(source):
            pairs.add(source.pair())
    assert len(pairs) == 1


def test_a_rotation_is_trusted_before_it_is_served(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client.create(configuration())
    clock, metrics = ManualClock(epoch=1_800_000_000.0), Metrics()
    source = managed(client, clock=clock, metrics=metrics)
    with running(source):
        old, pair = source.ca_bundle(), source.pair()
        assert old is not None
        source.rotate()
        eventually(lambda: bundle_of(client).count(b"BEGIN") == 2)
        eventually(lambda: old in bundle_of(client))
        assert source.pair() == pair
        # Once it has been there for a minute.
        clock.block_until_waiting(1)
        eventually(lambda: clock.advance(5.0) or source.pair() != pair)
        assert secret_data(client)["trusted"]
        assert bundle_of(client).count(b"BEGIN") == 2
        labels = {"secret": "widgets/hooks-tls"}
        name = "managed_certificates_rotations_total"
        assert metrics.value(name, certificate="ca", **labels) == 2.0
        assert metrics.value(name, certificate="serving", **labels) == 2.0
        name = "managed_certificates_expiry_seconds"
        assert (
            89 * 86400 < (metrics.value(name, certificate="serving", **labels) or 0) <= 90 * 86400
        )
        assert metrics.value("managed_certificates_errors_total", operation="read", **labels) == 0.0
    assert metrics.value(name, certificate="serving", **labels) is not None
    source.close()
    assert metrics.value(name, certificate="serving", **labels) is None


def test_it_renews_by_the_clock_and_after_a_long_sleep(client: Client) -> None:
    client.create(configuration())
    clock = ManualClock(epoch=1_800_000_000.0)
    source = managed(client, clock=clock)
    with running(source):
        pair, authority = source.pair(), source.ca_bundle()
        # Four fifths of 90 days.
        clock.block_until_waiting(1)
        clock.advance(72 * 86400.0 - 120.0)
        assert source.pair() == pair
        eventually(lambda: clock.advance(60.0) or source.pair() != pair)
        assert source.ca_bundle() == authority
        clock.advance(1000 * 86400.0)
        assert not source.health().is_ready
        eventually(lambda: clock.advance(1.0) or source.health().is_ready)
        assert source.ca_bundle() != authority
        assert authority not in (bundle_of(client), None)


def test_the_certificate_is_for_all_names_of_the_service(client: Client) -> None:
    client.create(configuration())
    source = managed(client, names=["hooks.example.test", "127.0.0.1"])
    with served(source) as server:
        context = ssl.create_default_context(cadata=(source.ca_bundle() or b"").decode())
        for name in (
            "hooks",
            "hooks.widgets",
            "hooks.widgets.svc",
            "hooks.widgets.svc.cluster.local",
            "hooks.example.test",
            "127.0.0.1",
        ):
            assert connects(server, context, name)
        with pytest.raises(ssl.SSLCertVerificationError):
            connects(server, context, "other.widgets.svc")


def connects(server: HTTPServer, context: ssl.SSLContext, name: str) -> bool:
    import socket

    with (
        socket.create_connection(("127.0.0.1", server.port), 10) as raw,
        context.wrap_socket(raw, server_hostname=name) as secure,
    ):
        return secure.version() == "TLSv1.3"


@pytest.mark.parametrize("key_type", ["EC-P256", "EC-P384", "RSA-2048"])
def test_each_type_of_key_can_be_served(client: Client, key_type: Any) -> None:
    client.create(configuration())
    source = managed(client, key_type=key_type)
    with served(source) as server:
        context = ssl.create_default_context(cadata=(source.ca_bundle() or b"").decode())
        assert connects(server, context, "hooks.widgets.svc")


def test_a_new_name_is_added_without_a_new_authority(client: Client) -> None:
    client.create(configuration())
    with running(managed(client)):
        authority = bundle_of(client)
    source = managed(client, names=["new.test"])
    with served(source) as server:
        context = ssl.create_default_context(cadata=authority.decode())
        eventually_connects(server, context, "new.test")
    assert bundle_of(client) == authority


def test_the_names_of_a_service_in_capitals_are_compared_as_they_are_certified(
    client: Client,
) -> None:
    metrics = Metrics()
    clock = ManualClock(epoch=1_800_000_000.0)
    source = ManagedCertificates(
        "Hooks", SECRET, namespace=NAMESPACE, client=client, clock=clock, metrics=metrics
    )
    with running(source):
        eventually(lambda: source._waiters.waiting)
        clock.advance(60.0)
        eventually(lambda: secret_data(client)["trusted"])  # of the next look
    name = "managed_certificates_rotations_total"
    assert metrics.value(name, secret="widgets/hooks-tls", certificate="serving") == 1.0


def eventually_connects(server: HTTPServer, context: ssl.SSLContext, name: str) -> None:
    def is_known() -> bool:
        try:
            return connects(server, context, name)
        except ssl.SSLCertVerificationError:
            return False

    eventually(is_known)


def test_cert_manager_can_make_and_inject_them_instead(client: Client) -> None:
    client.create(configuration())
    # What cert-manager would write: here somebody else's managed certificates.
    issuer = ManagedCertificates(
        SERVICE, SECRET, namespace=NAMESPACE, client=client, metrics=Metrics()
    )
    with running(issuer):
        authority = issuer.ca_bundle()
    assert authority is not None
    source = managed(client, cert_manager="widgets/hooks-certificate")
    annotation = "cert-manager.io/inject-ca-from"
    with running(source, wait=False) as stop:
        eventually(
            lambda: (
                client.get(Validating, "widgets").annotations.get(annotation)
                == "widgets/hooks-certificate"
            )
        )
        eventually(lambda: "no caBundle with the authority" in source.health().text)
        assert not source.health().is_ready
        changed = client.get(Validating, "widgets").mutable_copy()
        changed["webhooks"][0]["clientConfig"]["caBundle"] = base64.b64encode(authority).decode()
        client.update(changed)
        assert source.wait_until_ready(stop, 60.0)
        assert source.pair() == issuer.pair()
        with pytest.raises(RuntimeError, match="cmctl renew"):
            source.rotate()
    assert source.role_rules()[0]["verbs"] == ["get", "list", "watch"]


def test_it_looks_again_only_when_something_changes(client: Client) -> None:
    client.create(configuration())
    requests: list[str] = []
    counted = InterceptedClient(
        client,
        Hooks(get=lambda c, kind, name, **o: (requests.append(name), c.get(kind, name, **o))[1]),
    )
    clock = ManualClock(epoch=1_800_000_000.0)
    source = managed(counted, clock=clock)
    handed: dict[str, str] = {}
    changed = source._changed

    def note(kind: Any, obj: Any) -> None:
        changed(kind, obj)
        handed[obj.name] = obj.resource_version

    source._changed = note  # type: ignore[method-assign]
    with running(source):
        # Its watches have told it of its own writes, too, and it waits for what comes next.
        versions = {
            SECRET: client.get(Secret, SECRET, namespace=NAMESPACE).resource_version,
            "widgets": client.get(Validating, "widgets").resource_version,
        }
        eventually(lambda: handed == versions)
        eventually(lambda: source._waiters.waiting and not source._is_due)
        count = len(requests)
        assert count <= 12
        for _ in range(5):
            clock.advance(1.0)
        assert len(requests) == count


def test_without_threads_for_its_watches_it_looks_at_its_intervals(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    start = threading.Thread.start

    def no_watch(thread: threading.Thread) -> None:
        if thread.name.startswith("managed-certificates/"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_watch)
    client.create(configuration())
    source = managed(client, poll_interval=0.1)
    with running(source):
        assert bundle_of(client) == source.ca_bundle()
    assert caplog.text.count("which is looked at each 0.1 s nevertheless: can't start") == 2


def url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_a_stop_does_not_wait_for_a_server_that_does_not_answer() -> None:
    asked = threading.Event()

    def get(inner: ClientLike, kind: Kind, name: str, **options: Any) -> Any:
        asked.set()
        return inner.get(kind, name, **options)

    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        Client(ClientConfig(server=url_of(silent), read_timeout=600.0)) as client,
        running(managed(InterceptedClient(client, Hooks(get=get))), wait=False) as stop,
    ):
        assert asked.wait(20.0)
        stop.set()


@pytest.mark.parametrize("error", [Conflict, AlreadyExists, NotFound])
@pytest.mark.parametrize("operation", ["create", "update", "patch"])
def test_a_write_that_is_refused_again_and_again_is_told(
    client: Client, operation: str, error: type[ApiError], caplog: pytest.LogCaptureFixture
) -> None:
    client.create(configuration())
    if operation == "update":
        client.create(MutableObject.new(Secret, SECRET, namespace=NAMESPACE))
    writes: list[str] = []

    def refuse(*_: Any, **__: Any) -> Any:
        writes.append(operation)
        raise error("a webhook wants none of it")

    refusing: Any = {operation: refuse}
    clock = ManualClock(epoch=1_800_000_000.0)
    source = managed(InterceptedClient(client, Hooks(**refusing)), clock=clock)
    with running(source, wait=False):
        eventually(lambda: "a webhook wants none of it" in source.health().text)
        eventually(lambda: source._waiters.waiting)
        assert len(writes) <= 6, "it waits longer between its attempts"
        assert not source.health().is_ready
    told = [r for r in caplog.records if "a webhook wants none of it" in r.getMessage()]
    assert [r.levelname for r in told] == ["ERROR"]


def test_the_namespace_that_is_missing_is_named(client: Client) -> None:
    clock = ManualClock(epoch=1_800_000_000.0)
    source = managed(client, namespace="nowhere", inject=[], clock=clock)
    with running(source, wait=False):
        eventually(lambda: 'namespaces "nowhere" not found' in source.health().text)


@pytest.mark.parametrize("key_type", [Ed25519PrivateKey, Ed448PrivateKey])
def test_a_secret_with_an_authority_of_an_edwards_curve_is_completed(
    client: Client, key_type: Any
) -> None:
    key = key_type.generate()
    now = dt.datetime.now(dt.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "our own CA")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(5)
        .not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, None)
    )
    authority = made.public_bytes(Encoding.PEM)
    pem = {
        "ca.crt": authority,
        "ca.key": key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    }
    data = {key: base64.b64encode(value).decode() for key, value in pem.items()}
    client.create(MutableObject.new(Secret, SECRET, namespace=NAMESPACE, data=data))
    client.create(configuration())
    source = managed(client)
    with served(source):
        assert source.ca_bundle() == authority
        assert bundle_of(client) == authority


OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"lifetime": 1.0}, "lifetime=1.0: use 5 seconds"),
    ({"lifetime": -1}, "lifetime=-1: use more than 0"),
    ({"ca_lifetime": 86400.0}, "ca_lifetime=86400.0: use lifetime"),
    ({"ca_lifetime": 1e12}, "ca_lifetime=1000000000000.0: use 3.1536e+10 seconds or less"),
    ({"rotate_at": 1.0}, "rotate_at=1.0: use a fraction"),
    ({"lifetime": 200.0}, "propagation=60.0: use less than"),
    ({"key_type": "DSA"}, "key_type='DSA': use one of EC-P256"),
    ({"cert_manager": "certificate"}, "give the Certificate as namespace/name"),
    ({"names": [""]}, "name '': use a DNS name"),
    ({"inject": [(ConfigMap, "a")]}, "has no caBundle: use Mutating"),
    ({"inject": [(Validating, "")]}, "'' is not a name of a ValidatingWebhookConfiguration"),
]


@pytest.mark.parametrize(("options", "text"), OPTIONS)
def test_options_that_cannot_be_used_are_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        managed(None, **options)


def test_mistakes_are_named() -> None:
    with pytest.raises(TypeError, match="give a pair of kind and name"):
        managed(None, inject=["widgets"])
    with pytest.raises(TypeError, match="give a list of pairs"):
        managed(None, inject="widgets")
    for single in [(Validating, "a"), MutableObject.new(Validating, "a")]:
        with pytest.raises(TypeError, match="give a list, inject="):
            managed(None, inject=single)
    with pytest.raises(TypeError, match="is not a client"):
        managed(object())
    with pytest.raises(ValueError, match=r"Secret is not known: give .*namespace=…"):
        ManagedCertificates(SERVICE, SECRET)
    with pytest.raises(RuntimeError, match=r"has no client: give it to a WebhookServer"):
        managed(None).run(StopSignal())
    with pytest.raises(OSError, match="it has not started yet"):
        managed(None).pair()


def test_a_manager_gives_them_its_client_clock_and_metrics(
    server: APIServer, client: Client
) -> None:
    client.create(configuration())
    source = ManagedCertificates(
        SERVICE, SECRET, namespace=NAMESPACE, inject=[(Validating, "widgets")]
    )
    metrics = Metrics()
    hooks = WebhookServer("127.0.0.1:0", certificates=source)
    manager = Manager(ClientConfig(server=server.url), metrics=metrics, webhook_server=hooks)
    with running(manager):
        assert source.health().is_ready
        assert hooks.health().is_ready
        assert bundle_of(client) == source.ca_bundle()
    name = "managed_certificates_rotations_total"
    assert metrics.value(name, secret="widgets/hooks-tls", certificate="ca") == 1.0
