from __future__ import annotations

import gzip
import socket
import sys
import threading

import pytest

from appsdk_operator import client as c
from appsdk_operator.client import Request, WatchStream
from appsdk_operator.client._transport.watch import _next_size, silence_limit_of
from appsdk_operator.resource import DecodeError, WatchEventType
from appsdk_operator.runtime import StopSignal
from tests.client.conftest import CHUNKED, WIDGET, answer, chunk, event, failure

END = b"0\r\n\r\n"


def streaming(server, *parts, then=None):
    """A reply that streams, and then hangs or does what is asked."""

    def reply(sock, request):
        for part in parts:
            sock.sendall(part)
        return then(sock) if then is not None else server.hang(sock, request)

    return reply


def reset(sock):
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    return False


def test_reads_are_small_until_more_waits_than_they_take_and_never_larger_than_a_megabyte():
    sizes = [32768]
    for got in (10, 32768, 40_000, 131_072, 262_144, 524_288, 1 << 20, 200_000, 5000):
        sizes.append(_next_size(sizes[-1], got))
    assert sizes == [
        32768, 32768, 65536, 131_072, 262_144, 524_288, 1 << 20, 1 << 20, 1 << 20, 32768,
    ]  # fmt: skip


def test_a_watch_never_asks_for_gzip(serve, connect):
    server = serve(CHUNKED + chunk(event()) + END)
    with connect(server, compression=True).watch(WIDGET) as stream:
        assert [found.object.name for found in stream.events()] == ["a"]
    assert server.requests[0].header("Accept-Encoding") == "identity"


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "br", "x-gzip"])
def test_a_watch_that_is_packed_all_the_same_is_refused(serve, connect, encoding):
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nContent-Encoding: %s\r\n\r\n" % encoding.encode())
    server = serve(head + chunk(gzip.compress(event())) + END, CHUNKED + chunk(event()) + END)
    client = connect(server)
    with pytest.raises(c.BadResponse, match=f"watch widgets.*packed with '{encoding.lower()}'"):
        client.watch(WIDGET)
    with client.watch(WIDGET) as stream:  # on another connection
        assert [found.object.name for found in stream.events()] == ["a"]
    assert server.connections == 2


def test_a_watch_asks_for_what_it_was_told(serve, connect):
    server = serve(CHUNKED + END)
    client = connect(server)
    with client.watch(
        WIDGET,
        namespace="x",
        label_selector={"app": "web"},
        field_selector="metadata.name=a",
        resource_version="17",
        timeout=9.5,
    ) as stream:
        assert list(stream) == []
    assert server.requests[0].target == (
        "/apis/example.com/v1/namespaces/x/widgets?watch=true&labelSelector=app%3Dweb"
        "&fieldSelector=metadata.name%3Da&resourceVersion=17&allowWatchBookmarks=true"
        "&timeoutSeconds=10"
    )


def test_a_streamed_list_asks_for_it(serve, connect):
    server = serve(CHUNKED + END)
    with connect(server).watch(WIDGET, send_initial_events=True) as stream:
        assert list(stream) == []
    target = server.requests[0].target
    assert "sendInitialEvents=true" in target
    assert "resourceVersionMatch=NotOlderThan" in target
    seconds = int(target.rpartition("=")[2])
    assert 300 <= seconds <= 600


def test_lines_come_in_batches_and_a_clean_end_ends_the_iteration(serve, connect):
    lines = [event(str(n)) for n in range(5)]
    server = serve(CHUNKED + b"".join(map(chunk, lines)) + END)
    with connect(server).watch(WIDGET) as stream:
        batches = list(stream)
    assert [line + b"\n" for batch in batches for line in batch] == lines
    assert len(batches) < 5
    assert stream.closed
    assert not stream.truncated


def test_events_are_decoded(serve, connect):
    bookmark = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}\n'
    server = serve(CHUNKED + chunk(event("a")) + chunk(event("a", "DELETED") + bookmark) + END)
    with connect(server).watch(WIDGET) as stream:
        events = list(stream.events())
    assert [e.type for e in events] == [
        WatchEventType.ADDED,
        WatchEventType.DELETED,
        WatchEventType.BOOKMARK,
    ]
    assert events[0].object is not None
    assert events[0].object.name == "a"
    assert events[2].resource_version == "9"


def test_an_error_event_is_raised_as_the_error_it_is(serve, connect):
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n'
    with (
        connect(serve(CHUNKED + chunk(event()) + chunk(line))).watch(WIDGET) as stream,
        pytest.raises(c.Expired, match=r"watch widgets\.example\.com"),
    ):
        list(stream.events())


