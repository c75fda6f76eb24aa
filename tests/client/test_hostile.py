"""Servers and proxies that break HTTP's rules, or never come to an end."""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import socket
import ssl
import threading
import tracemalloc

import pytest

from appsdk_operator import client as c
from appsdk_operator.client._transport import connection as connections
from appsdk_operator.client._transport.connection import Connection
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, event, failure, widget

INTERIM = [b"HTTP/1.1 %d Wait\r\nLink: </x>\r\n\r\n" % n for n in (100, 102, 103, 199)]
# What drips has to be far from its end when the time is up, also where the reader is kept from the
# processor for seconds.
LONG = b"b" * 10_000


def get(client, name="a"):
    return client.get(WIDGET, name, namespace="x")


def named(request, **more):
    """The answer that is meant for the request."""
    return answer(widget(request.target.rpartition("/")[2]), **more)


def drip(server, data, *, pause=0.002):
    """Sends its bytes one by one, the last one for ever."""

    def reply(sock, request):
        for i in range(1_000_000):
            sock.sendall(data[i : i + 1] or data[-1:])
            if server.closing.wait(pause):
                break
        return False

    return reply


# -- interim answers --------------------------------------------------------------------------


@pytest.mark.parametrize("interim", [*INTERIM, b"".join(INTERIM)])
def test_interim_answers_are_read_past(serve, connect, interim):
    def reply(sock, request):
        sock.sendall(interim)
        sock.sendall(named(request))

    server = serve(reply)
    client = connect(server)
    names = [f"w{i}" for i in range(5)]
    assert [get(client, name).name for name in names] == names
    assert server.connections == 1


def test_an_interim_answer_may_come_in_pieces_and_together_with_the_final_one(serve, connect):
    def reply(sock, request):
        data = INTERIM[2] + named(request)
        for i in range(len(data)):
            sock.sendall(data[i : i + 1])

    client = connect(serve(reply))
    assert [get(client, name).name for name in "abc"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\n\r\n" + answer(widget()), "the protocol"),
        (INTERIM[0] * 17 + answer(widget()), "more than 16 interim answers"),
    ],
)
def test_a_change_of_protocol_and_interim_answers_without_end_are_refused(
    serve, connect, reply, text
):
    server = serve(reply)
    client = connect(server, max_retries=0)
    for _ in range(2):
        with pytest.raises(c.BadResponse, match=text):
            get(client)
    assert server.connections == 2


def test_a_watch_begins_after_interim_answers(serve, connect):
    server = serve(INTERIM[2] + CHUNKED + chunk(event("a")) + b"0\r\n\r\n")
    with connect(server).watch(WIDGET) as stream:
        assert [item.object.name for item in stream.events()] == ["a"]


# -- bodies -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reply",
    [
        CHUNKED + b"-1\r\n" + b"x" * 5000,
        CHUNKED + b"0x4\r\nabcd\r\n0\r\n\r\n",
        CHUNKED + b"1_0\r\n" + b"x" * 16 + b"\r\n0\r\n\r\n",
        CHUNKED + b"+4\r\nabcd\r\n0\r\n\r\n",
        CHUNKED + b"4\r\nabcdef\r\n0\r\n\r\n",
        CHUNKED + b"4\nabcd\n0\n\n" + b"x" * 300,
        CHUNKED + b"0\r\n" + b"A: b\r\n" * 4000 + b"\r\n",
        CHUNKED[:-2] + b"Content-Length: 2\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        b"HTTP/1.1 200 OK\r\nContent-Length: -2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length : 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\nContent-Length: 2\n\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        answer(b"{}", headers={"Content-Encoding": "br"}),
    ],
)
def test_an_answer_that_can_be_read_in_two_ways_is_refused(serve, connect, reply):
    server = serve(reply)
    client = connect(server, max_retries=0)
    for _ in range(2):
        with pytest.raises(c.BadResponse, match=r"HTTP|packed"):
            client.request("GET", "/x")
    assert server.connections == 2


