from __future__ import annotations

import contextlib
import errno
import gzip
import logging
import socket
import sys
import threading

import hypothesis.strategies as st
import pytest
from hypothesis import given

from appsdk_operator import client as c
from appsdk_operator.client import Client, ClientConfig, ConfigError, Impersonation, Request
from appsdk_operator.client._auth.impersonation import impersonation_headers
from appsdk_operator.client._transport import connection as connection_module
from appsdk_operator.client._transport.cancelling import requests_end_with
from appsdk_operator.client._transport.connection import (
    Connection,
    Endpoint,
    _TimedSocket,
    http_head,
)
from appsdk_operator.client._transport.transport import _AbortHandle
from appsdk_operator.resource import MutableObject
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, failure, page, widget


def get(client):
    return client.get(WIDGET, "a", namespace="x")


def reset(sock, request):
    """Cut the connection the hard way."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return False


# -- what is sent ----------------------------------------------------------------------------


def test_a_request_carries_who_asks_and_what_is_accepted(serve, connect):
    server = serve(answer(widget()))
    client = connect(
        server,
        token="tok",
        user_agent="robot/1",
        impersonate=Impersonation(user="jane", groups=["a", "b"], uid="7", extra={"X": ["y"]}),
    )
    get(client)
    [request] = server.requests
    assert request.header("Authorization") == "Bearer tok"
    assert request.header("User-Agent") == "robot/1"
    assert request.header("Accept") == "application/json"
    assert request.header("Accept-Encoding") == "identity"
    assert request.header("Host") == f"127.0.0.1:{server.port}"
    assert [pair for pair in request.headers if pair[0].startswith("Impersonate")] == [
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-x", "y"),
    ]


@given(texts=st.lists(st.text(), min_size=2, max_size=4))
def test_a_name_to_impersonate_is_sent_as_utf_8_or_refused(texts):
    user, uid, *groups = texts
    try:
        wanted = Impersonation(user=user, uid=uid, groups=groups)
    except ConfigError:
        assert not user or any(not t.isprintable() or t != t.strip(" ") for t in texts)
        return
    sent = http_head("GET / HTTP/1.1", impersonation_headers(wanted)).split(b"\r\n")[1:-2]
    # Go reads the bytes as UTF-8, without spaces and tabs at both ends.
    values = [line.partition(b":")[2].strip(b" \t").decode() for line in sent]
    assert values == [user, *groups, *([uid] if uid else [])]


def test_a_header_that_is_no_text_is_refused_and_not_shown(serve, connect):
    with pytest.raises(ConfigError, match="lone surrogates") as caught:
        http_head("GET / HTTP/1.1", [("X", "secret\ud800")])
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_path_before_the_api_is_kept(serve, connect):
    server = serve(answer(widget()))
    get(connect(server.url + "/k8s/clusters/c1/"))
    assert server.requests[0].target.startswith("/k8s/clusters/c1/apis/example.com/v1/")


def test_a_large_body_arrives_whole(serve, connect):
    server = serve(answer(widget()))
    raw = connect(server).request("POST", "/x", body=b"y" * 300_000, content_type="text/plain")
    assert len(server.requests[0].body) == 300_000
    assert server.requests[0].header("Content-Type") == "text/plain"
    assert raw


def test_the_raw_request_quotes_its_query_and_refuses_one_in_the_path(serve, connect):
    server = serve(answer(b"ok"))
    client = connect(server)
    assert client.request("get", "/version", query={"a": "b c&d"}) == b"ok"
    assert server.requests[0].target == "/version?a=b+c%26d"
    for path in ("version", "/a?b=c", "/a b", "/a\r\nX: y"):
        with pytest.raises(ValueError, match="is not a request"):
            client.request("GET", path)
    with pytest.raises(ValueError, match="is not a request"):
        client.request("GET /x", "/a")


def test_an_empty_post_says_so(serve, connect):
    server = serve(answer(b""))
    connect(server).request("POST", "/x")
    assert server.requests[0].header("Content-Length") == "0"


# -- connections ------------------------------------------------------------------------------


def test_a_connection_is_used_again(serve, connect):
    server = serve(answer(widget()))
    client = connect(server)
    for _ in range(3):
        get(client)
    assert server.connections == 1


def test_a_connection_that_the_server_wants_closed_is_not_used_again(serve, connect):
    server = serve(answer(widget(), close=True))
    client = connect(server)
    get(client)
    get(client)
    assert server.connections == 2


def test_an_idle_connection_that_the_server_closed_is_noticed_before_a_write(serve, connect):
    closed = threading.Event()

    def then_close(sock, request):
        sock.sendall(answer(widget()))
        sock.shutdown(socket.SHUT_RDWR)
        closed.set()
        return False

    server = serve(then_close, answer(widget(), 201))
    client = connect(server)
    got = get(client)
    assert closed.wait(5)
    client.create(got)
    assert server.connections == 2


def test_an_idle_connection_gets_old(serve, connect):
    clock = ManualClock()
    server = serve(answer(widget()))
    client = connect(server, clock=clock)
    get(client)
    clock.advance(91.0)
    get(client)
    assert server.connections == 2


def test_a_connection_lost_at_its_second_request_costs_a_read_nothing(serve, connect):
    server = serve(answer(widget()), reset, answer(widget()))
    client = connect(server, max_retries=0)
    get(client)
    get(client)
    assert len(server.requests) == 3


def test_a_create_on_a_lost_connection_is_not_sent_twice(serve, connect):
    server = serve(answer(widget()), reset, answer(widget()))
    client = connect(server)
    got = get(client)
    with pytest.raises(c.ConnectionLost, match="may have been carried out") as caught:
        client.create(got)
    assert caught.value.sent
    assert len(server.requests) == 2


def test_writes_that_cannot_hit_another_state_are_sent_again(serve, connect):
    server = serve(reset, answer(widget()), reset, answer(widget()), reset, answer(widget()))
    client = connect(server)
    draft = client.get(WIDGET, "a", namespace="x").mutable_copy()
    client.update(draft)
    client.apply(draft, field_manager="me")
    assert len(server.requests) == 6
    server.replies = [reset, answer({"kind": "Status"})]
    client.delete(WIDGET, "a", namespace="x", uid="u")
    server.replies = [reset, answer(widget())]
    client.patch(
        WIDGET,
        "a",
        c.MergePatch({"metadata": {"resourceVersion": "1"}}),
        namespace="x",
    )
    for call in (
        lambda: client.delete(WIDGET, "a", namespace="x"),
        lambda: client.patch(WIDGET, "a", c.MergePatch({"spec": {}}), namespace="x"),
    ):
        server.replies = [reset, answer(widget())]
        with pytest.raises(c.ConnectionLost):
            call()


def test_an_error_after_a_lost_try_says_that_it_may_have_been_done(serve, connect):
    server = serve(reset, failure(409, "Conflict"))
    client = connect(server)
    draft = MutableObject(WIDGET, widget())
    with pytest.raises(c.Conflict) as caught:
        client.update(draft)
    assert any("may have been" in note for note in caught.value.__notes__)


def test_no_connection_after_a_lost_try_says_that_it_may_have_been_done(
    serve, connect, monkeypatch
):
    connect_once = Endpoint.connect

    def refuse(*_):
        raise c.ConnectFailed("refused", sent=False)

    def connect_first(*args):
        monkeypatch.setattr(Endpoint, "connect", refuse)
        return connect_once(*args)

    monkeypatch.setattr(Endpoint, "connect", connect_first)
    with pytest.raises(c.ConnectFailed) as caught:
        connect(serve(reset)).delete(WIDGET, "a", namespace="x", uid="u")
    assert caught.value.sent
    assert any("may have been" in note for note in caught.value.__notes__)


def test_a_request_that_cannot_be_sent_is_not_waited_for(serve, connect, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOBUFS, "no room")

    monkeypatch.setattr(_TimedSocket, "sendall", fail)
    with pytest.raises(c.ConnectionLost, match="no room"):
        get(connect(serve(), max_retries=0))


def test_an_address_of_a_family_that_the_machine_lacks_is_passed_over(serve, connect, monkeypatch):
    server = serve(answer(widget()))
    resolve = socket.getaddrinfo

    def both(*args, **options):
        return [(-2, socket.SOCK_STREAM, 0, "", ("", 0)), *resolve(*args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", both)
    assert get(connect(server, max_retries=0)).name == "a"


def test_an_answer_to_a_body_that_was_not_read_is_still_taken(connect):
    # A server that answers at once and closes, without reading the body.
    sock = socket.create_server(("127.0.0.1", 0))

    def run():
        connection, _ = sock.accept()
        connection.recv(100)
        connection.sendall(failure(413, "RequestEntityTooLarge"))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
        connection.close()

    thread = threading.Thread(target=run)
    thread.start()
    client = connect(f"http://127.0.0.1:{sock.getsockname()[1]}")
    with pytest.raises(c.RequestEntityTooLarge):
        client.request("POST", "/x", body=b"y" * 1_000_000)
    client.close()
    thread.join(10)
    sock.close()


def test_nobody_listening_is_an_error_that_says_nothing_was_sent(connect, refusing_port):
    client = connect(f"http://127.0.0.1:{refusing_port}", max_retries=1)
    with pytest.raises(c.ConnectFailed, match="Connection refused; check the address") as caught:
        get(client)
    assert not caught.value.sent
    assert caught.value.__notes__ == ["tried 2 times"]


def test_a_create_is_tried_again_when_nobody_was_listening(serve, connect, refusing_port):
    client = connect(f"http://127.0.0.1:{refusing_port}", max_retries=1)
    with pytest.raises(c.ConnectFailed) as caught:
        client.request("POST", "/x")
    assert caught.value.__notes__ == ["tried 2 times"]


def test_a_name_that_does_not_resolve_is_named(connect):
    with pytest.raises(c.ConnectFailed, match=r"name of http://nowhere\.invalid.* be resolved"):
        get(connect("http://nowhere.invalid:80", max_retries=0))


def test_the_addresses_of_a_name_share_the_time_to_connect(serve, connect, monkeypatch):
    server = serve(answer(widget()))
    resolve, connect_now, now, waits = socket.getaddrinfo, Connection.connect, [0.0], []

    def time_out(connection, address):
        waits.append(connection._socket.socket.gettimeout())
        now[0] += waits[-1]
        if len(waits) == 5:
            connect_now(connection, address)
            return
        raise TimeoutError

    monkeypatch.setattr(connection_module, "_now", lambda: now[0])
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda *args, **options: resolve(*args, **options) * 5
    )
    monkeypatch.setattr(Connection, "connect", time_out)
    client = connect(server, connect_timeout=10.0, max_retries=0)
    assert get(client).name == "a"
    assert waits == pytest.approx([2.0] * 5)


def test_an_address_that_does_not_answer_is_given_up(connect):
    # A listener whose backlog is full drops what comes.
    full = socket.socket()
    full.bind(("127.0.0.1", 0))
    full.listen(0)
    fillers = []
    for _ in range(3):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(full.getsockname())
        fillers.append(filler)
    client = connect(
        f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout=0.05, max_retries=0
    )
    with pytest.raises(c.ConnectFailed, match=r"in 0\.05 s: check the address, and that no fire"):
        get(client)
    for each in (full, *fillers):
        each.close()


# -- answers ----------------------------------------------------------------------------------


def test_an_answer_in_chunks_is_put_together(serve, connect):
    body = answer(widget()).partition(b"\r\n\r\n")[2]
    server = serve(CHUNKED + chunk(body[:10]) + chunk(body[10:]) + b"0\r\n\r\n")
    client = connect(server)
    assert get(client).name == "a"
    get(client)
    assert server.connections == 1


def test_an_answer_that_ends_with_its_connection_is_taken(serve, connect):
    def reply(sock, request):
        sock.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + answer(widget()).partition(b"\r\n\r\n")[2])
        return False

    assert get(connect(serve(reply))).name == "a"


def test_a_packed_answer_is_unpacked(serve, connect):
    packed = gzip.compress(answer(widget()).partition(b"\r\n\r\n")[2])
    server = serve(answer(packed, headers={"Content-Encoding": "gzip"}))
    assert get(connect(server, compression=True)).name == "a"
    assert server.requests[0].header("Accept-Encoding") == "gzip"


@pytest.mark.parametrize(
    ("reply", "error", "text"),
    [
        (answer(b"x" * 2000), c.ResponseTooLarge, "2000 bytes"),
        (
            CHUNKED + chunk(b"x" * 900) + chunk(b"x" * 900) + b"0\r\n\r\n",
            c.ResponseTooLarge,
            "more than the 1000",
        ),
        (
            answer(gzip.compress(b"x" * 2000, mtime=0), headers={"Content-Encoding": "gzip"}),
            c.ResponseTooLarge,
            "unpacked",
        ),
        (
            answer(gzip.compress(b"x" * 200, mtime=0)[:-9], headers={"Content-Encoding": "gzip"}),
            c.ConnectionLost,
            "packed answer broke off",
        ),
        (answer(b"junk", headers={"Content-Encoding": "gzip"}), c.BadResponse, "not gzip"),
        (b"SSH-2.0-OpenSSH\r\n", c.BadResponse, "not an HTTP answer"),
        (b"HTTP/1.1 abc OK\r\n\r\n", c.BadResponse, "not an HTTP answer"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n", c.BadResponse, "not an HTTP"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n", c.BadResponse, "not an HTTP"),
    ],
)
def test_an_answer_out_of_bounds_is_refused(serve, connect, reply, error, text):
    client = connect(serve(reply), max_response_bytes=1000, max_retries=0)
    with pytest.raises(error, match=text):
        get(client)


@pytest.mark.parametrize(
    "begin",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
        CHUNKED + b"10\r\nabc",
        b"HTTP/1.1 200 OK\r\nConte",
        b"",
    ],
)
def test_an_answer_that_breaks_off_is_a_lost_connection(serve, connect, begin):
    def reply(sock, request):
        sock.sendall(begin)
        return False

    with pytest.raises(c.ConnectionLost, match=r"get widgets\.example\.com 'a'"):
        get(connect(serve(reply), max_retries=0))


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"])
def test_an_answer_that_does_not_come_is_not_waited_for(serve, connect, begin):
    server = serve(answer(b""))

    def reply(sock, request):
        sock.sendall(begin)
        return server.hang(sock, request)

    server.replies = [reply]
    with pytest.raises(c.ReadTimeout, match=r"read_timeout=0\.05 s"):
        get(connect(server, max_retries=0, read_timeout=0.05))


def test_idle_connections_that_went_silent_together_cost_one_time_out(serve, connect):
    count = 6

    def reply(sock, request):
        if request.connection <= count:
            return server.hang(sock, request)
        sock.sendall(answer(widget()))
        return True

    server = serve(reply)
    client = connect(server, read_timeout=0.2)
    pool = client._transport._pool
    for connection in [pool.take(c.Credential(), lambda _: None) for _ in range(count)]:
        pool.put(connection)
    assert get(client).name == "a"
    first, *later = (request.connection <= count for request in server.requests)
    assert first
    assert not any(later)


def test_an_unwanted_redirect_is_not_followed(serve, connect):
    server = serve(answer(b"", 302, headers={"Location": "http://elsewhere/"}))
    with pytest.raises(c.ApiError, match="not followed"):
        get(connect(server, token="t"))


def test_a_warning_is_logged_once_for_each_text(serve, connect, caplog):
    warning = {"Warning": '299 - "use v2 %s \\"now\\"", 299 - "other"'}
    client = connect(serve(answer(widget(), headers=warning)))
    with caplog.at_level(logging.WARNING, "appsdk_operator.client"):
        get(client)
        get(client)
    assert [record.getMessage() for record in caplog.records] == [
        'the API server warns: use v2 %s "now"',
        "the API server warns: other",
    ]


# -- retries ----------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again_after_the_time_it_named(serve, connect):
    clock = ManualClock()
    server = serve(failure(429, headers={"Retry-After": "5"}), answer(widget()))
    client = connect(server, clock=clock)
    results = []
    thread = threading.Thread(target=lambda: results.append(get(client)))
    thread.start()
    clock.block_until_waiting(1)
    deadline = clock.next_deadline()
    assert deadline is not None
    assert deadline >= 5.0
    clock.advance(deadline)
    thread.join(10)
    assert results[0].name == "a"
    assert len(server.requests) == 2


def test_a_server_that_stays_busy_is_given_up(serve, connect):
    server = serve(failure(503, "ServiceUnavailable"))
    with pytest.raises(c.ServiceUnavailable) as caught:
        get(connect(server, max_retries=2))
    assert caught.value.__notes__ == ["tried 3 times"]
    assert len(server.requests) == 3


def test_a_longer_wait_than_allowed_is_left_to_the_caller(serve, connect):
    server = serve(failure(429, headers={"Retry-After": "60"}))
    with pytest.raises(c.TooManyRequests) as caught:
        get(connect(server, retry_max_wait=10))
    assert caught.value.retry_after == 60.0
    assert len(server.requests) == 1


def test_a_caller_with_its_own_backoff_is_told_at_once(serve, connect):
    server = serve(failure(503))
    with pytest.raises(c.ServiceUnavailable):
        connect(server).list_page(WIDGET, retry=False)
    assert len(server.requests) == 1


def test_a_refused_token_is_read_anew_once(serve, connect, tmp_path):
    path = tmp_path / "token"
    path.write_text("old")

    def check(sock, request):
        fresh = request.header("Authorization") == "Bearer new"
        path.write_text("new")
        sock.sendall(answer(widget()) if fresh else failure(401, "Unauthorized"))

    server = serve(check)
    assert get(connect(server, token_file=path)).name == "a"
    assert len(server.requests) == 2


def test_a_token_that_stays_refused_is_an_error(serve, connect):
    server = serve(failure(401, "Unauthorized"))
    with pytest.raises(c.Unauthorized):
        connect(server, token="t").request("POST", "/x")
    assert len(server.requests) == 2


# -- limits and stopping ------------------------------------------------------------------------


def test_requests_beyond_the_burst_wait_for_their_turn(serve, connect):
    clock = ManualClock()
    server = serve(answer(widget()))
    client = connect(server, clock=clock, qps=2.0, burst=1)
    get(client)
    thread = threading.Thread(target=get, args=(client,))
    thread.start()
    clock.block_until_waiting(1)
    assert len(server.requests) == 1
    clock.advance(0.5)
    thread.join(10)
    assert len(server.requests) == 2


def test_requests_that_are_stopped_before_their_turn_take_nobody_elses(serve, connect):
    clock = ManualClock()
    server = serve(page())
    client = connect(server, clock=clock, qps=1.0, burst=1)

    def ask(stop):
        with contextlib.suppress(c.RequestStopped):
            client.list_page(WIDGET, stop=stop)

    ask(None)
    for number in range(10):
        stop = StopSignal(clock=clock)
        thread = threading.Thread(target=ask, args=(stop,))
        thread.start()
        clock.block_until_waiting(1)
        if number < 9:
            stop.set()
        else:
            clock.advance(1.0)
        thread.join(10)
        assert not thread.is_alive()
    assert len(server.requests) == 2


def test_closing_wakes_whoever_waits_for_an_answer(serve, connect):
    server = serve(answer(b""))
    server.replies = [server.hang]
    client = connect(server, read_timeout=60)
    errors = []

    def run():
        try:
            get(client)
        except c.ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    server.wait_for_requests(1)
    client.close()
    thread.join(10)
    assert isinstance(errors[0], c.RequestStopped)
    assert errors[0].sent


def test_a_signal_handler_may_close_the_client_at_any_step_of_its_pool(serve):
    server = serve(answer(widget()))

    def get_interrupted(client, line):
        """Get an object, and close the client in the same thread before the pool's given line."""
        lines = 0

        def trace(frame, kind, _):
            nonlocal lines
            if not frame.f_code.co_filename.endswith("pool.py"):
                return None
            if kind == "line":
                lines += 1
                if lines == line:
                    client.close()
            return trace

        sys.settrace(trace)
        try:
            with contextlib.suppress(c.ClientError):
                get(client)
        finally:
            sys.settrace(None)
        ran.append(lines)

    line = 0
    while True:
        line += 1
        client = Client(ClientConfig(server=server.url), metrics=Metrics())
        get(client)
        ran = []
        thread = threading.Thread(target=get_interrupted, args=(client, line), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"a close in line {line} of the pool hangs"
        if ran[0] < line:
            break
        assert not client._transport._pool._idle
    client.close()
    assert line > 10


def test_a_stop_signal_ends_a_wait_for_the_next_try(serve, connect):
    clock = ManualClock()
    stop = StopSignal(clock=clock)
    client = connect(serve(failure(429, headers={"Retry-After": "9"})), clock=clock)
    errors = []

    def run():
        try:
            client.list_page(WIDGET, stop=stop)
        except c.ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    clock.block_until_waiting(1)
    stop.set()
    thread.join(10)
    assert isinstance(errors[0], c.RequestStopped)
    assert isinstance(errors[0].__cause__, c.TooManyRequests)


@pytest.mark.parametrize("first", [failure(503, headers={"Retry-After": "0"}), reset])
def test_a_write_is_not_sent_again_after_a_stop_while_its_token_was_fetched(serve, connect, first):
    server, stop = serve(first, answer(widget())), StopSignal()
    calls = []

    def token():
        calls.append(1)
        if len(calls) == 2:
            stop.set()
        return "abc"

    client = connect(server, token_provider=token)
    with requests_end_with(stop), pytest.raises(c.RequestStopped):
        client.apply(MutableObject(WIDGET, widget()), field_manager="me")
    assert len(server.requests) == 1


def test_a_set_stop_signal_sends_nothing(serve, connect):
    server = serve(page())
    stop = StopSignal()
    stop.set()
    with pytest.raises(c.RequestStopped) as caught:
        connect(server).list_page(WIDGET, stop=stop)
    assert not caught.value.sent
    assert not server.requests


def test_a_stop_does_not_cut_the_next_request_on_the_same_connection(serve, connect, monkeypatch):
    answered = threading.Event()

    def slowly(sock, request):
        assert answered.wait(10)
        sock.sendall(answer(b"made"))

    server = serve(page("a"), slowly)
    client, stop = connect(server), StopSignal()
    pool = client._transport._pool
    put, results = pool.put, []

    def post():
        try:
            results.append(client.request("POST", "/x"))
        except c.ClientError as error:
            results.append(error)

    thread = threading.Thread(target=post)

    def put_and_lose_the_race(connection):
        monkeypatch.setattr(pool, "put", put)
        put(connection)
        thread.start()
        server.wait_for_requests(2)
        stop.set()

    monkeypatch.setattr(pool, "put", put_and_lose_the_race)
    assert [item.name for item in client.list_page(WIDGET, stop=stop).items] == ["a"]
    answered.set()
    thread.join(10)
    assert results == [b"made"]
    assert server.connections == 1


def test_a_stop_after_an_answer_was_read_leaves_no_cut_connection_behind(
    serve, connect, monkeypatch
):
    server = serve(page("a"))
    client, stop = connect(server), StopSignal()
    pool = client._transport._pool
    put, kept = pool.put, []

    def put_after_the_stop(connection):
        stop.set()
        put(connection)
        kept.append((connection.aborted, len(pool._idle)))

    monkeypatch.setattr(pool, "put", put_after_the_stop)
    client.list_page(WIDGET, stop=stop)
    client.list_page(WIDGET)
    assert kept == [(False, 1), (False, 1)]
    assert server.connections == 1


def test_a_request_cuts_only_the_connection_that_it_holds():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        first, second = Connection(ours, 0), Connection(theirs, 0)
        handle = _AbortHandle()
        handle.attach(first)
        handle.release()
        handle.abort()
        assert not first.aborted
        handle.attach(second)
        assert second.aborted


def test_a_stream_that_was_handed_over_is_cut_by_its_own_close_alone(serve, connect, monkeypatch):
    server = serve(CHUNKED + chunk(b"x"))
    transport = connect(server)._transport
    release, stops = _AbortHandle.release, []

    def release_and_stop(handle):
        release(handle)
        handle.abort()
        stops.append(handle)

    monkeypatch.setattr(_AbortHandle, "release", release_and_stop)
    opened = transport.open(Request(method="GET", path="/"))
    assert len(stops) == 1
    assert not opened.connection.aborted
    opened.connection.close()


def test_a_closed_client_says_so(serve, connect):
    client = connect(serve(answer(widget())))
    client.close()
    client.close()
    with pytest.raises(c.RequestStopped, match="the client is closed"):
        get(client)


def test_many_threads_share_a_client(serve, connect):
    server = serve(answer(widget()))
    client = connect(server)
    names = []
    threads = [
        threading.Thread(target=lambda: names.extend(get(client).name for _ in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert names == ["a"] * 160
    assert server.connections <= 8


def test_a_client_shows_its_server_and_no_secret(connect):
    client = connect("http://127.0.0.1:1", token="s3cret")
    assert repr(client) == "<Client of http://127.0.0.1:1>"
    assert isinstance(client.config, ClientConfig)
    assert "s3cret" not in repr(client.config)


def test_leaving_the_block_closes_the_client(serve, connect):
    with connect(serve(answer(widget()))) as client:
        get(client)
    with pytest.raises(c.RequestStopped):
        get(client)
