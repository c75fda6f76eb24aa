from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from appsdk_operator.client._transport import dechunk
from appsdk_operator.client._transport.dechunk import ChunkedLines, PlainLines
from appsdk_operator.runtime.chunked import ChunkedBody, StreamFormatError

LINES = st.lists(st.binary(min_size=1, max_size=40).map(lambda b: b.replace(b"\n", b"_")))


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = sorted({0, len(data), *(p % (len(data) + 1) for p in places)})
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(LINES, st.lists(st.integers(0, 10_000)), st.lists(st.integers(0, 10_000)))
def test_lines_come_whole_however_chunks_and_reads_divide_them(lines, chunks, reads):
    body = b"".join(line + b"\n" for line in lines)
    wire = b"".join(b"%X;x=y\r\n%s\r\n" % (len(c), c) for c in cut(body, chunks) if c)
    wire += b"0\r\nTrailer: 1\r\n\r\n"
    decoder = ChunkedLines()
    found = [line for piece in cut(wire, reads) for line in decoder.feed(piece)]
    assert found == lines
    assert decoder.ended
    assert not decoder.pending


@given(LINES, st.lists(st.integers(0, 10_000)))
def test_lines_without_chunks_come_whole_however_reads_divide_them(lines, reads):
    body = b"".join(line + b"\n" for line in lines)
    decoder = PlainLines(len(body))
    assert [line for piece in cut(body, reads) for line in decoder.feed(piece)] == lines
    assert decoder.ended


@pytest.mark.parametrize(
    "junk",
    [
        b"zz\r\nabc",
        b"-4\r\nabcd\r\n",
        b"-1\r\nabcd\r\n",
        b"+4\r\nabcd\r\n",
        b"0x4\r\nabcd\r\n",
        b"1_0\r\n" + b"a" * 16 + b"\r\n",
        b" 4\r\nabcd\r\n",
        "\u0664\r\nabcd\r\n".encode(),
        b"4\nabcd\r\n" + b"x" * 300,
        b"4\r\nabcdef\r\n",
        b"4\r\nabcd\n\n4\r\n",
        b"4\r\nabcd4\r\nabcd\r\n",
        b"4\r\nabc\n\r\r0\r\n\r\n",
        b"3\r\nabc\r\n-1\r\nabc\r\n",
        b"3\r\nab\n\r\n3\r\nab\n3\r\n",
        b"x" * 300,
        b"\r\n\r\n",
        b";\r\n",
    ],
)
@pytest.mark.parametrize("reader", [ChunkedLines, lambda: ChunkedBody(limit=1 << 20)])
def test_what_is_no_chunk_is_refused(junk, reader):
    with pytest.raises(StreamFormatError):
        reader().feed(junk)


@given(st.binary(max_size=60), st.lists(st.integers(0, 10_000)), st.lists(st.integers(0, 10_000)))
def test_a_body_is_put_together_however_chunks_and_reads_divide_it(body, chunks, reads):
    wire = b"".join(b"%x;x=y\r\n%s\r\n" % (len(c), c) for c in cut(body, chunks) if c)
    wire += b"0\r\nTrailer: 1\r\n\r\nHTTP/1.1 the next"
    decoder = ChunkedBody(limit=len(body))
    parts, left = [], cut(wire, reads)
    while not decoder.ended:
        parts += decoder.feed(left.pop(0))
    assert b"".join(parts) == body
    assert decoder.rest + b"".join(left) == b"HTTP/1.1 the next"


@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000)))
@example(b"a\r\n\r\n0\r\n\r\n", [1, 2, 3])
def test_no_bytes_make_a_body_of_more_than_they_are(junk, reads):
    decoder, got = ChunkedBody(limit=1000), 0
    try:
        for piece in cut(junk, reads):
            got += sum(len(part) for part in decoder.feed(piece))
            if decoder.ended:
                break
    except StreamFormatError:
        pass
    assert got <= len(junk)


def test_a_body_larger_than_its_limit_is_noticed_with_the_size_of_the_chunk():
    decoder = ChunkedBody(limit=10)
    assert decoder.feed(b"6\r\nabcdef\r\n") == [b"abcdef"]
    assert decoder.feed(b"5\r\n") == []
    assert decoder.too_large


def test_a_chunk_and_a_line_have_a_largest_size(monkeypatch):
    with pytest.raises(StreamFormatError, match="bytes is not taken"):
        ChunkedLines().feed(b"fffffffff\r\n")
    monkeypatch.setattr(dechunk, "MAX_LINE", 10)
    with pytest.raises(StreamFormatError, match="longer than 10"):
        PlainLines().feed(b"x" * 11)


def test_trailers_that_do_not_end_are_refused():
    for trailers in (b"a: b\r\n" * 4000, b"a" * 20_000):
        with pytest.raises(StreamFormatError, match="trailers"):
            ChunkedBody(limit=9).feed(b"0\r\n" + trailers)
    decoder = ChunkedBody(limit=9)
    decoder.feed(b"0\r\n" + b"a: b\r\n" * 2000)
    with pytest.raises(StreamFormatError, match="trailers"):
        decoder.feed(b"a: b\r\n" * 2000)


def test_a_stream_does_not_wait_for_trailers():
    decoder = ChunkedLines()
    assert decoder.feed(b"2\r\na\n\r\n0\r\n") == [b"a"]
    assert decoder.ended
    assert decoder.feed(b"a: b\r\n") == []


def test_half_a_line_is_pending():
    decoder = ChunkedLines()
    assert decoder.feed(b"3\r\nabc\r\n") == []
    assert decoder.pending
    assert decoder.feed(b"2\r\nd\n\r\n") == [b"abcd"]
    assert not decoder.pending


def test_a_large_chunk_that_trickles_in_is_joined_once():
    decoder = ChunkedLines()
    line = b"x" * 100_000
    wire = b"%x\r\n%s\n\r\n" % (len(line) + 1, line)
    found = [got for i in range(0, len(wire), 100) for got in decoder.feed(wire[i : i + 100])]
    assert found == [line]


def test_empty_lines_are_no_events():
    assert ChunkedLines().feed(b"1\r\n\n\r\n4\r\n\n\na\n\r\n") == [b"a"]


@pytest.mark.parametrize(
    ("line", "is_taken"),
    [(b"1;" + b"x" * 254 + b"\r\na\r\n", True), (b"1;" + b"x" * 255 + b"\r\na\r\n", False)],
)
def test_the_longest_line_of_a_chunk_does_not_depend_on_the_reads(line, is_taken):
    for pieces in ([line], [line[at : at + 1] for at in range(len(line))]):
        decoder = ChunkedBody(limit=9)
        try:
            taken = [part for piece in pieces for part in decoder.feed(piece)] == [b"a"]
        except StreamFormatError:
            taken = False
        assert taken is is_taken


@pytest.mark.parametrize("line", [b"x", b" a: b", b"a : b", b"a: b\nc: d", b"a: \0"])
def test_trailers_are_header_fields(line):
    with pytest.raises(StreamFormatError, match="not a header field"):
        ChunkedBody(limit=9).feed(b"0\r\n" + line + b"\r\n")