def test_a_chunk_of_negative_size_does_not_pass_the_limit(serve, connect):
    def reply(sock, request):
        sock.sendall(CHUNKED + b"-1\r\n")
        for _ in range(64):
            sock.sendall(b"x" * (1 << 20))
        return False

    client = connect(serve(reply), max_response_bytes=1 << 20, max_retries=0)
    tracemalloc.start()
    try:
        with pytest.raises(c.BadResponse, match="not the size of a chunk"):
            client.request("GET", "/x")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_a_size_beyond_the_limit_is_refused_before_its_bytes_are_read(serve, connect):
    server = serve(CHUNKED + b"1000000\r\n")
    client = connect(server, max_response_bytes=1 << 20, max_retries=0)
    with pytest.raises(c.ResponseTooLarge, match="more than the 1048576 bytes allowed"):
        client.request("GET", "/x")


def test_what_follows_a_packed_answer_is_no_part_of_it(serve, connect):
    packed = gzip.compress(b"{}") + b"more"
    client = connect(serve(answer(packed, headers={"Content-Encoding": "gzip"})), max_retries=0)
    with pytest.raises(c.BadResponse, match="more follows"):
        client.request("GET", "/x")


@pytest.mark.parametrize("status", [204, 304])
def test_a_body_that_must_not_be_there_reaches_no_other_request(serve, connect, status):
    server = serve(answer(widget("evil"), status), named_reply)
    client = connect(server, max_retries=0)
    with contextlib.suppress(c.ApiError):
        client.request("DELETE", "/x")
    assert get(client, "b").name == "b"
    assert server.connections == 2


def named_reply(sock, request):
    sock.sendall(named(request))


def test_the_answer_to_head_has_no_body(serve, connect):
    server = serve(answer(widget("a")).partition(b"\r\n\r\n")[0] + b"\r\n\r\n", named_reply)
    client = connect(server)
    assert client.request("HEAD", "/x") == b""
    assert get(client, "b").name == "b"
    assert server.connections == 1


@pytest.mark.parametrize("secure", [False, True])
def test_what_follows_an_answer_is_no_answer(serve, connect, authority, secure):
    context = authority.server_context() if secure else None

    def more_than_an_answer(sock, request):
        sock.sendall(named(request) + answer(widget("evil")))

    server = serve(more_than_an_answer, context=context)
    client = connect(server, **({"ca_data": authority.ca.cert} if secure else {}))
    assert [get(client, name).name for name in "abc"] == ["a", "b", "c"]
    assert server.connections == 3


def test_what_follows_an_answer_later_is_no_answer(serve, connect):
    sent = threading.Event()

    def more_than_an_answer(sock, request):
        sock.sendall(named(request))
        if request.target.endswith("/a"):
            sock.sendall(answer(widget("evil")))
            sent.set()

    server = serve(more_than_an_answer)
    client = connect(server)
    assert get(client, "a").name == "a"
    assert sent.wait(10)
    assert get(client, "b").name == "b"
    assert server.connections == 2


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_takes_the_token_elsewhere(serve, connect, status):
    elsewhere = serve(answer(widget("a")))
    server = serve(answer(b"", status, headers={"Location": elsewhere.url}))
    with pytest.raises(c.ApiError, match="not followed"):
        get(connect(server, token="secret-token", max_retries=0))
    assert not elsewhere.requests


# -- requests that are answered before they were sent -------------------------------------------


def listener():
    sock = socket.create_server(("127.0.0.1", 0))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    return sock


@pytest.mark.parametrize("secure", [False, True])
def test_an_answer_that_comes_while_the_request_is_sent_is_taken(connect, authority, secure):
    sock, done = listener(), threading.Event()

    def run():
        connection, _ = sock.accept()
        if secure:
            connection = authority.server_context().wrap_socket(connection, server_side=True)
        connection.recv(100)
        # Neither read on nor closed: who does not look for the answer waits for ever.
        connection.sendall(INTERIM[0] + failure(413, "RequestEntityTooLarge"))
        done.wait(10)
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    scheme = "https" if secure else "http"
    options = {"ca_data": authority.ca.cert} if secure else {}
    client = connect(f"{scheme}://127.0.0.1:{sock.getsockname()[1]}", **options)
    with pytest.raises(c.RequestEntityTooLarge):
        client.request("POST", "/x", body=b"y" * 10_000_000)
    assert not client._transport._pool._idle
    done.set()
    thread.join(10)
    sock.close()


