"""Cells that the tables of several built-in kinds share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

__all__ = [
    "NONE",
    "UNKNOWN",
    "UNSET",
    "Ago",
    "Cells",
    "Object",
    "Since",
    "age_of",
    "condition_of",
    "containers_of",
    "get",
    "join_first",
    "labels_text",
    "name_of",
    "number",
    "selector_text",
]

Since = str | tuple[str, str] | int | None
"""A time stamp, two of them, or a number of seconds."""
Ago = Callable[[Since], str]
"""Formats an age or a duration."""
Object = Mapping[str, Any]
Cells = Callable[[Object, Ago], list[Any]]
"""The cells of an object's row."""
NONE: Final = "<none>"
UNSET: Final = "<unset>"
UNKNOWN: Final = "<unknown>"


def get(obj: Any, *path: str, default: Any = None) -> Any:
    """The value at a path."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def name_of(obj: Mapping[str, Any]) -> str:
    """The name of an object."""
    return str(obj["metadata"].get("name", ""))


def age_of(obj: Mapping[str, Any], ago: Ago) -> str:
    """The age of an object."""
    return ago(obj["metadata"].get("creationTimestamp"))


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Labels, or a selector that is a map of labels, as text."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels)) if labels else NONE


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """A label selector as text."""
    if selector is None:
        return NONE
    parts = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for each in selector.get("matchExpressions") or ():
        key, values = each["key"], ",".join(sorted(each.get("values") or ()))
        match each["operator"]:
            case "In":
                parts.append((key, f"{key} in ({values})"))
            case "NotIn":
                parts.append((key, f"{key} notin ({values})"))
            case "Exists":
                parts.append((key, key))
            case _:
                parts.append((key, f"!{key}"))
    return ",".join(text for _, text in sorted(parts)) or NONE


def containers_of(pod: Any) -> tuple[str, str]:
    """The names and the images of a pod's containers."""
    found = get(pod, "spec", "containers", default=())
    return (
        ",".join(each.get("name", "") for each in found),
        ",".join(each.get("image", "") for each in found),
    )


def condition_of(obj: Any, kind: str) -> Mapping[str, Any]:
    """The condition of that type; empty when there is none."""
    for each in get(obj, "status", "conditions", default=()):
        if each.get("type") == kind:
            found: Mapping[str, Any] = each
            return found
    return {}


def join_first(items: Sequence[str], limit: int) -> str:
    """The first items, and the number of the others."""
    shown = ",".join(items[:limit])
    return f"{shown} + {len(items) - limit} more..." if len(items) > limit else shown


def number(obj: Any, *path: str) -> int:
    """The number at a path, else 0."""
    return int(get(obj, *path, default=0))
