from __future__ import annotations

import logging
import os
import socket
import ssl
import tempfile
import threading

import pytest

from appsdk_operator import client as c
from appsdk_operator.client._transport import tls
from appsdk_operator.client._transport.tls import tls_failure
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, event, make_pair, widget


def get(client):
    return client.get(WIDGET, "a", namespace="x")


def rewrite(path, content):
    """Write a file, with another time than before also where the clock of files is coarse."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 1_000_000, before + 1_000_000))


def test_a_server_of_the_given_ca_is_trusted(serve, connect, authority, tmp_path):
    server = serve(answer(widget()), context=authority.server_context())
    assert get(connect(server, ca_data=authority.ca.cert)).name == "a"
    ca, _ = authority.ca.write(tmp_path, "ca")
    client = connect(server, ca_file=ca)
    get(client)
    get(client)
    assert server.connections == 2


def test_a_server_of_another_ca_is_not(serve, connect, authority):
    server = serve(answer(widget()), context=authority.server_context())
    with pytest.raises(c.TLSFailed, match=r"is not trusted: .*; give the cluster's CA as ca_file"):
        get(connect(server))
    assert not server.requests
    assert server.connections == 1


def test_no_check_is_made_only_when_that_is_asked_for(serve, connect, authority):
    server = serve(answer(widget()), context=authority.server_context())
    assert get(connect(server, unsafe_skip_tls_verify=True)).name == "a"


def test_the_name_in_the_certificate_has_to_fit(serve, connect, authority):
    other = make_pair("other", issuer=authority.ca, names=("other.test",))
    server = serve(answer(widget()), context=authority.server_context(pair=other))
    with pytest.raises(c.TLSFailed, match="set tls_server_name"):
        get(connect(server, ca_data=authority.ca.cert))
    got = get(connect(server, ca_data=authority.ca.cert, tls_server_name="other.test"))
    assert got.name == "a"


def test_the_other_name_is_asked_for_in_the_handshake(serve, connect, authority):
    names = []
    context = authority.server_context()
    context.sni_callback = lambda sock, name, ctx: names.append(name)
    server = serve(answer(widget()), context=context)
    get(connect(server, ca_data=authority.ca.cert, tls_server_name="api.test"))
    assert names == ["api.test"]


def test_an_expired_certificate_is_named_as_such(serve, connect, authority):
    old = make_pair("old", issuer=authority.ca, names=("127.0.0.1",), days=(-3, -2))
    server = serve(answer(widget()), context=authority.server_context(pair=old))
    with pytest.raises(c.TLSFailed, match="has expired: renew it"):
        get(connect(server, ca_data=authority.ca.cert))


def test_a_server_without_tls_is_named_as_such(connect):
    listener = socket.create_server(("127.0.0.1", 0))

    def talk_http():
        sock, _ = listener.accept()
        sock.recv(65536)
        sock.sendall(answer(b"Client sent a TLS request to an HTTP server", 400))
        sock.close()

    thread = threading.Thread(target=talk_http)
    thread.start()
    with pytest.raises(c.TLSFailed, match="does not speak TLS on this port"):
        get(connect(f"https://127.0.0.1:{listener.getsockname()[1]}"))
    thread.join(10)
    listener.close()


def test_a_server_that_hangs_up_in_the_handshake_is_an_error(connect):
    listener = socket.create_server(("127.0.0.1", 0))

    def hang_up():
        sock, _ = listener.accept()
        sock.recv(65536)  # without it, closing would be a reset
        sock.close()

    thread = threading.Thread(target=hang_up)
    thread.start()
    with pytest.raises(c.ConnectFailed, match="broke off the TLS handshake"):
        get(connect(f"https://127.0.0.1:{listener.getsockname()[1]}", max_retries=0))
    thread.join(10)
    listener.close()


def test_a_server_that_is_silent_in_the_handshake_is_given_up(connect):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = connect(
            f"https://127.0.0.1:{listener.getsockname()[1]}", connect_timeout=0.05, max_retries=0
        )
        with pytest.raises(c.ConnectFailed, match="did not finish the TLS handshake"):
            get(client)


@pytest.mark.parametrize("form", ["files", "data", "one file"])
def test_a_client_certificate_says_who_we_are(serve, connect, authority, tmp_path, form):
    peers = []

    def reply(sock, request):
        peers.append(dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"])
        sock.sendall(answer(widget()))

    server = serve(reply, context=authority.server_context(ask_client=True))
    pair = authority.client
    cert, key = pair.write(tmp_path, "client")
    if form == "files":
        options = {"cert_file": cert, "key_file": key}
    elif form == "data":
        options = {"cert_data": pair.cert, "key_data": pair.key}
    else:
        cert.write_bytes(pair.cert + pair.key)
        options = {"cert_file": cert}
    get(connect(server, ca_data=authority.ca.cert, **options))
    assert peers == ["jane"]


@pytest.mark.parametrize("memory", ["shown", "hidden", "forbidden"])
def test_a_certificate_as_data_needs_no_folder_where_files_can_be_in_memory(
    serve, connect, authority, tmp_path, monkeypatch, memory
):
    server = serve(answer(widget()), context=authority.server_context(ask_client=True))
    pair = authority.client
    client = connect(server, ca_data=authority.ca.cert, cert_data=pair.cert, key_data=pair.key)
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    if memory == "hidden":
        monkeypatch.setattr(tls, "_OPEN_FILES", tmp_path / "nowhere")
    elif memory == "forbidden":
        monkeypatch.setattr(
            os, "memfd_create", lambda _name: os.open(tmp_path / "nowhere", os.O_RDONLY)
        )
    if memory == "shown":
        get(client)
        return
    with pytest.raises(c.ConfigError, match=r"set \$TMPDIR to a folder that can be written"):
        get(client)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    get(client)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]


def test_a_missing_client_certificate_is_named(serve, connect, authority):
    server = serve(answer(widget()), context=authority.server_context(ask_client=True))
    # In TLS 1.3 the refusal comes with the first read after the handshake.
    with pytest.raises(c.TLSFailed, match="check the client certificate") as caught:
        get(connect(server, ca_data=authority.ca.cert))
    assert caught.value.sent


def test_rotated_files_are_picked_up_and_half_rotated_ones_are_not(
    serve, connect, authority, tmp_path, caplog
):
    peers = []

    def reply(sock, request):
        peers.append(dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"])
        sock.sendall(answer(widget(), close=True))
        return False

    server = serve(reply, context=authority.server_context(ask_client=True))
    cert, key = authority.client.write(tmp_path, "client")
    client = connect(server, ca_data=authority.ca.cert, cert_file=cert, key_file=key)
    get(client)
    fresh = make_pair("john", issuer=authority.ca)
    rewrite(cert, fresh.cert)
    caplog.set_level(logging.WARNING, "appsdk_operator.client")
    for _ in range(3):
        get(client)
    assert caplog.text.count("could not renew the TLS certificates") == len(caplog.records) == 1
    rewrite(key, fresh.key)
    get(client)
    cert.unlink()
    get(client)
    get(client)
    assert len(caplog.records) == 2
    assert peers == [*["jane"] * 4, *["john"] * 3]


def test_idle_connections_of_a_former_certificate_are_not_used_again(
    serve, connect, authority, tmp_path
):
    server = serve(answer(widget()), context=authority.server_context(ask_client=True))
    cert, key = authority.client.write(tmp_path, "client")
    client = connect(server, ca_data=authority.ca.cert, cert_file=cert, key_file=key)
    get(client)
    fresh = make_pair("john", issuer=authority.ca)
    rewrite(cert, fresh.cert)
    rewrite(key, fresh.key)
    get(client)
    assert server.connections == 2


def test_a_connection_is_of_the_certificate_that_it_was_made_with(
    serve, connect, authority, tmp_path, monkeypatch
):
    peers = []

    def reply(sock, request):
        peers.append(dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"])
        sock.sendall(answer(widget()))

    server = serve(reply, context=authority.server_context(ask_client=True))
    cert, key = authority.client.write(tmp_path, "client")
    client = connect(server, ca_data=authority.ca.cert, cert_file=cert, key_file=key)
    fresh, resolve = make_pair("john", issuer=authority.ca), socket.getaddrinfo

    def rotate_and_resolve(*args, **options):
        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        rewrite(cert, fresh.cert)
        rewrite(key, fresh.key)
        return resolve(*args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", rotate_and_resolve)
    for _ in range(3):
        get(client)
    assert peers == ["jane", "john", "john"]
    assert server.connections == 2


def test_an_idle_connection_is_closed_when_its_certificate_cannot_be_had(
    serve, connect, authority, monkeypatch
):
    server = serve(answer(widget()), context=authority.server_context())
    client = connect(server, ca_data=authority.ca.cert)
    get(client)
    [idle] = client._transport._pool._idle

    def fail(*_):
        raise c.ConfigError("there is no memory file")

    monkeypatch.setattr(tls.TLSContexts, "numbered", fail)
    with pytest.raises(c.ConfigError, match="there is no memory file"):
        get(client)
    assert idle.is_stale()
    assert not client._transport._pool._idle


def test_a_certificate_that_its_credentials_renew_is_shown_by_a_new_connection(
    serve, connect, authority, caplog
):
    peers = []

    def reply(sock, request):
        peers.append(dict(pair[0] for pair in sock.getpeercert()["subject"])["commonName"])
        sock.sendall(answer(widget()))
        return True

    class Renewed(c.Credentials):
        def obtain(self, stop):
            return c.Credential(certificate=shown[0])

    server = serve(reply, context=authority.server_context(ask_client=True))
    john = make_pair("john", issuer=authority.ca)
    client = connect(server, ca_data=authority.ca.cert, credentials=Renewed())
    shown = [
        (authority.client.cert, authority.client.key),
        (authority.client.cert, authority.client.key),
        (john.cert, john.key),
        (b"junk", b"junk"),
    ]
    while shown:
        get(client)
        del shown[0]
    assert peers == ["jane", "jane", "john", "john"]
    assert server.connections == 2
    assert "could not renew the TLS certificates; the former ones stay in use" in caplog.text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"ca_file": "/nowhere"}, "/nowhere cannot be used"),
        ({"ca_data": "junk"}, "in ca_data cannot be used"),
        ({"cert_file": "/nowhere"}, "certificate /nowhere"),
        ({"cert_data": "junk"}, "in cert_data cannot be used"),
        ({"ca_file": "/dev/zero"}, "/dev/zero is not a regular file"),
        ({"cert_file": "/dev/zero"}, "/dev/zero is not a regular file"),
    ],
)
def test_certificates_that_cannot_be_used_are_named(connect, options, text):
    with pytest.raises(c.ConfigError, match=text):
        get(connect("https://127.0.0.1:1", **options))


def test_a_key_with_a_password_is_refused_instead_of_asking_on_the_terminal(connect, authority):
    from cryptography.hazmat.primitives import serialization

    locked = authority.client.private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"pw"),
    )
    with pytest.raises(c.ConfigError, match="must have no password"):
        get(connect("https://127.0.0.1:1", cert_data=authority.client.cert, key_data=locked))


def test_a_watch_over_tls_brings_many_records_in_one_batch(serve, connect, authority):
    lines = [event("x" * 100 + str(n)) for n in range(2000)]
    sent = threading.Event()

    def reply(sock, request):
        sock.sendall(CHUNKED)
        for line in lines:
            sock.sendall(chunk(line))
        sent.set()
        sock.sendall(b"0\r\n\r\n")

    server = serve(reply, context=authority.server_context())
    client = connect(server, ca_data=authority.ca.cert)
    with client.watch(WIDGET) as stream:
        assert sent.wait(10)
        batches = list(stream)
    assert [line + b"\n" for batch in batches for line in batch] == lines
    assert len(batches) < 200


def test_closing_wakes_a_reader_over_tls(serve, connect, authority):
    server = serve(answer(b""), context=authority.server_context())

    def reply(sock, request):
        sock.sendall(CHUNKED + chunk(event()))
        return server.hang(sock, request)

    server.replies = [reply]
    stream = connect(server, ca_data=authority.ca.cert).watch(WIDGET)
    first = threading.Event()

    def read():
        for _ in stream:
            first.set()

    thread = threading.Thread(target=read)
    thread.start()
    assert first.wait(10)
    stream.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_silent_watch_over_tls_is_taken_for_dead(serve, connect, authority):
    server = serve(answer(b""), context=authority.server_context())

    def reply(sock, request):
        sock.sendall(CHUNKED)
        return server.hang(sock, request)

    server.replies = [reply]
    client = connect(server, ca_data=authority.ca.cert)
    with client.watch(WIDGET, silence_limit=0.05) as stream, pytest.raises(c.WatchSilent):
        list(stream)


def test_large_bodies_go_both_ways_over_tls(serve, connect, authority):
    def echo(sock, request):
        sock.sendall(answer(request.body))

    server = serve(echo, context=authority.server_context())
    body = bytes(range(256)) * 8000
    client = connect(server, ca_data=authority.ca.cert)
    assert client.request("POST", "/x", body=body) == body


def test_handshake_errors_have_a_remedy_for_each_side():
    error = ssl.SSLError(1, "x")
    error.reason = "TLSV13_ALERT_CERTIFICATE_REQUIRED"
    assert "check the client certificate" in str(tls_failure("it", error))
    error.reason = "NO_SHARED_CIPHER"
    assert "TLS versions" in str(tls_failure("it", error))


# -- proxies ----------------------------------------------------------------------------------
def test_tls_goes_through_an_http_proxy(serve, connect, proxies, authority):
    server = serve(answer(widget()), context=authority.server_context())
    proxy = proxies()
    client = connect(
        server, ca_data=authority.ca.cert, proxy_url=f"http://me:pw@127.0.0.1:{proxy.port}"
    )
    assert get(client).name == "a"
    [asked] = proxy.requests
    assert (asked.method, asked.target) == ("CONNECT", f"127.0.0.1:{server.port}")
    assert asked.header("Proxy-Authorization") == "Basic bWU6cHc="
    assert server.requests[0].header("Proxy-Authorization") is None
    client.close()


def test_tls_goes_inside_the_tls_of_an_https_proxy(
    serve, connect, proxies, authority, tmp_path, monkeypatch
):
    ca, _ = authority.ca.write(tmp_path, "ca")
    monkeypatch.setenv("SSL_CERT_FILE", str(ca))
    lines = [event(str(n)) for n in range(100)]
    server = serve(
        CHUNKED + b"".join(map(chunk, lines)) + b"0\r\n\r\n", context=authority.server_context()
    )
    proxy = proxies(context=authority.server_context())
    client = connect(server, ca_data=authority.ca.cert, proxy_url=f"https://127.0.0.1:{proxy.port}")
    with client.watch(WIDGET) as stream:
        assert sum(map(len, stream)) == 100
    client.close()


def test_plain_requests_name_the_server_to_the_proxy(serve, connect):
    proxy = serve(answer(widget()))
    client = connect("http://api.test:8080/p", proxy_url=f"http://me:pw@127.0.0.1:{proxy.port}")
    assert get(client).name == "a"
    [request] = proxy.requests
    assert request.target.startswith("http://api.test:8080/p/apis/example.com")
    assert request.header("Host") == "api.test:8080"
    assert request.header("Proxy-Authorization") == "Basic bWU6cHc="


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"HTTP/1.1 407 Auth\r\n\r\n", "give user and password in proxy_url"),
        (b"HTTP/1.1 403 No\r\n\r\n", "put the server into no_proxy"),
        (b"junk\r\n\r\n", "no proper answer"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "the server sent more than one answer"),
        (b"x" * 70_000, "no proper answer"),
    ],
)
def test_a_proxy_that_refuses_is_named(serve, connect, reply, text):
    proxy = serve(reply)
    client = connect("https://api.test", proxy_url=f"http://127.0.0.1:{proxy.port}", max_retries=0)
    with pytest.raises(c.ProxyFailed, match=text):
        get(client)


def test_a_proxy_that_hangs_up_or_is_not_there_is_named(serve, connect, refusing_port):
    def hang_up(sock, request):
        return False

    for port in (serve(hang_up).port, refusing_port):
        client = connect("https://api.test", proxy_url=f"http://127.0.0.1:{port}", max_retries=0)
        with pytest.raises(c.ProxyFailed, match=f"the proxy http://127.0.0.1:{port}"):
            get(client)


@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "127.0.0.0/8", "*"])
def test_loopback_is_reached_without_the_proxy_if_no_proxy_says_so(
    serve, connect, refusing_port, no_proxy
):
    server = serve(answer(widget()))
    proxy = f"http://127.0.0.1:{refusing_port}"
    assert get(connect(server, proxy_url=proxy, no_proxy=[no_proxy])).name == "a"
    with pytest.raises(c.ProxyFailed, match=proxy):
        get(connect(server, proxy_url=proxy, max_retries=0))