@pytest.mark.parametrize("secure", [False, True])
def test_an_interim_answer_does_not_end_the_sending(serve, connect, authority, secure):
    context = authority.server_context() if secure else None
    server = serve(b"", context=context)
    options = {"ca_data": authority.ca.cert} if secure else {}
    client = connect(server, **options)

    def reply(sock, request):
        sock.sendall(answer(b"%d" % len(request.body)))

    server.replies = [reply]
    original = Connection._send_request

    def interim_first(self, head, body):
        self._unread = INTERIM[0]  # as if it had come with the first look
        original(self, head, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "_send_request", interim_first)
        assert client.request("POST", "/x", body=b"y" * 3_000_000) == b"3000000"


# -- what never comes to an end -----------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nA: " + LONG,
        INTERIM[0] + b"HTTP/1.1 102 Wait\r\nA: " + LONG,
    ],
)
def test_a_head_that_drips_is_given_up(serve, connect, data):
    server = serve(b"")
    server.replies = [drip(server, data)]
    with pytest.raises(c.ReadTimeout, match=r"no answer in time .*read_timeout=0\.1 s"):
        get(connect(server, max_retries=0, read_timeout=0.1))


@pytest.mark.parametrize(
    "data",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"x",
        CHUNKED + b"FFFFF\r\n" + b"x",
        CHUNKED + b"1\r\na\r\n" * 10_000,
        CHUNKED + b"0\r\n" + b"A: b\r\n" * 2000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x",
    ],
)
def test_a_body_that_drips_is_given_up(serve, connect, data):
    def at_once_then_slowly(sock, request):
        begin = data.index(b"\r\n\r\n") + 4
        sock.sendall(data[:begin])
        return drip(server, data[begin:])(sock, request)

    server = serve(at_once_then_slowly)
    client = connect(server, max_retries=0, request_timeout=0.5)
    with pytest.raises(c.ReadTimeout, match=r"rest of the answer .*request_timeout=0\.5 s"):
        get(client)


class Unacknowledged(socket.socket):
    """A socket for which the system gives up instead of the end of the connection."""

    def recv(self, *arguments):
        data = super().recv(*arguments)
        if not data:
            raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
        return data


class Unanswered(Unacknowledged):
    """One for which it does so when connecting."""

    def connect(self, _):
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))


@pytest.fixture
def made_of(monkeypatch):
    """Has the client use sockets of another class."""
    timed = connections._TimedSocket

    def set_class(kind):
        def make(sock):
            kept = sock.family, sock.type, sock.proto
            return timed(kind(*kept, fileno=sock.detach()))

        monkeypatch.setattr(connections, "_TimedSocket", make)

    return set_class


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", ""),
        (b"HTTP/1.1 200 OK\r\n", ""),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "broke off: "),
    ],
)
def test_a_connection_that_the_system_gives_up_is_lost_and_was_not_too_slow(
    serve, connect, made_of, data, text
):
    def reply(sock, _):
        sock.sendall(data)
        return False

    server = serve(reply)
    made_of(Unacknowledged)
    with pytest.raises(
        c.ConnectionLost, match=rf"{text}\[Errno \d+\] Connection timed out"
    ) as caught:
        get(connect(server, max_retries=0))
    assert "read_timeout" not in str(caught.value)


def test_a_watch_that_the_system_gives_up_was_not_silent_for_its_limit(serve, connect, made_of):
    def reply(sock, _):
        sock.sendall(CHUNKED + chunk(event()))
        return False

    server = serve(reply)
    made_of(Unacknowledged)
    with connect(server).watch(WIDGET, silence_limit=60.0) as stream:
        next(stream)
        with pytest.raises(c.ConnectionLost, match=r"Connection timed out; resume from the last"):
            next(stream)


def test_a_server_that_the_system_cannot_reach_is_not_told_with_the_clients_time_out(
    serve, connect, made_of
):
    made_of(Unanswered)
    with pytest.raises(c.ConnectFailed, match=r"no connection to .*: Connection timed out; check"):
        get(connect(serve(b""), max_retries=0))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, r"broke off the TLS handshake: \[Errno \d+\] Connection timed out"),
        ({"proxy_url": "http://{}"}, r"the proxy .* failed: \[Errno \d+\] Connection timed out"),
    ],
)
def test_a_handshake_or_proxy_that_the_system_gives_up_was_not_too_slow(
    connect, made_of, options, text
):
    sock = listener()

    def hear_and_close():
        connection, _ = sock.accept()
        connection.recv(65536)
        connection.close()

    thread = threading.Thread(target=hear_and_close)
    thread.start()
    made_of(Unacknowledged)
    address = f"127.0.0.1:{sock.getsockname()[1]}"
    options = {key: value.format(address) for key, value in options.items()}
    with pytest.raises(c.ConnectFailed, match=text):
        get(connect(f"https://{address}", max_retries=0, **options))
    thread.join()
    sock.close()


