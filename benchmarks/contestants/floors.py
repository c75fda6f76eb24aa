"""What nobody can get below: the bytes read, and as little done with them as possible.

* drain: the socket is read, nothing is done, with TLS not even decrypted. That is the speed of the
  replay server, which must be far above all others.
* bulk: as much as there is in one read, the chunks cut up with two searches each, and msgspec
  decodes name, namespace, uid and version of each object and leaves the rest as bytes.
* partial: the same decoder behind urllib3's stream.
* json, orjson: urllib3's stream, and each line as dicts and lists.

None of them uses the kit, so that a slower kit is not compared with a slower floor.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec

from benchmarks._contestant import Laps, Latencies, Memory, Options, main
from benchmarks._job import Contestant, Group, Variant
from benchmarks._objects import KINDS

_READ = 65536
_PAGE = 500
# What TLS 1.3 adds to a record: its header, the kind of its content and the proof that it is whole.
_RECORD = 5 + 1 + 16

_DECODERS = ("json", "orjson") if importlib.util.find_spec("orjson") else ("json",)

CONTESTANT = Contestant(
    name="floor",
    group=Group.FLOOR,
    requires="msgspec",
    variants=(
        Variant(name="drain", jobs=("watch", "list")),
        Variant(name="bulk", jobs=("watch", "list", "latency")),
        Variant(name="partial", jobs=("watch", "list")),
        *(Variant(name=name, jobs=("watch", "list")) for name in _DECODERS),
    ),
)


class Metadata(msgspec.Struct, gc=False, rename="camel"):
    """What identifies an object."""

    name: str
    namespace: str
    uid: str
    resource_version: str


class Object(msgspec.Struct, gc=False):
    """An object, all but its metadata left alone."""

    metadata: Metadata
    spec: msgspec.Raw = msgspec.Raw()


class Event(msgspec.Struct, gc=False):
    """A line of a watch."""

    type: str
    object: Object


class ListMetadata(msgspec.Struct, gc=False):
    """Where the next page begins."""

    continue_: str = msgspec.field(default="", name="continue")


class List(msgspec.Struct, gc=False):
    """A page of a list."""

    metadata: ListMetadata
    items: list[Object]


class Wire:
    """A connection of sockets alone, which with TLS decrypts all that one read brings."""

    def __init__(self, options: Options) -> None:
        parts = urlsplit(options.server)
        assert parts.hostname
        assert parts.port
        self.socket = socket.create_connection((parts.hostname, parts.port), timeout=60)
        self._tls: ssl.SSLObject | None = None
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        # What one read brings, and the record that the one before left unfinished.
        self._buffer = memoryview(bytearray(2 * _READ))
        if options.ca:
            context = ssl.create_default_context(cafile=options.ca)
            self._tls = context.wrap_bio(
                self._incoming, self._outgoing, server_hostname=parts.hostname
            )
            self._shake_hands(self._tls)

    def _shake_hands(self, tls: ssl.SSLObject) -> None:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                self.socket.sendall(self._outgoing.read())
                self._incoming.write(self.socket.recv(_READ))
        self.socket.sendall(self._outgoing.read())

    def get(self, target: str) -> None:
        """Send a request."""
        text = f"GET {target} HTTP/1.1\r\nHost: replay\r\nAccept: application/json\r\n\r\n"
        if self._tls is None:
            self.socket.sendall(text.encode())
        else:
            self._tls.write(text.encode())
            self.socket.sendall(self._outgoing.read())

    def read(self) -> bytes:
        """What has come, all of it."""
        if self._tls is None:
            return self.socket.recv(_READ)
        incoming, buffer, filled = self._incoming, self._buffer, 0
        # Into one buffer: to read n bytes, Python allocates as many for each record.
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        while not filled:
            incoming.write(self.socket.recv(_READ))
            try:
                while True:
                    filled += read(_READ, buffer[filled:])
            except ssl.SSLWantReadError:
                pass
        return bytes(buffer[:filled])

    def head(self) -> tuple[dict[str, str], bytes]:
        """The headers of an answer, and what of its body came along."""
        data = b""
        while (end := data.find(b"\r\n\r\n")) < 0:
            data += self.read()
        lines = data[:end].decode().split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines)
        return {name.lower(): value.strip() for name, _, value in pairs}, data[end + 4 :]

    def body(self) -> bytes:
        """The body of an answer that says how long it is."""
        headers, data = self.head()
        parts, left = [data], int(headers["content-length"]) - len(data)
        while left > 0:
            parts.append(self.read())
            left -= len(parts[-1])
        return b"".join(parts)


def _path(options: Options) -> str:
    names = KINDS[options.kind]
    return f"{names.root}/{names.plural}"


def _drain(options: Options) -> dict[str, float]:
    wire = Wire(options)
    wire.get(f"{_path(options)}?watch=true")
    headers, rest = wire.head()
    left = int(headers["x-stream-size"]) - len(rest)
    if options.ca:
        left += _RECORD * options.events
    # The first bytes come after a pause.
    left -= len(wire.socket.recv(_READ))
    buffer = bytearray(1 << 20)
    began = time.perf_counter()
    while left > 0:
        left -= wire.socket.recv_into(buffer)
    return {"seconds": time.perf_counter() - began, "events": options.events}


def _each_line(wire: Wire, handle: Callable[[bytes], bool]) -> None:
    """Cut the chunks of an answer, a line each, until one was the last."""
    _, rest = wire.head()
    while True:
        position, total, find = 0, len(rest), rest.find
        while True:
            start = find(b"\r\n", position) + 2
            if start < 2:
                break
            end = start + int(rest[position : start - 2], 16)
            if end + 2 > total:
                break
            if handle(rest[start : end - 1]):
                return
            position = end + 2
        rest = rest[position:] + wire.read()


def _watch_bulk(options: Options) -> dict[str, float]:
    decode = msgspec.json.Decoder(Event).decode
    wire, laps = Wire(options), Laps(options.events)
    count = laps.count_one

    def handle(line: bytes) -> bool:
        decode(line)
        count()
        return not laps.left

    wire.get(f"{_path(options)}?watch=true")
    _each_line(wire, handle)
    return laps.numbers()


def _stream(options: Options, decode: Callable[[bytes], Any]) -> dict[str, float]:
    """Each line of urllib3's stream decoded."""
    import urllib3

    laps = Laps(options.events)
    count = laps.count_one
    with urllib3.PoolManager(ca_certs=options.ca) as pool:
        url = f"{options.server}{_path(options)}?watch=true"
        answer = pool.request("GET", url, preload_content=False)
        rest = b""
        for data in answer.stream(None):
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                decode(line)
                count()
            if not laps.left:
                break
        answer.close()
    return laps.numbers()


