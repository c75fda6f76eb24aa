"""Representations of objects in responses: JSON, protobuf, metadata only, and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from appsdk_operator.apiserver._builtin import protobuf
from appsdk_operator.apiserver._http.accepted_types import JSON, JSON_TYPES, YAML, accepted_types
from appsdk_operator.apiserver._http.tables import row, table
from appsdk_operator.apiserver._storage.resources import ServedVersion
from appsdk_operator.apiserver._storage.storage import Record
from appsdk_operator.apiserver._values.status import (
    FieldError,
    StatusError,
    bad_request,
    not_acceptable,
)

_encode: Final = msgspec.json.Encoder().encode


def _list_metadata(served: ServedVersion, metadata: dict[str, Any]) -> dict[str, Any]:
    """List metadata; that of custom resources always has ``continue``."""
    return {"continue": "", **metadata} if served.resource.strategy.custom else metadata


def _list(head: dict[str, Any], items: Iterable[bytes]) -> bytes:
    """A list object: ``head`` plus items that are encoded already."""
    return b'%b,"items":[%b]}\n' % (_encode(head)[:-1], b",".join(items))


@final
class FullRepresentation:
    """Whole objects as JSON."""

    key = "json"

    def one(self, _served: ServedVersion, obj: dict[str, Any]) -> bytes:
        """An object that did not come from the storage."""
        return _encode(obj)

    def stored(self, served: ServedVersion, record: Record) -> bytes:
        """A stored object."""
        return served.data(record)

    if TYPE_CHECKING:

        def event_object(self, served: ServedVersion, record: Record) -> bytes: ...
        def first_event(self, served: ServedVersion, record: Record) -> bytes: ...
    else:
        event_object = first_event = stored
    has_head = False

    def bookmark(self, served: ServedVersion, metadata: dict[str, Any]) -> bytes:
        """The object of a bookmark."""
        kind, version = served.resource.kind, served.api_version
        return _encode({"kind": kind, "apiVersion": version, "metadata": metadata})

    def list(
        self, served: ServedVersion, records: Sequence[Record], metadata: dict[str, Any]
    ) -> bytes:
        """A list of stored objects."""
        head = {
            "kind": served.resource.list_kind,
            "apiVersion": served.api_version,
            "metadata": _list_metadata(served, metadata),
        }
        return _list(head, map(served.item, records))


@final
class ProtobufRepresentation:
    """Whole objects as protobuf; the events of watches are JSON."""

    key: str = FullRepresentation.key

    def one(self, served: ServedVersion, obj: dict[str, Any]) -> bytes:
        """An object that did not come from the storage."""
        return _as_protobuf(_WHOLE.one(served, obj))

    def stored(self, served: ServedVersion, record: Record) -> bytes:
        """A stored object."""
        try:
            message = _protobuf_message(served, record)
        except ValueError:
            return _WHOLE.stored(served, record)
        return protobuf.wrap(served.api_version, served.resource.kind, message)

    has_head = False
    if TYPE_CHECKING:

        def event_object(self, served: ServedVersion, record: Record) -> bytes: ...
        def first_event(self, served: ServedVersion, record: Record) -> bytes: ...
        def bookmark(self, served: ServedVersion, metadata: dict[str, Any]) -> bytes: ...
    else:
        event_object = first_event = FullRepresentation.event_object
        bookmark = FullRepresentation.bookmark

    def list(
        self, served: ServedVersion, records: Sequence[Record], metadata: dict[str, Any]
    ) -> bytes:
        """A list of stored objects."""
        head = {
            "kind": served.resource.list_kind,
            "apiVersion": served.api_version,
            "metadata": metadata,
        }
        try:
            items = [_protobuf_message(served, record) for record in records]
            body = protobuf.encode_list(head, items)
        except ValueError:
            body = None
        return _WHOLE.list(served, records, metadata) if body is None else body


def _protobuf_message(served: ServedVersion, record: Record) -> bytes:
    """The message of a stored object, encoded once for each version.

    Raises:
        ValueError: a field has no place in the message, or the kind has none.
    """

    def encode() -> bytes:
        obj = msgspec.json.decode(served.data(record))
        message = protobuf.encode_message(obj, served.api_version, served.resource.kind)
        if message is None:
            raise ValueError(f"{served.resource.kind} has no protobuf encoding")
        return message

    return record.encoded_as(f"protobuf/{served.api_version}", encode)


def _as_protobuf(body: bytes) -> bytes:
    """Convert JSON to protobuf; unchanged when a field has no place in the message."""
    try:
        return protobuf.encode(msgspec.json.decode(body)) or body
    except ValueError:
        return body


def media_type_of(body: bytes) -> str:
    """The media type of a body that a representation made."""
    return protobuf.MEDIA_TYPE if protobuf.is_encoded(body) else JSON


@final
class MetadataRepresentation:
    """The metadata of objects only, as ``PartialObjectMetadata``.

    Args:
        version: of ``meta.k8s.io``: ``v1`` or ``v1beta1``.
        lists: whether the client asked for lists and not for single objects.
    """

    def __init__(self, version: str, *, lists: bool) -> None:
        """The representation of that version."""
        self._version = f"meta.k8s.io/{version}"
        self._lists = lists
        self.key: str = f"partial/{version}"

    def one(self, served: ServedVersion, obj: dict[str, Any]) -> bytes:
        """An object that did not come from the storage."""
        if self._lists:
            raise StatusError(500, "content is not a list", reason="")
        return self._object(served, obj)

    def _object(self, _served: ServedVersion, obj: dict[str, Any]) -> bytes:
        partial = {
            "kind": "PartialObjectMetadata",
            "apiVersion": self._version,
            "metadata": obj["metadata"],
        }
        return _encode(partial)

    def stored(self, served: ServedVersion, record: Record) -> bytes:
        """A stored object."""
        return self.one(served, _with_metadata_of(served, record))

    if TYPE_CHECKING:

        def event_object(self, served: ServedVersion, record: Record) -> bytes: ...
        def first_event(self, served: ServedVersion, record: Record) -> bytes: ...
    else:
        event_object = first_event = stored
    has_head = False

    def bookmark(self, served: ServedVersion, metadata: dict[str, Any]) -> bytes:
        """The object of a bookmark."""
        return self._object(served, {"metadata": metadata})

    def list(
        self, served: ServedVersion, records: Sequence[Record], metadata: dict[str, Any]
    ) -> bytes:
        """A list of stored objects."""
        if not self._lists:
            raise StatusError(
                406,
                "you requested PartialObjectMetadata, but the requested object is a list "
                f"({_go_list_type(served)})",
            )
        head = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": self._version,
            "metadata": metadata,
        }
        if not records:
            return _encode({**head, "items": None})
        objects = (_with_metadata_of(served, record) for record in records)
        return _list(head, (self._object(served, obj) for obj in objects))


def _with_metadata_of(served: ServedVersion, record: Record) -> dict[str, Any]:
    # A webhook may convert labels and annotations; other conversions leave the metadata alone.
    return record.decode() if served.resource.converter is None else served.decode(record)


def _go_list_type(served: ServedVersion) -> str:
    if served.resource.strategy.custom:
        return "*unstructured.UnstructuredList"
    package = served.resource.group.partition(".")[0]
    if package in ("", "events"):
        package = "core"
    return f"*{package}.{served.resource.list_kind}"


@final
class TableRepresentation:
    """Tables for people to read.

    Args:
        include: what each row carries: ``None``, ``Metadata`` (the default) or ``Object``.
        now: returns the seconds since 1970, for ages.
        version: of ``meta.k8s.io``: ``v1`` or ``v1beta1``.

    Raises:
        StatusError: 400, ``include`` is not valid.
    """

    def __init__(self, include: str, now: Callable[[], float], version: str = "v1") -> None:
        """See the class."""
        if include not in ("", "None", "Metadata", "Object"):
            what = "must be 'Metadata', 'Object', 'None', or empty"
            problem = FieldError.invalid("includeObject", include, what)
            raise bad_request(f"Unable to convert to Table as requested: {problem}")
        self._include = include or "Metadata"
        self._now = now
        self._version = f"meta.k8s.io/{version}"
        self.key: str = f"table/{version}/{self._include}"

    def one(self, served: ServedVersion, obj: dict[str, Any]) -> bytes:
        """A table of one object that did not come from the storage."""
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return self._table(served, [obj], metadata)

    def stored(self, served: ServedVersion, record: Record) -> bytes:
        """A table of one stored object."""
        return self.one(served, served.decode(record))

    first_event = stored
    has_head = True

    def event_object(self, served: ServedVersion, record: Record) -> bytes:
        """A table without columns; only the first event of a watch has them."""
        return self._headless(served, served.decode(record))

    def bookmark(self, served: ServedVersion, metadata: dict[str, Any]) -> bytes:
        """The object of a bookmark."""
        return self._headless(served, {"metadata": metadata})

    def _headless(self, served: ServedVersion, obj: dict[str, Any]) -> bytes:
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        return self._table(served, [obj], metadata, columnDefinitions=None)

    def list(
        self, served: ServedVersion, records: Sequence[Record], metadata: dict[str, Any]
    ) -> bytes:
        """A table of stored objects."""
        objects = [served.decode(record) for record in records]
        return self._table(served, objects, metadata)

    def _table(
        self,
        served: ServedVersion,
        objects: Sequence[dict[str, Any]],
        metadata: dict[str, Any],
        **other: Any,
    ) -> bytes:
        now = self._now()
        rows = [row(served, obj, self._include, now) for obj in objects]
        made = table(served, rows, metadata)
        return _encode({**made, "apiVersion": self._version, **other})


Representation = (
    FullRepresentation | ProtobufRepresentation | MetadataRepresentation | TableRepresentation
)

_WHOLE: Final = FullRepresentation()
_PARTIAL: Final = {
    (version, lists): MetadataRepresentation(version, lists=lists)
    for version in ("v1", "v1beta1")
    for lists in (True, False)
}
MEDIA_TYPES: Final = (JSON, YAML, protobuf.MEDIA_TYPE)
"""The media types of the real server."""
STREAM_TYPES: Final = (f"{JSON};stream=watch", f"{protobuf.MEDIA_TYPE};stream=watch")
"""The media types of watches."""
_PROTOBUF: Final = ProtobufRepresentation()
# JSON bodies are converted to YAML afterwards, if the client prefers it.
_JSON_TYPES: Final = (*JSON_TYPES, YAML)


def negotiate(
    accept: str,
    *,
    include: str = "",
    now: Callable[[], float] = lambda: 0.0,
    custom: bool = True,
    streams: bool = False,
    tables: bool = True,
) -> Representation:
    """The representation for an ``Accept`` header: the preferred one of those supported.

    Args:
        accept: the header.
        include: what the rows of a table carry.
        now: returns the seconds since 1970, for ages.
        custom: whether the resource is a custom one, which has no protobuf.
        streams: whether it is for a watch, which has no YAML.
        tables: whether the objects can be shown in tables.

    Raises:
        StatusError: 406, none is supported.
    """
    if accept in ("", *JSON_TYPES):
        return _WHOLE
    for media_type, given in accepted_types(accept):
        wanted = given.get("as", "")
        if media_type == protobuf.MEDIA_TYPE and not custom and not wanted:
            return _PROTOBUF
        if media_type not in _JSON_TYPES:
            continue
        if media_type == YAML and streams:
            raise not_acceptable(STREAM_TYPES)
        if not wanted:
            return _WHOLE
        if given.get("g") == "meta.k8s.io" and given.get("v") in ("v1", "v1beta1"):
            if wanted == "Table" and tables:
                return TableRepresentation(include, now, given["v"])
            if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return _PARTIAL[given["v"], wanted.endswith("List")]
    raise not_acceptable(MEDIA_TYPES)
