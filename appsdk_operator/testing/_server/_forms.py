"""The forms objects are sent in: whole, their metadata only, or rows of a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import msgspec

from appsdk_operator.testing._server import _tables
from appsdk_operator.testing._server._resources import ServedVersion
from appsdk_operator.testing._server._status import not_acceptable
from appsdk_operator.testing._server._storage import Record

__all__ = ["AnyForm", "PartialForm", "TableForm", "WholeForm", "negotiate"]

_encode: Final = msgspec.json.Encoder().encode


def _list(head: dict[str, Any], items: Iterable[bytes]) -> bytes:
    """A list object: ``head`` with the items, which are JSON already."""
    return b'%b,"items":[%b]}\n' % (_encode(head)[:-1], b",".join(items))


@final
class WholeForm:
    """Objects as they are."""

    key = "json"

    def one(self, _served: ServedVersion, obj: dict[str, Any]) -> bytes:
        """An object that is not stored, or not as it is shown."""
        return _encode(obj)

    def stored(self, served: ServedVersion, record: Record) -> bytes:
        """A stored object."""
        return served.data(record)

    event_object = stored

    def list(
        self, served: ServedVersion, records: Sequence[Record], metadata: dict[str, Any]
    ) -> bytes:
        """A list of stored objects."""
        head = {
            "kind": served.resource.list_kind,
            "apiVersion": served.api_version,
            "metadata": metadata,
        }
        return _list(head, map(served.item, records))


@final
class PartialForm:
    """The metadata of objects only, as ``PartialObjectMetadata``."""

    key = "partial"

    def one(self, _served: ServedVersion, obj: dict[str, Any]) -> bytes:
        """An object that is not stored, or not as it is shown."""
        partial = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
        return _encode(partial)

    def stored(self, served: ServedVersion, record: Record) -> bytes:
        """A stored object."""
        return self.one(served, record.decode())

    event_object = stored

    def list(
        self, served: ServedVersion, records: Sequence[Record], metadata: dict[str, Any]
    ) -> bytes:
        """A list of stored objects."""
        head = {
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
        }
        return _list(head, (self.stored(served, record) for record in records))


@final
class TableForm:
    """Rows for people to read.

    Args:
        include: what each row carries: ``None``, ``Metadata`` (the default) or ``Object``.
        now: seconds since 1970, for ages.
    """

    def __init__(self, include: str, now: float) -> None:
        """A table whose rows carry what ``include`` says."""
        self._include = include or "Metadata"
        self._now = now
        self.key = f"table/{self._include}"

    def one(self, served: ServedVersion, obj: dict[str, Any]) -> bytes:
        """A table of one object that is not stored, or not as it is shown."""
        metadata = {"resourceVersion": obj["metadata"].get("resourceVersion", "")}
        rows = [_tables.row(served, obj, self._include, self._now)]
        return _encode(_tables.table(served, rows, metadata))

    def stored(self, served: ServedVersion, record: Record) -> bytes:
        """A table of one stored object."""
        return self.one(served, served.read(record.decode()))

    event_object = stored

    def list(
        self, served: ServedVersion, records: Sequence[Record], metadata: dict[str, Any]
    ) -> bytes:
        """A table of stored objects."""
        rows = [
            _tables.row(served, served.read(record.decode()), self._include, self._now)
            for record in records
        ]
        return _encode(_tables.table(served, rows, metadata))


AnyForm = WholeForm | PartialForm | TableForm

_WHOLE: Final = WholeForm()
_PARTIAL: Final = PartialForm()
_JSON_TYPES: Final = ("application/json", "application/*", "*/*")


def negotiate(accept: str, *, include: str = "", now: float = 0.0) -> AnyForm:
    """The form for an ``Accept`` header; the first that can be made wins, as on the real server.

    Raises:
        StatusError: 406, the client takes none of them.
    """
    if accept in ("", "*/*", "application/json"):
        return _WHOLE
    for part in accept.split(","):
        media_type, *parameters = (piece.strip() for piece in part.split(";"))
        if media_type not in _JSON_TYPES:
            continue
        given = {name: value for name, _, value in (p.partition("=") for p in parameters)}
        wanted = given.get("as", "")
        if not wanted:
            return _WHOLE
        if given.get("g") == "meta.k8s.io" and given.get("v") in ("v1", "v1beta1"):
            if wanted == "Table":
                return TableForm(include, now)
            if wanted in ("PartialObjectMetadata", "PartialObjectMetadataList"):
                return _PARTIAL
    raise not_acceptable(("application/json",))