def _decoder(options: Options, kind: type[Any]) -> Callable[[bytes], Any]:
    if options.variant in ("partial", "bulk"):
        decode: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        return decode
    if options.variant == "orjson":
        loads: Callable[[bytes], Any] = importlib.import_module("orjson").loads
        return loads
    return json.loads


def watch(options: Options) -> dict[str, float]:
    """Events, each decoded or not."""
    if options.variant == "drain":
        return _drain(options)
    if options.variant == "bulk":
        return _watch_bulk(options)
    return _stream(options, _decoder(options, Event))


@contextlib.contextmanager
def _getter(options: Options) -> Iterator[Callable[[str], bytes]]:
    """How a page is got."""
    if options.variant in ("drain", "bulk"):
        wire = Wire(options)

        def get(target: str) -> bytes:
            wire.get(target)
            return wire.body()

        yield get
        return
    import urllib3

    with urllib3.PoolManager(ca_certs=options.ca) as pool:
        yield lambda target: pool.request("GET", f"{options.server}{target}").data


def list_all(options: Options) -> dict[str, float]:
    """All objects, page by page, by name."""
    decode = None if options.variant == "drain" else _decoder(options, List)
    kept: dict[str, Any] = {}
    with _getter(options) as get:
        memory = Memory()
        began, used_before = time.perf_counter(), time.process_time()
        seen, token, is_first = 0, "", True
        while token or is_first:
            is_first = False
            page = get(f"{_path(options)}?limit={_PAGE}" + (f"&continue={token}" if token else ""))
            seen += _PAGE
            if decode is None:
                token = str(seen) if seen < options.objects else ""
            else:
                token = _keep(decode(page), kept)
        took, used = time.perf_counter() - began, time.process_time() - used_before
        del page
    # Whoever keeps nothing has no memory to tell of.
    held = {} if decode is None else memory.numbers()
    return {"seconds": took, "cpu": used, "objects": options.objects, **held}


def _keep(page: Any, kept: dict[str, Any]) -> str:
    """Keep the objects of a page, and say where the next one begins."""
    if isinstance(page, List):
        for obj in page.items:
            # A slice would keep the whole page alive.
            obj.spec = obj.spec.copy()
            kept[obj.metadata.name] = obj
        return page.metadata.continue_
    for item in page["items"]:
        kept[item["metadata"]["name"]] = item
    token: str = page["metadata"].get("continue", "")
    return token


def latency(options: Options) -> dict[str, float]:
    """From the socket to a callback with nothing between but the decoder."""
    decode = msgspec.json.Decoder(Event).decode
    wire, latencies = Wire(options), Latencies(options.events)

    def handle(line: bytes) -> bool:
        latencies.note(decode(line).object.metadata.resource_version)
        return latencies.done.is_set()

    wire.get(f"{_path(options)}?watch=true")
    _each_line(wire, handle)
    return latencies.numbers()


if __name__ == "__main__":
    main({"watch": watch, "list": list_all, "latency": latency})
