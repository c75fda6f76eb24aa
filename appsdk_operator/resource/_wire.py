"""What lists and watches carry, decoded only as far as the machinery needs it."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import msgspec

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.resource import _codec
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._lines import Lines
from appsdk_operator.resource._object import Object

__all__ = [
    "DecodedLines",
    "ListPage",
    "WatchEvent",
    "WatchEventType",
    "decode_list",
    "decode_watch_event",
    "decode_watch_events",
]

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streamed list (KEP-3157)."""


class ListPage(NamedTuple, Generic[SpecT_co, StatusT_co]):
    """One page of a list."""

    items: list[Object[SpecT_co, StatusT_co]]
    resource_version: str
    continue_token: str
    """Empty on the last page."""
    remaining: int | None


if not TYPE_CHECKING:  # mypy knows no such line inside of a NamedTuple
    ListPage.__class_getitem__ = subscript


class WatchEventType(enum.Enum):
    """The types of events in a watch stream."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    BOOKMARK = "BOOKMARK"
    ERROR = "ERROR"


class WatchEvent(msgspec.Struct, Generic[SpecT_co, StatusT_co], frozen=True, gc=False):
    """One line of a watch stream."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    type: WatchEventType
    object: Object[SpecT_co, StatusT_co] | None
    """The object; None for bookmarks and errors."""
    resource_version: str = ""
    """A bookmark's version."""
    initial_events_end: bool = False
    """Whether the bookmark ends a streamed list."""
    status: dict[str, Any] | None = None
    """An error's ``Status``."""


class _ListMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class _List(msgspec.Struct, gc=False, rename="camel"):
    metadata: _ListMeta
    # Required: a single object or a Status taken for an empty list would delete the whole cache.
    items: list[msgspec.Raw] | None
    kind: str = ""
    api_version: str = ""


class _TypeMeta(msgspec.Struct, gc=False):
    kind: str = ""


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Bookmark(msgspec.Struct, gc=False):
    metadata: _BookmarkMeta


_decode_list = msgspec.json.Decoder(_List).decode
_decode_type_meta = msgspec.json.Decoder(_TypeMeta).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode

# API servers write events exactly so; a stream that differs takes the slower way.
_PREFIXES = {
    b'{"type":"ADDED","object":': WatchEventType.ADDED,
    b'{"type":"MODIFIED","object":': WatchEventType.MODIFIED,
    b'{"type":"DELETED","object":': WatchEventType.DELETED,
}
_ADDED, _MODIFIED, _DELETED = _PREFIXES
_BY_FIRST_LETTER = {
    prefix[9]: (prefix, len(prefix), event_type) for prefix, event_type in _PREFIXES.items()
}


def decode_list(kind: Kind[SpecT, StatusT], body: bytes) -> ListPage[SpecT, StatusT]:
    """The objects of one page, each with bytes of its own.

    Raises:
        DecodeError: not a list, or one of its items is not an object of ``kind``.
        WrongKindError: it is a list of another kind.
    """
    try:
        page = _decode_list(body)
    except _codec.DECODE_ERRORS as error:
        raise _codec.DecodeError(f"not a list of {kind}: {error}; {_codec.excerpt(body)}") from (
            error
        )
    _check_kind(kind, page)
    meta = page.metadata
    # bytes() copies: a slice of the page would keep the whole page in memory.
    items = [Object.from_json(kind, bytes(item)) for item in page.items or ()]
    return ListPage(items, meta.resource_version, meta.continue_, meta.remaining_item_count)


class DecodedLines(NamedTuple, Generic[SpecT_co, StatusT_co]):
    """What lines of a watch stream say."""

    events: list[WatchEvent[SpecT_co, StatusT_co]]
    wrong: list[_codec.WrongKindError]
    """A line whose object is of another kind each; those are not among the events."""
    garbage: _codec.DecodeError | None
    """The first line that is no event; what came after it was not looked at."""


if not TYPE_CHECKING:
    DecodedLines.__class_getitem__ = subscript


