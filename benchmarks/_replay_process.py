"""The process of a replay server: ``python -m benchmarks._replay_process SPEC``.

It prints where it serves as a line of JSON, and ends when its standard input does, so that it never
outlives whoever started it.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import ssl
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from urllib.parse import parse_qs, urlsplit

from benchmarks._connection import Connection, EncryptedConnection, PlainConnection
from benchmarks._discovery import documents
from benchmarks._objects import FIRST_VERSION, NAMESPACE, Template, bookmark
from benchmarks._replay import Spec

# Beyond that, objects are made when they are asked for, a segment at a time.
_MOST_HELD = 1_500_000_000
_SEGMENT = 500
# Nanoseconds behind its plan after which a paced stream is held up by its client, and not by a
# timer or another process.
_LATE = 5_000_000
_OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


class Content:
    """What is sent for lists and watches, made in advance."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.template = template = Template(spec.kind, spec.size)
        self.version = FIRST_VERSION + spec.objects
        """The version of the list: that of the first event is greater."""
        self._is_held = spec.objects * template.size * (1 + spec.streaming) <= _MOST_HELD
        self._items = memoryview(b"")
        self._initial: list[list[bytes]] = []
        if self._is_held:
            joined = b",".join([*template.items(0, spec.objects), b""])
            self._items = memoryview(joined)
            if spec.streaming:
                self._initial = list(self._make_initial())
        self.events = [] if spec.rate else self._pieces(self._make_events())
        """The chunks of the events."""
        self.stream_size = sum(map(len, self.events))
        """The bytes of all events, as they are sent without TLS."""

    def page(self, start: int, limit: int) -> list[bytes | memoryview]:
        """A page of the list, as an answer."""
        count = self.spec.objects
        stop = min(count, start + limit) if limit else count
        names = self.template.names
        metadata: dict[str, object] = {"resourceVersion": str(self.version)}
        if stop < count:
            metadata |= {"continue": str(stop), "remainingItemCount": count - stop}
        head = {"kind": f"{names.kind}List", "apiVersion": names.api_version, "metadata": metadata}
        opening = json.dumps(head, separators=(",", ":")).encode()[:-1] + b',"items":['
        items = self._joined_items(start, stop)
        size = len(opening) + len(items) + 2
        return [_OK + b"Content-Length: %d\r\n\r\n" % size, opening, items, b"]}"]

    def _joined_items(self, start: int, stop: int) -> bytes | memoryview:
        if not self._is_held:
            return b",".join(self.template.items(start, stop))
        step = self.template.item_size + 1
        return self._items[start * step : max(stop * step - 1, start * step)]

    def initial(self) -> Iterator[list[bytes]]:
        """The chunks of the present objects, and of the bookmark after them, in segments."""
        names = self.template.names
        yield from self._initial if self._is_held else self._make_initial()
        yield [_chunk(bookmark(names.api_version, names.kind, self.version))]

    def _make_initial(self) -> Iterator[list[bytes]]:
        make, count = self.template.event, self.spec.objects
        for start in range(0, count, _SEGMENT):
            indexes = range(start, min(count, start + _SEGMENT))
            yield self._pieces(make("ADDED", index, FIRST_VERSION + index) for index in indexes)

    def _make_events(self) -> Iterator[bytes]:
        spec, make = self.spec, self.template.event
        for number in range(spec.events):
            version = self.version + 1 + number
            if spec.added:
                yield make("ADDED", spec.objects + number, version)
            else:
                index = number % spec.objects
                yield make("MODIFIED", index, version, 2 + number // spec.objects)

    def _pieces(self, lines: Iterable[bytes]) -> list[bytes]:
        """The lines as chunks: apart where they are to be encrypted one by one, else joined."""
        chunks = map(_chunk, lines)
        return list(chunks) if self.spec.tls else [b"".join(chunks)]

    def paced(self) -> Iterator[bytes]:
        """The chunks of the events, each when its time has come.

        A client that does not keep up makes the server wait. From then on an event's time is the
        one at which it should have been sent, for else the waiting would be hidden.
        """
        spec, split, now = self.spec, self.template.split_event, time.monotonic_ns
        kept = min(spec.objects, spec.events)
        parts = [split("MODIFIED", index, 2) for index in range(kept)]
        interval = 1e9 / spec.rate
        sent = began = now()
        for number in range(spec.events):
            before, after = parts[number % kept]
            due = int(began + number * interval)
            wait = due - now()
            if wait > 0:
                time.sleep(wait / 1e9)
            # Versions never go back, also where the two clocks change places.
            sent = max(sent + 1, due if wait < -_LATE else now())
            stamp = b"%d" % sent
            size = len(before) + len(stamp) + len(after)
            yield b"%x\r\n%s%s%s\r\n" % (size, before, stamp, after)


def _chunk(line: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(line), line)


class Conversation:
    """The requests and answers of one connection."""

    def __init__(self, connection: Connection, content: Content, said: dict[str, bytes]) -> None:
        self._connection = connection
        self._content = content
        self._documents = said
        self._spec = content.spec

    def run(self) -> None:
        """Answer until the client goes."""
        data = b""
        while True:
            while (end := data.find(b"\r\n\r\n")) < 0:
                more = self._connection.read()
                if not more:
                    return
                data += more
            head, data = data[:end].decode("latin-1"), data[end + 4 :]
            line, *lines = head.split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in lines)
            }
            length = int(headers.get("content-length", 0))
            while len(data) < length:
                more = self._connection.read()
                if not more:
                    return
                data += more
            body, data = data[:length], data[length:]
            method, target, _ = line.split(" ", 2)
            if not self._answer(method, target, body) or headers.get("connection") == "close":
                return

    def _answer(self, method: str, target: str, body: bytes) -> bool:
        """Answer a request; whether another one may follow."""
        parts = urlsplit(target)
        path = parts.path.rstrip("/")
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if method in ("POST", "PUT", "PATCH"):
            self._written(method, path, body)
        elif path in self._documents:
            self._send(self._documents[path])
        elif method == "DELETE":
            self._send(b'{"kind":"Status","apiVersion":"v1","status":"Success"}')
        elif query.get("watch", "").lower() in ("1", "true"):
            return self._watch(path, query)
        elif (index := self._named(path)) is not None:
            time.sleep(self._spec.call_ms / 1e3)
            self._send(self._content.template.object(index, FIRST_VERSION + index))
        else:
            self._list(path, query)
        return True

    def _send(self, body: bytes, status: bytes = b"200 OK") -> None:
        head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        self._connection.send(head % (status, len(body)) + body)

    def _written(self, method: str, path: str, body: bytes) -> None:
        """Give back what was written; for a merge patch, what it makes of the object."""
        index = self._named(path)
        if method == "PATCH":
            patch = json.loads(body)
            if index is None or not isinstance(patch, dict):
                patch, index = {}, index or 0
            obj = json.loads(self._content.template.object(index, FIRST_VERSION + index))
            body = json.dumps(_merged(obj, patch)).encode()
        self._send(body, b"201 Created" if method == "POST" else b"200 OK")

    def _holds(self, path: str) -> bool:
        """Whether the path is that of our objects: everywhere, or in their namespace."""
        names = self._content.template.names
        places = (names.plural, f"namespaces/{NAMESPACE}/{names.plural}")
        return path in {f"{names.root}/{place}" for place in places}

    def _named(self, path: str) -> int | None:
        collection, _, name = path.rpartition("/")
        if not self._holds(collection):
            return None
        try:
            return self._content.template.index(name)
        except ValueError:
            return None

    def _list(self, path: str, query: dict[str, str]) -> None:
        if self._holds(path):
            start, limit = int(query.get("continue") or 0), int(query.get("limit") or 0)
            self._connection.send(*self._content.page(start, limit))
            return
        version, kind = _kind_at(path)
        head = {"kind": f"{kind}List", "apiVersion": version}
        metadata = {"resourceVersion": str(self._content.version)}
        self._send(json.dumps({**head, "metadata": metadata, "items": []}).encode())

    def _watch(self, path: str, query: dict[str, str]) -> bool:
        holds = self._holds(path)
        wants_initial = query.get("sendInitialEvents", "").lower() in ("1", "true")
        if wants_initial and not self._spec.streaming:
            reason = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422}
            reason |= {"reason": "Invalid", "message": "sendInitialEvents is forbidden"}
            self._send(json.dumps(reason).encode(), b"422 Unprocessable Entity")
            return True
        connection, content = self._connection, self._content
        size = b"X-Stream-Size: %d\r\n" % (content.stream_size if holds else 0)
        connection.send(_OK + size + b"Transfer-Encoding: chunked\r\n\r\n")
        if wants_initial:
            for segment in content.initial() if holds else [[_nothing(path, content.version)]]:
                for data in connection.seal(segment):
                    connection.send_sealed(data)
        if holds:
            self._stream()
        while connection.read():
            pass
        return False

    def _stream(self) -> None:
        connection, spec = self._connection, self._spec
        began = time.monotonic()
        if spec.rate:
            time.sleep(spec.pause)
            for chunk in self._content.paced():
                connection.send(chunk)
            return
        sealed = list(connection.seal(self._content.events))
        time.sleep(max(spec.pause - (time.monotonic() - began), 0))
        for data in sealed:
            connection.send_sealed(data)


