"""What functions return, written to the status of their objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from appsdk_operator.app._declarations import Owned
from appsdk_operator.app._path_checks import check_result
from appsdk_operator.client import ClientLike, Edit, Invalid, MergePatch, NotFound, live_reader
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
        ValueError: it is not a path, or not one below ``status``, or the kind has no such field.
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
        *parents, last = path.steps_of(self._kind)
        missing: NotFound | None = None
        if not self._has_no_subresource:
            try:
                with Edit(self._client, obj, live=live_reader(self._client)) as draft:
                    part: Any = draft
                    for name in parents:
                        if not isinstance(part.get(name), dict):
                            part[name] = {}
                        part = part[name]
                    part[last] = wanted
            except NotFound as error:
                missing = error  # the subresource
            else:
                return
        self._write_with_body(obj, path, wanted, missing)

    def _write_with_body(
        self, obj: Object[Any, Any], path: FieldPath, wanted: Any, missing: NotFound | None
    ) -> None:
        try:
            newest = self._client.get(self._kind, obj.name, namespace=obj.namespace)
        except NotFound:
            return
        before, after = _value_of(newest, path), {"value": wanted}
        if newest.uid != obj.uid or not json_diff(before, after):
            return
        change: Any = create_merge_patch(before, after)["value"]
        for name in reversed(path.steps_of(self._kind)):
            change = {name: change}
        # The server refuses the uid of another object.
        patch = MergePatch({**change, "metadata": {"uid": obj.uid}})
        try:
            written = self._client.patch(self._kind, obj.name, patch, namespace=obj.namespace)
        except NotFound:
            return
        except Invalid:
            if self._is_gone(obj):
                return
            raise
        if missing is not None:
            if json_diff(_value_of(written, path), after):
                raise missing  # it is there: the server only did not serve it at that moment
            self._has_no_subresource = True

    def _is_gone(self, obj: Object[Any, Any]) -> bool:
        live = live_reader(self._client)
        try:
            found: Object[Any, Any] = live.get(self._kind, obj.name, namespace=obj.namespace)
        except NotFound:
            return True
        return found.uid != obj.uid


def _value_of(obj: Object[Any, Any], path: FieldPath) -> Any:
    return decode_json(encode_json({"value": path.value(obj)}))
