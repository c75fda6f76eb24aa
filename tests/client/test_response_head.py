from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.client._transport.response_head import (
    Framing,
    end_of_head,
    framing_of,
    parse_head,
)
from appsdk_operator.runtime.chunked import StreamFormatError


def head_of(*fields, line=b"HTTP/1.1 200 OK"):
    return parse_head(b"\r\n".join([line, *fields, b"", b""]))


def framing(*fields, line=b"HTTP/1.1 200 OK", method="GET"):
    return framing_of(head_of(*fields, line=line), method)


@pytest.mark.parametrize(
    "line",
    [
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 ",
        b"HTTP/1.0 200 Fine \xff",
    ],
)
def test_a_status_line_needs_no_reason(line):
    assert head_of(line=line).status == 200


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"HTTP/2 200 OK",
        b"HTTP/1.2 200 OK",
        b"http/1.1 200 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 +20 OK",
        b"HTTP/1.1 020 OK",
        b"HTTP/1.1 600 OK",
        b"HTTP/1.1 200 O\nK",
        b" HTTP/1.1 200 OK",
    ],
)
def test_what_is_no_status_line_is_refused(line):
    with pytest.raises(StreamFormatError):
        head_of(line=line)


@pytest.mark.parametrize(
    "field",
    [
        b"no colon",
        b": no name",
        b"Content-Length : 5",
        b"Content Length: 5",
        b"A: b\nContent-Length: 5",
        b"A: b\rContent-Length: 5",
        b"A: \0",
        b"\xe9: 1",
    ],
)
def test_what_is_no_header_field_is_refused(field):
    with pytest.raises(StreamFormatError, match="not a header field"):
        head_of(field)


def test_a_field_that_goes_on_in_the_next_line_has_a_space_there():
    head = head_of(b"A: b", b"  c \t", b"\td", b"Content-Length: 1", b"A:x")
    assert head.headers.get_all("a") == ["b c d", "x"]
    with pytest.raises(StreamFormatError, match="Content-Length"):
        framing(b"Content-Length: 1", b" 0")
    with pytest.raises(StreamFormatError, match="not a header field"):
        head_of(b" A: b")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([b"Content-Length: 5"], Framing(5, chunked=False, closes=False)),
        ([b"content-length:005"], None),
        ([b"Content-Length: 5", b"Content-Length: 5"], Framing(5, chunked=False, closes=False)),
        ([b"Content-Length: 5, 5"], Framing(5, chunked=False, closes=False)),
        ([b"Content-Length: 5, 6"], None),
        ([b"Content-Length: 5", b"Content-Length: 6"], None),
        ([b"Content-Length: +5"], None),
        ([b"Content-Length: -1"], None),
        ([b"Content-Length: 0x5"], None),
        ([b"Content-Length: 1_0"], None),
        ([b"Content-Length: 5.0"], None),
        ([b"Content-Length: \xb2"], None),
        ([b"Content-Length:"], None),
        ([b"Content-Length: 99999999999999999999"], None),
        ([b"Transfer-Encoding: chunked"], Framing(None, chunked=True, closes=False)),
        ([b"Transfer-Encoding: Chunked"], Framing(None, chunked=True, closes=False)),
        ([b"Transfer-Encoding: gzip, chunked"], None),
        ([b"Transfer-Encoding: chunked, chunked"], None),
        ([b"Transfer-Encoding: chunked", b"Transfer-Encoding: identity"], None),
        ([b"Transfer-Encoding: xchunked"], None),
        ([b"Transfer-Encoding: identity"], None),
        ([b"Transfer-Encoding:"], None),
        ([b"Transfer-Encoding: chunked", b"Content-Length: 5"], None),
        ([b"Connection: Close", b"Content-Length: 5"], Framing(5, chunked=False, closes=True)),
        ([b"Connection: a, close", b"Content-Length: 5"], Framing(5, chunked=False, closes=True)),
        ([], Framing(None, chunked=False, closes=True)),
    ],
)
def test_the_end_of_an_answer_is_read_in_one_way_or_not_at_all(fields, expected):
    if fields == [b"content-length:005"]:
        expected = Framing(5, chunked=False, closes=False)
    if expected is None:
        with pytest.raises(StreamFormatError, match=r"its |both"):
            framing(*fields)
    else:
        assert framing(*fields) == expected


def test_an_old_server_keeps_its_connection_when_it_says_so():
    old = b"HTTP/1.0 200 OK"
    assert framing(b"Content-Length: 5", line=old).closes
    assert not framing(b"Content-Length: 5", b"Connection: Keep-Alive", line=old).closes
    with pytest.raises(StreamFormatError):
        framing(b"Transfer-Encoding: chunked", line=old)


@pytest.mark.parametrize(
    ("line", "method", "fields", "closes"),
    [
        (b"HTTP/1.1 200 OK", "HEAD", [b"Content-Length: 5"], False),
        (b"HTTP/1.1 200 OK", "HEAD", [b"Transfer-Encoding: chunked"], False),
        (b"HTTP/1.1 200 OK", "HEAD", [], False),
        (b"HTTP/1.1 204 No", "DELETE", [], False),
        (b"HTTP/1.1 204 No", "DELETE", [b"Content-Length: 0"], False),
        (b"HTTP/1.1 204 No", "DELETE", [b"Content-Length: 5"], True),
        (b"HTTP/1.1 204 No", "DELETE", [b"Transfer-Encoding: chunked"], True),
        (b"HTTP/1.1 304 No", "GET", [b"Content-Length: 5"], True),
    ],
)
def test_answers_without_a_body_leave_none_for_the_next_request(line, method, fields, closes):
    assert framing(*fields, line=line, method=method) == Framing(0, chunked=False, closes=closes)


@pytest.mark.parametrize(
    "data",
    [
        b"X",
        b"HTTP/2",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\n",
        b"HTTP/1.1 200 OK\r\nA: b\n\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000,
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * 70_000 + b"\r\n\r\n",
    ],
)
def test_what_becomes_no_head_is_refused_before_more_is_waited_for(data):
    with pytest.raises(StreamFormatError):
        end_of_head(data, 0)


@given(st.lists(st.integers(0, 60)))
def test_the_end_of_a_head_is_found_however_reads_divide_it(places):
    raw = b"HTTP/1.1 200 OK\r\nA: 1\r\nB: 2\r\n\r\nbody\r\n\r\n"
    edges = sorted({0, len(raw), *(p % len(raw) for p in places)})
    searched = 0
    for edge, end in itertools.pairwise(edges):
        found = end_of_head(raw[:end], searched)
        assert found == (31 if end >= 31 else 0), edge
        if found:
            break
        searched = end


@given(st.binary(max_size=80))
def test_no_bytes_are_more_than_an_answer_or_an_error(junk):
    for raw in (junk + b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + junk + b"\r\n\r\n"):
        with contextlib.suppress(StreamFormatError):
            framing_of(parse_head(raw), "GET")
