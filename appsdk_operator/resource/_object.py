"""Objects: the immutable view over the bytes that the server sent, and the mutable copy."""

from __future__ import annotations

import contextlib
import datetime as dt
import operator
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    NamedTuple,
    NoReturn,
    Optional,
    TypeAlias,
    TypeVar,
    final,
)

import msgspec

from appsdk_operator._generics import (
    OtherSpecT,
    OtherStatusT,
    SpecT,
    SpecT_co,
    StatusT,
    StatusT_co,
    subscript,
)
from appsdk_operator.resource import _codec
from appsdk_operator.resource._json.frozen import FrozenDict, camel_case, freeze, raise_read_only
from appsdk_operator.resource._json.parts import TOO_DEEP, is_deeper
from appsdk_operator.resource._json.values import equal_numbers, same
from appsdk_operator.resource._kind import Kind, check_kind
from appsdk_operator.resource._typed.spec_types import decode_hook, has_fields, path_and_problem

_T = TypeVar("_T")


class ObjectKey(NamedTuple):
    """Namespace and name, which identify an object among those of its kind.

    >>> str(ObjectKey("default", "web")), str(ObjectKey("", "node-1"))
    ('default/web', 'node-1')
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class OwnerReference(msgspec.Struct, rename="camel", omit_defaults=True):
    """One entry of ``metadata.ownerReferences``; read-only."""

    # Not msgspec's frozen=True, whose error names no remedy.

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool = False
    block_owner_deletion: bool = False

    def __setattr__(self, name: str, value: object) -> None:
        raise_read_only()

    def __delattr__(self, name: str) -> None:
        raise_read_only()

    def __hash__(self) -> int:
        return hash((self.api_version, self.kind, self.name, self.uid))


class _LazyMetadata(msgspec.Struct, gc=False, rename="camel"):
    """The metadata that is decoded on access."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    owner_references: list[OwnerReference] | None = None
    creation_timestamp: str | None = None


class _TypeMeta(msgspec.Struct, gc=False):
    kind: str | None = None


class _WithLazyMetadata(msgspec.Struct, gc=False):
    metadata: _LazyMetadata


_decode_type = msgspec.json.Decoder(_TypeMeta).decode
_decode_lazy_metadata = msgspec.json.Decoder(_WithLazyMetadata).decode

# The decoders of single fields, one for each type; types live as long as the program.
_part_decoders: dict[tuple[str, Any], Callable[[bytes], Any]] = {}


def _part_decoder(field: str, view: Any) -> Callable[[bytes], Any]:
    """The decoder of one field as type ``view`` (None: as JSON), which skips all other fields."""
    decode = _part_decoders.get((field, view))
    if decode is None:
        reader = (view, decode_hook) if view is None else _reader_of(view)
        if reader is None:
            decode = _renamed_part_decoder(field, view)
        else:
            # The API server treats null as an absent field.
            kind = Any if view is None else Optional[reader[0]]  # noqa: UP045 - known at run time
            part = msgspec.defstruct("Part", [(field, kind, None)], gc=False)
            decode = msgspec.json.Decoder(part, dec_hook=reader[1]).decode
        _part_decoders[field, view] = decode
    return decode


def _reader_of(view: Any) -> tuple[Any, Callable[[Any, Any], Any]] | None:
    """The type that msgspec reads for a view, with its ``dec_hook``; None: there is none."""
    from appsdk_operator.resource._typed.renaming import Renamed

    return view.reader if isinstance(view, Renamed) else (view, decode_hook)


def _renamed_part_decoder(field: str, view: Any) -> Callable[[bytes], Any]:
    decode_plain = _part_decoder(field, None)

    def decode(raw: bytes) -> Any:
        part = decode_plain(raw)
        value = getattr(part, field)
        if value is not None:
            setattr(part, field, view.convert(value))
        return part

    return decode


