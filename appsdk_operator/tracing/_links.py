"""Which earlier span led to a call."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, final

from opentelemetry.trace import Link, SpanContext

from appsdk_operator.runtime import CallRecord, Clock, RequestRecord, safe_text

_MOST: Final = 4096
_WRITE_AGE: Final = 60.0
"""Seconds after which an event of an object is no longer put down to a write."""

_Key = tuple[str, str, str]


def attribute_text(value: object) -> str:
    """``value`` as text that exporters can encode; never raises.

    They lose a whole batch of spans for one lone surrogate, as in the name of a file that is not
    UTF-8.
    """
    return safe_text(value).encode("utf-8", "backslashreplace").decode("utf-8")


@final
class Links:
    """Remembers spans that calls may follow from: the last 4096 writes and calls. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        # By resource, namespace and name; and by controller, kind, namespace and name.
        self._writes: OrderedDict[_Key, tuple[SpanContext, float]] = OrderedDict()
        self._unfinished: OrderedDict[tuple[str, ...], SpanContext] = OrderedDict()

    def note_write(self, request: RequestRecord, context: SpanContext) -> None:
        """Remember a write that begins: its event may come before its answer."""
        key = _key_of(request)
        with self._lock:
            self._writes[key] = context, self._clock.monotonic()
            self._writes.move_to_end(key)
            while len(self._writes) > _MOST:
                self._writes.popitem(last=False)

    def forget_write(self, request: RequestRecord, context: SpanContext) -> None:
        """Forget a write that failed."""
        key = _key_of(request)
        with self._lock:
            if self._writes.get(key, (None, 0.0))[0] is context:
                del self._writes[key]

    def note_call(self, call: CallRecord, context: SpanContext) -> None:
        """Remember a call that is to be repeated."""
        key = call.controller, str(call.target), *call.key
        with self._lock:
            self._unfinished.pop(key, None)
            if call.outcome in {"retrying", "requeued"}:
                self._unfinished[key] = context
                while len(self._unfinished) > _MOST:
                    self._unfinished.popitem(last=False)

    def of(self, call: CallRecord) -> list[Link]:
        """The spans that a call follows from."""
        return list(self._of(call))

    def _of(self, call: CallRecord) -> Iterator[Link]:
        with self._lock:
            earlier = self._unfinished.get((call.controller, str(call.target), *call.key))
        if earlier is not None:
            yield Link(earlier, {"appsdk.link": "the call that asked for this one"})
        seen: set[_Key] = set()
        for reason in call.reasons:
            kind = getattr(reason, "kind", None)
            name = getattr(reason, "name", None)
            if kind is None or not isinstance(name, str):
                continue
            key = (
                str(getattr(kind, "qualified_name", kind)),
                str(getattr(reason, "namespace", "")),
                name,
            )
            if key in seen:
                continue
            seen.add(key)
            with self._lock:
                write = self._writes.get(key)
            if write is not None and self._clock.monotonic() - write[1] <= _WRITE_AGE:
                yield Link(
                    write[0],
                    {
                        "appsdk.link": "this operator's last write of the object",
                        "appsdk.reason": attribute_text(reason),
                    },
                )


def _key_of(request: RequestRecord) -> _Key:
    return request.resource.partition("/")[0], request.namespace, request.name
