"""The three kinds of patches, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import attrs

from appsdk_operator.resource import _codec
from appsdk_operator.resource._codec import encode_json
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._object import MutableObject, Object
from appsdk_operator.resource._patch import Patch


def _json_of(value: Any) -> bytes:
    """The JSON text of an object, or of plain values that may contain typed ones."""
    if isinstance(value, Object):
        return value.raw
    plain = value.to_dict() if isinstance(value, MutableObject) else _codec.plain_copy(value)
    return encode_json(plain)


def _lock_version(value: Any) -> str:
    """The resource version of an object in plain values.

    Raises:
        ValueError: it has none.
    """
    metadata = value.get("metadata") if isinstance(value, dict) else None
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        raise ValueError(
            "an optimistic lock needs the resource version of the object as it was read: "
            "get it from the server first"
        )
    return version


def _operations(_: object, __: object, value: Any) -> None:
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    if not is_list or not all(isinstance(item, Mapping) for item in value):
        given = f"a {type(value).__name__}" if not is_list else "a list of something else"
        raise TypeError(
            f"operations is {given}: give a list of mappings, such as "
            '{"op": "remove", "path": "/spec/paused"}'
        )


def _fields(_: object, __: object, value: object) -> None:
    if not isinstance(value, Mapping):
        raise TypeError(
            f"fields is a {type(value).__name__}: give a mapping of the changed fields, such as "
            '{"spec": {"replicas": 3}}'
        )


@attrs.frozen
class JsonPatch:
    """Operations on paths, all or none (RFC 6902). Works for every kind.

    >>> JsonPatch([{"op": "remove", "path": "/spec/paused"}]).body()
    b'[{"op":"remove","path":"/spec/paused"}]'
    """

    operations: Sequence[Mapping[str, Any]] = attrs.field(repr=False, validator=_operations)

    content_type = "application/json-patch+json"

    @classmethod
    def between(cls, before: Any, after: Any, *, optimistic_lock: bool = False) -> JsonPatch:
        """The patch from one state of an object, or of any JSON value, to another.

        ``apply_json_patch(before, patch.operations)`` equals ``after``, down to the types of
        numbers: 1, 1.0 and true differ, as do 0.0 and -0.0. Numbers keep all digits. Null is a
        value. The order of keys does not matter. The same arguments always give the same patch. If
        ``before`` equals ``after``, the patch changes nothing.

        No operation touches equal parts: members of objects, and in lists the longest common
        subsequence of equal items. Two other items of a list count as one changed item if they have
        the same ``name``, ``key`` or ``type``, or else the same place between their neighbours.
        Each added, removed or changed member or item gets one operation: ``add`` (with ``-`` at the
        end of a list), ``remove`` or ``replace``, never ``move`` or ``copy``.

        The patch replaces a list, or an item of a list, as a whole if that is shorter than several
        operations within it. It replaces an object elsewhere only if that is 64 KiB shorter, or if
        the object would need more than 10,000 operations, the most that an API server accepts.

        The time is proportional to the size of the values, even for long lists. To that end, if a
        list has more than 32 equal candidates for each item and more than 64 added or removed
        items, the common subsequence may be shorter than the longest.

        Args:
            before: an :class:`Object`, a :class:`MutableObject`, or plain JSON values. Not changed.
            after: the same. Not changed; later changes to it do not reach the patch.
            optimistic_lock: the server refuses the patch (:class:`Invalid`, a failed ``test``) if
                the object has changed since ``before`` was read. Use it if the object has lists:
                another writer may have shifted their indexes.

        Raises:
            EncodeError: JSON cannot carry a value (NaN, infinities, unknown types).
            DecodeError: an object's JSON text is malformed, or has a number beyond Python's.
            ValueError: ``optimistic_lock`` of an object that has no resource version.

        >>> before = {"spec": {"replicas": 1, "args": ["-v", "--all"]}}
        >>> after = {"spec": {"replicas": 3, "args": ["--dry-run", "-v", "--all"]}}
        >>> for operation in JsonPatch.between(before, after).operations:
        ...     print(operation)
        {'op': 'replace', 'path': '/spec/replicas', 'value': 3}
        {'op': 'add', 'path': '/spec/args/0', 'value': '--dry-run'}
        """
        from appsdk_operator.resource._json.diff import json_diff

        old = _json_of(before)
        new = _json_of(after)
        same = old == new
        value = None if same and not optimistic_lock else _codec.decode_json(old)
        operations = [] if same else json_diff(value, _codec.decode_json(new))
        if optimistic_lock:
            version = _lock_version(value)
            test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
            operations.insert(0, test)
        return cls(operations)

    def body(self) -> bytes:
        """The operations as JSON, with ``&``, ``<`` and ``>`` in texts as the API server writes
        them."""
        return _as_go_writes(encode_json(list(self.operations)))

    @property
    def is_guarded(self) -> bool:
        """Whether it tests the resource version."""
        return any(
            operation.get("op") == "test" and operation.get("path") == "/metadata/resourceVersion"
            for operation in self.operations
        )


@attrs.frozen
class MergePatch:
    """The changed fields; null removes a field, a list replaces the old one (RFC 7386). Works for
    every kind.

    >>> MergePatch({"spec": {"replicas": 3, "paused": None}}).body()
    b'{"spec":{"replicas":3,"paused":null}}'
    """

    fields: Mapping[str, Any] = attrs.field(repr=False, validator=_fields)

    content_type = "application/merge-patch+json"

    @classmethod
    def between(
        cls,
        before: Object | MutableObject,
        after: Object | MutableObject,
        *,
        optimistic_lock: bool = False,
    ) -> MergePatch:
        """The patch from one state of an object to another.

        Args:
            before: the object as it was read.
            after: a changed copy of it.
            optimistic_lock: the server refuses the patch (:class:`Conflict`) if the object has
                changed since ``before`` was read. Use it to change lists.

        Raises:
            ValueError: ``after`` has a new null, and a merge patch removes the fields that it sets
                to null; or ``optimistic_lock`` of an object that has no resource version.

        >>> from appsdk_operator.resource import Kind
        >>> web = MutableObject.new(Kind(group="", version="v1", kind="Pod"), "web", namespace="a")
        >>> before = web.freeze()
        >>> web.labels["tier"] = "front"
        >>> MergePatch.between(before, web).body()
        b'{"metadata":{"labels":{"tier":"front"}}}'
        """
        from appsdk_operator.resource._json.diff import json_diff
        from appsdk_operator.resource._patches.apply import apply_merge_patch, create_merge_patch

        old, new = before.to_dict(), after.to_dict()
        fields = create_merge_patch(old, new)
        if missing := json_diff(apply_merge_patch(old, fields), new):
            raise ValueError(
                f"{missing[0]['path']} is null or contains a null, and a merge patch removes the "
                "fields that it sets to null: use JsonPatch.between"
            )
        if optimistic_lock:
            version = _lock_version({"metadata": {"resourceVersion": before.resource_version}})
            fields.setdefault("metadata", {})["resourceVersion"] = version
        return cls(fields)

    def body(self) -> bytes:
        """The fields as JSON."""
        return encode_json(self.fields)

    @property
    def is_guarded(self) -> bool:
        """Whether it names the resource version."""
        return _names_version(self.fields)


@attrs.frozen
class StrategicMergePatch:
    """As :class:`MergePatch`, but lists are merged by the keys that the type defines. For built-in
    kinds only: for others the API server answers 415."""

    fields: Mapping[str, Any] = attrs.field(repr=False, validator=_fields)

    content_type = "application/strategic-merge-patch+json"

    def body(self) -> bytes:
        """The fields as JSON."""
        return encode_json(self.fields)

    @property
    def is_guarded(self) -> bool:
        """Whether it names the resource version."""
        return _names_version(self.fields)


def patch_body(patch: Patch, kind: Kind) -> bytes:
    """The body of a patch of objects of ``kind``, whose ``rename`` holds for typed values in it."""
    if kind.rename is None:
        return patch.body()
    if isinstance(patch, JsonPatch):
        return _as_go_writes(encode_json(_codec.renamed_copy(list(patch.operations), kind.rename)))
    if isinstance(patch, MergePatch | StrategicMergePatch):
        return encode_json(_codec.renamed_copy(patch.fields, kind.rename))
    return patch.body()


def _as_go_writes(raw: bytes) -> bytes:
    """JSON text with the characters escaped that Go's encoder does not write as they are.

    kube-apiserver compares the value of a ``test`` with its own text of the object, byte for byte.
    """
    for plain, escaped in _GO_ESCAPES:
        if plain in raw:
            raw = raw.replace(plain, escaped)
    return raw


_GO_ESCAPES: Final = tuple(
    (character.encode(), f"\\u{ord(character):04x}".encode()) for character in "&<>\u2028\u2029"
)


def _names_version(fields: Mapping[str, Any]) -> bool:
    metadata = fields.get("metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get("resourceVersion"))
