"""TLS: certificates in files that change, certificates made on the spot, and who may connect."""

from __future__ import annotations

import builtins
import contextlib
import datetime as dt
import errno
import itertools
import logging
import math
import os
import ssl
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.manager import HTTPResponse, HTTPServer, TLSOptions
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.serving import CertificateFiles, KeyPair, SelfSigned

READS = "certwatcher_read_certificate_total"
ERRORS = "certwatcher_read_certificate_errors_total"


def certificate(name: str, password: bytes = b"") -> tuple[bytes, bytes]:
    """Certificate and key in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName(name), x509.DNSName("localhost")]
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encryption: Any = serialization.NoEncryption()
    if password:
        encryption = serialization.BestAvailableEncryption(password)
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, encryption)
    return made.public_bytes(pem), secret


_stamps = itertools.count(1)


def put(path: Path, data: bytes) -> None:
    """Write in place; the time stamp moves on also where the file system's is coarse."""
    path.write_bytes(data)
    os.utime(path, (1_700_000_000, 1_700_000_000 + next(_stamps)))


class Files:
    """A pair of files."""

    def __init__(self, folder: Path, name: str = "one") -> None:
        self.folder = folder
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.write(*certificate(name))

    def write(self, cert: bytes, key: bytes) -> None:
        put(self.cert, cert)
        put(self.key, key)

    def pair(self, **options: Any) -> CertificateFiles:
        return CertificateFiles(self.cert, self.key, **options)

    def tls(self, **options: Any) -> TLSOptions:
        return TLSOptions(cert_file=self.cert, key_file=self.key, **options)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def make(tls: TLSOptions, **options: Any) -> HTTPServer:
    options.setdefault("metrics", Metrics())
    server = HTTPServer("127.0.0.1:0", name="secure", tls=tls, **options)
    server.add_handler(
        "/",
        lambda r: HTTPResponse(body=str((r.client_certificate or {}).get("subject")).encode()),
    )
    return server


def trusting(*authorities: bytes) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=b"".join(authorities).decode())
    context.check_hostname = False
    return context


def name_shown(served: Any, *authorities: bytes) -> str:
    """The common name of the certificate that a new connection gets."""
    with served.connect() as raw, trusting(*authorities).wrap_socket(raw) as secure:
        found = secure.getpeercert()
    assert found
    return dict(part[0] for part in found["subject"])["commonName"]  # type: ignore[misc, no-any-return]


# -- a server with certificates --------------------------------------------------------------------


def test_a_server_without_files_makes_a_certificate_that_can_be_verified(serve: Any) -> None:
    server = make(TLSOptions())
    assert server.url.startswith("https://127.0.0.1:")
    served = serve(server)
    context = ssl.create_default_context(cadata=server.certificates.pem.decode())  # type: ignore[union-attr]
    assert served.get(context=context).text == "None"
    with pytest.raises(ssl.SSLCertVerificationError):
        served.get(context=ssl.create_default_context())


def test_without_cryptography_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args)

    for name in [name for name in sys.modules if name.startswith("cryptography")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"appsdk-operator\[webhooks\]', or give it files"):
        make(TLSOptions())


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux' own")
def test_a_certificate_is_made_where_no_file_can_be_written(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(**options: Any) -> Any:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "TemporaryDirectory", read_only)
    server = make(TLSOptions())
    context = ssl.create_default_context(cadata=server.certificates.pem.decode())  # type: ignore[union-attr]
    assert serve(server).get(context=context).status == 200


