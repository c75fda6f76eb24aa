"""Types of Python from structural schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs

from appsdk_operator.project._models.classes import Classes, Field, ModelClass
from appsdk_operator.project._models.layout import (
    DEEPEST_VALUE,
    Group,
    Node,
    OrNone,
    Ref,
    Text,
    literal,
    plain_doc,
    value_literal,
)
from appsdk_operator.project._models.names import (
    ModelError,
    class_words,
    singular,
    snake,
    unused,
)
from appsdk_operator.resource import Rule

__all__ = ["QUANTITY", "ModelError", "SchemaReader", "check_forms", "rules"]

_KIT: Final = "appsdk_operator.resource"
_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
QUANTITY: Final = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_EITHER: Final = [{"type": "integer"}, {"type": "string"}]
_NUMBERS: Final = ("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum", "multipleOf")
_TEXTS: Final = ("minLength", "maxLength", "pattern")
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf", "not")
_CHECKS: Final[Mapping[str, tuple[str, ...]]] = {
    "integer": ("enum", *_NUMBERS, *_JUNCTORS),
    "number": ("format", "enum", *_NUMBERS, *_JUNCTORS),
    "string": ("enum", *_TEXTS, *_JUNCTORS),
    "boolean": ("enum", *_JUNCTORS),
    "array": ("enum", "minItems", "maxItems", "uniqueItems", *_JUNCTORS),
    "object": ("enum", "minProperties", "maxProperties", *_JUNCTORS),
    "": ("enum", *_NUMBERS, *_TEXTS, *_JUNCTORS),
}
"""What a schema says of values apart from their type, in the order in which it is written."""
_RULE_FIELDS: Final = {
    "message": "message",
    "messageExpression": "message_expression",
    "reason": "reason",
    "fieldPath": "field_path",
    "optionalOldSelf": "optional_old_self",
}
_DEEPEST: Final = 100
_LONG: Final = 300
_LITERAL_LIMIT: Final = 2**63


def typing_name(name: str) -> Text:
    """A name of typing."""
    return Text(name, (("typing", name),))


def kit_name(name: str) -> Text:
    """A name of the kit."""
    return Text(name, ((_KIT, name),))


ANY: Final = typing_name("Any")
MAPPING: Final = Text("Mapping", (("collections.abc", "Mapping"),))
NONE: Final = Text("None")
_TEXT, _INT, _FLOAT, _BOOL = (Text(name) for name in ("str", "int", "float", "bool"))


def mapping_of(values: Node) -> Group:
    """``Mapping[str, …]``."""
    return Group(MAPPING, "[]", (("", _TEXT), ("", values)))


def call(head: Text, *items: Node, **named: Node) -> Group:
    """A call with arguments."""
    return Group(
        head,
        "()",
        tuple(("", item) for item in items) + tuple((f"{k}=", v) for k, v in named.items()),
    )


def schema_marker(**parts: Any) -> Group:
    """``Schema(…)`` with parts of a schema."""
    return call(kit_name("Schema"), **{name: literal(value) for name, value in parts.items()})


def annotated(inner: Node, markers: Sequence[Node]) -> Node:
    """``Annotated[…]``, or the type itself where there is nothing to say."""
    if not markers:
        return inner
    items = (("", inner), *(("", marker) for marker in markers))
    return Group(typing_name("Annotated"), "[]", items)


@attrs.frozen
class Place:
    """Where a schema is: names for classes, and its path for errors."""

    words: tuple[str, ...]
    path: str
    lists: int = 0
    """In how many lists and maps one within the other it is, since the last field."""

    def inside(self, name: str) -> Place:
        """The place of a field."""
        return Place((*self.words, class_words(name)), f"{self.path}.{name}")

    def item(self, path: str) -> Place:
        """The place of the items."""
        *above, own = self.words
        return Place((*above, singular(own)), f"{self.path}{path}", self.lists + 1)

    def check(self) -> None:
        """Refuse what is nested so deeply that Python would not parse it.

        Raises:
            ModelError: naming the place.
        """
        path = self.path if len(self.path) < _LONG else f"{self.path[:_LONG]}…"
        if len(self.words) > _DEEPEST:
            raise ModelError(f"{path} is nested more than {_DEEPEST} levels deep")
        if self.lists > DEEPEST_VALUE:
            raise ModelError(f"{path} is nested in more than {DEEPEST_VALUE} lists and maps")


class SchemaReader:
    """Makes classes of schemas.

    Args:
        classes: gets the classes.
        version: the version of the API, for their names.
        reserved: names that fields cannot have.
        resolve: finds the definition that a schema refers to, and its name; None: there are no
            references.
    """

    def __init__(
        self,
        classes: Classes,
        *,
        version: str,
        reserved: frozenset[str],
        resolve: Callable[[Mapping[str, Any]], tuple[str, Mapping[str, Any]] | None] | None = None,
    ) -> None:
        self._classes = classes
        self._version = version
        self._reserved = reserved
        self._resolve = resolve or (lambda _: None)
        self._definitions: dict[str, Node] = {}
        self._open: list[str] = []

    def root(self, schema: Mapping[str, Any], name: str, words: tuple[str, ...]) -> Ref | None:
        """The class of a spec or status; None if it is not an object with known fields.

        Raises:
            ModelError: it is not a schema, or nested too deeply.
        """
        place = Place(words, name)
        check_forms(schema, name)
        found = self._resolve(schema)
        if found is not None:
            reference = self._definition(*found)
            return reference if isinstance(reference, Ref) else None
        if schema.get("type") != "object" or not _fields_of(schema):
            return None
        more = [schema_marker(nullable=True)] if schema.get("nullable") else []
        doc = str(schema.get("description") or "")
        return self._class(schema, place, doc=doc, more=more, fixed=name)

    def type_of(self, schema: Any, place: Place, *, doc: str = "") -> Node:
        """The type of a value that is there, with ``| None`` if it may be null."""
        inner, markers = self._parts(schema, place, doc=doc)
        if schema.get("nullable"):
            if inner == ANY:
                markers = [*markers, schema_marker(nullable=True)]
            else:
                inner = OrNone(inner)
        return annotated(inner, markers)

    def _parts(self, schema: Any, place: Place, *, doc: str = "") -> tuple[Node, list[Node]]:
        """The type without null, and its markers."""
        check_forms(schema, place.path)
        place.check()
        found = self._resolve(schema)
        if found is not None:
            return self._definition(*found), []
        schema = _with_enum(schema)
        kind = str(schema.get("type") or "")
        if schema.get(_INT_OR_STRING):
            return self._int_or_string(schema)
        if kind == "object":
            return self._object(schema, place, doc)
        if kind == "array":
            return self._array(schema, place)
        if kind == "string":
            return _string(schema)
        if kind in ("integer", "number", "boolean"):
            return _scalar(schema, kind)
        if kind:
            raise ModelError(
                f"{place.path} has the type {kind!r}: use array, boolean, integer, number, object "
                "or string"
            )
        return ANY, [*_flags(schema, preserve=False), *rules(schema), *_checks(schema, "")]

    def _definition(self, name: str, schema: Mapping[str, Any]) -> Node:
        """The class of a named definition; what contains itself is any JSON there."""
        known = self._definitions.get(name)
        if known is not None:
            return known
        if name in self._open:
            return ANY
        self._open.append(name)
        own = name.rpartition(".")[2]
        place = Place(tuple(class_words(part) for part in name.split(".")[-3:]), own)
        if schema.get("type") == "object" and _fields_of(schema):
            made: Node = self._class(schema, place, doc="")
        else:
            made = annotated(*self._parts(schema, place))
        self._open.pop()
        # Made while a definition around it was open, it has Any in that one's place.
        if not self._open or ANY not in _nodes(made):
            self._definitions[name] = made
        return made

    def _int_or_string(self, schema: Mapping[str, Any]) -> tuple[Node, list[Node]]:
        checks = {**schema}
        if schema.get("anyOf") == _EITHER:
            del checks["anyOf"]
        if schema.get("allOf") and schema["allOf"][0] == {"anyOf": _EITHER}:
            checks["allOf"] = schema["allOf"][1:]
        inner = kit_name("IntOrString")
        if checks.get("pattern") == QUANTITY:
            inner = kit_name("Quantity")
            del checks["pattern"]
        return inner, [*rules(schema), *_checks(checks, "")]

    def _array(self, schema: Mapping[str, Any], place: Place) -> tuple[Node, list[Node]]:
        if "items" not in schema:
            items: Node = ANY
        else:
            item = schema["items"]
            text = item.get("description") if isinstance(item, Mapping) else ""
            items = self.type_of(item, place.item("[]"), doc=str(text or ""))
        made = Group(Text("tuple"), "[]", (("", items), ("", Text("..."))))
        return made, [*_list_type(schema), *rules(schema), *_checks(schema, "array")]

    def _object(self, schema: Mapping[str, Any], place: Place, doc: str) -> tuple[Node, list[Node]]:
        values = schema.get("additionalProperties")
        if _fields_of(schema):
            return self._class(schema, place, doc=doc), []
        is_known = isinstance(values, Mapping) and bool(values)
        around = [*_flags(schema, preserve=is_known), *_map_type(schema), *rules(schema)]
        around += _checks(schema, "object")
        if isinstance(values, Mapping) and values:
            text = str(values.get("description") or "")
            return mapping_of(self.type_of(values, place.item(".*"), doc=text)), around
        if values or values == {} or schema.get(_OPEN) or schema.get(_EMBEDDED):
            return mapping_of(ANY), around
        return self._class(schema, place, doc=doc), []

    # -- Classes -----------------------------------------------------------------------------

    def _class(
        self,
        schema: Mapping[str, Any],
        place: Place,
        *,
        doc: str,
        more: Sequence[Node] = (),
        fixed: str = "",
    ) -> Ref:
        properties = _fields_of(schema)
        required = [name for name in properties if name in (schema.get("required") or ())]
        # A default is there before anybody looks, so that such a field may be left out.
        required = [name for name in required if _default(properties[name]) is None]
        taken: set[str] = set()
        fields = []
        for name in [*required, *(name for name in properties if name not in required)]:
            own = _attribute(name, self._reserved, taken)
            taken.add(own)
            made = self._field(own, name, properties[name], place, is_required=name in required)
            fields.append(made)
        decorators = [*more, *_flags(schema), *_map_type(schema), *rules(schema)]
        decorators += _checks(schema, "object")
        return self._classes.add(
            ModelClass(
                words=place.words,
                version=self._version,
                fields=tuple(fields),
                decorators=tuple(decorators),
                doc=plain_doc(doc),
                fixed_name=fixed,
            )
        )

    def _field(self, own: str, wire: str, schema: Any, place: Place, *, is_required: bool) -> Field:
        inside = place.inside(wire)
        inner, markers = self._parts(schema, inside)
        is_nullable = bool(schema.get("nullable"))
        value = None if is_required else _default(schema)
        default: Node | None = None if is_required else NONE
        is_factory = False
        if value is not None:
            found = _default_of(inner, value)
            if found is not None:
                default, is_factory = found
            if found is None or (is_factory and value):
                # The API server has a default that the class cannot state to it.
                markers.append(schema_marker(default=value))
        if inner == ANY:
            if is_nullable:
                markers.append(schema_marker(nullable=True))
        elif is_nullable or default == NONE:
            inner = OrNone(inner)
            if is_nullable and default == NONE:
                markers.append(schema_marker(nullable=True))
        return Field(
            name=own,
            wire=wire,
            type=annotated(inner, markers),
            default=default,
            is_factory=is_factory,
            doc=plain_doc(str(schema.get("description") or "")),
        )


def _is_mapping(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, Mapping) for one in value)


_FORMS: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "properties": (_is_mapping, "a mapping of schemas"),
    "required": (_is_list, "a list of names"),
    "enum": (_is_list, "a list of values"),
    "x-kubernetes-validations": (_are_mappings, "a list of rules"),
    "x-kubernetes-list-map-keys": (_are_texts, "a list of names"),
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), (_are_mappings, "a list of schemas")),
}


def check_forms(schema: Any, path: str) -> None:
    """Refuse a schema whose parts are of another form than API servers accept; null is absence.

    Raises:
        ModelError: naming the place and the part.
    """
    if not isinstance(schema, Mapping):
        raise ModelError(f"{path} is not a schema but {schema!r}")
    for name, (fits, form) in _FORMS.items():
        value = schema.get(name)
        if value is not None and not fits(value):
            raise ModelError(f"{path}: {name} is not {form} but {value!r}")
    is_map = schema.get("x-kubernetes-list-type") == "map"
    if is_map and not schema.get("x-kubernetes-list-map-keys"):
        raise ModelError(f"{path}: a list of type map has no x-kubernetes-list-map-keys")
    for rule in schema.get("x-kubernetes-validations") or ():
        try:
            Rule(str(rule.get("rule") or ""), reason=str(rule.get("reason") or ""))
        except ValueError as error:
            raise ModelError(f"{path}: {error}") from error


def _fields_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of an object that are said; those that every embedded object has are not."""
    fields: Mapping[str, Any] = schema.get("properties") or {}
    if schema.get(_EMBEDDED) and schema.get(_OPEN) and fields.keys() <= _OBJECT_FIELDS:
        return {}
    return fields


