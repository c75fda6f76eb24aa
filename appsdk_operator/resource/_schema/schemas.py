"""Structural schemas of classes."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import json
import re
import types
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs
import msgspec

from appsdk_operator.resource import _codec
from appsdk_operator.resource._field_names import check_wire_rule
from appsdk_operator.resource._schema.constraints import add_constraint, add_validator, merge
from appsdk_operator.resource._schema.descriptions import attribute_docstrings, class_description
from appsdk_operator.resource._schema.markers import Immutable, ListType, Rule, markers_of_class
from appsdk_operator.resource._typed.class_fields import (
    NOTHING,
    ClassField,
    FieldName,
    array_items,
    class_fields,
    class_of,
    is_named_tuple,
    is_typed_dict,
    literal_values,
    mapping_types,
    marked,
    model_extra_name,
)
from appsdk_operator.resource._typed.renaming import STYLES, to_wire
from appsdk_operator.resource._typed.spec_types import has_fields, is_pydantic_model, model_default

_OPEN: Final = "x-kubernetes-preserve-unknown-fields"
_LIST_TYPE: Final = "x-kubernetes-list-type"
_RULES: Final = "x-kubernetes-validations"
ANYTHING: Final[Mapping[str, Any]] = {"type": "object", _OPEN: True}
"""The schema of an object of which nothing is known."""

_HOURS: Final = "([01][0-9]|2[0-3]):[0-5][0-9]"
_SPAN: Final = (
    r"([0-9]{1,9}H([0-9]{1,9}M)?([0-9]{1,9}(\.[0-9]+)?S)?|[0-9]{1,9}M([0-9]{1,9}(\.[0-9]+)?S)?"
    r"|[0-9]{1,9}(\.[0-9]+)?S)"
)
_SCALARS: Final[Mapping[Any, Mapping[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bytes: {"type": "string", "format": "byte"},
    bytearray: {"type": "string", "format": "byte"},
    memoryview: {"type": "string", "format": "byte"},
    dt.datetime: {"type": "string", "format": "date-time"},
    dt.date: {"type": "string", "format": "date"},
    dt.time: {
        "type": "string",
        "pattern": rf"^{_HOURS}:[0-5][0-9](\.[0-9]+)?([Zz]|[+-]{_HOURS})?$",
    },
    # API servers know other durations, too, such as 1h30m.
    dt.timedelta: {
        "type": "string",
        "format": "duration",
        "pattern": f"^[+-]?P([0-9]{{1,8}}D(T{_SPAN})?|T{_SPAN})$",
    },
    uuid.UUID: {"type": "string", "format": "uuid"},
    decimal.Decimal: {
        "type": "string",
        "pattern": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([Ee][+-]?[0-9]{1,6})?$",
    },
}
_TIMES: Final = (dt.datetime, dt.date, dt.time, dt.timedelta)
# What a schema says of values, apart from their structure: alone these may be in a oneOf.
_VALUE_CHECKS: Final = frozenset(
    {
        *("enum", "pattern", "format", "minimum", "maximum", "exclusiveMinimum", "multipleOf"),
        *("exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"),
        *("minProperties", "maxProperties"),
    }
)
_BRANCH_CHECKS: Final = _VALUE_CHECKS | {"allOf"}
_CLASS_CHECKS: Final = _BRANCH_CHECKS | {"oneOf", "anyOf", "not"}
# What a union of classes says once for all of them, or in another form.
_OF_CLASSES: Final = frozenset({"type", "properties", "required", "description", _OPEN, _RULES})
_KEYWORDS: Final = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for"),
        *("function", "if", "import", "let", "loop", "package", "namespace", "return", "var"),
        *("void", "while"),
    )
)
_ABSENT: Final = (None, type(None), msgspec.UnsetType)
_COPIED: Final = ("type", "format", "description", "default", *sorted(_VALUE_CHECKS - {"format"}))


def schema_of(view: Any, field: str, *, rename: str | None, lost: list[str]) -> dict[str, Any]:
    """The structural schema of a type.

    Args:
        view: the type; None: any object.
        field: its path, for errors.
        rename: the kind's ``rename``.
        lost: gets the path and name of each constraint that no schema can say.

    Raises:
        ValueError: a part has no structural schema; the text names its path.
    """
    if view is None:
        return dict(ANYTHING)
    return _Maker(rename, lost).of(view, field, ())


class _Maker(msgspec.Struct):
    rename: str | None
    lost: list[str]

    def of(
        self, view: Any, path: str, above: tuple[Any, ...], *, none_is_absent: bool = False
    ) -> dict[str, Any]:
        bare, markers = marked(view)
        members = get_args(bare) if _is_union(bare) else (bare,)
        found = [one for one in members if marked(one)[0] not in _ABSENT]
        is_nullable = any(_may_be_null(marked(one)[0]) for one in members)
        if len(found) == 1 and _is_union(bare):
            made = self.of(found[0], path, above)
        elif len(found) == 1:
            made = self._single(bare, path, above)
        else:
            made = self._union(_members(bare), path, above)
        for marker in markers:
            self._check_names(path, bare, marker)
            self._say(path, add_constraint(made, marker))
        if Immutable in markers or (len(found) > 1 and _is_immutable(bare)):
            rule = {"rule": "self == oldSelf", "message": "the field is immutable"}
            made[_RULES] = [*made.get(_RULES, ()), rule]
        if is_nullable and not none_is_absent:
            made.setdefault("nullable", True)
        if _LIST_TYPE in made:
            _check_list(made, path)
        if "items" in made and made.get(_LIST_TYPE) != "map" and _compares_states(made["items"]):
            raise ValueError(
                f"{path}: a rule of its items has oldSelf, as those of Immutable have, but API "
                "servers cannot tell which item was which: make the list a ListType.MAP"
            )
        if made.get("x-kubernetes-embedded-resource") and "properties" not in made:
            made.pop("additionalProperties", None)
            made[_OPEN] = True
        if made.get("x-kubernetes-int-or-string"):
            made.pop("type", None)
        if not made.get("nullable", True):
            del made["nullable"]
        _allow_null(made)
        return made

    def _check_names(self, path: str, view: Any, marker: Any) -> None:
        if isinstance(marker, Rule):
            for text in marker.expressions():
                check_wire_rule(path, view, self.rename, text)

    def _say(self, path: str, lost: Iterable[str]) -> None:
        self.lost += [f"{path}: {text}" for text in lost]

    def _single(self, view: Any, path: str, above: tuple[Any, ...]) -> dict[str, Any]:
        """The schema of a type that is not a union, with the markers above its class."""
        made = self._unmarked(view, path, above)
        cls = class_of(view)
        for marker in markers_of_class(cls) if isinstance(cls, type) else ():
            if not isinstance(marker, ListType):
                self._check_names(path, view, marker)
                self._say(path, add_constraint(made, marker))
        self._say(path, _model_validators(cls))
        return made

    def _unmarked(self, view: Any, path: str, above: tuple[Any, ...]) -> dict[str, Any]:
        if view in (Any, msgspec.Raw):
            return {_OPEN: True}
        if isinstance(view, type) and view in _SCALARS:
            classes = [one for one in map(class_of, above) if not is_named_tuple(one)]
            return dict(_of_model(view, classes[-1] if classes else None) or _SCALARS[view])
        if get_origin(view) is Literal:
            return _enumeration([one for one in get_args(view) if one is not None], path)
        if isinstance(view, type) and issubclass(view, enum.Enum):
            values = [member.value for member in view]
            return _enumeration(values, path)
        cls = class_of(view)
        config = getattr(cls, "__struct_config__", None)
        is_array = config is not None and config.array_like
        if (has_fields(cls) or is_typed_dict(view)) and not is_array:
            return self._class(view, path, above)
        if pair := mapping_types(view):
            return self._mapping(pair, path, above)
        if is_array or is_named_tuple(cls):
            return self._places(view, path, above)
        listed = array_items(view)
        if listed is not None:
            return self._array(cls, *listed, path, above)
        if isinstance(view, type):
            for base, schema in _SCALARS.items():
                if issubclass(view, base) and not hasattr(view, "__get_pydantic_core_schema__"):
                    return dict(schema)
        model = next((one for one in reversed(above) if is_pydantic_model(class_of(one))), None)
        if model is not None:
            return self._of_pydantic(view, path)
        raise _no_schema(view, path)

    def _of_pydantic(self, view: Any, path: str) -> dict[str, Any]:
        import pydantic

        adapter: Any = pydantic.TypeAdapter(view)
        try:
            schema = adapter.json_schema(mode="validation")
        except Exception as error:
            raise _no_schema(view, path) from error
        return structural(schema, schema.get("$defs", {}), path, ())

    def _mapping(self, pair: tuple[Any, Any], path: str, above: Any) -> dict[str, Any]:
        keys, values = pair
        if marked(keys)[0] not in (str, Any):
            self._say(path, [f"that keys are of type {getattr(keys, '__qualname__', keys)}"])
        if marked(keys)[1]:
            lost: dict[str, Any] = {"type": "string"}
            for marker in marked(keys)[1]:
                add_constraint(lost, marker)
            if len(lost) > 1:
                self._say(path, ["a constraint of keys"])
        if marked(values)[0] in (Any, msgspec.Raw) and not marked(values)[1]:
            return dict(ANYTHING)
        return {"type": "object", "additionalProperties": self.of(values, f"{path}.*", above)}

    def _array(
        self, cls: Any, items: tuple[Any, ...], is_by_place: bool, path: str, above: Any
    ) -> dict[str, Any]:
        made: dict[str, Any] = {"type": "array"}
        schemas = [self.of(item, f"{path}[]", above) for item in items] or [{_OPEN: True}]
        if any(schema != schemas[0] for schema in schemas):
            raise ValueError(
                f"{path} has items of several types, which no CRD schema can express: use a class "
                "with a field for each, or pass schema="
            )
        made["items"] = schemas[0]
        if is_by_place:
            made["minItems"] = made["maxItems"] = len(items)
        is_set = isinstance(cls, type) and issubclass(cls, (set, frozenset))
        is_scalar = schemas[0].get("type") in ("string", "integer", "number", "boolean")
        if is_set and is_scalar and not schemas[0].get("nullable"):  # as API servers demand
            made[_LIST_TYPE] = "set"
        item = class_of(marked(items[0])[0]) if items else None
        for marker in markers_of_class(item) if isinstance(item, type) else ():
            if isinstance(marker, ListType):
                made.update(marker.schema())
        return made

    def _fields(self, view: Any, path: str, above: tuple[Any, ...]) -> tuple[ClassField, ...]:
        """The fields of a class that does not contain itself."""
        name = class_of(view).__qualname__
        if view in above:
            raise ValueError(
                f"{path}: {name} contains itself, which no CRD schema can express: use Any there, "
                "or pass schema="
            )
        try:
            return class_fields(view)
        except NameError as error:
            raise ValueError(
                f"{path}: {name} has an annotation whose name is not known when the program runs: "
                f"{error}: import it outside of `if TYPE_CHECKING:`"
            ) from error

    def _places(self, view: Any, path: str, above: tuple[Any, ...]) -> dict[str, Any]:
        """The schema of a class whose objects are arrays in JSON."""
        cls = class_of(view)
        fields = self._fields(view, path, above)
        types: tuple[Any, ...] = tuple(field.type for field in fields)
        needed = [place for place, field in enumerate(fields, start=1) if not field.has_default]
        fewest = max(needed, default=0)
        config = getattr(cls, "__struct_config__", None)
        if config is not None and config.tag is not None:
            types, fewest = (type(config.tag), *types), fewest + 1
            self._say(path, [f"that the first item is {config.tag!r}"])
        made = self._array(cls, types, True, path, (*above, view))
        made["minItems"] = fewest
        return made

    def _class(self, view: Any, path: str, above: tuple[Any, ...]) -> dict[str, Any]:
        cls = class_of(view)
        fields = self._fields(view, path, above)
        inside = (*above, view)
        if getattr(cls, "__pydantic_root_model__", False):
            made: dict[str, Any] = self.of(fields[0].type, path, inside)
            if text := class_description(cls):
                made["description"] = text
            return made
        made = {"type": "object"}
        if text := class_description(cls):
            made["description"] = text
        texts = attribute_docstrings(cls)
        properties: dict[str, Any] = {}
        required: list[str] = []
        config = getattr(cls, "__struct_config__", None)
        if config is not None and config.tag is not None:
            tag = str(config.tag_field or "type")
            properties[tag] = _enumeration([config.tag], path)
            required.append(tag)
        for field in fields:
            name = self._name(field, path)
            properties[name] = self._field(field, f"{path}.{name}", inside, texts.get(field.name))
            if not field.has_default:
                required.append(name)
            if _is_immutable(field.type) and field.has_default:
                made.setdefault(_RULES, []).append(_set_once(name))
        style = (lambda name: name) if self.rename is None else STYLES[self.rename]
        # They are written, though never read.
        for own, computed in getattr(cls, "__pydantic_computed_fields__", {}).items():
            name = computed.alias or style(own)
            properties[name] = self.of(computed.return_type, f"{path}.{name}", inside)
        made["properties"] = properties
        if required:
            made["required"] = required
        if model_extra_name(cls) == "allow":
            made[_OPEN] = True
        return made

    def _name(self, field: ClassField, path: str) -> str:
        if self.rename is None and any(isinstance(m, FieldName) for m in marked(field.type)[1]):
            raise ValueError(
                f"{path}.{field.name} has a FieldName, which only a kind with rename obeys: make "
                'it Kind(…, rename="camel")'
            )
        return field.wire_name(None if self.rename is None else STYLES[self.rename])

    def _field(
        self, field: ClassField, path: str, above: tuple[Any, ...], text: str | None
    ) -> dict[str, Any]:
        # Such a None is not written, and API servers take a null for an absent field.
        made = self.of(field.type, path, above, none_is_absent=field.default is None)
        if text or field.description:
            made["description"] = text or field.description
        extra = getattr(field.source, "json_schema_extra", None)
        if isinstance(extra, Mapping):
            made.update(extra)
        if isinstance(field.source, attrs.Attribute):
            self._say(path, add_validator(made, field.source.validator))
            _allow_null(made)
        default = _default_of(field)
        if default is not NOTHING:
            made["default"] = self._plain_default(field, default, path, above[-1])
        if "default" in made and _has_required(made):
            # API servers refuse a default that misses required fields.
            _drop_bad_default(made)
        return made

    def _plain_default(self, field: ClassField, default: Any, path: str, cls: Any) -> Any:
        plain = default
        if is_pydantic_model(class_of(cls)):
            plain = to_wire(
                default, model_default(cls, field.name, default), self.rename, nulls=False
            )
        return _codec.plain_copy(plain, path, self.rename)

    # -- Unions ------------------------------------------------------------------------------

    def _union(
        self, members: list[tuple[Any, tuple[Any, ...]]], path: str, above: tuple[Any, ...]
    ) -> dict[str, Any]:
        found = [one for one, _ in members]
        if not found:
            raise ValueError(f"{path} is always null: leave the field out, or give it a type")
        schemas = [self._single(one, path, above) for one in found]
        for schema, (_, markers) in zip(schemas, members, strict=True):
            for marker in markers:
                self._say(path, add_constraint(schema, marker))
        kinds = {str(schema.get("type")) for schema in schemas}
        if kinds == {"integer", "string"} and not any("properties" in s for s in schemas):
            return self._int_or_string(schemas, path)
        if kinds == {"integer", "number"}:
            self._say_checks(schemas, path)
            return {"type": "number"}
        if kinds == {"object"} and all("properties" in schema for schema in schemas):
            made, lost = _one_of(schemas, found, path)
            self._say(path, lost)
            return made
        if len(kinds) == 1 and all("enum" in schema for schema in schemas):
            values = [value for schema in schemas for value in schema["enum"]]
            return {**schemas[0], "enum": list(dict.fromkeys(values))}
        raise ValueError(
            f"{path} may be of several types, which no CRD schema can express: use one, or pass "
            "schema="
        )

    def _int_or_string(self, schemas: list[dict[str, Any]], path: str) -> dict[str, Any]:
        made: dict[str, Any] = {"x-kubernetes-int-or-string": True}
        values = [value for schema in schemas for value in schema.get("enum", ())]
        if all("enum" in schema for schema in schemas):
            made["enum"] = values
        elif len(schemas) > 2:
            self._say_checks(schemas, path)
        else:  # limits are for numbers alone, and lengths and patterns for texts
            for schema in schemas:
                if schema["type"] == "string" and "enum" in schema:
                    texts = "|".join(map(re.escape, schema.pop("enum")))
                    merge(schema, {"pattern": f"^(?:{texts})$"})
                merge(made, {k: v for k, v in schema.items() if k not in ("type", "enum")})
                self._say_checks([{k: v for k, v in schema.items() if k == "enum"}], path)
        return made

    def _say_checks(self, schemas: list[dict[str, Any]], path: str) -> None:
        self._say(path, [f"{k}={v!r}" for s in schemas for k, v in s.items() if k != "type"])


def _is_union(view: Any) -> bool:
    return get_origin(view) in (Union, types.UnionType)


def _is_immutable(view: Any) -> bool:
    """Whether a type is marked as immutable, or a member of a union is."""
    bare, markers = marked(view)
    inner = get_args(bare) if _is_union(bare) else ()
    return Immutable in markers or any(_is_immutable(one) for one in inner)


def _may_be_null(view: Any) -> bool:
    return view in (None, type(None)) or None in (literal_values(view) or ())


def _members(view: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """The members of a union with their annotations, those of nested unions included."""
    if not _is_union(view):
        return [] if view in _ABSENT else [(view, ())]
    found: dict[Any, tuple[Any, ...]] = {}
    for arg in get_args(view):
        inner, markers = marked(arg)
        for one, more in _members(inner):
            found.setdefault(one, (*more, *markers))
    return list(found.items())


def _of_model(view: Any, cls: Any) -> Mapping[str, Any] | None:
    """The schema of a scalar as a pydantic model writes it; None: as other classes do."""
    config = cls.model_config if is_pydantic_model(cls) else None
    if config is None:
        return None
    if view is bytes and config.get("ser_json_bytes") != "base64":
        return {"type": "string"}
    format_ = config.get("ser_json_temporal")
    if view is dt.timedelta and format_ is None:
        format_ = config.get("ser_json_timedelta")
    if view in _TIMES and format_ not in (None, "iso8601"):
        return {"type": "number"}
    return None


def _enumeration(values: Iterable[Any], path: str) -> dict[str, Any]:
    listed = [value for value in values if value is not None]
    kinds = {type(value) for value in listed}
    has_null = len(listed) < len(list(values))
    made: dict[str, Any] = {"enum": listed}
    if kinds == {str}:
        made["type"] = "string"
    elif kinds == {int}:
        made["type"] = "integer"
    elif kinds == {bool}:
        made["type"] = "boolean"
    elif kinds == {int, str}:
        made["x-kubernetes-int-or-string"] = True
    elif kinds and kinds <= {int, float}:
        made["type"] = "number"
    else:
        raise ValueError(
            f"{path} has values that are neither text nor numbers: give the members of the enum "
            "values of one of these types"
        )
    if has_null:
        made["nullable"] = True
    return made


def _allow_null(schema: dict[str, Any]) -> None:
    """Move the enum of a nullable schema into ``allOf``.

    API servers look at the type and the enum of a null, and find it in no enum, not even in one
    that has it.
    """
    if schema.get("nullable") and "enum" in schema:
        values = [value for value in schema.pop("enum") if value is not None]
        schema["allOf"] = [*schema.get("allOf", ()), {"enum": values}]
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            _allow_null(schema[key])


def _one_of(
    schemas: list[dict[str, Any]], found: list[Any], path: str
) -> tuple[dict[str, Any], list[str]]:
    """The schema of several classes: all their fields, and in ``oneOf`` the differences.

    Returns:
        The schema, and the constraints of single classes that it cannot say.
    """
    names = list(dict.fromkeys(name for schema in schemas for name in schema["properties"]))
    properties: dict[str, Any] = {}
    branches: list[dict[str, Any]] = [{} for _ in schemas]
    for name in names:
        having = [schema["properties"][name] for schema in schemas if name in schema["properties"]]
        structures = [
            {k: v for k, v in one.items() if k not in (*_BRANCH_CHECKS, "description", "default")}
            for one in having
        ]
        if any(one != structures[0] for one in structures):
            raise ValueError(
                f"{path}.{name} has another type in each of "
                f"{', '.join(class_of(one).__qualname__ for one in found)}, which no CRD schema "
                "can express: give the fields different names, or pass schema="
            )
        checks = [{k: v for k, v in one.items() if k in _BRANCH_CHECKS} for one in having]
        if all(check == checks[0] for check in checks):
            properties[name] = {**having[0]}
        else:
            properties[name] = {**structures[0]}
            for schema, branch in zip(schemas, branches, strict=True):
                own = schema["properties"].get(name, {})
                check = {k: v for k, v in own.items() if k in _BRANCH_CHECKS}
                if check:
                    branch.setdefault("properties", {})[name] = check
        if any(one.get("default") != having[0].get("default") for one in having):
            properties[name].pop("default", None)
        if len(having) < len(schemas):
            # A default in the place of another class would be the wrong one's field.
            properties[name].pop("default", None)
    made: dict[str, Any] = {"type": "object", "properties": properties}
    shared = [n for n in names if all(n in schema.get("required", ()) for schema in schemas)]
    if shared:
        made["required"] = shared
    for schema, branch in zip(schemas, branches, strict=True):
        needed = [name for name in schema.get("required", ()) if name not in shared]
        if needed:
            branch["required"] = needed
    if any(schema.get(_OPEN) for schema in schemas):
        made[_OPEN] = True
    tag, values = _tag(branches)
    lost: list[str] = []
    for schema, branch, view in zip(schemas, branches, found, strict=True):
        branch.update({k: v for k, v in schema.items() if k in _CLASS_CHECKS})
        for key in schema.keys() - _CLASS_CHECKS - _OF_CLASSES:
            if all(one.get(key) == schema[key] for one in schemas):
                made[key] = schema[key]
            else:
                lost.append(f"{key}={schema[key]!r} of {class_of(view).__qualname__}")
    if all(branches):
        # Exactly one where a tag tells them apart; else an object may fit several.
        made["oneOf" if tag else "anyOf"] = branches
    rules, unsaid = _rules_of_classes(schemas, tag, values)
    if rules:
        made[_RULES] = rules
    return made, sorted(lost) + unsaid


def _tag(branches: list[dict[str, Any]]) -> tuple[str, list[list[Any]]]:
    """The field that tells the branches apart, and its values in each; empty if there is none."""
    for name in branches[0].get("properties", {}):
        values = [branch.get("properties", {}).get(name, {}).get("enum") for branch in branches]
        if all(values):
            flat = [value for one in values if one for value in one]
            if len(flat) == len(set(flat)):
                return name, [one for one in values if one]
    return "", []


def _rules_of_classes(
    schemas: list[dict[str, Any]], tag: str, values: list[list[Any]]
) -> tuple[list[Any], list[str]]:
    """The rules of the classes of a union, each for objects of its class only.

    Returns:
        The rules, and those that without a tag would be for objects of all classes.
    """
    made: list[Any] = []
    lost: list[str] = []
    for place, schema in enumerate(schemas):
        for rule in schema.get(_RULES, ()):
            is_set_once = any(rule == _set_once(name) for name in schema["properties"])
            if is_set_once or all(rule in one.get(_RULES, ()) for one in schemas):
                made += [rule] if rule not in made else []
                continue
            text = rule["rule"]
            if not tag or rule.get("optionalOldSelf"):
                lost.append(f"rule {text!r} of one class of a union")
                continue
            cel, listed = cel_name(tag), json.dumps(values[place], ensure_ascii=False)
            states = ("self", "oldSelf") if "oldSelf" in text else ("self",)
            others = [f"!has({one}.{cel}) || !({one}.{cel} in {listed})" for one in states]
            # The rule may end with a comment, which a line break ends.
            made.append({**rule, "rule": " || ".join([*others, f"({text}\n)"])})
    return made, lost


# -- Defaults --------------------------------------------------------------------------------


def _default_of(field: ClassField) -> Any:
    """The default that a schema can have, or NOTHING."""
    default = field.default
    if field.factory is not None:
        factory: Callable[[], Any] = field.factory
        is_plain = factory in (list, dict, set, frozenset, tuple) or has_fields(factory)
        if not is_plain:  # it may make another value each time
            return NOTHING
        try:
            default = factory()
        except Exception:
            return NOTHING
    if default is None or isinstance(default, msgspec.UnsetType):
        return NOTHING
    return default


def _has_required(schema: Mapping[str, Any]) -> bool:
    return "properties" in schema


def _drop_bad_default(schema: dict[str, Any]) -> None:
    default = schema["default"]
    if not isinstance(default, Mapping) or any(
        name not in default for name in schema.get("required", ())
    ):
        del schema["default"]


# -- Checks ----------------------------------------------------------------------------------


def _check_list(schema: Mapping[str, Any], path: str) -> None:
    kind = schema[_LIST_TYPE]
    if schema.get("type") != "array":
        raise ValueError(f"{path} has a ListType, but is not a list: use MapType, or leave it out")
    items = schema["items"]
    if kind == "map":
        properties = items.get("properties", {})
        for key in schema["x-kubernetes-list-map-keys"]:
            if key not in properties:
                raise ValueError(
                    f"{path}: ListType.MAP({key!r}) names no field of its items: use one of "
                    f"{', '.join(properties) or 'a class'}"
                )
            if key not in items.get("required", ()) and "default" not in properties[key]:
                raise ValueError(
                    f"{path}: ListType.MAP({key!r}) names a field that may be absent: remove None "
                    "from its type, or give it a default"
                )
    elif kind == "set" and items.get("type") in ("object", "array"):
        raise ValueError(f"{path}: ListType.SET is for texts and numbers: use ListType.MAP")


def _compares_states(schema: Mapping[str, Any]) -> bool:
    """Whether a rule in a schema is about the former state."""
    if any("oldSelf" in str(rule.get("rule")) for rule in schema.get(_RULES) or ()):
        return True
    inner = [*(schema.get("properties") or {}).values(), schema.get("additionalProperties")]
    inner.append(schema.get("items"))
    return any(_compares_states(one) for one in inner if isinstance(one, Mapping))


def _set_once(name: str) -> dict[str, Any]:
    cel = cel_name(name)
    return {
        "rule": f"!has(oldSelf.{cel}) || has(self.{cel})",
        "message": f"{name} is immutable: it cannot be removed",
    }


def cel_name(name: str) -> str:
    """A field's name in CEL.

    >>> cel_name("from-port"), cel_name("namespace"), cel_name("a__b")
    ('from__dash__port', '__namespace__', 'a__underscores__b')
    """
    if name in _KEYWORDS:
        return f"__{name}__"
    for mark, text in (("__", "underscores"), (".", "dot"), ("-", "dash"), ("/", "slash")):
        name = name.replace(mark, f"\0{text}\0")
    return name.replace("\0", "__")


def _model_validators(cls: Any) -> list[str]:
    """The validators in a pydantic model and the hooks of others, which no schema can say."""
    decorators = getattr(cls, "__pydantic_decorators__", None)
    found: list[str] = []
    if decorators is not None:
        for kind in ("validators", "field_validators", "root_validators", "model_validators"):
            found += [f"validator {name}" for name in getattr(decorators, kind, {})]
    elif has_fields(cls):
        hooks = ("__post_init__", "__attrs_post_init__")
        found += [f"{cls.__qualname__}.{name}" for name in hooks if name in cls.__dict__]
    return found


def _no_schema(view: Any, path: str) -> ValueError:
    name = getattr(view, "__qualname__", None) or str(view)
    return ValueError(
        f"{path} is of type {name}, which has no schema: use text, numbers, booleans, lists, "
        "mappings with text as keys, classes of these, or Any for any JSON; or pass schema="
    )


# -- JSON schemas of pydantic's own types ----------------------------------------------------


def structural(
    schema: Mapping[str, Any], named: Mapping[str, Any], path: str, above: tuple[str, ...]
) -> dict[str, Any]:
    """A JSON schema as a structural one: references inlined, null as ``nullable``."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name:
        if name in above:
            raise ValueError(f"{path}: {name} contains itself, which no CRD schema can express")
        inlined = structural(named[name], named, path, (*above, name))
        return {**inlined, **{k: v for k, v in schema.items() if k in ("default", "description")}}
    if "anyOf" in schema:
        return _any_of(schema, named, path, above)
    made = {key: schema[key] for key in _COPIED if key in schema}
    for limit in ("Minimum", "Maximum"):  # numbers there, flags here
        value = made.pop(f"exclusive{limit}", None)
        if value is not None:
            made.update({limit.lower(): value, f"exclusive{limit}": True})
    if not schema.get("type") and "enum" not in schema:
        return {**made, _OPEN: True}
    if schema.get("type") == "object":
        if "properties" in schema:
            made["properties"] = {
                key: structural(value, named, f"{path}.{key}", above)
                for key, value in schema["properties"].items()
            }
            if required := schema.get("required"):
                made["required"] = list(required)
        else:
            values = schema.get("additionalProperties")
            if isinstance(values, Mapping) and values:
                made["additionalProperties"] = structural(values, named, f"{path}.*", above)
            else:
                made[_OPEN] = True
    if schema.get("type") == "array":
        made["items"] = structural(schema.get("items", {}), named, f"{path}[]", above)
    if "enum" in schema and "type" not in made:
        made["type"] = "string" if isinstance(schema["enum"][0], str) else "integer"
    return made


def _any_of(
    schema: Mapping[str, Any], named: Mapping[str, Any], path: str, above: tuple[str, ...]
) -> dict[str, Any]:
    options = [option for option in schema["anyOf"] if option.get("type") != "null"]
    is_nullable = len(options) < len(schema["anyOf"])
    if {option.get("type") for option in options} == {"integer", "string"}:
        made: dict[str, Any] = {"x-kubernetes-int-or-string": True}
    elif len(options) == 1:
        made = structural(options[0], named, path, above)
    else:
        raise ValueError(
            f"{path} may be of several types, which no CRD schema can express: use one, or pass "
            "schema="
        )
    if is_nullable:
        made["nullable"] = True
        _allow_null(made)
    if schema.get("default") is not None:
        made["default"] = schema["default"]
    return made
