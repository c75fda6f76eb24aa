"""``Table`` responses: the columns of a kind and the rows of objects."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any, Final

from appsdk_operator.apiserver._builtin.tables import infrastructure, other_kinds, workloads
from appsdk_operator.apiserver._builtin.tables.columns import Since, TableColumn, columns
from appsdk_operator.apiserver._storage.resources import Column, ServedVersion
from appsdk_operator.apiserver._values import jsonpath
from appsdk_operator.apiserver._values.go_text import go_float, go_json
from appsdk_operator.apiserver._values.times import ZERO, parse_time

_NAME: Final = Column(
    "Name", "string", ".metadata.name", "Name must be unique within a namespace.", "name"
)
# Row conditions of terminated pods, by phase.
_ENDS: Final = {
    "Succeeded": ("Succeeded", "The pod has completed successfully."),
    "Failed": ("Failed", "The pod failed."),
}
AGE: Final = Column(
    "Age",
    "date",
    ".metadata.creationTimestamp",
    "CreationTimestamp is a timestamp representing the server time when this object was created.",
)
"""The only column of a kind without columns of its own."""
# Columns and texts are those of kube-apiserver.
_COLUMNS: Final = {**infrastructure.COLUMNS, **other_kinds.COLUMNS, **workloads.COLUMNS}
_PLAIN: Final = columns("Name, Created At:date=metadata.creationTimestamp")


def table(
    served: ServedVersion, rows: list[dict[str, Any]], metadata: dict[str, Any]
) -> dict[str, Any]:
    """A ``Table`` of these rows."""
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": _definitions(served),
        "rows": rows,
    }


def _definitions(served: ServedVersion) -> list[dict[str, Any]]:
    shown: tuple[Column | TableColumn, ...] = _builtin_columns(served)
    return [
        {
            "name": column.name,
            "type": column.type,
            "format": column.format,
            "description": column.description,
            "priority": column.priority,
        }
        for column in shown or (_NAME, *_columns(served))
    ]


def _builtin_columns(served: ServedVersion) -> tuple[TableColumn, ...]:
    """The columns of a built-in kind; of others none."""
    if served.resource.strategy.custom:
        return ()
    return _COLUMNS.get(served.resource.qualified_name, _PLAIN)


def _columns(served: ServedVersion) -> tuple[Column, ...]:
    return (AGE,) if served.columns is None else served.columns


def row(served: ServedVersion, obj: dict[str, Any], include: str, now: float) -> dict[str, Any]:
    """The row of one object."""
    made: dict[str, Any] = {"cells": _cells(served, obj, now), "object": None}
    is_pod = served.resource.qualified_name == "pods"
    ended = _ENDS.get(obj.get("status", {}).get("phase")) if is_pod else None
    if ended is not None:
        reason, message = ended
        made["conditions"] = [
            {"type": "Completed", "status": "True", "reason": reason, "message": message}
        ]
    if include == "Object":
        made["object"] = obj
    elif include == "Metadata":
        made["object"] = {
            "kind": "PartialObjectMetadata",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": obj["metadata"],
        }
    return made


def _cells(served: ServedVersion, obj: dict[str, Any], now: float) -> list[Any]:
    if builtin := _builtin_columns(served):
        ago = functools.partial(_ago, now=now)
        return [column.cell(obj, ago) for column in builtin]
    columns = _columns(served)
    found = (_cell(jsonpath.find(obj, column.path), column.type, now) for column in columns)
    return [obj["metadata"].get("name", ""), *found]


def _cell(found: list[Any], kind: str, now: float) -> Any:
    """The cell for the first value that a column's path finds."""
    if not found:
        return None
    value = found[0]
    if value is None:
        return "<no value>" if kind == "string" else None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    match kind:
        case "string":
            return _text(value)
        case "integer":
            # Go's conversion of what does not fit.
            return (int(value) if abs(value) < 2**63 else -(2**63)) if number else None
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
    """The age of a time, in kubectl's short form."""
    if not isinstance(value, str):
        return None
    try:
        then = parse_time(value) if value else ZERO
    except ValueError:
        return "<invalid>"
    return "<unknown>" if then == ZERO else _duration(int(now - then / 10**9))


def _ago(since: Since, now: float) -> str:
    """A time, two times, or a number of seconds as a short duration; empty is ``<unknown>``."""
    if isinstance(since, int):
        return _duration(since)
    if isinstance(since, tuple):
        begin, end = (dt.datetime.fromisoformat(each) for each in since)
        return _duration(int((end - begin).total_seconds()))
    return _age(since, now) or "<unknown>"


def _duration(seconds: int) -> str:
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