class _KeyOnlyField:
    """A top-level field without an attribute: access raises an error that names its key.

    A descriptor for each such field, since a ``__getattr__`` would slow down all attributes.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, obj: object, owner: type | None = None) -> Any:
        if obj is None:
            return self
        raise AttributeError(
            f"{type(obj).__name__!r} object has no attribute {self.name!r}: only metadata, spec "
            "and status are attributes, other fields are keys: write "
            f'obj["{camel_case(self.name)}"]',
            name=self.name,
            obj=obj,
        )


_NOTHING = object()


@final
class _TransformedText(bytes):
    """The JSON of an object that a transform made: a mark that costs other objects no field."""

    __slots__ = ()


@final
class Object(msgspec.Struct, Generic[SpecT_co, StatusT_co], gc=False, eq=False, weakref=False):
    """An object as the server sent it: read-only, safe to share between threads and caches.

    Only the identifying metadata is decoded on arrival. Labels, spec, status and the rest are
    decoded at each access, so keep them in a variable where they are used often. :attr:`raw` holds
    every byte of the server's JSON.

    Objects come from a client, an informer or :meth:`from_dict`; to change one, take
    :meth:`mutable_copy`.

    >>> pod = Object.from_dict(Kind(group="", version="v1", kind="Pod"),
    ...                        {"metadata": {"name": "web", "namespace": "default"}})
    >>> str(pod.key)
    'default/web'
    """

    kind: Kind[SpecT_co, StatusT_co]
    """The object's kind, with the types of its spec and status."""
    raw: bytes
    """The JSON text as the server sent it."""
    namespace: str
    """``metadata.namespace``, ``""`` for cluster-scoped kinds."""
    name: str
    """``metadata.name``."""
    uid: str
    """``metadata.uid``; a later object with the same name has another uid."""
    resource_version: str
    """``metadata.resourceVersion``."""
    generation: int
    """``metadata.generation``; 0 for kinds that have none."""
    deletion_timestamp: str | None
    """``metadata.deletionTimestamp`` as RFC 3339 text, None unless the object is being deleted."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    @classmethod
    def from_json(cls, kind: Kind[SpecT, StatusT], raw: bytes) -> Object[SpecT, StatusT]:
        """An object from JSON text.

        Raises:
            DecodeError: the text is not JSON of an object with metadata, or is nested more than
                500 levels deep.
            WrongKindError: the object is of another kind.
            TypeError: ``kind`` is not a Kind, or ``raw`` is not bytes.
        """
        if not isinstance(raw, bytes):
            _refuse_raw(raw)
        return object_of(kind, raw, _codec.checked_metadata(check_kind(kind), raw))

    @classmethod
    def from_dict(
        cls, kind: Kind[SpecT, StatusT], data: Mapping[str, Any]
    ) -> Object[SpecT, StatusT]:
        """An object from plain JSON values; ``apiVersion`` and ``kind`` are added when missing.

        Raises:
            DecodeError: ``data`` has no metadata, or names another kind.
            EncodeError: JSON cannot carry a value in ``data``.
            TypeError: ``kind`` is not a Kind, or ``data`` is not a mapping.
        """
        check_data(data)
        whole = with_type_fields(check_kind(kind), data)
        if kind.rename is not None:
            whole = _codec.renamed_copy(whole, kind.rename)
        raw = _codec.encode_json(whole)
        if is_deeper(raw):
            raise _codec.EncodeError(f"{kind.kind} cannot be written as JSON: {TOO_DEEP}")
        return cls.from_json(kind, raw)

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def is_deleting(self) -> bool:
        """Whether the object has a deletion timestamp: its deletion was requested."""
        return self.deletion_timestamp is not None

    @property
    def labels(self) -> Mapping[str, str]:
        """``metadata.labels``, empty when there are none."""
        return FrozenDict(self._lazy_metadata().labels or {})

    @property
    def annotations(self) -> Mapping[str, str]:
        """``metadata.annotations``, empty when there are none."""
        return FrozenDict(self._lazy_metadata().annotations or {})

    @property
    def finalizers(self) -> tuple[str, ...]:
        """``metadata.finalizers`` in the server's order."""
        return tuple(self._lazy_metadata().finalizers or ())

    @property
    def owner_references(self) -> tuple[OwnerReference, ...]:
        """``metadata.ownerReferences`` in the server's order."""
        return tuple(self._lazy_metadata().owner_references or ())

    @property
    def creation_timestamp(self) -> dt.datetime | None:
        """``metadata.creationTimestamp``; None for an object that was never stored.

        Raises:
            DecodeError: the text is not a time.
        """
        stamp = self._lazy_metadata().creation_timestamp
        try:
            return parse_time(stamp) if stamp else None
        except ValueError as error:
            raise _codec.DecodeError(
                f"{self.kind.kind} {self.key}: $.metadata.creationTimestamp is not a time: {error}"
            ) from error

    @property
    def metadata(self) -> FrozenDict:
        """The whole metadata as plain read-only JSON values."""
        metadata: FrozenDict = self["metadata"]
        return metadata

    @property
    def is_metadata_only(self) -> bool:
        """Whether only the metadata is here (``PartialObjectMetadata``)."""
        return _decode_type(self.raw).kind == _codec.PARTIAL_METADATA_KIND

    @property
    def spec(self) -> SpecT_co:
        """The spec: an instance of the kind's ``spec`` type, or read-only JSON; None if absent.

        Raises:
            DecodeError: the spec does not fit the kind's type; the text names the JSON path.
            MetadataOnlyError: the object holds metadata only.
        """
        spec: SpecT_co = self._view("spec", self.kind.spec_view)
        return spec

    @property
    def status(self) -> StatusT_co:
        """The status, as :attr:`spec`."""
        status: StatusT_co = self._view("status", self.kind.status_view)
        return status

    def _members(self) -> dict[str, Any]:
        """The top-level fields as raw text. Only the header was checked on arrival."""
        try:
            return _codec.members(self.raw)
        except _codec.DECODE_ERRORS as error:
            raise _codec.DecodeError(f"{self.kind.kind} {self.key}: {error}") from error

    def _lazy_metadata(self) -> _LazyMetadata:
        try:
            return _decode_lazy_metadata(self.raw).metadata
        except _codec.DECODE_ERRORS as error:
            raise _codec.DecodeError(f"{self.kind.kind} {self.key}: {error}") from error

    def _view(self, field: str, view: Any) -> Any:
        try:
            decoder = _part_decoder(field, view)
            part = decoder(self.raw) if view else _codec.decode_large(decoder, self.raw)
            value = getattr(part, field)
        except _codec.DECODE_ERRORS:
            value = _NOTHING
        if value is _NOTHING:
            value = self._view_with_reason(field, view)
        if value is None:
            self._refuse_if_metadata_only(field)
        return freeze(value)

    def _view_with_reason(self, field: str, view: Any) -> Any:
        """The slower decoding, whose error names the part that does not fit."""
        raw = bytes(self._members().get(field, b"null"))
        if view is None or raw == b"null":
            return _codec.decode_json(raw)
        from appsdk_operator.resource._typed.renaming import Renamed

        try:
            if isinstance(view, Renamed):
                return view.convert(_codec.decode_json(raw))
            return msgspec.json.decode(raw, type=view, dec_hook=decode_hook)
        except _codec.DECODE_ERRORS as error:
            problem = view_error(self.kind, self.key, field, view, error)
            if not self.kind.secret:
                raise problem from error
        # Without context: errors of models show the values.
        raise problem

    def __getitem__(self, key: str) -> Any:
        """A top-level field as read-only JSON, for example ``obj["data"]``.

        Raises:
            KeyError: there is no such field.
            MetadataOnlyError: the object holds metadata only.
        """
        raw = self._members()
        if key not in raw:
            self._refuse_if_metadata_only(key)
        return freeze(_codec.decode_json(bytes(raw[key])))

    def get(self, key: str, default: Any = None) -> Any:
        """A top-level field as read-only JSON, ``default`` when absent."""
        raw = self._members().get(key)
        if raw is None:
            self._refuse_if_metadata_only(key)
            return default
        return freeze(_codec.decode_json(bytes(raw)))

    def _refuse_if_metadata_only(self, field: str) -> None:
        """Raise if the object holds metadata only: the field may exist on the server."""
        if self.is_metadata_only:
            raise _codec.MetadataOnlyError(
                f"{self.kind.kind} {self.key}: only its metadata was read, so its {field} is not "
                f"known: add {self.kind} to the cache without metadata_only, or read the object "
                "with the live client"
            )

    def __contains__(self, key: object) -> bool:
        if key in self._members():
            return True
        self._refuse_if_metadata_only(str(key))
        return False

    def __iter__(self) -> Iterator[str]:
        return iter(self._members())

    def to_dict(self) -> dict[str, Any]:
        """The whole object as a copy in plain, mutable JSON values.

        ``apiVersion`` and ``kind`` are added if missing, as they are in items of lists.
        """
        return with_type_fields(self.kind, _codec.decode_json(self.raw))

    def to_yaml(self) -> str:
        """The whole object as YAML."""
        from appsdk_operator.resource._yaml import dump_yaml

        return dump_yaml(self.to_dict())

    @property
    def is_transformed(self) -> bool:
        """Whether a cache's ``transform`` made it, so it may lack fields of the server's object.

        :func:`~appsdk_operator.cache.drop_managed_fields` does not count.
        """
        return type(self.raw) is _TransformedText

    def mutable_copy(self) -> MutableObject[SpecT_co, StatusT_co]:
        """A copy that can be changed and sent to the server."""
        return MutableObject(self.kind, self.to_dict())

    def viewed_as(self, kind: Kind[SpecT, StatusT]) -> Object[SpecT, StatusT]:
        """The same object, with its spec and status decoded into the types of ``kind``.

        Raises:
            WrongKindError: ``kind`` is another kind.
        """
        if kind is self.kind:
            return self  # type: ignore[return-value]  # the kind carries the types
        if kind != self.kind:
            raise _codec.WrongKindError(f"{self!r} cannot be viewed as {kind}: not the same kind")
        return Object(
            kind,
            self.raw,
            self.namespace,
            self.name,
            self.uid,
            self.resource_version,
            self.generation,
            self.deletion_timestamp,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise_read_only()

    def __delattr__(self, name: str) -> None:
        raise_read_only()

    def __setitem__(self, key: str, value: object) -> None:
        raise_read_only()

    def __delitem__(self, key: str) -> None:
        raise_read_only()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Object):
            return NotImplemented
        return self.kind == other.kind and (
            self.raw == other.raw
            or _differ_in_type_fields(self.raw, other.raw)
            or equal_numbers(self.to_dict(), other.to_dict())
        )

    def __ne__(self, other: object) -> bool:
        # Struct has its own __ne__, which compares identities.
        return not self == other

    def __hash__(self) -> int:
        return hash((self.namespace, self.name, self.uid, self.resource_version))

    def __copy__(self) -> Object[SpecT_co, StatusT_co]:
        return self

    def __deepcopy__(self, memo: object) -> Object[SpecT_co, StatusT_co]:
        return self

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key}"

    def __repr__(self) -> str:
        # Without the content: it may be a Secret, and reprs end up in logs.
        return f"<{self.kind.kind} {self.key} rv={self.resource_version} uid={self.uid}>"


