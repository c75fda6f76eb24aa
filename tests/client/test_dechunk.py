from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.client import _dechunk
from appsdk_operator.client._dechunk import ChunkedLines, PlainLines, StreamFormatError

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
    "junk", [b"zz\r\nabc", b"-4\r\nabcd\r\n", b"x" * 300, b"\r\n\r\n", b";\r\n"]
)
def test_what_is_no_chunk_is_refused(junk):
    with pytest.raises(StreamFormatError):
        ChunkedLines().feed(junk)


def test_a_chunk_and_a_line_have_a_largest_size(monkeypatch):
    with pytest.raises(StreamFormatError, match="bytes is not taken"):
        ChunkedLines().feed(b"fffffffff\r\n")
    monkeypatch.setattr(_dechunk, "MAX_LINE", 10)
    with pytest.raises(StreamFormatError, match="longer than 10"):
        PlainLines().feed(b"x" * 11)


def test_trailers_that_do_not_end_are_refused():
    with pytest.raises(StreamFormatError, match="trailers"):
        ChunkedLines().feed(b"0\r\n" + b"a: b\r\n" * 4000)


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
