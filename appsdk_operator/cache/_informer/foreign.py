"""Watches of other libraries as event streams for an informer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Self, final

from appsdk_operator.resource import DecodeError, EncodeError, Kind, as_object, encode_json

_TYPES = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"})


@final
class ForeignStream:
    """Another library's watch, for a :class:`ListWatchClient` of your own to return.

    Args:
        kind: the kind of its objects.
        events: pairs of type and object, mappings or objects with ``type`` and ``object``, as the
            official client's ``watch.stream()`` and lightkube's ``watch()`` give them. Objects are
            converted as by :func:`~appsdk_operator.resource.as_object`.

    Raises:
        TypeError: during a read, if the form of an event or its object is unknown. An object that
            cannot be decoded is no error: the informer reports it and follows the others.

    >>> from appsdk_operator.resource import kinds
    >>> stream = ForeignStream(kinds.core.v1.Pod, [("ADDED", {"metadata": {"name": "web"}})])
    >>> [line[:16] for lines in stream for line in lines]
    [b'{"type":"ADDED",']
    """

    def __init__(self, kind: Kind, events: Iterable[Any]) -> None:
        self._kind = kind
        self._events = events

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        close = getattr(self._events, "close", None)
        if callable(close):
            close()

    def __iter__(self) -> Iterator[list[bytes]]:
        for event in self._events:
            event_type, value = _parts(event)
            is_object = event_type not in ("BOOKMARK", "ERROR")
            raw = self._raw(value) if is_object else encode_json(value)
            yield [b'{"type":"%s","object":%s}' % (event_type.encode(), raw)]

    def _raw(self, value: Any) -> bytes:
        try:
            return as_object(self._kind, value).raw
        except (DecodeError, EncodeError):
            if not isinstance(value, Mapping):
                raise
            # As it came, for the informer to refuse: it reports the object and follows the others.
            # An error here would end each watch at this event.
            return json.dumps(dict(value)).encode()


def _parts(event: Any) -> tuple[str, Any]:
    if isinstance(event, Mapping):
        # The official client has the server's own JSON as well as its model.
        found = event.get("type"), event.get("raw_object", event.get("object"))
    elif isinstance(event, tuple) and len(event) == 2:
        found = event
    else:
        found = getattr(event, "type", None), getattr(event, "object", None)
    event_type = getattr(found[0], "value", found[0])
    if event_type not in _TYPES:
        raise TypeError(
            f"{type(event).__qualname__} is not a watch event: it needs a type "
            f"({', '.join(sorted(_TYPES))}) and an object"
        )
    return str(event_type), found[1]