_TYPE_FIELDS = {"apiVersion", "kind"}


def _differ_in_type_fields(one: bytes, other: bytes) -> bool:
    """Whether two texts are the same but for ``kind`` and ``apiVersion`` at the front of one.

    Items of lists of built-in kinds are so, and comparing their text costs a hundredth.
    """
    longer, shorter = (one, other) if len(one) > len(other) else (other, one)
    front = longer[: len(longer) - len(shorter) + 1]
    if len(front) > 512 or not front.endswith(b",") or not longer.endswith(shorter[1:]):
        return False
    try:
        found = _codec.members(front[:-1] + b"}")
    except _codec.DECODE_ERRORS:
        return False
    return found.keys() <= _TYPE_FIELDS


# The fields of ConfigMaps, Secrets, roles, bindings, webhook configurations and storage classes.
for _name in (
    *("data", "binary_data", "binaryData", "string_data", "stringData", "immutable", "type"),
    *("rules", "role_ref", "roleRef", "subjects", "webhooks", "provisioner", "parameters"),
):
    setattr(Object, _name, _KeyOnlyField(_name))


# Otherwise msgspec would encode the fields of the struct.
_codec.raw_json_getters[Object] = operator.attrgetter("raw")


_METADATA_FIELDS = {
    "labels": "labels",
    "annotations": "annotations",
    "finalizers": "finalizers",
    "owner_references": "ownerReferences",
    "ownerReferences": "ownerReferences",
    "generate_name": "generateName",
    "generateName": "generateName",
}
"""Arguments that belong in the metadata, with their names there."""


