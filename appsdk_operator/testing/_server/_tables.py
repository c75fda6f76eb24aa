"""Tables, as kubectl asks for them: columns of a kind and the cells of an object."""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from appsdk_operator.testing._server import _jsonpath
from appsdk_operator.testing._server._go_text import go_float, go_json
from appsdk_operator.testing._server._resources import Column, ServedVersion

__all__ = ["AGE", "row", "table"]

_NAME: Final = {
    "name": "Name",
    "type": "string",
    "format": "name",
    "description": "Name must be unique within a namespace.",
    "priority": 0,
}
AGE: Final = Column(
    "Age",
    "date",
    ".metadata.creationTimestamp",
    "CreationTimestamp is a timestamp representing the server time when this object was created.",
)
"""The column of a kind that names none."""


def _columns(served: ServedVersion) -> tuple[Column, ...]:
    return served.columns or (AGE,)


def table(
    served: ServedVersion, rows: list[dict[str, Any]], metadata: dict[str, Any]
) -> dict[str, Any]:
    """A ``Table`` object of these rows."""
    definitions = [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in _columns(served)
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [_NAME, *definitions],
        "rows": rows,
    }


def row(served: ServedVersion, obj: dict[str, Any], include: str, now: float) -> dict[str, Any]:
    """The row of one object."""
    cells = [
        obj["metadata"].get("name", ""),
        *(_cell(_jsonpath.find(obj, column.path), column.type, now) for column in _columns(served)),
    ]
    made: dict[str, Any] = {"cells": cells, "object": None}
    if include == "Object":
        made["object"] = obj
    elif include == "Metadata":
        made["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return made


def _cell(found: list[Any], kind: str, now: float) -> Any:
    """What a column shows of the first value its path leads to."""
    if not found or found[0] is None:
        return None
    value = found[0]
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind:
        case "string":
            return _text(value)
        case "integer":
            return int(value) if number else None
        case "number":
            return value if number else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case _:
            return _age(value, now)


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return go_float(value) if isinstance(value, float) else go_json(value)


def _age(value: Any, now: float) -> str | None:
    """How long ago a time was, as short as kubectl's users know it."""
    if not isinstance(value, str):
        return None
    try:
        then = dt.datetime.fromisoformat(value).timestamp()
    except ValueError:
        return "<invalid>"
    seconds = int(now - then)
    if seconds < 0:
        return "<invalid>" if seconds < -1 else "0s"
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(big: int, big_unit: str, small: int, small_unit: str) -> str:
    return f"{big}{big_unit}{small}{small_unit}" if small else f"{big}{big_unit}"
