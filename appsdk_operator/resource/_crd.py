"""CustomResourceDefinitions of kinds, with schemas from the types of spec and status."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from appsdk_operator.resource._kind import Kind, Scope, check_kind
from appsdk_operator.resource._object import MutableObject
from appsdk_operator.resource._spec_types import schema_hook

__all__ = ["custom_resource_definition"]

_CRD = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    kind="CustomResourceDefinition",
    plural="customresourcedefinitions",
    scope=Scope.CLUSTER,
)
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_KEPT = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "multipleOf",
)


def custom_resource_definition(
    kind: Kind,
    *,
    short_names: Sequence[str] = (),
    categories: Sequence[str] = (),
    printer_columns: Sequence[Mapping[str, Any]] = (),
    schema: Mapping[str, Any] | None = None,
) -> MutableObject:
    """The CRD of ``kind``, with a status subresource.

    Args:
        kind: the kind; its ``spec`` and ``status`` types become the schema, with their
            docstrings, constraints and defaults. A part without a type accepts any object.
        short_names: other names for kubectl.
        categories: groups of resources for kubectl, for example ``("all",)``.
        printer_columns: ``additionalPrinterColumns`` as plain JSON values.
        schema: an OpenAPI v3 schema to use instead.

    Raises:
        TypeError: ``kind`` is no Kind.
        ValueError: the kind is of a built-in group, does not begin with a capital letter as all
            kinds do, or a type has no structural schema; the text names the place.

    >>> crd = custom_resource_definition(Kind(group="example.com", version="v1", kind="Widget"))
    >>> crd.name
    'widgets.example.com'
    """
    if "." not in check_kind(kind).group:
        raise ValueError(f"{kind} cannot be a custom resource: give it a group such as example.com")
    if not kind.kind[0].isupper():
        name = kind.kind[0].upper() + kind.kind[1:]
        raise ValueError(f"kind {kind.kind!r}: kinds begin with a capital letter: use {name!r}")
    if schema is None:
        schema = {
            "type": "object",
            "properties": {
                "spec": _schema_of(kind.spec, "spec"),
                "status": _schema_of(kind.status, "status"),
            },
        }
    version: dict[str, Any] = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": dict(schema)},
        "subresources": {"status": {}},
    }
    if printer_columns:
        version["additionalPrinterColumns"] = [dict(column) for column in printer_columns]
    names: dict[str, Any] = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
    }
    if short_names:
        names["shortNames"] = list(short_names)
    if categories:
        names["categories"] = list(categories)
    return MutableObject.new(
        _CRD,
        kind.qualified_name,
        spec={
            "group": kind.group,
            "names": names,
            "scope": kind.scope.value,
            "versions": [version],
        },
    )


def _schema_of(view: Any, field: str) -> dict[str, Any]:
    if view is None:
        return dict(_ANYTHING)
    try:
        schema = msgspec.json.schema(view, schema_hook=schema_hook)
    except TypeError as error:
        path, part = _without_schema(view, field, (view,)) or (field, view)
        name = getattr(part, "__qualname__", None) or str(part)
        raise ValueError(
            f"{path} is of type {name}, which has no schema: use text, numbers, booleans, lists, "
            "mappings of text, classes of these, or Any for whatever JSON; or pass schema="
        ) from error
    return _structural(schema, schema.get("$defs", {}), field, ())


def _without_schema(view: Any, path: str, above: tuple[Any, ...]) -> tuple[str, Any] | None:
    """The path and type of the innermost part without a schema; None: it is a type of ``above``."""
    container: Any = get_origin(view)
    suffix = "" if container in (Union, types.UnionType) else "[]"
    suffix = ".*" if _is_mapping(container) else suffix
    parts = [(f"{path}.{name}", part) for name, part in _fields_of(view).items()]
    parts += [(f"{path}{suffix}", part) for part in get_args(view) if container is not Literal]
    is_own = True
    for name, part in parts:
        try:
            msgspec.json.schema(part, schema_hook=schema_hook)
        except (TypeError, ValueError):
            found = None if part in above else _without_schema(part, name, (*above, part))
            if found is not None:
                return found
            is_own = False
    return (path, view) if is_own else None


def _is_mapping(container: Any) -> bool:
    return isinstance(container, type) and issubclass(container, Mapping)


def _fields_of(view: Any) -> dict[str, Any]:
    if not isinstance(view, type) or view.__module__ == "builtins":
        return {}
    try:
        return get_type_hints(view, include_extras=True)
    except (NameError, TypeError):  # a name that is imported for type checkers only
        return {}


def _structural(
    schema: Mapping[str, Any], types: Mapping[str, Any], path: str, above: tuple[str, ...]
) -> dict[str, Any]:
    """``schema`` as a structural schema: references inlined, null as ``nullable``."""
    name = str(schema.get("$ref", "")).rpartition("/")[2]
    if name:
        if name in above:
            raise ValueError(f"{path}: {name} contains itself, which no CRD schema can express")
        inlined = _structural(types[name], types, path, (*above, name))
        return {**inlined, **{k: v for k, v in schema.items() if k in ("default", "description")}}
    if "anyOf" in schema:
        return _union(schema, types, path, above)
    made = {key: schema[key] for key in _KEPT if key in schema}
    if not schema.get("type") and "enum" not in schema:
        # Any: all JSON values.
        return {**made, "x-kubernetes-preserve-unknown-fields": True}
    if schema.get("type") == "object":
        made.pop("default", None)
        if "properties" in schema:
            made["properties"] = {
                key: _structural(value, types, f"{path}.{key}", above)
                for key, value in schema["properties"].items()
            }
            if required := schema.get("required"):
                made["required"] = list(required)
        else:
            values = schema.get("additionalProperties")
            if isinstance(values, Mapping) and values:
                made["additionalProperties"] = _structural(values, types, f"{path}.*", above)
            else:
                made["x-kubernetes-preserve-unknown-fields"] = True
    if schema.get("type") == "array":
        made["items"] = _structural(schema.get("items", {}), types, f"{path}[]", above)
    if "enum" in schema and "type" not in made:
        made["type"] = "string" if isinstance(schema["enum"][0], str) else "integer"
    return made


def _union(
    schema: Mapping[str, Any], types: Mapping[str, Any], path: str, above: tuple[str, ...]
) -> dict[str, Any]:
    options = [option for option in schema["anyOf"] if option.get("type") != "null"]
    is_nullable = len(options) < len(schema["anyOf"])
    if {option.get("type") for option in options} == {"integer", "string"}:
        made: dict[str, Any] = {"x-kubernetes-int-or-string": True}
    elif len(options) == 1:
        made = _structural(options[0], types, path, above)
    else:
        raise ValueError(
            f"{path} may be of several types, which no CRD schema can express: use one, or pass "
            "schema="
        )
    if is_nullable:
        made["nullable"] = True
    if schema.get("default") is not None:
        made["default"] = schema["default"]
    return made