@final
class MutableObject(MutableMapping[str, Any], Generic[SpecT, StatusT]):
    """A mutable copy of an object: a dict with shortcuts to the metadata.

    Not thread-safe. An assignment of a typed spec or status keeps the fields that the type does not
    know.

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
            TypeError: ``kind`` is not a Kind, or ``data`` is not a dict.
        """
        self.kind: Kind = check_kind(kind)
        check_data(data, dict)
        self.data: dict[str, Any] = data

    @classmethod
    def new(
        cls,
        kind: Kind[OtherSpecT, OtherStatusT],
        /,
        name: str = "",
        *,
        namespace: str = "",
        **fields: Any,
    ) -> MutableObject[OtherSpecT, OtherStatusT]:
        """A new object with this name and namespace, and with ``fields`` (``spec=…``, ``data=…``).

        Args:
            kind: its kind.
            name: its name; empty if ``metadata.generateName`` will be set.
            namespace: its namespace; leave empty for cluster-scoped kinds.
            fields: top-level fields. A typed value becomes JSON; a field that is None is left out
                if None is its default. ``metadata`` may have further fields, such as labels.

        Raises:
            TypeError: ``kind`` is not a Kind, a field belongs in the metadata, or ``spec`` or
                ``status`` is neither of the kind's type nor a mapping.
            EncodeError: a field is not JSON, or an instance of the kind's type does not fit it.
        """
        data: dict[str, Any] = type_fields(check_kind(kind))
        data["metadata"] = {k: v for k, v in (("name", name), ("namespace", namespace)) if v}
        for field, value in fields.items():
            if field in _METADATA_FIELDS:
                raise TypeError(
                    f"{field}=… would be next to the metadata, not in it: give "
                    f"metadata={{'{_METADATA_FIELDS[field]}': …}}"
                )
            if field in ("spec", "status"):
                _check_class(kind, field, value)
            plain = _codec.plain_copy(value, f"$.{field}", kind.rename)
            if field in ("spec", "status"):
                check_typed(kind, field, value, plain)
            if field == "metadata" and isinstance(plain, dict):
                plain = {**data["metadata"], **plain, **data["metadata"]}
            data[field] = plain
        return MutableObject(kind, data)

    @property
    def metadata(self) -> dict[str, Any]:
        """``metadata``, created if missing."""
        return _get_or_set(self.data, "metadata", dict)

    @property
    def name(self) -> str:
        """``metadata.name``; ``""`` if not set."""
        return self._text("name")

    @property
    def namespace(self) -> str:
        """``metadata.namespace``; ``""`` if not set."""
        return self._text("namespace")

    @property
    def key(self) -> ObjectKey:
        """Namespace and name."""
        return ObjectKey(self.namespace, self.name)

    @property
    def resource_version(self) -> str:
        """``metadata.resourceVersion``; ``""`` if not set."""
        return self._text("resourceVersion")

    @property
    def labels(self) -> dict[str, str]:
        """``metadata.labels``, created if missing; change it in place."""
        return _get_or_set(self.metadata, "labels", dict)

    @property
    def annotations(self) -> dict[str, str]:
        """``metadata.annotations``, created if missing; change it in place."""
        return _get_or_set(self.metadata, "annotations", dict)

    @property
    def finalizers(self) -> list[str]:
        """``metadata.finalizers``, created if missing; change it in place."""
        return _get_or_set(self.metadata, "finalizers", list)

    @property
    def spec(self) -> SpecT:
        """The spec: plain values to change in place, or an instance of the kind's type.

        To change a typed value, make a changed copy (``attrs.evolve``, pydantic's ``model_copy``)
        and assign it. Its validators run, and fields that its type does not know stay, also in the
        items of lists, which are matched by their ``name`` or by their content. Assigning None
        removes the spec. In a typed value, a field that is None is left out if None is its default,
        and else written as null.

        Raises:
            DecodeError: the spec does not fit the kind's type.
            EncodeError: an assigned typed value does not fit its own type.
            TypeError: an assigned value is neither of the kind's type nor a mapping.
        """
        spec: SpecT = self._view("spec", self.kind.spec_view)
        return spec

    @spec.setter
    def spec(self, value: SpecT | Mapping[str, Any] | None) -> None:
        self._assign("spec", self.kind.spec_view, value)

    @property
    def status(self) -> StatusT:
        """The status, as :attr:`spec`."""
        status: StatusT = self._view("status", self.kind.status_view)
        return status

    @status.setter
    def status(self, value: StatusT | Mapping[str, Any] | None) -> None:
        self._assign("status", self.kind.status_view, value)

    def _view(self, field: str, view: Any) -> Any:
        value = self.data.get(field)
        if view is None or value is None:
            return value
        from appsdk_operator.resource._typed.renaming import convert

        try:
            return convert(value, view)
        except _codec.DECODE_ERRORS as error:
            problem = view_error(self.kind, self.key, field, view, error)
            if not self.kind.secret:
                raise problem from error
        raise problem

    def _assign(self, field: str, view: Any, value: Any) -> None:
        _check_class(self.kind, field, value)
        current = self.data.get(field)
        if value is None:
            self.data.pop(field, None)
            return
        if view is None or isinstance(value, Mapping):
            self.data[field] = _codec.plain_copy(value, f"$.{field}", self.kind.rename)
            return
        new = _codec.plain_copy(value, f"$.{field}", self.kind.rename)
        check_typed(self.kind, field, value, new)
        if current is not None:
            try:
                new = self._with_unknown_fields(view, current, new)
            except RecursionError as error:
                raise _codec.EncodeError(
                    f"$.{field} is nested too deep to keep the fields that its class does not "
                    "know: change the plain values instead, with keys"
                ) from error
        self.data[field] = new

    def _with_unknown_fields(self, view: Any, current: Any, new: Any) -> Any:
        """``new`` with the fields of ``current`` that ``view`` does not know.

        Without them, where with them it would be read as another value.
        """
        from appsdk_operator.resource._typed.overlay import overlay
        from appsdk_operator.resource._typed.renaming import convert, known_fields

        def read(value: Any) -> Any:
            return _codec.to_plain(convert(value, view), self.kind.rename)

        try:
            known = read(current)
        except Exception:  # the new value repairs it, whatever a hook of the class has raised
            known = known_fields(view, current)
        else:
            if same(known, new):
                return current
        for keeps in (True, False):
            merged = overlay(current, known, new, read, keeps=keeps)
            if same(merged, new):
                return merged
            try:
                wanted = convert(new, view)
            except _codec.DECODE_ERRORS:  # a type without fields, which is left to the server
                return merged
            with contextlib.suppress(Exception):  # a class may forbid other fields
                found = convert(merged, view)
                if same(*(_codec.to_plain(one, nulls=True) for one in (found, wanted))):
                    return merged
        return new

    def _text(self, field: str) -> str:
        # Not through `metadata`: reading must not create it.
        return str((self.data.get("metadata") or {}).get(field) or "")

    def freeze(self) -> Object[SpecT, StatusT]:
        """An immutable copy of the current content.

        Raises:
            EncodeError: the content is not JSON.
        """
        return Object.from_dict(self.kind, self.data)

    def to_dict(self) -> dict[str, Any]:
        """A copy of the content in plain values."""
        copied: dict[str, Any] = _codec.plain_copy(self.data, rename=self.kind.rename)
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

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.key}"

    def __repr__(self) -> str:
        return f"<mutable {self.kind.kind} {self.key} rv={self.resource_version or '-'}>"