def _kind_at(path: str) -> tuple[str, str]:
    """The apiVersion and the kind of what is listed at ``path``, as far as it can be guessed.

    >>> _kind_at("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
    ('apiextensions.k8s.io/v1', 'CustomResourceDefinition')
    """
    parts = path.strip("/").split("/")
    version = "/".join(parts[1:3]) if parts[0] == "apis" else "v1"
    plural = parts[-1]
    known = {"customresourcedefinitions": "CustomResourceDefinition"}
    return version, known.get(plural, plural.removesuffix("s").capitalize())


def _nothing(path: str, version: int) -> bytes:
    """The chunk that ends the initial events of a kind without objects."""
    api_version, kind = _kind_at(path)
    return _chunk(bookmark(api_version, kind, version))


def _merged(target: object, patch: object) -> object:
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = _merged(result.get(name), value)
    return result


def _serve(
    accepted: socket.socket,
    context: ssl.SSLContext | None,
    content: Content,
    said: dict[str, bytes],
) -> None:
    with accepted:
        try:
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection: Connection = (
                EncryptedConnection(accepted, context) if context else PlainConnection(accepted)
            )
            Conversation(connection, content, said).run()
        except OSError:
            pass  # clients go when they have what they wanted


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serve."""
    spec = Spec(**json.loads(sys.argv[1]))
    context, authority = None, ""
    if spec.tls:
        from appsdk_operator.apiserver._authority import Authority

        signer = Authority(time.time())
        context, authority = signer.context("127.0.0.1"), signer.certificate.decode()
        context.verify_mode = ssl.CERT_NONE
    content, said = Content(spec), documents()
    # Nothing is made later that is worth a search for garbage.
    gc.disable()
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    url = f"{'https' if spec.tls else 'http'}://127.0.0.1:{listener.getsockname()[1]}"
    print(json.dumps({"url": url, "authority": authority}), flush=True)
    while True:
        accepted, _ = listener.accept()
        arguments = (accepted, context, content, said)
        threading.Thread(target=_serve, args=arguments, daemon=True).start()


if __name__ == "__main__":
    main()