def test_the_key_of_a_self_made_certificate_is_on_disk_for_a_moment_and_private(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    modes: list[int] = []
    real = ssl.SSLContext.load_cert_chain

    def look(self: ssl.SSLContext, path: Path, *args: Any, **options: Any) -> None:
        modes.extend([path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777])
        real(self, path, *args, **options)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", look)
    make(TLSOptions()).close()
    assert modes == [0o600, 0o700]


def test_plain_http_on_a_tls_port_gets_400_and_noise_is_cut_off(serve: Any) -> None:
    served = serve(make(TLSOptions()))
    answer = served.talk(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"use https://" in answer
    served.talk(b"\x16\x03\x01\x00\x05hello")


def test_old_tls_is_not_spoken(serve: Any, files: Files) -> None:
    served = serve(make(files.tls(minimum_version="TLSv1.3")))
    context = trusting(files.cert.read_bytes())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError), served.connect() as raw:
        context.wrap_socket(raw).close()
    assert make_context(TLSOptions()).minimum_version == ssl.TLSVersion.TLSv1_2


def make_context(options: TLSOptions) -> ssl.SSLContext:
    with contextlib.closing(make(options)) as server:
        context = server.server_context()
        assert context is not None
        return context


def test_with_a_client_authority_only_its_clients_are_served(
    serve: Any, files: Files, tmp_path: Path
) -> None:
    authority, key = certificate("scraper")
    put(tmp_path / "ca.crt", authority)
    (tmp_path / "client.pem").write_bytes(authority + key)
    served = serve(make(files.tls(client_ca_file=tmp_path / "ca.crt")))
    context = trusting(files.cert.read_bytes())
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.get(context=context)
    context.load_cert_chain(tmp_path / "client.pem")
    assert "scraper" in served.get(context=context).text


def test_a_silent_client_in_the_handshake_is_given_up(
    serve: Any, files: Files, eventually: Callable[..., None]
) -> None:
    clock = ManualClock()
    server = make(files.tls(), clock=clock)
    served = serve(server)
    with served.connect() as client:
        client.sendall(b"\x16\x03\x01")
        connections = server._pool._connections
        eventually(lambda: any(isinstance(c._sock, ssl.SSLSocket) for c in connections))
        clock.advance(32.0)
        while client.recv(64):  # an alert may come first
            pass
        eventually(lambda: not len(server._pool))


def test_options_that_do_not_go_together_are_refused(files: Files) -> None:
    with pytest.raises(ValueError, match="together, or neither"):
        TLSOptions(cert_file=files.cert)
    with pytest.raises(ValueError, match=r"nowhere: \[Errno 2\].*: name a PEM file"):
        HTTPServer("127.0.0.1:0", tls=TLSOptions(client_ca_file=files.folder / "nowhere"))
    with pytest.raises(ValueError, match="poll_interval=0"):
        files.tls(poll_interval=0)
    with pytest.raises(ValueError, match="minimum_version"):
        files.tls(minimum_version="TLSv1.0")


# -- files that change -----------------------------------------------------------------------------


def test_a_new_pair_is_used_from_the_next_connection_on(serve: Any, files: Files) -> None:
    server = make(files.tls())
    served = serve(server)
    one = files.cert.read_bytes()
    assert name_shown(served, one) == "one"
    two, key = certificate("two")
    files.write(two, key)
    assert name_shown(served, one, two) == "two"


def test_the_time_until_the_certificate_expires_is_a_metric(files: Files) -> None:
    metrics = Metrics()
    served = x509.load_pem_x509_certificate(files.cert.read_bytes())
    clock = ManualClock(epoch=served.not_valid_after_utc.timestamp() - 3600.0)
    pair = files.pair(metrics=metrics, clock=clock)

    def value() -> float | None:
        return metrics.value("certwatcher_certificate_expiry_seconds", file=str(files.cert))

    assert value() == 3600.0
    clock.advance(7200.0)
    assert value() == -3600.0, "expired"
    pair.close()
    assert value() is None


@pytest.mark.parametrize("year", [1999, 2049, 2050, 2999])
def test_the_expiry_is_read_without_cryptography_in_both_forms_of_dates(year: int) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "x" * 60)])
    end = dt.datetime(year, 12, 31, 23, 59, 58, tzinfo=dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(end - dt.timedelta(days=1))
        .not_valid_after(end)
        .sign(key, hashes.SHA256())
    )
    pem = made.public_bytes(serialization.Encoding.PEM)
    assert KeyPair(b"# a comment\n" + pem, b"").expires == end.timestamp()