def _check_class(kind: Kind, field: str, value: Any) -> None:
    """Refuse values that are neither of the kind's class, nor a mapping, nor None.

    A type without fields (``list[Port]``, a union) is left to the server.

    Raises:
        TypeError: the text says what to give. It does not show the value.
    """
    view = kind.spec if field == "spec" else kind.status
    if value is None or isinstance(value, Mapping) or not has_fields(view):
        return
    if not isinstance(value, view):
        given = value.__qualname__ if isinstance(value, type) else f"{type(value).__qualname__}(…)"
        raise TypeError(
            f"{kind.kind}: {field}={given} is not of type {view.__qualname__}, "
            f"which this kind has for its {field}: give {view.__qualname__}(…) or a mapping"
        )


def check_typed(kind: Kind, field: str, value: Any, plain: Any) -> None:
    """Refuse an instance of the kind's type that could not be decoded again.

    A mapping passes: it may have some of the fields only.

    Args:
        kind: the kind.
        field: ``spec`` or ``status``.
        value: the instance.
        plain: what is written of it.

    Raises:
        EncodeError: a type or a validator refuses it; the text names the JSON path.
    """
    view = kind.spec if field == "spec" else kind.status
    if view is None or type(value) is not view:
        return
    from appsdk_operator.resource._typed.renaming import convert

    try:
        convert(plain, kind.spec_view if field == "spec" else kind.status_view)
    except (*_codec.DECODE_ERRORS, TypeError) as error:
        place, problem = path_and_problem(error)
        problem = _shown_problem(kind, problem)
        refusal = _codec.EncodeError(
            f"{kind.kind}: $.{field}{place} does not fit {view.__qualname__}: {problem}"
        )
        if not kind.secret:
            raise refusal from error
    else:
        return
    raise refusal