def decode_watch_events(
    kind: Kind[SpecT, StatusT], lines: Sequence[bytes]
) -> DecodedLines[SpecT, StatusT]:
    """Lines of a watch stream; what is wrong with them is told and not raised.

    All in one function, because most of a watch's time is spent here.
    """
    events: list[WatchEvent[SpecT, StatusT]] = []
    wrong: list[_codec.WrongKindError] = []
    append, decode_header, intern = events.append, _codec.decode_header, sys.intern
    known, kind_name, api_version = _BY_FIRST_LETTER, kind.kind, kind.api_version
    for data, begin, end in _places(lines):
        usual = known.get(data[begin + 9]) if end > begin + 9 else None
        try:
            # 125: a closing brace, the event's own.
            if usual is not None and data.startswith(usual[0], begin) and data[end - 1] == 125:
                raw = data[begin + usual[1] : end - 1]
                header = decode_header(raw)
                if header.kind != kind_name or header.api_version != api_version:
                    _codec.check_header(kind, header)
                m = header.metadata
                obj = Object(  # as object_of makes it, without a call
                    kind,
                    raw,
                    intern(m.namespace) if m.namespace else "",
                    m.name or "",
                    m.uid or "",
                    m.resource_version or "",
                    m.generation or 0,
                    m.deletion_timestamp,
                )
                append(WatchEvent(usual[2], obj))
                continue
        except _codec.WrongKindError as error:
            wrong.append(error)
            continue
        except _codec.DECODE_ERRORS:
            pass  # perhaps more follows the object: the slower way decides
        try:
            append(_decode_other(kind, data[begin:end]))
        except _codec.WrongKindError as error:
            wrong.append(error)
        except _codec.DecodeError as error:
            return DecodedLines(events, wrong, error)
    return DecodedLines(events, wrong, None)


def _places(lines: Sequence[bytes]) -> Iterable[tuple[bytes, int, int]]:
    return lines.places if isinstance(lines, Lines) else [(one, 0, len(one)) for one in lines]


def decode_watch_event(kind: Kind[SpecT, StatusT], line: bytes) -> WatchEvent[SpecT, StatusT]:
    """One line of a watch stream.

    Raises:
        DecodeError: the line is not an event.
        WrongKindError: its object is of another kind.
    """
    events, wrong, garbage = decode_watch_events(kind, (line,))
    if wrong or garbage:
        raise garbage or wrong[0]
    return events[0]


def _decode_other(kind: Kind[SpecT, StatusT], line: bytes) -> WatchEvent[SpecT, StatusT]:
    try:
        event = _decode_event(line)
        event_type = WatchEventType(event.type)
        raw = bytes(event.object)
        if event_type is WatchEventType.BOOKMARK:
            meta = _decode_bookmark(raw).metadata
            ended = (meta.annotations or {}).get(INITIAL_EVENTS_END) == "true"
            return WatchEvent(event_type, None, meta.resource_version, ended)
    except (*_codec.DECODE_ERRORS, ValueError) as error:
        raise _codec.DecodeError(f"not a watch event: {error}; {_codec.excerpt(line)}") from error
    if event_type is WatchEventType.ERROR:
        status = _codec.decode(raw)
        return WatchEvent(event_type, None, status=status if isinstance(status, dict) else {})
    return WatchEvent(event_type, Object.from_json(kind, raw))


def _check_kind(kind: Kind, page: _List) -> None:
    if (page.kind, page.api_version) == (f"{_codec.PARTIAL}List", _codec.PARTIAL_VERSION):
        is_other = False
    elif page.api_version and page.api_version != kind.api_version:
        is_other = True
    elif page.kind and page.kind != f"{kind.kind}List" and page.items:
        # A custom resource may call its lists as it likes, but then the items say what they are.
        is_other = _decode_type_meta(page.items[0]).kind != kind.kind
    else:
        is_other = False
    if is_other:
        raise _codec.WrongKindError(
            f"expected a list of {kind.api_version} {kind.kind}, got {page.api_version} "
            f"{page.kind}: check the kind's plural, group and version"
        )
