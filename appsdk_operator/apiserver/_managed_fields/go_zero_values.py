"""Zero values: the fields that Go writes in objects of built-in kinds even if nobody has set them.

In Go a struct that is not a pointer is never missing, and an unset list or map without
``omitempty`` is null. Whether a write adds a field or changes it depends on this.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

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


class _Plan(NamedTuple):
    """What to do with an object of a definition."""

    structs: dict[str, str]
    """The definitions of fields that hold a struct."""
    maps: dict[str, str]
    """The definitions of the values of maps."""
    lists: dict[str, str]
    """The definitions of the items of lists."""
    zeros: dict[str, Any]
    """The values of missing fields."""
    zero_structs: dict[str, str]
    """The definitions of missing structs that are not omitted."""


@functools.cache
def _plan_of(name: str) -> _Plan:
    data = builtin_schemas.data()
    properties = data.schemas.get(name, {}).get("properties") or {}
    plan = _Plan({}, {}, {}, {}, {})
    for key, schema in properties.items():
        if reference := _reference(schema):
            plan.structs[key] = reference
            continue
        for found, part in ((plan.maps, "additionalProperties"), (plan.lists, "items")):
            items = schema.get(part)
            if isinstance(items, dict) and (reference := _reference(items)):
                found[key] = reference
    for key, go_type in data.types.get(name, {}).items():
        if go_type[0] in "an" and key in properties:
            schema = properties[key]
            reference = _reference(schema)
            if go_type[0] == "a" and reference and schema.get("default") == {}:
                plan.zero_structs[key] = reference
            else:
                plan.zeros[key] = None if go_type[0] == "n" or reference else _zero(schema)
    return plan


def _fill(value: dict[str, Any], name: str) -> dict[str, Any]:
    structs, maps, lists, zeros, zero_structs = _plan_of(name)
    made = value.copy()
    for key, item in value.items():
        if isinstance(item, dict):
            if key in structs:
                made[key] = _fill(item, structs[key])
            elif key in maps:
                made[key] = {each: _filled(part, maps[key]) for each, part in item.items()}
        elif isinstance(item, list) and key in lists:
            made[key] = [_filled(part, lists[key]) for part in item]
    for key, zero in zeros.items():
        if key not in made:
            made[key] = zero
    for key, reference in zero_structs.items():
        if key not in made:
            made[key] = _fill({}, reference)
    return made


def _filled(value: Any, name: str) -> Any:
    return _fill(value, name) if isinstance(value, dict) else value


def _zero(schema: Any) -> Any:
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