AnyObject: TypeAlias = Object[SpecT, StatusT] | MutableObject[SpecT, StatusT]
"""An object as it was read, or a mutable copy."""


def object_of(kind: Kind[SpecT, StatusT], raw: bytes, m: _codec.Metadata) -> Object[SpecT, StatusT]:
    """An object from its JSON text and its decoded metadata."""
    return Object(
        kind,
        raw,
        # A cluster has few namespaces and many objects: they share one string for each.
        sys.intern(m.namespace) if m.namespace else "",
        m.name or "",
        m.uid or "",
        m.resource_version or "",
        m.generation or 0,
        m.deletion_timestamp,
    )


def as_transformed(obj: Object[SpecT, StatusT]) -> Object[SpecT, StatusT]:
    """The object, marked as made by a transform."""
    return msgspec.structs.replace(obj, raw=_TransformedText(obj.raw))


class PartError(_codec.DecodeError):
    """A spec or status does not fit the class of its kind."""

    def __init__(self, text: str, kind: Kind, part: str, path: str, problem: str) -> None:
        super().__init__(text)
        self.kind = kind
        """The kind whose class it does not fit."""
        self.part = part
        """``spec`` or ``status``."""
        self.path = path
        """The field, for example ``spec.jobs[0].name``; or the object that holds it."""
        self.problem = problem
        """What is wrong, in the words of msgspec, pydantic or a validator."""

    def __reduce__(self) -> tuple[Any, ...]:
        return PartError, (str(self), self.kind, self.part, self.path, self.problem)


