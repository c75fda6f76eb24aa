"""Tables, as kubectl asks for them: columns of a kind and the cells of an object."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any, Final

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
    cells: list[Any] = [obj["metadata"]["name"]]
    for column in _columns(served):
        value = _at_path(obj, column.path)
        if column.type == "date":
            cells.append(_age(value, now))
        else:
            cells.append(_cell(value, column.type))
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


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+|\*)\]|\['([^']+)'\]")
_FILTER: Final = re.compile(r"\[\?\(@\.([\w.]+)\s*==\s*[\"']([^\"']*)[\"']\)\]")


def _at_path(value: Any, path: str) -> Any:
    """The value at one of the simple JSON paths that columns use: fields, indexes, one filter."""
    position = 0
    escaped = path.replace("\\.", "\x00")
    while position < len(escaped):
        if (found := _FILTER.match(escaped, position)) is not None:
            items = value if isinstance(value, list) else []
            value = next((i for i in items if str(_at_path(i, f".{found[1]}")) == found[2]), None)
        elif (found := _STEP.match(escaped, position)) is not None:
            name = (found[1] or found[3] or "").replace("\x00", ".")
            value = _step(value, name, found[2])
        else:
            return None
        if value is None:
            return None
        position = found.end()
    return value


def _step(value: Any, name: str, index: str | None) -> Any:
    if name:
        return value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, list) or not value:
        return None
    position = 0 if index in (None, "*") else int(index)
    return value[position] if position < len(value) else None


def _cell(value: Any, kind: str) -> Any:
    if value is None or kind in ("integer", "number", "boolean"):
        return value if not isinstance(value, (dict, list, str)) else None
    return value if isinstance(value, str) else str(value)


def _age(value: Any, now: float) -> str | None:
    """How long ago a time was, as short as kubectl's users know it."""
    if not isinstance(value, str):
        return None
    try:
        then = dt.datetime.fromisoformat(value).timestamp()
    except ValueError:
        return "<unknown>"
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
