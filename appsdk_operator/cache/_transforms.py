"""Ready-made transforms: keep less of each object in memory."""

from __future__ import annotations

import msgspec

from appsdk_operator.resource import Object

__all__ = ["drop_managed_fields"]

_members_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode
_KEY = "managedFields"
_QUOTED = b'"managedFields"'


def drop_managed_fields(obj: Object) -> Object:
    """The object without ``metadata.managedFields``, two fifths of many objects.

    Everything else keeps its bytes and its order, and is not decoded. An update of such an object
    leaves the server's own managedFields alone.
    """
    if _QUOTED not in obj.raw:
        return obj
    members = _members_of(obj.raw)
    metadata = _members_of(members["metadata"])
    # The name may also have been found elsewhere, in a label or in another part of the object.
    if metadata.pop(_KEY, None) is None:
        return obj
    members["metadata"] = msgspec.Raw(_encode(metadata))
    return Object.from_json(obj.kind, _encode(members))
