"""What one input of some megabytes costs: ``python -m benchmarks.hostile``.

Each input goes through each reader of JSON from outside. Shown are the processor time of the call,
and the longest part of it in which no other thread could run.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Self

from appsdk_operator.resource import (
    JsonPatch,
    Kind,
    Object,
    decode_json,
    decode_list,
    decode_watch_events,
)
from appsdk_operator.serving import HTTPRequest
from appsdk_operator.webhooks import (
    Admission,
    AdmissionRequest,
    AdmissionResponse,
    ConversionWebhook,
)

KIND = Kind(group="example.com", version="v1", kind="Thing")
_HEAD = b'{"apiVersion":"example.com/v1","kind":"Thing","metadata":{%s"name":"a","namespace":"x"},'
_PERIOD = 0.0005


def inputs(size: int) -> Iterator[tuple[str, bytes]]:
    """Values of about ``size`` bytes, by name: some are JSON, others begin as such."""
    half = size // 2
    yield "deep arrays", b"[" * half + b"]" * half
    yield "deep objects", b'{"":' * (size // 5) + b"1" + b"}" * (size // 5)
    yield "deep, never closed", b"[" * size
    yield "deep, closed as objects", b"[" * half + b"}" * half
    thousand = b"[" * 1000 + b"]" * 1000
    yield "arrays of 1,000 levels", b"[" + b",".join([thousand] * (size // 2001)) + b"]"
    almost = b"[" * 490 + b"]" * 490
    yield "arrays of 490 levels", b"[" + b",".join([almost] * (size // 981)) + b"]"
    teeth = size - 980
    for height in (1, 2, 3, 5, 8):
        tooth = b"[" * height + b"]" * height + b","
        comb = tooth * (teeth // len(tooth))
        yield f"teeth of {height} at 480 levels", b"[" * 480 + comb[:-1] + b"]" * 480
    yield "empty arrays", b"[" + b"[]," * (size // 3) + b"[]]"
    yield "empty objects", b"[" + b"{}," * (size // 3) + b"{}]"
    yield "arrays of one", b"[" + b"[1]," * (size // 4) + b"[]]"
    yield "objects of one", b"[" + b'{"":1},' * (size // 7) + b"{}]"
    yield "numbers", b"[" + b"1," * half + b"1]"
    yield "empty strings", b"[" + b'"",' * (size // 3) + b'""]'
    yield "a string of quotes", b'"' + b'\\"' * half + b'"'
    yield "a string of backslashes", b'"' + b"\\\\" * half + b'"'
    yield "a string of brackets", b'"' + b"[" * size + b'"'
    yield "a string of escapes", b'"' + b"\\u005b" * (size // 6) + b'"'
    yield "a string, never closed", b'"' + b"[" * size
    yield "quotes and brackets, never closed", b'["' * half
    yield "strings of quotes", b"[" + b'"\\"",' * (size // 5) + b'""]'
    yield "one huge number", b"1" * size
    yield "one huge fraction", b"0." + b"1" * size
    yield "one huge exponent", b"1e" + b"1" * size
    yield "numbers of 4,000 digits", b"[" + b",".join([b"7" * 4000] * (size // 4001)) + b"]"
    yield "numbers of 700 digits", b"[" + b",".join([b"0." + b"7" * 700] * (size // 703)) + b"]"
    keys = (b'"%x":1' % number for number in range(size // 10))
    yield "many keys", b"{" + b",".join(keys) + b"}"
    yield "one key again and again", b"{" + b",".join([b'"a":1'] * (size // 6)) + b"}"
    yield "nulls", b"[" + b"null," * (size // 5) + b"null]"
    yield "spaces", b" " * size + b"1"


def obj(value: bytes, managed: bytes = b"") -> bytes:
    """An object with this value in its spec, and perhaps in its managed fields."""
    more = b'"managedFields":[{"fieldsV1":%s}],' % managed if managed else b""
    return _HEAD % more + b'"spec":{"a":%s}}' % value


def _review(value: bytes) -> bytes:
    request = (
        b'{"uid":"1","operation":"CREATE","kind":{"group":"example.com","version":"v1","kind":'
        b'"Thing"},"resource":{"group":"example.com","version":"v1","resource":"things"},"object":'
    )
    head = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":'
    return head + request + obj(value) + b"}}"


def _conversion(value: bytes) -> bytes:
    head = b'{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":'
    request = b'{"uid":"1","desiredAPIVersion":"example.com/v2","objects":['
    return head + request + obj(value) + b"]}}"


def _read_all(request: AdmissionRequest) -> AdmissionResponse:
    if request.object is not None:
        request.object.to_dict()
    return AdmissionResponse.allowed()


def _post(handler: Callable[[HTTPRequest], Any], body: bytes) -> Any:
    headers = {"content-type": "application/json"}
    return handler(HTTPRequest(method="POST", path="/", headers=headers, body=body))


def readers() -> dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], object]]]:
    """What is read, made of a value, and how."""
    admission = Admission(_read_all)
    conversion = ConversionWebhook()

    def page(value: bytes) -> bytes:
        good = obj(b"1")
        return b'{"metadata":{"resourceVersion":"7"},"items":[%s]}' % b",".join(
            [good, obj(value), good]
        )

    def managed(value: bytes) -> bytes:
        small = value[: len(value) // 2]
        return b'{"metadata":{"resourceVersion":"7"},"items":[%s]}' % obj(small, value)

    def spec(raw: bytes) -> object:
        return Object.from_json(KIND, raw).spec

    def copied(raw: bytes) -> object:
        return Object.from_json(KIND, raw).mutable_copy().freeze()

    def changed(raw: bytes) -> object:
        old = Object.from_json(KIND, raw)
        new = old.mutable_copy()
        new["spec"]["b"] = 1  # as a mutating webhook sets a default
        return JsonPatch.between(old, new).operations

    def event(raw: bytes) -> object:
        return decode_watch_events(KIND, [b'{"type":"ADDED","object":%s}' % raw])

    def other_event(raw: bytes) -> object:
        return decode_watch_events(KIND, [b'{"type":"BOOKMARK", "object":%s}' % raw])

    return {
        "from_json": (obj, lambda raw: Object.from_json(KIND, raw)),
        ".spec": (obj, spec),
        "copied and written": (obj, copied),
        "changed, and the patch": (obj, changed),
        "a list": (page, lambda raw: decode_list(KIND, raw)),
        "a list, managed fields": (managed, lambda raw: decode_list(KIND, raw)),
        "items of a list": (
            lambda value: b'{"metadata":{},"items":%s}' % value,
            lambda raw: decode_list(KIND, raw),
        ),
        "a watch": (obj, event),
        "a bookmark": (obj, other_event),
        "an answer": (bytes, decode_json),
        "admission": (_review, lambda raw: _post(admission, raw)),
        "conversion": (_conversion, lambda raw: _post(conversion, raw)),
    }


class _Stalls:
    """The longest that a thread was kept from running."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick)

    def _tick(self) -> None:
        # Processor time of this process: what others do on this machine does not count.
        before = time.process_time()
        while not self._stopped.is_set():
            time.sleep(_PERIOD)
            now = time.process_time()
            self.longest = max(self.longest, now - before)
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        time.sleep(10 * _PERIOD)
        self.longest = 0.0
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