def every_part_error(obj: Object, error: PartError) -> list[PartError]:
    """The errors of all fields of the part that ``error`` is about, up to 100.

    Of a part of more than 64 KB it is ``error`` alone.

    Args:
        obj: the object whose part could not be read, or another one with such a part.
        error: the error of reading it.
    """
    from appsdk_operator.resource._typed.every_problem import every_problem

    kind = error.kind
    view = kind.spec if error.part == "spec" else kind.status
    raw = bytes(obj._members().get(error.part, b"null"))  # noqa: SLF001 - of this module
    try:
        found = every_problem(view, kind.rename, raw)
    except (NameError, TypeError, ValueError, RecursionError):  # a class of which parts are unknown
        found = []
    return [_part_error(kind, obj.key, error.part, view, *each) for each in found] or [error]


def view_error(kind: Kind, key: ObjectKey, field: str, view: Any, error: Exception) -> PartError:
    return _part_error(kind, key, field, view, *path_and_problem(error))


def _part_error(
    kind: Kind, key: ObjectKey, field: str, view: Any, place: str, problem: str
) -> PartError:
    problem = _shown_problem(kind, problem)
    text = (
        f"{kind.kind} {key}: $.{field}{place} does not fit "
        f"{getattr(view, '__qualname__', view)}: {problem}"
    )
    return PartError(text, kind, field, f"{field}{place}", problem)


