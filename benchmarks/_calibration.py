"""Loops of Python without the kit: what they take tells one interpreter and machine from another.

Each does what the kit does most, so that where all of them take the same instructions, the kit can
be expected to do so, too.
"""

from __future__ import annotations

import collections
import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import attrs
import msgspec

from benchmarks._objects import FIRST_VERSION, Template

__all__ = ["LOOPS"]


class _Point(msgspec.Struct):
    x: int
    y: int


class _Metadata(msgspec.Struct, gc=False):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None


class _Object(msgspec.Struct, gc=False):
    metadata: _Metadata


class _Event(msgspec.Struct, gc=False):
    type: str
    object: _Object


@attrs.frozen(kw_only=True)
class _Pair:
    first: int
    second: object


class _Line:
    def __init__(self, first: int) -> None:
        self.points: list[_Point] = []
        self.first = first

    def add(self, number: int, *, scale: int = 1) -> int:
        self.points.append(_Point(number, number * scale))
        return self.first + len(self.points)


@contextlib.contextmanager
def _entered() -> Iterator[None]:
    yield


def _calls(count: int) -> None:
    """Functions, methods, attributes, exceptions and context managers."""
    for number in range(count):
        line = _Line(number)
        for x in range(10):
            line.add(x, scale=2)
        try:
            with _entered():
                raise KeyError(number)
        except KeyError as error:
            line.first = len(error.args)


def _containers(count: int) -> None:
    """Dicts, lists, tuples, sets and queues, and the search for garbage."""
    held: collections.deque[object] = collections.deque(maxlen=50)
    for number in range(count):
        names = {f"name-{n}": (number, n) for n in range(10)}
        values = sorted(names.values(), reverse=True)
        held.append({**names, "all": values, "set": {n for _, n in values}})
        names.pop("name-3")


def _texts(count: int) -> None:
    """Bytes of some kilobytes, texts and JSON."""
    decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
    event = Template("widgets").event("MODIFIED", 1, FIRST_VERSION)
    for number in range(count):
        # What a copy takes depends on the address: of several sizes, so that there are many.
        data = b"%d\r\n" % number + b" " * (number % 64) + event
        at = data.index(b"\n")
        text = str(decode(data[at + 1 :])["type"], "utf-8")
        assert len(b"".join((data[:at], text.encode(), data[at:]))) > len(event)
        json.loads(json.dumps({"number": number, "names": ["a", "b"], "text": text}))


def _objects(count: int) -> None:
    """Values of attrs and msgspec, decoded from JSON and made."""
    event = Template("widgets").event("MODIFIED", 1, FIRST_VERSION)
    whole, part = msgspec.json.Decoder().decode, msgspec.json.Decoder(_Event).decode
    encode = msgspec.json.Encoder().encode
    for _ in range(count):
        read = whole(event)
        assert part(event).object.metadata.name == read["object"]["metadata"]["name"]
        for number in range(10):
            assert _Pair(first=number, second=read) == _Pair(first=number, second=read)
        encode(read)


def _locks(count: int) -> None:
    """Locks and conditions that nobody else holds."""
    lock, condition = threading.RLock(), threading.Condition()
    for _ in range(count):
        with lock, lock:
            threading.get_ident()
        with condition:
            condition.notify_all()


LOOPS: Final[Mapping[str, Callable[[int], None]]] = {
    "calls": _calls,
    "containers": _containers,
    "texts": _texts,
    "objects": _objects,
    "locks": _locks,
}
"""By name: functions of how often they are done."""
