"""Markers in ``Annotated`` and on classes: what a schema says and a Python type does not."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

import attrs

_C = TypeVar("_C", bound=type)
_ATTRIBUTE: Final = "__schema_markers__"
_QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)


class Marker:
    """A part of a schema, for ``Annotated[…, marker]``, or above a class as ``@marker``."""

    def __call__(self, cls: _C) -> _C:
        """Mark a class; used as a decorator."""
        given: object = cls
        if not isinstance(given, type):
            raise TypeError(f"{self!r} marks classes and types: write Annotated[…, {self!r}]")
        own = cls.__dict__.get(_ATTRIBUTE, ())
        setattr(cls, _ATTRIBUTE, (self, *own))
        return cls

    def schema(self) -> Mapping[str, Any]:
        """The fields that it adds to a schema."""
        return {}


def markers_of_class(cls: type) -> tuple[Marker, ...]:
    """The markers above a class and its bases, those of the bases first."""
    found: list[Marker] = []
    for base in reversed(cls.__mro__):
        found += base.__dict__.get(_ATTRIBUTE, ())
    return tuple(found)


class _Flag(Marker):
    def __init__(self, name: str, **schema: Any) -> None:
        self._name = name
        self._schema = schema

    def schema(self) -> Mapping[str, Any]:
        return self._schema

    def __repr__(self) -> str:
        return self._name


Immutable: Final = _Flag("Immutable")
"""A field that keeps its value once it is set: ``Annotated[str, Immutable]``.