def test_a_line_that_is_no_event_is_a_decode_error(serve, connect):
    with (
        connect(serve(CHUNKED + chunk(b"junk\n"))).watch(WIDGET) as stream,
        pytest.raises(DecodeError),
    ):
        list(stream.events())


def test_after_an_event_that_cannot_be_read_the_others_come(serve, connect):
    odd = b'{"type":"ADDED","object":{"metadata":{"name":5}}}\n'
    lines = event("a") + odd + event("b")
    with connect(serve(CHUNKED + chunk(lines) + chunk(event("c")) + END)).watch(WIDGET) as stream:
        events = stream.events()
        assert next(events).object.name == "a"
        with pytest.raises(DecodeError, match="name"):
            next(events)
        assert [one.object.name for one in stream.events()] == ["b", "c"]


@pytest.mark.parametrize(
    ("code", "error"),
    [(403, c.Forbidden), (410, c.Gone), (429, c.TooManyRequests), (500, c.InternalError)],
)
def test_a_refused_watch_is_an_error_at_once(serve, connect, code, error):
    server = serve(failure(code))
    with pytest.raises(error):
        connect(server).watch(WIDGET)
    assert len(server.requests) == 1


def test_a_refused_token_is_read_anew_before_the_watch_fails(serve, connect):
    server = serve(failure(401), CHUNKED + END)
    with connect(server, token="t").watch(WIDGET):
        assert len(server.requests) == 2


def test_a_watch_that_cannot_connect_is_an_error_at_once(connect, refusing_port):
    with pytest.raises(c.ConnectFailed) as caught:
        connect(f"http://127.0.0.1:{refusing_port}").watch(WIDGET)
    assert not hasattr(caught.value, "__notes__")


def test_a_silent_watch_is_taken_for_dead(serve, connect):
    server = serve(answer(b""))
    # In one piece: a server that is kept from the processor between two would be silent as well.
    server.replies = [streaming(server, CHUNKED + chunk(event()))]
    with connect(server).watch(WIDGET, silence_limit=0.05) as stream:
        assert len(next(stream)) == 1
        with pytest.raises(c.WatchSilent, match=r"nothing for 0\.05 s"):
            next(stream)
        assert stream.closed
        assert list(stream) == []


def test_half_a_line_counts_as_a_sign_of_life_but_is_dropped(serve, connect):
    server = serve(answer(b""))
    server.replies = [streaming(server, CHUNKED + chunk(b'{"type"'))]
    with connect(server).watch(WIDGET, silence_limit=0.05) as stream:
        with pytest.raises(c.WatchSilent):
            next(stream)
        assert stream.truncated


def test_a_watch_whose_head_does_not_come_is_given_up(serve, connect):
    server = serve(answer(b""))
    server.replies = [server.hang]
    with pytest.raises(c.ReadTimeout):
        connect(server, read_timeout=0.05).watch(WIDGET)


@pytest.mark.parametrize(
    ("timeout", "limit", "bookmarks", "expected"),
    [
        (300.0, None, True, 90.0),
        (300.0, None, False, 305.0),
        (20.0, None, True, 25.0),
        (20.0, 300.0, True, 25.0),
        (300.0, 10.0, False, 10.0),
    ],
)
def test_silence_has_a_limit_in_each_case(timeout, limit, bookmarks, expected):
    assert silence_limit_of(timeout, limit, bookmarks=bookmarks) == expected


@pytest.mark.parametrize(("timeout", "limit"), [(0.0, None), (-1.0, None), (5.0, 0.0)])
def test_times_that_cannot_be_are_refused(connect, timeout, limit):
    with pytest.raises(ValueError, match="more than 0"):
        connect("http://127.0.0.1:1").watch(WIDGET, timeout=timeout, silence_limit=limit)


def test_a_reset_is_a_lost_connection(serve, connect):
    server = serve(answer(b""))
    server.replies = [streaming(server, CHUNKED, chunk(event()), then=reset)]
    with (
        connect(server).watch(WIDGET) as stream,
        pytest.raises(c.ConnectionLost, match="resume from the last resource version"),
    ):
        list(stream)


def test_an_end_without_the_last_chunk_is_a_lost_connection(serve, connect):
    server = serve(answer(b""))
    server.replies = [streaming(server, CHUNKED, b"5\r\nab", then=lambda sock: False)]
    with connect(server).watch(WIDGET) as stream:
        with pytest.raises(c.ConnectionLost, match="before the watch did"):
            list(stream)
        assert stream.truncated


def test_an_answer_without_chunks_ends_with_its_connection(serve, connect):
    server = serve(answer(b""))
    head = b"HTTP/1.0 200 OK\r\n\r\n"
    server.replies = [streaming(server, head, event(), b"half", then=lambda sock: False)]
    with connect(server).watch(WIDGET) as stream:
        assert [len(lines) for lines in stream] == [1]
        assert stream.truncated


