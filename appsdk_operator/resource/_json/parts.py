"""The parts of JSON text, found without decoding it: how deep it is nested, and where parts end.

Decoders recurse, so text from outside that is nested too deep is refused before it is decoded.
"""

from __future__ import annotations

import functools
import itertools
import operator
import re
import sys
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from appsdk_operator._lazy import lazy_pattern

MAX_LEVELS: Final = 500
"""The most levels of arrays and objects that are read; Python's own recursion ends at 1,000."""
TOO_DEEP: Final = f"it is nested more than {MAX_LEVELS} levels deep"

_decode_text = msgspec.json.Decoder(str).decode


# -- How deep it is ----------------------------------------------------------------------------

_NO_MARKS: Final = bytes(set(range(256)) - set(b'[]{}"'))
_STEPS: Final = bytes.maketrans(b"[{]}", b"\1\1\0\0")
_WORD: Final = 8
_BLOCK: Final = 8192
"""Words that are looked at together: other threads run between two blocks."""


def is_deeper(raw: bytes, levels: int = MAX_LEVELS) -> bool:
    """Whether JSON text is nested deeper than ``levels``; its brackets alone are looked at.

    Of text that is not JSON, the part before the first mistake is looked at correctly. It takes
    some nanoseconds for each bracket at most, and next to nothing where there are few.
    """
    if len(raw) <= levels or raw.count(b"[") + raw.count(b"{") <= levels:
        return False
    if b"\\" in raw:
        raw = raw.replace(rb"\\", b"").replace(rb"\"", b"")
    marks = raw.translate(None, _NO_MARKS)
    # Two quotes side by side change nothing for the brackets around them.
    outside = b"".join(marks.replace(b'""', b"").split(b'"')[::2]).translate(_STEPS)
    if outside.count(1) <= levels:
        return False
    words = memoryview(outside + bytes(-len(outside) % _WORD)).cast("Q")
    rises, peaks = _word_tables()
    depth = 0
    for begin in range(0, len(words), _BLOCK):
        block = words[begin : begin + _BLOCK]
        depths = list(itertools.accumulate(map(rises, block), initial=depth))
        if max(map(operator.add, depths, map(peaks, block))) > levels:
            return True
        depth = depths[-1]
    return False


SHORT: Final = 2 * MAX_LEVELS
"""An object of so many bytes has no room for more levels."""
STRIDE: Final = 31
"""One of so many bytes is looked at first; a prime, which the size of a level seldom divides."""
BRACKETS: Final = bytes(byte in b"[]{}" for byte in range(256))
FEW: Final = 14
"""So many brackets among these bytes: of an object that is too deep they are 32 on average."""


def is_object_deeper(raw: bytes) -> bool:
    """Whether an object is nested too deep, for those that arrive by the ten thousand.

    As :func:`is_deeper`, which in Python 3.11 takes a third of the time of all decoding. So a
    sample of the bytes tells first whether there can be brackets enough. Text whose brackets are
    all apart from the sample passes; then it is as deep as the decoder allows, which stops by
    itself.
    """
    return len(raw) > SHORT and raw[::STRIDE].translate(BRACKETS).count(1) > FEW and is_deeper(raw)


@functools.cache
def _word_tables() -> tuple[Callable[[int], int], Callable[[int], int]]:
    """By eight steps in one number: where they lead to, and the highest place on the way."""
    rises: dict[int, int] = {}
    peaks: dict[int, int] = {}
    for steps in itertools.product((0, 1), repeat=_WORD):
        word = int.from_bytes(bytes(steps), sys.byteorder)
        places = list(itertools.accumulate(1 if step else -1 for step in steps))
        rises[word], peaks[word] = places[-1], max(0, *places)
    return rises.__getitem__, peaks.__getitem__


# -- Where parts end ---------------------------------------------------------------------------

_STRING: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SPACE: Final = b" \t\n\r"


def _shallow(levels: int) -> bytes:
    """A pattern of containers of few members and levels."""
    inner = rb'[^"\[\]{}]++|' + _STRING + (b"|" + _shallow(levels - 1) if levels > 1 else b"")
    return rb"[\[{](?:" + inner + rb"){0,16}+[\]}]"


# Matches end after some members, so that no match takes long.
_TO_MARK: Final = lazy_pattern(
    rb'(?:[^"\[\]{},]++|' + _STRING + rb"){0,64}+([\[\]{},]|)", re.DOTALL
)
# Openers, in objects with keys between them, or closers.
_TO_MARKS: Final = lazy_pattern(
    rb'(?:[^"\[\]{}]++|'
    + _STRING
    + rb"|"
    + _shallow(3)
    + rb'){0,64}+([\[{](?:(?:"[^"\\\[\]{}]*+":)?+[\[{])*+|[\]}]++|)',
    re.DOTALL,
)
_KEY: Final = lazy_pattern(rb"[ \t\n\r]*+(" + _STRING + rb")[ \t\n\r]*+:", re.DOTALL)


def members(raw: bytes) -> dict[str, bytes]:
    """The members of a JSON object of any depth as raw text; the values are not checked.

    Raises:
        msgspec.DecodeError: it is not an object, or the ends of its members cannot be found.
    """
    found: dict[str, bytes] = {}
    for begin, end in _parts(raw, b"{"):
        key = _KEY.match(raw, begin, end)
        if key is None:
            raise _malformed(raw, begin)
        found[_decode_text(key.group(1))] = raw[key.end() : end].strip(_SPACE)
    return found


def elements(raw: bytes) -> list[bytes]:
    """The elements of a JSON array of any depth as raw text, which may be invalid JSON.

    An element ends where its brackets and quotes are closed and a comma follows.

    Raises:
        msgspec.DecodeError: it is not an array, or the ends of its elements cannot be found.
    """
    return [raw[begin:end].strip(_SPACE) for begin, end in _parts(raw, b"[")]


def _parts(raw: bytes, opening: bytes) -> Iterator[tuple[int, int]]:
    """Begin and end of each part between the commas of a container's text."""
    start = len(raw) - len(raw.lstrip(_SPACE))
    if raw[start : start + 1] != opening:
        raise _malformed(raw, start)
    position = begin = start + 1
    depth, is_first = 0, True
    while True:
        found = (_TO_MARKS if depth else _TO_MARK).match(raw, position)
        assert found is not None  # both match nothing, too
        marks = found.group(1)
        if not marks:
            if found.end() == position:
                raise msgspec.DecodeError("Input data was truncated")
            position = found.end()
        elif depth:
            if marks[:1] in b"[{":
                depth += marks.count(b"[") + marks.count(b"{")
                position = found.end()
            else:
                closed = min(len(marks), depth)
                depth -= closed
                position = found.start(1) + closed
        else:
            position = found.end()
            if marks in b"[{":
                depth = 1
            elif marks == b",":
                yield begin, found.start(1)
                begin, is_first = position, False
            else:
                end = found.start(1)
                if not (is_first and not raw[begin:end].strip(_SPACE)):
                    yield begin, end
                if raw[position:].strip(_SPACE):
                    raise _malformed(raw, position)
                return


def _malformed(raw: bytes, position: int) -> msgspec.DecodeError:
    position = len(raw) - len(raw[position:].lstrip(_SPACE))
    return msgspec.DecodeError(f"JSON is malformed: invalid character (byte {position})")