_OBJECT_FIELDS: Final = {"apiVersion", "kind", "metadata"}


def _attribute(wire: str, reserved: frozenset[str], taken: set[str]) -> str:
    own = snake(wire)
    return unused(f"{own}_" if own in reserved else own, taken)


def _default(schema: Any) -> Any:
    return schema.get("default") if isinstance(schema, Mapping) else None


def _nodes(node: Node) -> list[Node]:
    """The expressions in a type, those in the fields of its classes included."""
    found: list[Node] = [node]
    if isinstance(node, OrNone):
        found += _nodes(node.inner)
    elif isinstance(node, Group):
        for _, item in node.items:
            found += _nodes(item)
    elif isinstance(node, Ref):
        for field in node.target.fields:
            found += _nodes(field.type)
    return found


# -- Scalars ---------------------------------------------------------------------------------


def _string(schema: Mapping[str, Any]) -> tuple[Node, list[Node]]:
    values = _literals(schema, str)
    name = str(schema.get("format") or "")
    markers: list[Node] = []
    inner: Node = _TEXT
    if values:
        inner = value_literal(values)
        lengths = [len(value) for value in values]
        known = {"minLength": min(lengths), "maxLength": max(lengths)}
        schema = {
            key: value
            for key, value in schema.items()
            if not (key in known and _fits(key, known[key], value)) and key != "enum"
        }
    if name == "date-time" and not values:
        inner = kit_name("Time")
    elif name == "duration" and not values:
        inner = kit_name("Duration")
    elif name:
        markers.append(call(kit_name("Format"), literal(name)))
    return inner, [*markers, *rules(schema), *_checks(schema, "string")]


