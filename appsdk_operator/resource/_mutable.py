"""A changeable object of one's own, to be sent to the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, TypeVar, final

import msgspec

from appsdk_operator.resource import _codec
from appsdk_operator.resource._kind import Kind
from appsdk_operator.resource._object import Object, ObjectKey, type_fields, view_error

__all__ = ["MutableObject"]

_T = TypeVar("_T")


@final
class MutableObject(MutableMapping[str, Any]):
    """A copy of an object that belongs to the caller: a dict with shortcuts to the metadata.

    Not thread-safe: it is one thread's own. What the type of spec or status does not know stays in
    place when a typed value is assigned.

    >>> draft = MutableObject.new(Kind(group="", version="v1", kind="ConfigMap"), "settings",
    ...                           namespace="default", data={"color": "blue"})
    >>> draft.labels["app"] = "web"
    >>> draft["metadata"]
    {'name': 'settings', 'namespace': 'default', 'labels': {'app': 'web'}}
    """

    __slots__ = ("data", "kind")

    def __init__(self, kind: Kind, data: dict[str, Any]) -> None:
        """Wrap ``data`` itself, without a copy."""
        self.kind = kind
        self.data = data

    @classmethod
    def new(
        cls, kind: Kind, name: str = "", /, *, namespace: str = "", **fields: Any
    ) -> MutableObject:
        """A new object with ``fields`` (``spec=…``, ``data=…``) beside its metadata.

        Args:
            kind: what to make.
            name: its name; empty when ``metadata.generateName`` will be set.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            fields: top-level fields; typed values are written as JSON, without those that are
                None.
        """
        metadata = {k: v for k, v in (("name", name), ("namespace", namespace)) if v}
        data = {**type_fields(kind), "metadata": metadata}
        for field, value in fields.items():
            data[field] = _without_none(_codec.plain(value))
        return cls(kind, data)

    @property
    def metadata(self) -> dict[str, Any]:
        """``metadata``, made when missing."""
        return _made(self.data, "metadata", dict)

    @property
    def name(self) -> str:
        """``metadata.name``, ``""`` when not set."""
        return str(self.metadata.get("name") or "")

    @property
    def namespace(self) -> str:
        """``metadata.namespace``, ``""`` when not set."""
        return str(self.metadata.get("namespace") or "")

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def resource_version(self) -> str:
        """``metadata.resourceVersion``, ``""`` when not set."""
        return str(self.metadata.get("resourceVersion") or "")

    @property
    def labels(self) -> dict[str, str]:
        """``metadata.labels``, made when missing; change it in place."""
        return _made(self.metadata, "labels", dict)

    @property
    def annotations(self) -> dict[str, str]:
        """``metadata.annotations``, made when missing; change it in place."""
        return _made(self.metadata, "annotations", dict)

    @property
    def finalizers(self) -> list[str]:
        """``metadata.finalizers``, made when missing; change it in place."""
        return _made(self.metadata, "finalizers", list)

    @property
    def spec(self) -> Any:
        """The spec: plain values to be changed in place, or an instance of the kind's type.

        Assign a typed value back after changing it (``attrs.evolve``).

        Raises:
            DecodeError: the spec does not fit the kind's type.
        """
        return self._view("spec", self.kind.spec)

    @spec.setter
    def spec(self, value: Any) -> None:
        self._assign("spec", self.kind.spec, value)

    @property
    def status(self) -> Any:
        """The status, as :attr:`spec`."""
        return self._view("status", self.kind.status)

    @status.setter
    def status(self, value: Any) -> None:
        self._assign("status", self.kind.status, value)

    def _view(self, field: str, view: Any) -> Any:
        value = self.data.get(field)
        if view is None or value is None:
            return value
        try:
            return msgspec.convert(value, view)
        except msgspec.MsgspecError as error:
            raise view_error(self.kind, self.key, field, view, error) from error

    def _assign(self, field: str, view: Any, value: Any) -> None:
        current = self.data.get(field)
        if view is None or current is None or isinstance(value, Mapping):
            self.data[field] = _without_none(_codec.plain(value))
        else:
            known = msgspec.to_builtins(msgspec.convert(current, view))
            self.data[field] = _overlay(current, known, msgspec.to_builtins(value))

    def freeze(self) -> Object:
        """An immutable object with the present content.

        Raises:
            EncodeError: the content is not JSON.
        """
        return Object.from_dict(self.kind, self.data)

    def to_dict(self) -> dict[str, Any]:
        """The content as plain values: a copy."""
        copied: dict[str, Any] = _codec.plain(self.data)
        return copied

    def to_yaml(self) -> str:
        """The content as YAML."""
        from appsdk_operator.resource._yaml import dump_yaml

        return dump_yaml(self.data)

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.data[key] = value

    def __delitem__(self, key: str) -> None:
        del self.data[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def __repr__(self) -> str:
        return f"<mutable {self.kind.kind} {self.key} rv={self.resource_version or '-'}>"


def _made(parent: dict[str, Any], key: str, make: type[_T]) -> _T:
    value: _T | None = parent.get(key)
    if value is None:
        value = parent[key] = make()
    return value


def _without_none(value: Any) -> Any:
    # An optional field that is not set must not reach the server as null, which is a value there.
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item) for item in value]
    return value


def _overlay(current: Any, known: Any, new: Any) -> Any:
    """``current`` with the changes from ``known`` to ``new``, and all that neither knows of."""
    if new == known:
        return current
    if isinstance(new, dict) and isinstance(current, dict) and isinstance(known, dict):
        merged = {}
        for key, value in current.items():
            if key not in known:
                merged[key] = value
            elif new.get(key) is not None:
                merged[key] = _overlay(value, known[key], new[key])
        for key, value in new.items():
            if key not in current and value is not None and value != known.get(key):
                merged[key] = _without_none(value)
        return merged
    if isinstance(new, list) and isinstance(current, list) and isinstance(known, list):
        return _overlay_list(current, known, new)
    return _without_none(new)


def _overlay_list(current: list[Any], known: list[Any], new: list[Any]) -> list[Any]:
    if len(new) == len(known):
        return [_overlay(c, k, n) for c, k, n in zip(current, known, new, strict=True)]
    unused = list(range(len(known)))
    merged = []
    for item in new:
        match = next((index for index in unused if known[index] == item), None)
        if match is None:
            merged.append(_without_none(item))
        else:
            unused.remove(match)
            merged.append(current[match])
    return merged
