"""Decoders of list pages and watch events, which decode no more than the identifying metadata."""

from __future__ import annotations

import contextlib
import enum
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import msgspec

from appsdk_operator._generics import SpecT, SpecT_co, StatusT, StatusT_co, subscript
from appsdk_operator.resource import _codec
from appsdk_operator.resource._json import parts as json_parts
from appsdk_operator.resource._json.lines import Lines
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._object import Object

INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streamed list (KEP-3157)."""


class Undecodable(msgspec.Struct, frozen=True):
    """An object of a list or a watch that cannot be decoded.

    If its metadata cannot be decoded either, namespace, name, uid and resource version are empty.
    """

    error: _codec.DecodeError
    namespace: str
    name: str
    uid: str
    resource_version: str
    digest: int
    """A hash of its bytes, valid in this process."""

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return place or "an object without a readable name"


class ListPage(NamedTuple, Generic[SpecT_co, StatusT_co]):
    """One page of a list."""

    items: list[Object[SpecT_co, StatusT_co]]
    resource_version: str
    continue_token: str
    """Empty on the last page."""
    remaining: int | None
    undecodable: tuple[Undecodable, ...] = ()
    """The items that cannot be decoded; they are not among :attr:`items`."""


if not TYPE_CHECKING:  # mypy does not allow this inside a NamedTuple
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
    """The version of a bookmark."""
    initial_events_end: bool = False
    """Whether the bookmark ends a streamed list."""
    status: dict[str, Any] | None = None
    """The ``Status`` of an error."""


class UndecodableEvent(WatchEvent[SpecT_co, StatusT_co], frozen=True, gc=False, kw_only=True):
    """An event whose object cannot be decoded: ``object`` is None."""

    undecodable: Undecodable
    """The undecodable object."""


class _ListMeta(msgspec.Struct, gc=False, rename="camel"):
    # Null means absent. The count is informational, so a wrong type must not fail the list.
    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")
    remaining_item_count: Any = None


class _List(msgspec.Struct, gc=False, rename="camel"):
    metadata: _ListMeta
    # Required: a single object or a Status, read as an empty list, would empty the cache.
    items: list[msgspec.Raw] | None
    kind: str = ""
    api_version: str = ""


class _TypeMeta(msgspec.Struct, gc=False):
    kind: str = ""


class _Event(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _BookmarkMeta(msgspec.Struct, gc=False, rename="camel"):
    resource_version: str | None = None
    annotations: Any = None


class _Bookmark(msgspec.Struct, gc=False):
    metadata: _BookmarkMeta


_decode_list = msgspec.json.Decoder(_List).decode
_decode_type_meta = msgspec.json.Decoder(_TypeMeta).decode
_decode_text = msgspec.json.Decoder(str).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_bookmark = msgspec.json.Decoder(_Bookmark).decode

_MOST_NAMELESS = 1000
"""Objects of API servers have names. Each of a million others would cost an error."""

# The exact form in which API servers write events; other forms take the slower path.
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
    """Decode one page of a list; each object gets a copy of its bytes.

    Items that cannot be decoded are in :attr:`ListPage.undecodable`.

    Raises:
        DecodeError: ``body`` is not a list, cannot be split into its items, or has more than 1,000
            items without a readable name.
        WrongKindError: the list, or every one of its items, is of another kind.
    """
    try:
        page = _decode_list(body)
    except _codec.DECODE_ERRORS as error:
        split = _split_list(body)
        if split is None:
            raise _codec.DecodeError(
                f"not a list of {kind}: {error}; {_codec.excerpt(body)}"
            ) from error
        page = split
    _check_kind(kind, page)
    undecodable: list[Undecodable] = []
    try:
        # bytes() copies: a slice of the page would keep the whole page in memory.
        items = [Object.from_json(kind, bytes(item)) for item in page.items or ()]
    except _codec.DecodeError as error:
        items, undecodable = _decodable(kind, page.items or ())
        if not items and all(_is_wrong_kind(one.error) for one in undecodable):
            raise error
    meta = page.metadata
    left = meta.remaining_item_count
    return ListPage(
        items,
        meta.resource_version or "",
        meta.continue_ or "",
        left if isinstance(left, int) else None,
        tuple(undecodable),
    )


def _decodable(
    kind: Kind[SpecT, StatusT], found: Iterable[msgspec.Raw]
) -> tuple[list[Object[SpecT, StatusT]], list[Undecodable]]:
    items: list[Object[SpecT, StatusT]] = []
    undecodable: list[Undecodable] = []
    nameless = 0
    for item in found:
        raw = bytes(item)
        try:
            items.append(Object.from_json(kind, raw))
        except _codec.DecodeError as problem:
            undecodable.append(_undecodable(raw, problem))
            nameless += not undecodable[-1].name
            if nameless > _MOST_NAMELESS:
                raise _codec.DecodeError(
                    f"not a list of {kind}: more than {_MOST_NAMELESS} items have no readable "
                    f"name; the first error: {undecodable[0].error}"
                ) from None
    return items, undecodable


def _is_wrong_kind(error: Exception) -> bool:
    return isinstance(error, _codec.WrongKindError)


def _split_list(body: bytes) -> _List | None:
    """A list cut into items by brackets and quotes alone; None: it cannot be cut."""
    try:
        parts = json_parts.members(body)
        items = parts.pop("items")
        parts["items"] = b"[]" if items != b"null" else items
        head = b",".join(b'"%s":%s' % (name.encode(), text) for name, text in parts.items())
        page = _decode_list(b"{%s}" % head)
        if page.items is not None:
            page.items = [msgspec.Raw(item) for item in json_parts.elements(items)]
    except (KeyError, *_codec.DECODE_ERRORS):
        return None
    return page


def _undecodable(raw: bytes, error: _codec.DecodeError) -> Undecodable:
    metadata: dict[str, bytes] = {}
    if raw[:1] == b"{":  # the error of the search costs more than all else
        with contextlib.suppress(*_codec.DECODE_ERRORS):
            metadata = json_parts.members(json_parts.members(raw).get("metadata", b"{}"))

    def text(field: str) -> str:
        with contextlib.suppress(*_codec.DECODE_ERRORS):
            return _decode_text(metadata.get(field, b'""'))
        return ""

    return Undecodable(
        error.with_traceback(None),  # the trace holds the whole page
        text("namespace"),
        text("name"),
        text("uid"),
        text("resourceVersion"),
        hash(raw),
    )


def decode_watch_events(
    kind: Kind[SpecT, StatusT], lines: Sequence[bytes]
) -> tuple[list[WatchEvent[SpecT, StatusT]], _codec.DecodeError | None]:
    """Decode lines of a watch stream; errors are returned and not raised.

    One function, because a watch spends most of its time here.

    Returns:
        The events, with an ``UndecodableEvent`` for each object that cannot be decoded, and
        the error of the first line that is not an event; later lines are not decoded.
    """
    events: list[WatchEvent[SpecT, StatusT]] = []
    append, decode_header, intern = events.append, _codec.decode_header, sys.intern
    short, stride, few = json_parts.SHORT, json_parts.STRIDE, json_parts.FEW
    brackets, is_deeper = json_parts.BRACKETS, json_parts.is_deeper
    known, kind_name, api_version = _BY_FIRST_LETTER, kind.kind, kind.api_version
    for data, begin, end in _places(lines):
        usual = known.get(data[begin + 9]) if end > begin + 9 else None
        try:
            # 125: a closing brace, the event's own.
            if usual is not None and data.startswith(usual[0], begin) and data[end - 1] == 125:
                raw = data[begin + usual[1] : end - 1]
                if (  # as is_object_deeper, without a call
                    len(raw) > short
                    and raw[::stride].translate(brackets).count(1) > few
                    and is_deeper(raw)
                ):
                    append(_undecodable_event(usual[2], raw, _codec.too_deep(kind, raw)))
                    continue
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
        except (*_codec.DECODE_ERRORS, _codec.WrongKindError):
            pass  # perhaps more follows the object: the slower way decides
        try:
            append(_decode_other(kind, data[begin:end]))
        except _codec.DecodeError as error:
            return events, error
    return events, None


def _places(lines: Sequence[bytes]) -> Iterable[tuple[bytes, int, int]]:
    return lines.places if isinstance(lines, Lines) else [(one, 0, len(one)) for one in lines]


def decode_watch_event(kind: Kind[SpecT, StatusT], line: bytes) -> WatchEvent[SpecT, StatusT]:
    """Decode one line of a watch stream.

    Raises:
        DecodeError: the line is not an event, or its object cannot be decoded.
        WrongKindError: its object is of another kind.
    """
    events, garbage = decode_watch_events(kind, (line,))
    if garbage is not None:
        raise garbage
    event = events[0]
    if isinstance(event, UndecodableEvent):
        raise event.undecodable.error
    return event


def _decode_other(kind: Kind[SpecT, StatusT], line: bytes) -> WatchEvent[SpecT, StatusT]:
    try:
        try:
            event = _decode_event(line)
        except _codec.DECODE_ERRORS:
            split = _split_event(line)
            if split is None:
                raise
            event = split
        event_type = WatchEventType(event.type)
        raw = bytes(event.object)
        if event_type is WatchEventType.BOOKMARK:
            meta = _decode_bookmark(raw).metadata
            annotations = meta.annotations if isinstance(meta.annotations, dict) else {}
            ended = annotations.get(INITIAL_EVENTS_END) == "true"
            return WatchEvent(event_type, None, meta.resource_version or "", ended)
    except (*_codec.DECODE_ERRORS, ValueError) as error:
        raise _codec.DecodeError(f"not a watch event: {error}; {_codec.excerpt(line)}") from error
    if event_type is WatchEventType.ERROR:
        status = _codec.decode_json(raw)
        return WatchEvent(event_type, None, status=status if isinstance(status, dict) else {})
    try:
        return WatchEvent(event_type, Object.from_json(kind, raw))
    except _codec.DecodeError as error:
        return _undecodable_event(event_type, raw, error)


def _undecodable_event(
    event_type: WatchEventType, raw: bytes, error: _codec.DecodeError
) -> UndecodableEvent[Any, Any]:
    return UndecodableEvent(event_type, None, undecodable=_undecodable(raw, error))


def _split_event(line: bytes) -> _Event | None:
    """An event whose object is nested too deep or is not JSON; None: the line is not an event."""
    try:
        parts = json_parts.members(line)
        return _Event(_decode_text(parts["type"]), msgspec.Raw(parts["object"]))
    except (KeyError, *_codec.DECODE_ERRORS):
        # The object may be any bytes: the end of the line is its end.
        prefix = next((one for one in _PREFIXES if line.startswith(one)), None)
        if prefix is None or not line.endswith(b"}"):
            return None
        return _Event(_PREFIXES[prefix].value, msgspec.Raw(line[len(prefix) : -1]))


def _check_kind(kind: Kind, page: _List) -> None:
    if (page.kind, page.api_version) == (
        f"{_codec.PARTIAL_METADATA_KIND}List",
        _codec.PARTIAL_METADATA_VERSION,
    ):
        is_other = False
    elif page.api_version and page.api_version != kind.api_version:
        is_other = True
    elif page.kind and page.kind != f"{kind.kind}List" and page.items:
        # A custom resource may have any list kind, but then its items have their kind.
        is_other = _type_of_first(page.items) not in (kind.kind, None)
    else:
        is_other = False
    if is_other:
        raise _codec.WrongKindError(
            f"expected a list of {kind.api_version} {kind.kind}, got {page.api_version} "
            f"{page.kind}: check the kind's plural, group and version"
        )


def _type_of_first(items: Sequence[msgspec.Raw]) -> str | None:
    """The kind of the first decodable item; None if there is none."""
    for item in items:
        with contextlib.suppress(*_codec.DECODE_ERRORS):
            return _decode_type_meta(bytes(item)).kind
    return None
