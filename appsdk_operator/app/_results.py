"""What functions return, written to the status of their objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from appsdk_operator.app._declarations import Owned
from appsdk_operator.app._fields import check_result
from appsdk_operator.client import ClientLike, MergePatch, NotFound
from appsdk_operator.resource import (
    FieldPath,
    Kind,
    Object,
    create_merge_patch,
    decode_json,
    encode_json,
    json_diff,
    patch_body,
)


def result_path(text: str, kind: Kind[Any, Any], owned: Sequence[Owned]) -> FieldPath:
    """The path of ``result=``.

    Raises:
        ValueError: it is none, or none below ``status``, or the kind has no such field.
    """
    path = FieldPath(text)
    names = path.steps_of(kind)
    if names[0] != "status" or len(names) < 2 or not all(isinstance(e, str) for e in names):
        raise ValueError(f"result={text!r}: name a field of the status, such as 'status.url'")
    check_result(path, kind, owned)
    return path


@final
class ResultWriter:
    """Writes values to the status of objects of one kind. Thread-safe."""

    def __init__(self, kind: Kind[Any, Any], client: ClientLike) -> None:
        """Write with ``client``, which reads own writes."""
        self._kind = kind
        self._client = client
        self._has_no_subresource = False

    def write(self, obj: Object[Any, Any], path: FieldPath, value: object) -> None:
        """Write ``value`` unless the object has it; does nothing where that is gone.

        Raises:
            EncodeError: JSON cannot carry the value.
            ApiError: the server refuses it.
        """
        wanted = decode_json(patch_body(MergePatch({"value": value}), self._kind))["value"]
        try:
            newest = self._client.get(self._kind, obj.name, namespace=obj.namespace)
        except NotFound:
            return
        if newest.uid != obj.uid:
            return
        before, after = decode_json(encode_json({"value": path.value(newest)})), {"value": wanted}
        if not json_diff(before, after):
            return
        change: Any = create_merge_patch(before, after)["value"]
        for name in reversed(path.steps_of(self._kind)):
            change = {name: change}
        self._patch(obj, MergePatch(change))

    def _patch(self, obj: Object[Any, Any], patch: MergePatch) -> None:
        if not self._has_no_subresource:
            try:
                self._client.status.patch(self._kind, obj.name, patch, namespace=obj.namespace)
            except NotFound:
                pass  # either the subresource or the object: the next request shows which
            else:
                return
        try:
            self._client.patch(self._kind, obj.name, patch, namespace=obj.namespace)
        except NotFound:
            return
        self._has_no_subresource = True