It becomes CEL rules, which API servers enforce from 1.25 on; older ones ignore them.
"""

PreserveUnknown: Final = _Flag("PreserveUnknown", **{"x-kubernetes-preserve-unknown-fields": True})
"""An object whose unknown fields the API server keeps: ``Annotated[Spec, PreserveUnknown]``."""

EmbeddedObject: Final = _Flag("EmbeddedObject", **{"x-kubernetes-embedded-resource": True})
"""A whole Kubernetes object within another: ``Annotated[dict[str, Any], EmbeddedObject]``."""


@attrs.frozen
class Format(Marker):
    """The ``format`` of a text: ``Annotated[str, Format("date-time")]``.

    API servers check, among others, ``date-time``, ``date``, ``duration``, ``byte``, ``ipv4``,
    ``ipv6``, ``cidr``, ``email``, ``hostname``, ``uri`` and ``uuid``, and ignore unknown formats.
    """

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    """The format."""

    def schema(self) -> Mapping[str, Any]:
        return {"format": self.name}


@attrs.frozen
class _Pattern(Marker):
    pattern: str

    def schema(self) -> Mapping[str, Any]:
        return {"pattern": self.pattern, "x-kubernetes-int-or-string": True}


class Schema(Marker):
    """Parts of a schema by their names in OpenAPI, for which there is no other annotation.

    API servers check them; reading an object does not. ``Annotated[str, Schema(maxLength=63)]``, or
    above a class ``@Schema(minProperties=1)``. Add an underscore to a Python keyword: ``not_``.

    Args:
        **parts: plain JSON values, such as ``pattern``, ``minItems``, ``oneOf``, ``nullable``.

    Raises:
        ValueError: there are no parts.
    """

    def __init__(self, **parts: Any) -> None:
        if not parts:
            raise ValueError("Schema() says nothing: give parts of a schema, Schema(maxLength=63)")
        self._parts = {name.rstrip("_"): value for name, value in parts.items()}

    def schema(self) -> Mapping[str, Any]:
        return self._parts

    def __repr__(self) -> str:
        return f"Schema({', '.join(f'{name}={value!r}' for name, value in self._parts.items())})"


IntOrString: TypeAlias = int | str
"""A whole number or a text, such as ``8080`` or ``"25%"`` (``x-kubernetes-int-or-string``)."""

Quantity: TypeAlias = Annotated[int | str, _Pattern(_QUANTITY)]
"""An amount as Kubernetes writes it: ``"500Mi"``, ``"100m"``, ``2``."""

Int32: TypeAlias = Annotated[int, Format("int32")]
"""A whole number of 32 bits; API servers refuse larger ones."""

Int64: TypeAlias = Annotated[int, Format("int64")]
"""A whole number of 64 bits; API servers refuse larger ones."""

Time: TypeAlias = Annotated[str, Format("date-time")]
"""A time as the text in the API, ``"2026-01-31T12:00:00Z"``; a field of type ``datetime`` is
decoded."""

Duration: TypeAlias = Annotated[str, Format("duration")]
"""A time span as text, as Kubernetes writes it: ``"1h30m"``."""


@attrs.frozen
class ListType(Marker):
    """The merge of a list in server-side apply, and the items that may occur twice.

    ``Annotated[list[Port], ListType.MAP("name")]``: each name occurs once, and items are merged by
    name. ``ListType.SET``: each value occurs once. ``ListType.ATOMIC``: the list is replaced as a
    whole, as without a marker. ``@ListType.MAP("type")`` above a class is for all lists of it.
    """

    type: str = attrs.field(validator=attrs.validators.in_(("atomic", "set", "map")))
    """``atomic``, ``set`` or ``map``."""
    keys: tuple[str, ...] = ()
    """The fields that identify an item of a map, by their names on the wire."""

    @classmethod
    def MAP(cls, *keys: str) -> ListType:  # noqa: N802 - like SET and ATOMIC
        """A list whose items are identified by one field or several.

        Raises:
            ValueError: no field is given.
            TypeError: one is not text, such as a list of fields.
        """
        if not keys or not all(keys):
            raise ValueError("ListType.MAP needs the field that identifies an item: MAP('name')")
        for key in keys:
            if not isinstance(key, str):
                raise TypeError(
                    f"ListType.MAP({key!r}): give fields one by one, as in MAP('name', 'protocol')"
                )
        return cls("map", keys)

    SET: ClassVar[ListType]
    ATOMIC: ClassVar[ListType]

    def schema(self) -> Mapping[str, Any]:
        made: dict[str, Any] = {"x-kubernetes-list-type": self.type}
        if self.keys:
            made["x-kubernetes-list-map-keys"] = list(self.keys)
        return made


class MapType(Marker, enum.Enum):
    """The merge of an object or a map in server-side apply: ``Annotated[dict[str, str], …]``."""

    GRANULAR = "granular"
    """Each field has its own owner; the default."""
    ATOMIC = "atomic"
    """The whole has one owner, who replaces it as a whole."""

    def schema(self) -> Mapping[str, Any]:
        return {"x-kubernetes-map-type": self.value}


@attrs.frozen
class Rule(Marker):
    """A rule in the Common Expression Language, for a field or above a class.

    ``@Rule("self.max >= self.min", message="max must be at least min")``. Fields have their names
    on the wire. A rule with ``oldSelf`` is checked only at updates. API servers enforce rules from
    1.25 on, and refuse a CRD whose rules could take too long: limit the size of texts, lists and
    maps.

    Raises:
        ValueError: the rule is empty, or ``reason`` is not one of the reasons below.
    """

    rule: str
    """The expression, which is true for valid values of ``self``."""
    message: str = attrs.field(default="", kw_only=True)
    """The text of the error; default: the API server's own."""
    message_expression: str = attrs.field(default="", kw_only=True)
    """An expression whose value is the text of the error; from 1.27 on."""
    reason: str = attrs.field(default="", kw_only=True)
    """``FieldValueInvalid`` (the API server's default), ``FieldValueForbidden``,
    ``FieldValueRequired`` or ``FieldValueDuplicate``; from 1.28 on."""
    field_path: str = attrs.field(default="", kw_only=True)
    """The field that the error names, relative to ``self``, such as ``.max``; from 1.28 on."""
    optional_old_self: bool = attrs.field(default=False, kw_only=True)
    """Whether a rule with ``oldSelf`` is also checked at creation; from 1.29 on."""

    def __attrs_post_init__(self) -> None:
        if not str(self.rule or "").strip():
            raise ValueError(f"Rule({self.rule!r}): give an expression, 'self.max >= self.min'")
        names = ("Invalid", "Forbidden", "Required", "Duplicate")
        reasons = [f"FieldValue{name}" for name in names]
        if self.reason and self.reason not in reasons:
            raise ValueError(f"reason={self.reason!r}: use one of {', '.join(reasons)}")

    def expressions(self) -> list[str]:
        """Its expressions on ``self``: the rule, the expression of its message, and its field."""
        field = f"self{self.field_path}" if self.field_path else ""
        return [text for text in (self.rule, self.message_expression, field) if text]

    def as_json(self) -> dict[str, Any]:
        """The rule as an entry of ``x-kubernetes-validations``."""
        fields = {
            "rule": self.rule,
            "message": self.message,
            "messageExpression": self.message_expression,
            "reason": self.reason,
            "fieldPath": self.field_path,
            "optionalOldSelf": self.optional_old_self,
        }
        return {name: value for name, value in fields.items() if value}


ListType.SET = ListType("set")
ListType.ATOMIC = ListType("atomic")
