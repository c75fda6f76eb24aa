"""The metrics of an informer, read at each scrape."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Protocol, final

from appsdk_operator import client
from appsdk_operator.cache._informer.store import Lister
from appsdk_operator.client import (
    UNPARSEABLE,
    WATCH_ERRORS,
    WATCH_EVENTS,
    ApiError,
    TransportError,
)
from appsdk_operator.resource import DecodeError, Kind, WatchEvent, WatchEventType
from appsdk_operator.runtime import Family, Metrics, Sample, fork_safe, present_metrics

_LABELS = ("kind", "namespace")
_OBJECTS = Family("informer_objects", "gauge", "Objects in the local copy.", _LABELS)
_BYTES = Family("informer_object_bytes", "gauge", "Bytes of JSON in the local copy.", _LABELS)
_INFORMERS = Family("informers", "gauge", "Informers that run.", _LABELS)
_SYNCED = Family(
    "informer_synced", "gauge", "How many of them had a complete local copy once.", _LABELS
)
_LISTS = Family("informer_lists_total", "counter", "Complete lists received.", _LABELS)
_PENDING = Family(
    "informer_handler_pending_events", "gauge", "Events that wait for event handlers.", _LABELS
)
_MERGED = Family(
    "informer_handler_merged_events_total",
    "counter",
    "Events for event handlers merged into others of the same object, because too many waited.",
    _LABELS,
)
_UNDECODABLE = Family(
    "informer_undecodable_objects", "gauge", "Objects of the server that cannot be read.", _LABELS
)
_ERRORS = Family("informer_errors_total", "counter", "Problems, by cause.", (*_LABELS, "cause"))
# The errors that a list or a watch can be answered with; all others count as "api".
_ANSWERS = (
    client.BadRequest,
    client.Expired,
    client.Forbidden,
    client.Gone,
    client.InternalError,
    client.Invalid,
    client.NotFound,
    client.ServerError,
    client.ServerTimeout,
    client.ServiceUnavailable,
    client.Timeout,
    client.TooManyRequests,
    client.Unauthorized,
)
# The most frequent first.
_EVENT_TYPES = (
    WatchEventType.MODIFIED,
    WatchEventType.ADDED,
    WatchEventType.DELETED,
    WatchEventType.BOOKMARK,
    WatchEventType.ERROR,
)
_CAUSES = (*(answer.__name__ for answer in _ANSWERS), "api", "transport", "decode", "other")


class Measured(Protocol):
    """The members of an informer that are published."""

    @property
    def kind(self) -> Kind: ...
    @property
    def namespace(self) -> str: ...
    @property
    def store(self) -> Lister[Any, Any]: ...
    @property
    def undecodable_objects(self) -> int: ...
    @property
    def has_synced(self) -> bool: ...
    @property
    def pending_events(self) -> tuple[int, int]: ...


@final
class InformerMetrics:
    """The metrics of one informer; every series exists at 0 from the start."""

    def __init__(self, informer: Measured, metrics: Metrics | None) -> None:
        self._informer = informer
        self._lock = fork_safe(threading.Lock())
        self._errors = dict.fromkeys(_CAUSES, 0)
        self.lists = 0
        # Changed by the reflector's thread alone.
        self._watch_events = [0] * len(_EVENT_TYPES)
        self._watch_errors = 0
        self._metrics = metrics
        self.retire: Callable[[], None] = lambda: None

    def publish(self) -> None:
        """Publish from now on."""
        self.retire = present_metrics(self._metrics).add_source(self._samples)

    def problem(self, error: Exception) -> None:
        """Count a problem by its cause, which for an API error is the reason."""
        with self._lock:
            self._errors[_cause(error)] += 1

    def watched(self, events: Iterable[WatchEvent], *, is_garbled: bool) -> None:
        """Count what one read of a watch brought.

        Args:
            events: the events.
            is_garbled: whether a line came that is not an event.
        """
        types = [event.type for event in events]
        while types:
            # By identity, because to hash an enumeration costs more than all the rest. Nearly
            # always all are of one type.
            one = types[0]
            count = types.count(one)
            self._watch_events[_EVENT_TYPES.index(one)] += count
            types = [] if count == len(types) else [each for each in types if each is not one]
        self._watch_errors += is_garbled

    def _samples(self) -> list[Sample]:
        informer = self._informer
        labels = (str(informer.kind), informer.namespace)
        plural = informer.kind.plural
        pending, merged = informer.pending_events
        with self._lock:
            errors = dict(self._errors)
        return [
            Sample(_OBJECTS, labels, len(informer.store)),
            Sample(_BYTES, labels, informer.store.json_bytes),
            Sample(_UNDECODABLE, labels, informer.undecodable_objects),
            Sample(_INFORMERS, labels, 1),
            Sample(_SYNCED, labels, int(informer.has_synced)),
            Sample(_LISTS, labels, self.lists),
            Sample(_PENDING, labels, pending),
            Sample(_MERGED, labels, merged),
            *(Sample(_ERRORS, (*labels, cause), count) for cause, count in errors.items()),
            *(
                Sample(WATCH_EVENTS, (event_type.value, plural), count)
                for event_type, count in zip(_EVENT_TYPES, self._watch_events, strict=True)
            ),
            Sample(WATCH_ERRORS, (UNPARSEABLE, plural), self._watch_errors),
        ]


def _cause(error: Exception) -> str:
    if isinstance(error, ApiError):
        return type(error).__name__ if type(error) in _ANSWERS else "api"
    if isinstance(error, TransportError):
        return "transport"
    return "decode" if isinstance(error, DecodeError) else "other"