def _shown_problem(kind: Kind, problem: str) -> str:
    if not kind.secret:
        return problem
    return f"the reason is not shown, as {kind.kind} is a kind with secrets"


def type_fields(kind: Kind) -> dict[str, Any]:
    return {"apiVersion": kind.api_version, "kind": kind.kind}


def check_data(data: object, wanted: type = Mapping) -> None:
    """Refuse content that is not a mapping, or no dict.

    Raises:
        TypeError: the text says what to give. It does not show the value.
    """
    if isinstance(data, wanted):
        return
    instead = "give a mapping with apiVersion, kind and metadata"
    if isinstance(data, Mapping):
        instead = "give a dict, which is kept as it is"
    elif isinstance(data, (str, bytes)):
        instead = "Object.from_json(kind, …) takes JSON as bytes, load_yaml(…) gives dicts of YAML"
    elif isinstance(data, (list, tuple)):
        instead = "give one object, each item by itself"
    elif hasattr(data, "to_dict"):
        instead = (
            "use as_object(kind, …), or client.from_model(kind, …) for a model of the kubernetes "
            "package"
        )
    raise TypeError(f"data is of type {type(data).__name__}: {instead}")


def _refuse_raw(raw: object) -> NoReturn:
    instead = "give JSON as bytes"
    if isinstance(raw, str):
        instead = "give its bytes, text.encode()"
    elif isinstance(raw, Mapping):
        instead = "use Object.from_dict(kind, …)"
    elif isinstance(raw, (list, tuple)):
        instead = "give one object, each item by itself"
    raise TypeError(f"raw is of type {type(raw).__name__}: {instead}")


def with_type_fields(kind: Kind, data: Mapping[str, Any]) -> dict[str, Any]:
    """``data`` with missing ``apiVersion`` and ``kind`` in front; other keys keep their order."""
    missing = {key: value for key, value in type_fields(kind).items() if not data.get(key)}
    return {**missing, **{key: value for key, value in data.items() if key not in missing}}


def is_older_version(version: str, than: str) -> bool:
    """Whether one ``resourceVersion`` is older than another (KEP-5504).

    Versions that are not decimal numbers cannot be compared: False.

    >>> is_older_version("99", "100"), is_older_version("100", "100"), is_older_version("a", "b")
    (True, False, False)
    """
    # Compared as text, since this runs for every event: a shorter number is smaller.
    is_older = version < than if len(version) == len(than) else len(version) < len(than)
    return is_older and version.isdigit() and than.isdigit()


def parse_time(stamp: str) -> dt.datetime:
    """An aware datetime from the RFC 3339 text that API servers write.

    >>> parse_time("2024-05-01T10:00:00Z").isoformat()
    '2024-05-01T10:00:00+00:00'
    """
    return dt.datetime.fromisoformat(stamp)


def _get_or_set(parent: dict[str, Any], key: str, make: type[_T]) -> _T:
    value: _T | None = parent.get(key)
    if value is None:
        value = parent[key] = make()
    return value
