"""Shapes: which parts of an object are owned separately, derived from its OpenAPI schema.

A :class:`Shape` is the type of a value in structured-merge-diff: whether it may be a map, a list
or a scalar, whether a map or list is atomic (owned as a whole), and which fields are the keys of
list items. Shapes are built from schemas on demand and cached.

The rules are those of kube-openapi's ``schemaconv``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, final

_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_QUANTITY: Final = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_RAW: Final = "io.k8s.apimachinery.pkg.runtime.RawExtension"
_PLAIN_FORMATS: Final = (None, "", "byte")


@final
class Shape:
    """The forms that a value may have: map, list and scalar, each optional."""

    __slots__ = ("forms", "list", "map", "scalar")

    def __init__(
        self,
        *,
        scalar: str = "",
        list_: ListShape | None = None,
        map_: MapShape | None = None,
    ) -> None:
        """A shape.

        Args:
            scalar: ``"numeric"``, ``"string"``, ``"boolean"`` or ``"untyped"``.
            list_: the rules for lists.
            map_: the rules for maps.
        """
        self.scalar: str = scalar
        self.list: ListShape | None = list_
        self.map: MapShape | None = map_
        # In order of precedence for a value that has none of these forms.
        self.forms: tuple[str, ...] = tuple(
            name for name, rules in (("map", map_), ("scalar", scalar), ("list", list_)) if rules
        )

    def form_of(self, value: Any) -> str:
        """The form of ``value``: ``"map"``, ``"list"`` or ``"scalar"``.

        ``"any"`` for null where several forms are possible: it has the form of its counterpart.
        """
        kind = type(value)
        if kind is dict:
            form = "map"
        elif kind is list:
            form = "list"
        elif value is None:
            form = ""
        else:
            form = "scalar"
        if form in self.forms:
            return form
        return self.forms[0] if len(self.forms) == 1 else "any"


@final
class MapShape:
    """The rules for a map, or for an object with named fields."""

    __slots__ = ("_children", "_fields", "_schemas", "atomic", "element", "preserve")

    def __init__(
        self,
        fields: Mapping[str, Any],
        element: Shape | None,
        *,
        atomic: bool = False,
        schemas: ShapeBuilder | None = None,
        preserve: bool = False,
    ) -> None:
        """Rules for maps; the schemas in ``fields`` become shapes on demand."""
        self.element: Shape | None = element
        self.atomic: bool = atomic
        self.preserve: bool = preserve
        self._fields = fields
        self._schemas = schemas
        self._children: dict[str, Shape] = {}

    def declares(self, name: str) -> bool:
        """Whether ``name`` is a declared field, not a key of a map."""
        return name in self._fields

    @property
    def is_deduced(self) -> bool:
        """Whether the schema declares nothing about the content."""
        return not self._fields and self.element is DEDUCED

    def child(self, name: str) -> Shape | None:
        """The shape of a field; None if the schema does not allow it."""
        found = self._children.get(name)
        if found is not None:
            return found
        schema = self._fields.get(name)
        if schema is None or self._schemas is None:
            return self.element
        found = self._children[name] = self._schemas.shape(schema, preserve=self.preserve)
        return found

    def default(self, name: str) -> Any:
        """The default of a declared field, or None."""
        return (self._fields.get(name) or {}).get("default")


@final
class ListShape:
    """The rules for a list."""

    __slots__ = ("_element", "_schema", "_schemas", "associative", "keys", "preserve")

    def __init__(
        self,
        schema: Any,
        schemas: ShapeBuilder | None,
        *,
        associative: bool = False,
        keys: tuple[str, ...] = (),
        preserve: bool = False,
    ) -> None:
        """Rules for lists with items of ``schema``; without ``associative`` they are atomic."""
        self.associative: bool = associative
        self.keys: tuple[str, ...] = keys
        self.preserve: bool = preserve
        self._schema = schema
        self._schemas = schemas
        self._element: Shape | None = None

    @property
    def element(self) -> Shape:
        """The shape of the items."""
        if self._element is None:
            if self._schemas is None or self._schema is None:
                self._element = UNTYPED
            else:
                self._element = self._schemas.shape(self._schema, preserve=self.preserve)
        return self._element


UNTYPED: Final = Shape(scalar="untyped")
DEDUCED: Final = Shape(scalar="untyped")
"""The shape without a schema: maps are owned by field, lists as a whole."""
UNTYPED.list, UNTYPED.map = ListShape(None, None), MapShape({}, UNTYPED, atomic=True)
DEDUCED.list, DEDUCED.map = ListShape(None, None), MapShape({}, DEDUCED)
UNTYPED.forms = DEDUCED.forms = ("map", "scalar", "list")


@final
class ShapeBuilder:
    """Builds shapes from schemas and resolves their references."""

    def __init__(self, definitions: Mapping[str, Any] | None = None) -> None:
        """References are resolved in ``definitions`` by the last part of their path."""
        self._definitions = definitions or {}
        self._named: dict[tuple[str, str], Shape] = {}

    def custom(self, schema: Mapping[str, Any]) -> Shape:
        """The shape of a custom resource."""
        return self.shape(_as_object(schema))

    def shape(self, schema: Mapping[str, Any], *, preserve: bool = False) -> Shape:
        """The shape of values of ``schema``.

        Args:
            schema: an OpenAPI schema, version 2 or 3, as a dict.
            preserve: whether undeclared fields are allowed here and below.
        """
        name = _reference(schema)
        if name:
            return self._named_shape(name, schema.get("x-kubernetes-map-type", ""))
        if schema.get("x-kubernetes-embedded-resource"):
            schema = _as_object(schema)
        preserve = preserve or bool(schema.get(_PRESERVE))
        match schema.get("type") or "":
            case "object":
                return Shape(map_=self._map(schema, preserve=preserve))
            case "array":
                return Shape(list_=self._list(schema, preserve=preserve))
            case "":
                return Shape(
                    scalar="untyped",
                    list_=self._list(schema, preserve=preserve),
                    map_=self._map(schema, preserve=preserve),
                )
            case kind:
                return _SCALARS[_scalar(kind, schema.get("format"))]

    def _named_shape(self, name: str, relation: str) -> Shape:
        found = self._named.get((name, relation))
        if found is not None:
            return found
        schema = OBJECT_META if name == _OBJECT_META_NAME else self._definitions.get(name)
        if name == _QUANTITY:
            found = _SCALARS["untyped"]
        elif name == _RAW or schema is None:
            found = UNTYPED
        else:
            if relation:
                schema = {**schema, "x-kubernetes-map-type": relation}
            found = self.shape(schema)
        self._named[name, relation] = found
        return found

    def _map(self, schema: Mapping[str, Any], *, preserve: bool) -> MapShape:
        fields: Mapping[str, Any] = schema.get("properties") or {}
        additional = schema.get("additionalProperties")
        element: Shape | None = None
        if isinstance(additional, dict):
            element = self.shape(additional, preserve=preserve)
        elif additional is True or (additional is None and (preserve or not fields)):
            element = DEDUCED
        return MapShape(
            fields,
            element,
            atomic=schema.get("x-kubernetes-map-type") == "atomic",
            schemas=self,
            preserve=preserve,
        )

    def _list(self, schema: Mapping[str, Any], *, preserve: bool) -> ListShape:
        associative, keys = _relation(schema)
        return ListShape(
            schema.get("items"), self, associative=associative, keys=keys, preserve=preserve
        )


_SCALARS: Final = {name: Shape(scalar=name) for name in ("numeric", "string", "boolean", "untyped")}


def _scalar(kind: str, form: str | None) -> str:
    if kind in ("integer", "number"):
        return "numeric"
    if kind == "boolean":
        return "boolean"
    return "string" if kind == "string" and form in _PLAIN_FORMATS else "untyped"


def _relation(schema: Mapping[str, Any]) -> tuple[bool, tuple[str, ...]]:
    """Whether a list is owned by item, and the key fields of its items."""
    kind = schema.get("x-kubernetes-list-type")
    if kind is not None:
        keys = tuple(schema.get("x-kubernetes-list-map-keys") or ()) if kind == "map" else ()
        return kind in ("set", "map"), keys
    if schema.get("x-kubernetes-patch-strategy") in ("merge", "merge,retainKeys"):
        key = schema.get("x-kubernetes-patch-merge-key")
        return True, (key,) if key else ()
    return False, ()


def _reference(schema: Mapping[str, Any]) -> str:
    """The name that a schema refers to, or ``""``."""
    reference = schema.get("$ref", "")
    parts: Sequence[Any] = schema.get("allOf") or ()
    if not reference and len(parts) == 1:
        reference = parts[0].get("$ref", "")
    return str(reference).rpartition("/")[2]


_OBJECT_META_NAME: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def _as_object(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an object with its type and metadata fields."""
    text = {"type": "string"}
    common = {"apiVersion": text, "kind": text, "metadata": {"$ref": f"/{_OBJECT_META_NAME}"}}
    plain = {name: value for name, value in schema.items() if name != _EMBEDDED}
    return {**plain, "properties": {**(schema.get("properties") or {}), **common}}