def raw_server(data):
    """A listener that drips bytes on its only connection, whatever is asked."""
    sock, closing = listener(), threading.Event()

    def run():
        connection, _ = sock.accept()
        for i in range(1_000_000):
            try:
                connection.sendall(data[i : i + 1] or data[-1:])
            except OSError:
                break
            if closing.wait(0.002):
                break
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()

    def close():
        closing.set()
        thread.join(10)
        sock.close()

    return sock.getsockname()[1], close


def test_a_handshake_that_drips_is_given_up(connect):
    # The begin of a ServerHello that announces more than it sends.
    port, close = raw_server(b"\x16\x03\x03\x3f\xff\x02\x00\x3f\xf0\x03\x03" + bytes(1))
    client = connect(f"https://127.0.0.1:{port}", max_retries=0, connect_timeout=0.1)
    with pytest.raises(c.ConnectFailed, match="did not finish the TLS handshake in time"):
        get(client)
    close()


@pytest.mark.parametrize(
    "data",
    [b"HTTP/1.1 200 OK\r\nA: b", INTERIM[0] + b"HTTP/1.1 102 Wait\r\nA: " + LONG],
)
def test_a_proxy_that_drips_is_given_up(connect, data):
    port, close = raw_server(data)
    client = connect(
        "https://api.test",
        proxy_url=f"http://127.0.0.1:{port}",
        max_retries=0,
        connect_timeout=0.1,
    )
    with pytest.raises(c.ProxyFailed, match=r"no answer to CONNECT in 0\.1 s"):
        get(client)
    close()


@pytest.mark.parametrize("data", [b"FFFFF\r\n" + b"x", b"1\r\n\n\r\n" * 10_000])
def test_a_watch_that_drips_and_says_nothing_is_silent(serve, connect, data):
    def at_once_then_slowly(sock, request):
        sock.sendall(CHUNKED)
        return drip(server, data)(sock, request)

    server = serve(at_once_then_slowly)
    with (
        connect(server).watch(WIDGET, silence_limit=0.1) as stream,
        pytest.raises(c.WatchSilent, match=r"nothing for 0\.1 s"),
    ):
        next(stream)


def test_a_tls_record_that_drips_obeys_the_deadline(authority, monkeypatch):
    ours, theirs = socket.socketpair()
    context = ssl.create_default_context(cadata=authority.ca.cert.decode())
    context.verify_flags &= (
        ~ssl.VERIFY_X509_STRICT
    )  # the default of Python 3.13, as the client has it
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = authority.server_context().wrap_bio(incoming, outgoing, server_side=True)
    stop = threading.Event()
    drips = [0]
    # Each byte takes a third of the time that there is.
    monkeypatch.setattr(connections, "_now", lambda: 20.0 * drips[0])

    def serve():
        while not stop.is_set():
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                theirs.sendall(outgoing.read())
                incoming.write(theirs.recv(65536))
        theirs.sendall(outgoing.read())
        # The request may have come together with the end of the handshake.
        while not stop.is_set():
            try:
                tls.read(65536)
                break
            except ssl.SSLWantReadError:
                incoming.write(theirs.recv(65536))
        tls.write(b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 50 + b"\r\n")
        record = outgoing.read()
        for i in range(len(record)):
            if stop.wait(0.01):
                break
            drips[0] += 1
            theirs.sendall(record[i : i + 1])

    thread = threading.Thread(target=serve)
    thread.start()
    connection = Connection(ours, 0, read_timeout=60.0)
    with ours, theirs:
        connection.start_tls(context, "api.test")
        with pytest.raises(c.ReadTimeout, match="no answer in time"):
            connection.exchange(b"GET / HTTP/1.1\r\n\r\n", None, method="GET")
        stop.set()
        thread.join(10)
    assert drips[0] >= 3