def measure(read: Callable[[bytes], object], raw: bytes) -> tuple[float, float, str]:
    """Seconds of the call, longest stall of another thread, and what came of it."""
    with _Stalls() as stalls:
        begin = time.thread_time()
        try:
            read(raw)
            outcome = ""
        except Exception as error:
            outcome = type(error).__name__
        spent = time.thread_time() - begin
    return spent, stalls.longest, outcome


def main() -> None:
    """Measure, and print the worst of each input."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hostile", description=__doc__)
    parser.add_argument("--size", type=int, default=3_000_000, help="bytes; default 3,000,000")
    parser.add_argument("--inputs", default="", help="only those with this text in their name")
    parser.add_argument("--readers", default="", help="only those with this text in their name")
    parser.add_argument("--all", action="store_true", help="show each reader, not only the worst")
    parser.add_argument("--json", help="write the numbers to this file")
    options = parser.parse_args()
    found = []
    for name, value in inputs(options.size):
        if options.inputs not in name:
            continue
        for reader, (wrap, read) in readers().items():
            if options.readers in reader:
                raw = wrap(value)
                tried = [measure(read, raw) for _ in range(2)]
                spent, stall, outcome = min(tried)
                stall = min(one[1] for one in tried)
                found.append((name, reader, spent * 1000, stall * 1000, outcome))
        rows = [row for row in found if row[0] == name]
        worst = [max(rows, key=lambda row: row[2]), max(rows, key=lambda row: row[3])]
        for row in rows if options.all else dict.fromkeys(worst):
            print("{:36} {:24} {:9.1f} ms, others wait {:8.1f} ms  {}".format(*row), flush=True)
    if options.json:
        with open(options.json, "w") as file:  # noqa: PTH123
            json.dump(found, file)


if __name__ == "__main__":
    main()