_EMBEDDED: Final = "x-kubernetes-embedded-resource"

_TEXT: Final = {"type": "string"}
_TEXTS: Final = {"type": "object", "additionalProperties": _TEXT}
_TIME: Final = {"type": "string", "format": "date-time"}
_NUMBER: Final = {"type": "integer", "format": "int64"}
_FLAG: Final = {"type": "boolean"}

OBJECT_META: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        **dict.fromkeys(("name", "generateName", "namespace", "selfLink", "uid"), _TEXT),
        "resourceVersion": _TEXT,
        "generation": _NUMBER,
        "creationTimestamp": _TIME,
        "deletionTimestamp": _TIME,
        "deletionGracePeriodSeconds": _NUMBER,
        "labels": _TEXTS,
        "annotations": _TEXTS,
        "finalizers": {"type": "array", "items": _TEXT, "x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {
                "type": "object",
                "x-kubernetes-map-type": "atomic",
                "properties": {
                    **dict.fromkeys(("apiVersion", "kind", "name", "uid"), _TEXT),
                    "controller": _FLAG,
                    "blockOwnerDeletion": _FLAG,
                },
            },
        },
        "managedFields": {
            "type": "array",
            "x-kubernetes-list-type": "atomic",
            "items": {"type": "object"},
        },
    },
}
"""The schema of ``metadata``, the same for every kind and version."""

SCALE: Final[Shape] = ShapeBuilder().custom(
    {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
            "status": {
                "type": "object",
                "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}},
            },
        },
    }
)
"""The shape of a scale."""
