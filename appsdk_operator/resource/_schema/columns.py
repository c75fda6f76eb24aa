"""Printer columns and the scale subresource of a CRD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

_COLUMN_TYPES: Final = ("integer", "number", "string", "boolean", "date")


def json_path(what: str, text: object, *, under: tuple[str, ...] = ()) -> str:
    """A path of fields as CRDs have it, with a dot in front.

    Raises:
        TypeError: it is not text.
        ValueError: it is empty, or not under one of the given fields.
    """
    if not isinstance(text, str):
        raise TypeError(f"{what}={text!r}: give a path as text, '.spec.size'")
    path = text if text.startswith((".", "[")) else f".{text}"
    if len(path) < 2 or (under and not path.startswith(tuple(f".{name}." for name in under))):
        places = " or ".join(f"'.{name}.…'" for name in under) or "'.spec.size'"
        raise ValueError(f"{what}={text!r}: give a path such as {places}")
    return path


@attrs.frozen
class PrinterColumn:
    """A column of ``kubectl get``: ``PrinterColumn("Size", ".spec.size")``."""

    name: str = attrs.field(validator=attrs.validators.instance_of(str))
    """The heading."""
    path: str
    """The JSON path of the value, by names on the wire: ``.spec.size``,
    ``.status.conditions[?(@.type=="Ready")].status``."""
    type: str = attrs.field(default="", kw_only=True)
    """``string``, ``integer``, ``number``, ``boolean`` or ``date``, which is shown as an age;
    default: as the schema at the path says, else ``string``."""
    format: str = attrs.field(default="", kw_only=True)
    """The format, for clients."""
    description: str = attrs.field(default="", kw_only=True)
    """The description; default: the description in the schema at the path."""
    priority: int = attrs.field(default=0, kw_only=True)
    """A column of priority 0 (default) is always shown, others only with ``-o wide``."""

    def __attrs_post_init__(self) -> None:
        json_path("path", self.path)
        if self.type and self.type not in _COLUMN_TYPES:
            raise ValueError(f"type={self.type!r}: use one of {', '.join(_COLUMN_TYPES)}")


def column_json(column: Any, schema: Mapping[str, Any]) -> dict[str, Any]:
    """A column as an entry of ``additionalPrinterColumns``."""
    if not isinstance(column, PrinterColumn):
        return dict(column)
    path = json_path("path", column.path)
    found = schema_at(schema, path) or {}
    kind = column.type or str(found.get("type") or "string")
    if not column.type and found.get("format") == "date-time":
        kind = "date"
    if kind not in _COLUMN_TYPES:
        kind = "string"
    if path == ".metadata.creationTimestamp":
        kind = column.type or "date"
    made = {
        "name": column.name,
        "type": kind,
        "jsonPath": path,
        "format": column.format,
        "description": column.description or str(found.get("description") or ""),
        "priority": column.priority,
    }
    return {name: value for name, value in made.items() if value}


def schema_at(schema: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """The schema at a path of plain fields; None for other paths and unknown fields."""
    found = schema
    for name in path.strip(".").split("."):
        inner = (found.get("properties") or {}).get(name)
        if not isinstance(inner, Mapping):
            return None
        found = inner
    return found


def _under_spec(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    json_path(attribute.name, value, under=("spec",))


def _under_status(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    json_path(attribute.name, value, under=("status",))


def _selector(_: object, attribute: attrs.Attribute[str], value: str) -> None:
    if value:
        json_path(attribute.name, value, under=("spec", "status"))


@attrs.frozen(kw_only=True)
class Scale:
    """The scale subresource, for ``kubectl scale`` and the HorizontalPodAutoscaler."""

    replicas: str = attrs.field(default=".spec.replicas", validator=_under_spec)
    """The path of the desired number; default ``.spec.replicas``."""
    status_replicas: str = attrs.field(default=".status.replicas", validator=_under_status)
    """The path of the current number; default ``.status.replicas``."""
    selector: str = attrs.field(default="", validator=_selector)
    """The path of the label selector as text, such as ``.status.selector``; the
    HorizontalPodAutoscaler needs it. Default: none."""

    def as_json(self) -> dict[str, str]:
        """The value of ``subresources.scale``."""
        made = {
            "specReplicasPath": json_path("replicas", self.replicas),
            "statusReplicasPath": json_path("status_replicas", self.status_replicas),
        }
        if self.selector:
            made["labelSelectorPath"] = json_path("selector", self.selector)
        return made
