"""The types of CEL, and the inference of type variables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs


@final
@attrs.frozen
class Type:
    """A type: a name, and parameters for lists, maps, optionals and types of types."""

    name: str
    params: tuple[Type, ...] = ()
    kind: str = ""
    """``"object"`` for types with fields, ``"variable"`` for type variables, and ``"opaque"`` for
    types that only functions can read."""
    decl_type: DeclType | None = attrs.field(default=None, eq=False, repr=False)
    """The declaration from a schema, for object types."""

    def __str__(self) -> str:
        if self.name == "null_type":
            return "null"
        if self.params:
            return f"{self.name}({', '.join(map(str, self.params))})"
        return self.name


@final
@attrs.define(eq=False)
class DeclType:
    """A type declared by a schema, with the size limits and fields of its values.

    ``fields`` maps names in expressions to types, ``keys`` the same names to names in JSON. As
    ``DeclType`` in Kubernetes' ``apiserver/pkg/cel``.
    """

    type: Type
    max_elements: int = -1
    min_size: int = 1
    element: DeclType | None = None
    key: DeclType | None = None
    fields: Mapping[str, DeclType] = attrs.field(factory=dict)
    keys: Mapping[str, str] = attrs.field(factory=dict)


DYN: Final = Type("dyn")
ERROR: Final = Type("!error!")
NULL: Final = Type("null_type")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
TIMESTAMP: Final = Type("timestamp")
DURATION: Final = Type("duration")
_NULLABLE: Final = ("timestamp", "duration", "null_type")


def list_of(item: Type) -> Type:
    """``list(item)``."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """``map(key, value)``."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """``optional_type(value)``."""
    return Type("optional_type", (value,))


def type_of(type_: Type) -> Type:
    """``type(type_)``."""
    return Type("type", (type_,))


def object_type(name: str, decl_type: DeclType | None = None) -> Type:
    """A type with fields."""
    return Type(name, kind="object", decl_type=decl_type)


_SHORT: Final = {
    "opt": "optional_type",
    "Quantity": "kubernetes.Quantity",
    "URL": "kubernetes.URL",
    "IP": "net.IP",
    "CIDR": "net.CIDR",
    "Format": "kubernetes.NamedFormat",
    "Semver": "kubernetes.Semver",
}
_OPAQUE: Final = frozenset(_SHORT.values()) - {"optional_type"}


def parse_type(text: str) -> Type:
    """Parse a type, such as ``list<A>``, ``map<string,int>``, ``opt<A>`` or ``Quantity``.

    Single capital letters are type variables.
    """
    text = text.strip()
    name, bracket, inner = text.partition("<")
    if not bracket:
        if len(name) == 1:
            return Type(name, kind="variable")
        name = _SHORT.get(name, name)
        return Type(name, kind="opaque" if name in _OPAQUE else "")
    return Type(_SHORT.get(name, name), tuple(map(parse_type, split_parameters(inner[:-1]))))


def split_parameters(text: str) -> list[str]:
    """Split at the commas outside of angle brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char == "<") - (char == ">")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part for part in parts if part.strip()]


TYPE_NAMES: Final[dict[str, Type]] = {
    "bool": BOOL,
    "bytes": BYTES,
    "double": DOUBLE,
    "int": INT,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "null_type": NULL,
    "string": STRING,
    "type": type_of(DYN),
    "uint": UINT,
    "optional_type": optional_of(DYN),
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Duration": DURATION,
    **{
        name: parse_type(short)
        for name, short in (
            ("kubernetes.Quantity", "Quantity"),
            ("kubernetes.URL", "URL"),
            ("kubernetes.NamedFormat", "Format"),
            ("kubernetes.Semver", "Semver"),
            ("net.IP", "IP"),
            ("net.CIDR", "CIDR"),
        )
    },
}
"""The types by their names in expressions, where a type is a value as well."""


def _with_params(type_: Type, params: list[Type]) -> Type:
    """``type_`` with these parameters; itself if they are its own."""
    if all(new is old for new, old in zip(params, type_.params, strict=True)):
        return type_
    return Type(type_.name, tuple(params), type_.kind, type_.decl_type)


@final
class Substitution:
    """The types that inference has assigned to type variables."""

    def __init__(self) -> None:
        """No variable has a type yet."""
        self._assigned: dict[str, Type] = {}
        self._changes: list[tuple[str, Type | None]] = []
        self._count = 0

    def fresh_variable(self) -> Type:
        """A new type variable."""
        self._count += 1
        return Type(f"_var{self._count}", kind="variable")

    def instantiate(self, type_: Type, names: dict[str, Type]) -> Type:
        """``type_`` with fresh variables; ``names`` maps the old ones to them."""
        if type_.kind == "variable":
            if type_.name not in names:
                names[type_.name] = self.fresh_variable()
            return names[type_.name]
        if not type_.params:
            return type_
        return _with_params(type_, [self.instantiate(param, names) for param in type_.params])

    def resolve(self, type_: Type, *, unbound_as_dyn: bool = False) -> Type:
        """``type_`` with assigned variables replaced; ``unbound_as_dyn``: others become ``dyn``."""
        if type_.kind == "variable":
            type_ = self._end_of(type_)
        if type_.kind == "variable":
            return DYN if unbound_as_dyn else type_
        if not type_.params:
            return type_
        params = [self.resolve(param, unbound_as_dyn=unbound_as_dyn) for param in type_.params]
        return _with_params(type_, params)

    def _end_of(self, variable: Type) -> Type:
        """What a chain of assigned variables ends at; the chain becomes as short as can be."""
        passed: list[str] = []
        end = variable
        while end.kind == "variable" and end.name in self._assigned:
            passed.append(end.name)
            end = self._assigned[end.name]
        for name in passed[:-1]:
            self._set(name, end)
        return end

    def _set(self, name: str, to: Type) -> None:
        self._changes.append((name, self._assigned.get(name)))
        self._assigned[name] = to

    def assign_all(self, wanted: list[Type], given: list[Type]) -> bool:
        """Whether each given type is assignable to the wanted one; if not, assign no variable."""
        before = len(self._changes)
        if len(wanted) == len(given) and all(map(self._assign, wanted, given)):
            return True
        # Undone one by one: a copy of all assignments for each call would be quadratic.
        while len(self._changes) > before:
            name, was = self._changes.pop()
            if was is None:
                del self._assigned[name]
            else:
                self._assigned[name] = was
        return False

    def _assign(self, wanted: Type, given: Type) -> bool:
        wanted, given = self.resolve(wanted), self.resolve(given)
        if wanted == given:
            return True
        if wanted.kind == "variable":
            return self._bind(wanted, given)
        if given.kind == "variable":
            return self._bind(given, wanted)
        if DYN in (wanted, given) or ERROR in (wanted, given):
            return True
        if given == NULL:
            return wanted.kind in ("object", "opaque") or wanted.name in _NULLABLE
        if wanted == NULL:
            return given.kind in ("object", "opaque") or given.name in _NULLABLE
        if wanted.name != given.name or len(wanted.params) != len(given.params):
            return False
        if wanted.name == "type":
            return True
        return bool(wanted.params) and all(map(self._assign, wanted.params, given.params))

    def _bind(self, variable: Type, to: Type) -> bool:
        if self._occurs(variable, to):
            return False
        self._set(variable.name, to)
        return True

    def _occurs(self, variable: Type, where: Type) -> bool:
        where = self.resolve(where)
        return where == variable or any(self._occurs(variable, p) for p in where.params)
