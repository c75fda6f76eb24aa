"""A changeable object of one's own, to be sent to the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, final

import msgspec

from appsdk_operator._generics import OtherSpecT, OtherStatusT, SpecT, StatusT, subscript
from appsdk_operator.resource import _codec, _deep_json
from appsdk_operator.resource._kind import Kind, check_kind
from appsdk_operator.resource._object import Object, ObjectKey, check_data, type_fields, view_error
from appsdk_operator.resource._spec_types import decode_hook, has_fields, path_and_problem

__all__ = ["AnyObject", "MutableObject"]

_T = TypeVar("_T")

_METADATA = {
    "labels": "labels",
    "annotations": "annotations",
    "finalizers": "finalizers",
    "owner_references": "ownerReferences",
    "ownerReferences": "ownerReferences",
    "generate_name": "generateName",
    "generateName": "generateName",
}
"""What is meant for the metadata, and how it is called there."""


@final
class MutableObject(MutableMapping[str, Any], Generic[SpecT, StatusT]):
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

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(self, kind: Kind[SpecT, StatusT], data: dict[str, Any]) -> None:
        """Wrap ``data`` itself, without a copy.

        Raises:
            TypeError: ``kind`` is no Kind, or ``data`` no dict.
        """
        self.kind: Kind = check_kind(kind)
        check_data(data, dict)
        self.data: dict[str, Any] = data

    @classmethod
    def new(
        cls,
        kind: Kind[OtherSpecT, OtherStatusT],
        name: str = "",
        /,
        *,
        namespace: str = "",
        **fields: Any,
    ) -> MutableObject[OtherSpecT, OtherStatusT]:
        """A new object with ``fields`` (``spec=…``, ``data=…``) beside its metadata.

        Args:
            kind: what to make.
            name: its name; empty when ``metadata.generateName`` will be set.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            fields: top-level fields; typed values are written as JSON, without those that are
                None. In ``metadata`` labels and the like can be given, besides name and namespace.

        Raises:
            TypeError: ``kind`` is no Kind, a field belongs into the metadata, or ``spec`` or
                ``status`` is neither of the kind's type nor a mapping.
            EncodeError: a field is no JSON, or an instance of the kind's type does not fit it.
        """
        data: dict[str, Any] = type_fields(check_kind(kind))
        data["metadata"] = {k: v for k, v in (("name", name), ("namespace", namespace)) if v}
        for field, value in fields.items():
            if field in _METADATA:
                raise TypeError(
                    f"{field}=… would be beside the metadata, not in it: give "
                    f"metadata={{'{_METADATA[field]}': …}}"
                )
            if field in ("spec", "status"):
                _check_class(kind, field, value)
            plain = _codec.plain(value, f"$.{field}")
            if field in ("spec", "status"):
                check_typed(kind, field, value)
            if field == "metadata" and isinstance(plain, dict):
                plain = {**data["metadata"], **plain, **data["metadata"]}
            data[field] = plain
        return MutableObject(kind, data)

    @property
    def metadata(self) -> dict[str, Any]:
        """``metadata``, made when missing."""
        return _made(self.data, "metadata", dict)

    @property
    def name(self) -> str:
        """``metadata.name``, ``""`` when not set."""
        return self._text("name")

    @property
    def namespace(self) -> str:
        """``metadata.namespace``, ``""`` when not set."""
        return self._text("namespace")

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def resource_version(self) -> str:
        """``metadata.resourceVersion``, ``""`` when not set."""
        return self._text("resourceVersion")

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
    def spec(self) -> SpecT:
        """The spec: plain values to be changed in place, or an instance of the kind's type.

        Assign a typed value back after changing it (``attrs.evolve``, pydantic's ``model_copy``):
        its validators run, and what its type does not know stays, in lists too, where items are
        recognised by their ``name`` or by their content. Assigning None removes the field.

        Raises:
            DecodeError: the spec does not fit the kind's type.
            EncodeError: when assigned, a typed value does not fit its own type.
            TypeError: when assigned, it is neither of the kind's type nor a mapping.
        """
        spec: SpecT = self._view("spec", self.kind.spec)
        return spec

    @spec.setter
    def spec(self, value: SpecT | Mapping[str, Any] | None) -> None:
        self._assign("spec", self.kind.spec, value)

    @property
    def status(self) -> StatusT:
        """The status, as :attr:`spec`."""
        status: StatusT = self._view("status", self.kind.status)
        return status

    @status.setter
    def status(self, value: StatusT | Mapping[str, Any] | None) -> None:
        self._assign("status", self.kind.status, value)

    def _view(self, field: str, view: Any) -> Any:
        value = self.data.get(field)
        if view is None or value is None:
            return value
        try:
            return msgspec.convert(value, view, dec_hook=decode_hook)
        except _codec.DECODE_ERRORS as error:
            raise view_error(self.kind, self.key, field, view, error) from error

    def _assign(self, field: str, view: Any, value: Any) -> None:
        _check_class(self.kind, field, value)
        current = self.data.get(field)
        if value is None:
            self.data.pop(field, None)
        elif view is None or isinstance(value, Mapping):
            self.data[field] = _codec.plain(value, f"$.{field}")
        elif current is None:
            check_typed(self.kind, field, value)
            self.data[field] = _codec.plain(value, f"$.{field}")
        else:
            try:
                new = _codec.builtins(value)
            except (TypeError, ValueError) as error:
                raise _codec.EncodeError(f"$.{field} cannot be written as JSON: {error}") from error
            check_typed(self.kind, field, value)
            try:
                known = _codec.builtins(msgspec.convert(current, view, dec_hook=decode_hook))
            except _codec.DECODE_ERRORS:  # then the new value is what repairs it
                known = {}
            self.data[field] = _overlay(current, known, new)

    def _text(self, field: str) -> str:
        # Not by way of `metadata`: reading must not add anything.
        return str((self.data.get("metadata") or {}).get(field) or "")

    def freeze(self) -> Object[SpecT, StatusT]:
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

        return dump_yaml(self.to_dict())

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


def _check_class(kind: Kind, field: str, value: Any) -> None:
    """Refuse what is neither of the kind's class, nor a mapping, nor None.

    A type that is no class with fields (``list[Port]``, a union) is left to the server.

    Raises:
        TypeError: the text says what to give. It does not show the value.
    """
    view = kind.spec if field == "spec" else kind.status
    if value is None or isinstance(value, Mapping) or not has_fields(view):
        return
    if not isinstance(value, view):
        given = value.__qualname__ if isinstance(value, type) else f"{type(value).__qualname__}(…)"
        raise TypeError(
            f"{kind.kind}: {field}={given} is no {view.__qualname__}, with which this kind reads "
            f"its {field}: give {view.__qualname__}(…) or a mapping"
        )


def check_typed(kind: Kind, field: str, value: Any) -> None:
    """Refuse an instance of the kind's type that could not be read again.

    A mapping passes: it is JSON as it is meant, perhaps of a few fields.

    Raises:
        EncodeError: a type or a validator says no; the text names the JSON path.
    """
    view = kind.spec if field == "spec" else kind.status
    if view is None or type(value) is not view:
        return
    try:
        msgspec.convert(_codec.builtins(value), view, dec_hook=decode_hook)
    except (*_codec.DECODE_ERRORS, TypeError) as error:
        place, problem = path_and_problem(error)
        raise _codec.EncodeError(
            f"{kind.kind}: $.{field}{place} does not fit {view.__qualname__}: {problem}"
        ) from error


AnyObject: TypeAlias = Object[SpecT, StatusT] | MutableObject[SpecT, StatusT]
"""An object as it was read, or one's own draft of it."""


def _made(parent: dict[str, Any], key: str, make: type[_T]) -> _T:
    value: _T | None = parent.get(key)
    if value is None:
        value = parent[key] = make()
    return value


def _overlay(current: Any, known: Any, new: Any) -> Any:
    """``current`` with the changes from ``known`` to ``new``, and all that neither knows of."""
    if _deep_json.same(new, known):
        return current
    if isinstance(new, dict) and isinstance(current, dict):
        return _overlay_dict(current, known if isinstance(known, dict) else {}, new)
    if isinstance(new, list) and isinstance(current, list) and isinstance(known, list):
        return [
            _codec.without_none(item)
            # A set has an order of its own, and its plain items need no overlay.
            if index is None or not isinstance(item, (dict, list))
            else _overlay(current[index], known[index], item)
            for item, index in zip(new, _matches(known, new), strict=True)
        ]
    return _codec.without_none(new)


def _overlay_dict(
    current: dict[str, Any], known: dict[str, Any], new: dict[str, Any]
) -> dict[str, Any]:
    merged = {}
    for key, value in current.items():
        if key in new:
            if key in known and _deep_json.same(new[key], known[key]):
                merged[key] = value
            elif new[key] is not None:
                merged[key] = _overlay(value, known.get(key), new[key])
        elif key not in known:
            merged[key] = value
    for key, value in new.items():
        if key not in current and value is not None and not _deep_json.same(value, known.get(key)):
            merged[key] = _codec.without_none(value)
    return merged


def _matches(known: list[Any], new: list[Any]) -> list[int | None]:
    """For each item of ``new`` the index of the one in ``known`` that it was, None if it is new.

    An unchanged item is recognised wherever it moved, a changed one by its ``name``; one without
    a name by the number of its fields that did not change, at last by its place.
    """
    unused = dict.fromkeys(range(len(known)))
    matches: list[int | None] = [None] * len(new)

    def match(position: int, index: int | None) -> None:
        if index is not None:
            matches[position] = index
            del unused[index]

    for position, item in enumerate(new):
        if position in unused and _is_equal(known[position], item):
            match(position, position)
    for same in (_is_equal, _has_same_name):
        for position, item in enumerate(new):
            if matches[position] is None:
                match(position, next((i for i in unused if same(known[i], item)), None))
    for position, item in enumerate(new):
        if matches[position] is None and not _name(item):
            nameless = [i for i in unused if not _name(known[i])]
            best = max(nameless, key=lambda i: _common(known[i], item, i == position), default=None)
            in_place = len(new) == len(known) and position in nameless
            if best is not None and _common(known[best], item, False) > 0:
                match(position, best)
            elif in_place:
                match(position, position)
    return matches


def _is_equal(known: Any, item: Any) -> bool:
    return _deep_json.same(known, item)


def _has_same_name(known: Any, item: Any) -> bool:
    return bool(_name(item)) and _name(known) == _name(item)


def _name(item: Any) -> Any:
    return item.get("name") if isinstance(item, dict) else None


def _common(known: Any, item: Any, is_in_place: bool) -> float:
    if not isinstance(known, dict) or not isinstance(item, dict):
        return 0.0
    common = sum(1 for key, value in item.items() if value is not None and known.get(key) == value)
    return common + (0.5 if is_in_place else 0.0)
