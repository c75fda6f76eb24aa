"""The three kinds of patches, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import attrs

from appsdk_operator.resource import MutableObject, Object, create_merge_patch, encode_json

__all__ = ["JsonPatch", "MergePatch", "Patch", "StrategicMergePatch"]


class Patch(Protocol):
    """A patch, as :meth:`Client.patch` takes it."""

    @property
    def content_type(self) -> str:
        """The media type, which tells the server the kind of patch."""
        ...

    def body(self) -> bytes:
        """The body of the request."""
        ...

    @property
    def is_guarded(self) -> bool:
        """Whether the server refuses it once the object has changed, so that a retry does no
        harm."""
        ...


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
            f"fields is a {type(value).__name__}: give a mapping of what changes, such as "
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

    def body(self) -> bytes:
        """The operations as JSON."""
        return encode_json(list(self.operations))

    @property
    def is_guarded(self) -> bool:
        """Whether it tests the resource version."""
        return any(
            operation.get("op") == "test" and operation.get("path") == "/metadata/resourceVersion"
            for operation in self.operations
        )


@attrs.frozen
class MergePatch:
    """The changed fields; null removes a field, a list replaces the former one (RFC 7386). Works
    for every kind.

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
                changed since ``before`` was read. Needed for changes of lists.

        Raises:
            ValueError: ``optimistic_lock`` of an object that has no resource version.

        >>> from appsdk_operator.resource import Kind
        >>> web = MutableObject.new(Kind(group="", version="v1", kind="Pod"), "web", namespace="a")
        >>> before = web.freeze()
        >>> web.labels["tier"] = "front"
        >>> MergePatch.between(before, web).body()
        b'{"metadata":{"labels":{"tier":"front"}}}'
        """
        fields = create_merge_patch(before.to_dict(), after.to_dict())
        if optimistic_lock:
            if not before.resource_version:
                raise ValueError(
                    "an optimistic lock needs the resource version of the object as it was read: "
                    "get it from the server first"
                )
            fields.setdefault("metadata", {})["resourceVersion"] = before.resource_version
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
    """As :class:`MergePatch`, but lists are merged by the keys that the type defines. For the
    built-in kinds only; others answer 415."""

    fields: Mapping[str, Any] = attrs.field(repr=False, validator=_fields)

    content_type = "application/strategic-merge-patch+json"

    def body(self) -> bytes:
        """The fields as JSON."""
        return encode_json(self.fields)

    @property
    def is_guarded(self) -> bool:
        """Whether it names the resource version."""
        return _names_version(self.fields)


def _names_version(fields: Mapping[str, Any]) -> bool:
    metadata = fields.get("metadata")
    return isinstance(metadata, Mapping) and bool(metadata.get("resourceVersion"))