def _fits(name: str, found: int, limit: Any) -> bool:
    return isinstance(limit, int) and (found >= limit if name == "minLength" else found <= limit)


def _scalar(schema: Mapping[str, Any], kind: str) -> tuple[Node, list[Node]]:
    name = str(schema.get("format") or "")
    markers: list[Node] = []
    inner: Node = {"integer": _INT, "number": _FLOAT, "boolean": _BOOL}[kind]
    values = _literals(schema, int) if kind == "integer" else None
    if values:
        inner, schema = value_literal(values), {k: v for k, v in schema.items() if k != "enum"}
    elif kind == "integer" and name in ("int32", "int64"):
        inner = kit_name(name.capitalize())
    elif name:
        markers.append(call(kit_name("Format"), literal(name)))
    return inner, [*markers, *rules(schema), *_checks(schema, kind)]


def _literals(schema: Mapping[str, Any], kind: type) -> list[Any] | None:
    """The values of an enum, if all are of one type, and of those that msgspec compares."""
    values = schema.get("enum")
    if not isinstance(values, Sequence) or isinstance(values, str) or not values:
        return None
    if not all(type(value) is kind for value in values):
        return None
    if kind is int and not all(-_LITERAL_LIMIT <= value < _LITERAL_LIMIT for value in values):
        return None
    return list(dict.fromkeys(values))