@pytest.mark.parametrize(
    "pem", [b"", b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----"]
)
def test_an_expiry_that_cannot_be_read_is_not_a_number(pem: bytes) -> None:
    assert math.isnan(KeyPair(pem, b"").expires)


def test_a_half_written_pair_leaves_the_old_one_in_use_and_counts_an_error(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    metrics = Metrics()
    pair = files.pair(metrics=metrics)
    assert (metrics.value(READS), metrics.value(ERRORS)) == (1.0, 0.0)
    old = pair.context()
    cert, key = certificate("two")
    put(files.cert, cert)
    with caplog.at_level(logging.ERROR):
        assert not pair.read()
        assert pair.context() is old
        assert not pair.read()
    assert (metrics.value(READS), metrics.value(ERRORS)) == (3.0, 2.0)
    assert caplog.text.count("the certificate read before stays in use") == 1
    put(files.key, key)
    assert pair.context() is not old
    assert pair.read()
    assert metrics.value(ERRORS) == 2.0
    pair.close()
    assert metrics.value(READS) == 5.0


def test_a_pair_that_is_gone_for_a_while_stays_in_use(files: Files) -> None:
    pair = files.pair(metrics=Metrics())
    old = pair.context()
    moved = files.cert.rename(files.folder / "moved")
    assert not pair.read()
    assert pair.context() is old
    moved.rename(files.cert)
    assert pair.read()
    assert pair.context() is old


def test_the_symbolic_link_that_the_kubelet_swaps_is_followed(tmp_path: Path) -> None:
    for number in ("1", "2"):
        (tmp_path / f"..{number}").mkdir()
        Files(tmp_path / f"..{number}", name=number)
    (tmp_path / "..data").symlink_to("..1")
    for name in ("tls.crt", "tls.key"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    pair = CertificateFiles(tmp_path / "tls.crt", tmp_path / "tls.key", metrics=Metrics())
    old = pair.context()
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").rename(tmp_path / "..data")
    assert pair.context() is not old


@pytest.mark.parametrize("error", [RuntimeError, SystemExit])
def test_the_poll_finds_changed_files_and_calls_the_callbacks(
    error: type[BaseException],
    files: Files,
    eventually: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, stop, metrics = ManualClock(), StopSignal(), Metrics()
    pair = files.pair(clock=clock, metrics=metrics)
    called: list[str] = []
    told = threading.Event()

    def broken() -> None:
        if called:
            raise error("a callback that fails")

    pair.on_change(broken)
    pair.on_change(lambda: (called.append(threading.current_thread().name), told.set()))  # type: ignore[func-returns-value]
    assert called == ["MainThread"]
    told.clear()
    watcher = threading.Thread(target=pair.run, args=(stop,), name="watcher")
    watcher.start()
    clock.block_until_waiting(1)
    clock.advance(10.0)
    eventually(lambda: metrics.value(READS) == 2.0)
    assert called == ["MainThread"]
    files.write(*certificate("two"))
    clock.block_until_waiting(1)
    clock.advance(10.0)
    assert told.wait(10)
    # A connection that reads first has the thread of run tell it.
    told.clear()
    files.write(*certificate("three"))
    pair.context()
    assert told.wait(10)
    stop.set()
    watcher.join()
    assert called == ["MainThread", "watcher", "watcher"]
    assert "a callback for a new certificate failed" in caplog.text


PAIRS = [certificate(f"pair-{number}") for number in range(3)]
STEPS = st.lists(
    st.tuples(st.sampled_from(["cert", "key"]), st.sampled_from([0, 1, 2, None])), max_size=12
)


@given(STEPS)
@settings(deadline=None)
def test_after_writes_in_any_order_the_last_matching_pair_is_in_use(
    steps: list[tuple[str, int | None]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = Files(Path(folder))
        files.write(*PAIRS[0])
        metrics = Metrics()
        pair = files.pair(metrics=metrics)
        there: dict[str, int | None] = {"cert": 0, "key": 0}
        used, context, errors = 0, pair.context(), 0
        for name, number in steps:
            path = files.cert if name == "cert" else files.key
            if number is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(PAIRS[number][0 if name == "cert" else 1])
            there[name] = number
            fits = there["cert"] is not None and there["cert"] == there["key"]
            errors += not fits
            assert pair.read() == fits
            if fits and there["cert"] != used:
                used = there["cert"] or 0
                assert pair.context() is not context
                context = pair.context()
            assert pair.context() is context
        assert metrics.value(ERRORS) == errors
        assert pair._contents[0] == PAIRS[used][0]


def test_a_new_client_authority_is_picked_up(serve: Any, files: Files, tmp_path: Path) -> None:
    authorities = []
    for number, name in enumerate(("first", "second")):
        cert, key = certificate(name)
        authorities.append(cert)
        (tmp_path / f"client-{number}.pem").write_bytes(cert + key)
    put(tmp_path / "ca.crt", authorities[0])
    served = serve(make(files.tls(client_ca_file=tmp_path / "ca.crt")))
    context = trusting(files.cert.read_bytes())
    context.load_cert_chain(tmp_path / "client-1.pem")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.get(context=context)
    put(tmp_path / "ca.crt", authorities[1] + b"\n")
    assert "second" in served.get(context=context).text


def test_files_that_cannot_be_used_are_an_error_at_construction(files: Files) -> None:
    missing = files.folder / "missing"
    with pytest.raises(ValueError, match=r"\[Errno 2\].*missing': check that the files are there"):
        CertificateFiles(missing, files.key)
    with pytest.raises(ValueError, match="cannot use the certificate"):
        make(TLSOptions(cert_file=missing, key_file=files.key))
    put(files.key, certificate("other")[1])
    with pytest.raises(ValueError, match="belong together"):
        files.pair()
    files.write(*certificate("locked", b"password"))
    with pytest.raises(ValueError, match="store it without one"):
        files.pair()


# -- sources of certificates -----------------------------------------------------------------------


class Source:
    """Shows whatever pair it was given last."""

    def __init__(self, *pair: bytes) -> None:
        self.now: KeyPair | None = KeyPair(*pair) if pair else None
        self.calls: list[str] = []
        self.failure: Exception | None = None

    def pair(self) -> KeyPair:
        if self.failure is not None:
            raise self.failure
        if self.now is None:
            raise OSError("none yet")
        return self.now

    def run(self, stop: StopSignal, /) -> None:
        self.calls.append("run")
        stop.wait()

    def close(self) -> None:
        self.calls.append("close")


def of_source(source: Any, **options: Any) -> HTTPServer:
    server = HTTPServer("127.0.0.1:0", certificates=source, metrics=Metrics(), **options)
    server.add_handler("/", lambda _: HTTPResponse(body=b"hello"))
    return server


def test_a_server_shows_the_newest_pair_of_its_source(serve: Any) -> None:
    one, two = certificate("one"), certificate("two")
    source = Source(*one)
    served = serve(of_source(source))
    assert name_shown(served, one[0], two[0]) == "one"
    source.now = KeyPair(*two)
    assert name_shown(served, one[0], two[0]) == "two"
    served.end()
    assert source.calls == ["run", "close"]


def test_without_a_pair_connections_end_until_there_is_one(serve: Any) -> None:
    source = Source()
    served = serve(of_source(source))
    one = certificate("one")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        name_shown(served, one[0])
    source.now = KeyPair(*one)
    assert name_shown(served, one[0]) == "one"


def test_a_pair_that_cannot_be_used_leaves_the_one_before_in_use(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = certificate("one"), certificate("two")
    source = Source(*one)
    served = serve(of_source(source))
    for pair in [(two[0], one[1]), (b"garbage", b"garbage"), certificate("locked", b"password")]:
        source.now = KeyPair(*pair)
        caplog.clear()
        for _ in range(2):
            assert name_shown(served, one[0]) == "one"
        assert caplog.text.count("; the one before stays in use") == 1
        assert "PRIVATE KEY" not in caplog.text
    with pytest.raises(ValueError, match="the http server cannot use its certificate"):
        of_source(Source(two[0], one[1]))


def test_a_pair_that_could_not_be_loaded_for_a_moment_is_loaded_later(
    serve: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As while the process has no file descriptor left."""
    one, two = certificate("one"), certificate("two")
    source = Source(*one)
    served = serve(of_source(source))
    with monkeypatch.context() as patched:
        for number in (errno.EMFILE, errno.ENFILE, errno.ENOSPC):

            def fail(*_: object, number: int = number) -> None:
                raise OSError(number, os.strerror(number))

            patched.setattr(KeyPair, "load_into", fail)
            source.now = KeyPair(*two)
            assert name_shown(served, one[0]) == "one"
            assert name_shown(served, one[0]) == "one"
    assert caplog.text.count("; the one before stays in use") == 1
    assert name_shown(served, one[0], two[0]) == "two"


def test_a_source_that_fails_costs_a_connection_and_not_the_server(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = certificate("one")
    source = Source(*one)
    served = serve(of_source(source))
    source.failure = KeyError("a mistake")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        name_shown(served, one[0])
    assert "the source of the http server's certificate failed" in caplog.text
    source.failure = None
    assert name_shown(served, one[0]) == "one"


SOURCES: dict[str, Callable[[Files], Any]] = {
    "files": lambda files: files.pair(metrics=Metrics()),
    "self-signed": lambda _: SelfSigned(),
    "own": lambda _: Source(*certificate("own")),
}


@pytest.mark.parametrize("kind", SOURCES)
def test_client_authority_and_oldest_version_hold_for_each_source(
    kind: str, serve: Any, files: Files, tmp_path: Path
) -> None:
    authority, key = certificate("apiserver")
    put(tmp_path / "ca.crt", authority)
    (tmp_path / "client.pem").write_bytes(authority + key)
    (tmp_path / "other.pem").write_bytes(b"".join(certificate("other")))
    source = SOURCES[kind](files)
    tls = TLSOptions(client_ca_file=tmp_path / "ca.crt", minimum_version="TLSv1.3")  # type: ignore[arg-type]
    served = serve(of_source(source, tls=tls))
    trusted = source.pair().certificate
    for wrong in (None, "other.pem"):
        context = trusting(trusted)
        if wrong:
            context.load_cert_chain(tmp_path / wrong)
        with pytest.raises((ssl.SSLError, ConnectionError)):
            served.get(context=context)
    context = trusting(trusted)
    context.load_cert_chain(tmp_path / "client.pem")
    assert served.get(context=context).text == "hello"
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.get(context=context)
    # The authorities change; the source does not.
    put(tmp_path / "ca.crt", (tmp_path / "other.pem").read_bytes())
    context = trusting(trusted)
    context.load_cert_chain(tmp_path / "other.pem")
    assert served.get(context=context).text == "hello"


def test_the_newest_version_that_both_speak_is_used(serve: Any) -> None:
    one = certificate("one")
    served = serve(of_source(Source(*one)))
    for limit, spoken in [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (None, "TLSv1.3")]:
        context = trusting(one[0])
        if limit:
            context.maximum_version = limit
        with served.connect() as raw, context.wrap_socket(raw) as secure:
            assert secure.version() == spoken


def test_files_as_a_source_bring_their_own_client_authority(
    serve: Any, files: Files, tmp_path: Path
) -> None:
    put(tmp_path / "ca.crt", certificate("apiserver")[0])
    source = CertificateFiles(
        files.cert, files.key, client_ca_file=tmp_path / "ca.crt", metrics=Metrics()
    )
    served = serve(of_source(source))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.get(context=trusting(files.cert.read_bytes()))
    with pytest.raises(ValueError, match=r"ca\.crt of the certificates and tls without it"):
        of_source(source, tls=TLSOptions())


def test_a_source_and_files_together_are_refused(files: Files) -> None:
    with pytest.raises(ValueError, match="give the one or the other"):
        of_source(SelfSigned(), tls=files.tls())
    for wrong in (object(), "tls.crt", SelfSigned):
        with pytest.raises(TypeError, match="is not a source of certificates: give an object"):
            of_source(wrong)


def test_a_self_signed_certificate_is_for_the_names_given(serve: Any) -> None:
    source = SelfSigned("hooks.example.test", "10.1.2.3", lifetime=3600)
    assert "hooks.example.test" in source.names
    served = serve(of_source(source))
    context = ssl.create_default_context(cadata=source.pem.decode())
    with (
        served.connect() as raw,
        context.wrap_socket(raw, server_hostname="hooks.example.test") as secure,
    ):
        found = secure.getpeercert()
    assert found is not None
    assert ("IP Address", "10.1.2.3") in found["subjectAltName"]
    assert "PRIVATE" not in repr(source) + repr(source.pair())
    for names, options, text in [
        ([""], {}, "one is empty"),
        (["ü.test"], {}, "use a DNS name in ASCII"),
        ([], {"lifetime": 0}, "lifetime=0"),
        ([], {"lifetime": float("nan")}, "lifetime=nan"),
        ([], {"lifetime": float("inf")}, "after the year 9999"),
        ([], {"lifetime": 1e12}, "after the year 9999"),
    ]:
        with pytest.raises(ValueError, match=text):
            SelfSigned(*names, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("names", "options", "text"),
    [
        ([["a.test"]], {}, "give names one by one, as in SelfSigned"),
        ([("a.test", "b.test")], {}, "give names one by one"),
        ([None], {}, "give names one by one"),
        ([], {"lifetime": "3600"}, "give seconds as a number"),
        ([], {"clock": 3}, "clock=3 is not of type Clock"),
    ],
    ids=str,
)
def test_arguments_of_another_type_are_refused_with_what_to_give(
    names: list[Any], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(TypeError, match=text):
        SelfSigned(*names, **options)


def test_the_former_name_of_certificate_files_works() -> None:
    assert CertificateFiles is CertificateFiles