def test_an_answer_with_a_length_ends_there_and_not_before(serve, connect):
    client = connect(serve(answer(event())))
    with client.watch(WIDGET) as stream:
        assert [len(lines) for lines in stream] == [1]

    server = serve(answer(b""))
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n"
    server.replies = [streaming(server, head, event(), then=lambda sock: False)]
    with connect(server).watch(WIDGET) as stream, pytest.raises(c.ConnectionLost):
        list(stream)


def test_what_is_no_chunk_is_a_bad_response(serve, connect):
    with (
        connect(serve(CHUNKED + b"junk\r\n\r\n")).watch(WIDGET) as stream,
        pytest.raises(c.BadResponse, match="not the size of a chunk"),
    ):
        list(stream)


def read_all(stream, batches, errors):
    try:
        batches.extend(stream)
    except Exception as error:
        errors.append(error)


@pytest.mark.parametrize("way", ["close", "stop", "client"])
def test_closing_from_another_thread_ends_the_iteration(serve, connect, way):
    server = serve(answer(b""))
    server.replies = [streaming(server, CHUNKED, chunk(event()))]
    client, stop = connect(server), StopSignal()
    stream = client.watch(WIDGET, stop=stop)
    first = threading.Event()
    batches, errors = [], []

    def read():
        try:
            for lines in stream:
                batches.append(lines)
                first.set()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    assert first.wait(10)
    {"close": stream.close, "stop": stop.set, "client": client.close}[way]()
    thread.join(10)
    assert not thread.is_alive()
    assert len(batches) == 1
    assert not errors
    assert stream.closed


def test_a_stop_while_the_watch_opens_is_told(serve, connect):
    server = serve(answer(b""))
    server.replies = [server.hang]
    client, stop = connect(server, read_timeout=60), StopSignal()
    errors = []

    def run():
        try:
            client.watch(WIDGET, stop=stop)
        except c.ClientError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    server.wait_for_requests(1)
    stop.set()
    thread.join(10)
    assert isinstance(errors[0], c.RequestStopped)


def test_a_watch_that_is_left_with_a_break_is_closed(serve, connect):
    ended = threading.Event()

    def note_end(sock):
        if not sock.recv(1):
            ended.set()
        return False

    server = serve(streaming(None, CHUNKED, chunk(event()), then=note_end))
    client, stop = connect(server), StopSignal()
    for found in client.watch(WIDGET, stop=stop).events():
        assert found.object.name == "a"
        break
    assert ended.wait(10)


def test_closing_unread_and_twice_is_harmless(serve, connect):
    server = serve(answer(b""))
    server.replies = [streaming(server, CHUNKED, chunk(event()))]
    stop = StopSignal()
    stream = connect(server).watch(WIDGET, stop=stop)
    stream.close()
    stream.close()
    assert list(stream) == []
    stop.set()


def test_a_signal_that_is_set_already_closes_the_stream(serve, connect):
    server = serve(CHUNKED + chunk(event()))
    stream = connect(server).watch(WIDGET)
    stop = StopSignal()
    stop.set()
    stream.close_when(stop)
    assert stream.closed


def test_closing_in_the_middle_of_the_iteration_ends_it(serve, connect):
    server = serve(answer(b""))
    server.replies = [streaming(server, CHUNKED, chunk(event()))]
    stream = connect(server).watch(WIDGET)
    for _ in stream:
        stream.close()


def test_a_signal_handler_may_close_a_stream_at_any_step_of_its_own_close(serve, connect):
    server = serve(answer(b""))
    server.replies = [streaming(server, CHUNKED, chunk(event()))]
    transport, request = connect(server)._transport, Request(method="GET", path="/")

    def close_interrupted(stream, line):
        """Close it, and close it again in the same thread before the given line runs."""
        lines = 0

        def trace(frame, kind, _):
            nonlocal lines
            if kind == "line":
                lines += 1
                if lines == line:
                    stream.close()
            return trace

        sys.settrace(trace)
        try:
            stream.close()
        finally:
            sys.settrace(None)
        ran.append(lines)

    line = 0
    while True:
        line += 1
        # Not by the client, whose own close at the end of a failed test would hang as well.
        stream = WatchStream(WIDGET, request, transport.open(request), silence_limit=5.0)
        ran = []
        thread = threading.Thread(target=close_interrupted, args=(stream, line), daemon=True)
        thread.start()
        thread.join(10)
        assert not thread.is_alive(), f"a close in line {line} of a close hangs"
        assert stream.closed
        assert list(stream) == []
        if ran[0] < line:
            break
    assert line > 10
