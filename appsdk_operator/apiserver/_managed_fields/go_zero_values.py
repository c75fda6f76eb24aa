"""Zero values: the fields that Go writes in objects of built-in kinds even if nobody has set them.

In Go a struct that is not a pointer is never missing, and an unset list or map without
``omitempty`` is null. Whether a write adds a field or changes it depends on this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from appsdk_operator.apiserver._schema import builtin_schemas
from appsdk_operator.apiserver._storage.resources import ServedVersion

_DAEMON_SET: Final = "io.k8s.api.apps.v1.DaemonSet"
_TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
_NUMBERS: Final = ("integer", "number")


def definition_of(served: ServedVersion) -> str | None:
    """The name of the OpenAPI definition of a built-in kind."""
    resource = served.resource
    return builtin_schemas.definition_of(resource.group, served.version, resource.kind)


def fill_zero_values(obj: dict[str, Any], served: ServedVersion) -> dict[str, Any]:
    """A copy with the zero values filled in; fields that Go would omit stay."""
    name = definition_of(served)
    if name is None:
        return obj
    made = _fill(obj, name)
    if name == _DAEMON_SET and "metadata" in obj:
        # A field of the internal version, which v1 shows as an annotation.
        metadata = made["metadata"]
        annotations = {_TEMPLATE_GENERATION: "0", **(metadata.get("annotations") or {})}
        made["metadata"] = {**metadata, "annotations": annotations}
    return made


def _fill(value: dict[str, Any], name: str) -> dict[str, Any]:
    data = builtin_schemas.data()
    properties = data.schemas.get(name, {}).get("properties") or {}
    made = {
        key: _fill_value(item, properties[key]) if key in properties else item
        for key, item in value.items()
    }
    for key, go_type in data.types.get(name, {}).items():
        if key not in made and go_type[0] in "an" and key in properties:
            made[key] = None if go_type[0] == "n" else _zero(properties[key])
    return made


def _fill_value(value: Any, schema: Any) -> Any:
    reference = _reference(schema)
    if isinstance(value, dict):
        if reference:
            return _fill(value, reference)
        items = schema.get("additionalProperties")
        if isinstance(items, dict) and _reference(items):
            return {key: _fill_value(item, items) for key, item in value.items()}
    elif isinstance(value, list):
        items = schema.get("items")
        if isinstance(items, dict) and _reference(items):
            return [_fill_value(item, items) for item in value]
    return value


def _zero(schema: Any) -> Any:
    reference = _reference(schema)
    if reference:
        return _fill({}, reference) if schema.get("default") == {} else None
    kind = schema.get("type")
    if kind == "string":
        return "" if schema.get("format") != "date-time" else None
    if kind in _NUMBERS:
        return 0
    return False if kind == "boolean" else None


def _reference(schema: Any) -> str:
    parts: Sequence[Any] = schema.get("allOf") or ()
    found = schema.get("$ref") or (parts[0].get("$ref", "") if len(parts) == 1 else "")
    return str(found)