def _with_enum(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """A nullable schema with the enum of its ``allOf``, where API servers allow null as well."""
    if not schema.get("nullable"):
        return schema
    *others, last = schema.get("allOf") or ({},)
    if "enum" not in schema and isinstance(last, Mapping) and last.keys() == {"enum"}:
        schema = {**schema, "allOf": others, "enum": last["enum"]}
        if not others:
            del schema["allOf"]
    if isinstance(values := schema.get("enum"), list):
        schema = {**schema, "enum": [value for value in values if value is not None]}
    return schema


# -- What a schema says apart from the type ----------------------------------------------------


def _flags(schema: Mapping[str, Any], *, preserve: bool = True) -> list[Node]:
    found: list[Node] = []
    if preserve and schema.get(_OPEN):
        found.append(kit_name("PreserveUnknown"))
    if schema.get(_EMBEDDED):
        found.append(kit_name("EmbeddedObject"))
    return found


def rules(schema: Mapping[str, Any]) -> list[Node]:
    """The rules of a schema, each ``Rule(…)``."""
    return [
        call(
            kit_name("Rule"),
            literal(str(rule.get("rule") or "")),
            **{
                python: literal(rule[name] if name == "optionalOldSelf" else str(rule[name]))
                for name, python in _RULE_FIELDS.items()
                if rule.get(name)
            },
        )
        for rule in schema.get("x-kubernetes-validations") or ()
    ]


def _checks(schema: Mapping[str, Any], kind: str) -> list[Node]:
    parts = {name: schema[name] for name in _CHECKS[kind] if name in schema}
    for name in ("uniqueItems", "exclusiveMinimum", "exclusiveMaximum"):
        if not parts.get(name):
            parts.pop(name, None)
    if "not" in parts:
        parts["not_"] = parts.pop("not")
    return [schema_marker(**parts)] if parts else []


def _list_type(schema: Mapping[str, Any]) -> list[Node]:
    kind = schema.get("x-kubernetes-list-type")
    head = Text("ListType.MAP", ((_KIT, "ListType"),))
    if kind == "map":
        return [call(head, *(literal(key) for key in schema["x-kubernetes-list-map-keys"]))]
    if kind in ("set", "atomic"):
        return [attrs.evolve(head, text=f"ListType.{kind.upper()}")]
    return []


def _map_type(schema: Mapping[str, Any]) -> list[Node]:
    kind = schema.get("x-kubernetes-map-type")
    if kind not in ("atomic", "granular"):
        return []
    return [Text(f"MapType.{kind.upper()}", ((_KIT, "MapType"),))]


# -- Defaults --------------------------------------------------------------------------------


def _default_of(inner: Node, value: Any) -> tuple[Node, bool] | None:
    """The default of a field, and whether it is a function that makes it.

    None if the type has no such value.
    """
    found = value_of(inner, value)
    # Each instance has a list or dict of its own; a tuple or an instance of a class is shared.
    if not isinstance(found, Group) or found.brackets == "()":
        return None if found is None else (found, False)
    if not value:
        return Text("list" if found.brackets == "[]" else "dict"), True
    return attrs.evolve(found, head=Text("lambda: ")), True


_EMPTY: Final = (Text("dict"), Text("list"))


def value_of(inner: Node, value: Any) -> Node | None:
    """A value of a type, as an expression; None if the type has no such value."""
    if isinstance(inner, OrNone):
        return NONE if value is None else value_of(inner.inner, value)
    if isinstance(inner, Ref):
        return _instance(inner, value)
    if isinstance(inner, Group):
        return _composed(inner, value)
    if inner == ANY:
        return literal(value)
    if isinstance(value, bool):
        return literal(value) if inner == _BOOL else None
    accepted: dict[str, tuple[type, ...]] = {
        "str": (str,),
        "Time": (str,),
        "Duration": (str,),
        "int": (int,),
        "Int32": (int,),
        "Int64": (int,),
        "float": (int, float),
        "IntOrString": (int, str),
        "Quantity": (int, str),
    }
    is_fitting = isinstance(value, accepted.get(inner.text, ()))
    return literal(value) if is_fitting else None


def _instance(inner: Ref, value: Any) -> Node | None:
    if not isinstance(value, Mapping):
        return None
    items: list[tuple[str, Node]] = []
    for field in inner.target.fields:
        if field.wire not in value:
            if field.default is None:
                return None
            continue
        found = value_of(field.type, value[field.wire])
        if found is None:
            return None
        if field.is_factory and not value[field.wire] and field.default in _EMPTY:
            continue
        if found != field.default:  # the same value, and the shorter text
            items.append((f"{field.name}=", found))
    return Group(inner, "()", tuple(items))


def _composed(inner: Group, value: Any) -> Node | None:
    """A value of ``Annotated``, ``Literal``, a tuple or a mapping."""
    name = inner.head.text if isinstance(inner.head, Text) else ""
    if name == "Annotated":
        return value_of(inner.items[0][1], value)
    if name == "Literal":
        found = literal(value)
        return found if ("", found) in inner.items else None
    if name == "tuple" and isinstance(value, list):
        items = [value_of(inner.items[0][1], item) for item in value]
        whole = tuple(("", item) for item in items if item is not None)
        return Group(Text(""), "()", whole) if len(whole) == len(items) else None
    if name == "Mapping" and isinstance(value, Mapping):
        values = {key: value_of(inner.items[1][1], item) for key, item in value.items()}
        listed = tuple((f"{_key(key)}: ", item) for key, item in values.items() if item is not None)
        return Group(Text(""), "{}", listed) if len(listed) == len(values) else None
    return None


def _key(name: str) -> str:
    found = literal(str(name))
    return found.text if isinstance(found, Text) else ""
