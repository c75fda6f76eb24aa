"""The columns of tables, and the cells that several built-in kinds share.

A column is text, ``NAME:TYPE=PATH|FALLBACK``: a star before the name means priority 1, the type is
``string`` by default, no path means the whole object, and the fallback, nothing by default, takes
the place of a value that is absent; after ``||`` of an empty one too. ``~`` before the path shows
the time since the value. A function after the text makes the cell of what the path finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

Since: TypeAlias = str | tuple[str, str] | int | None
"""A time stamp, two of them, or a number of seconds."""
Ago: TypeAlias = Callable[[Since], str]
"""Formats an age or a duration."""
Object: TypeAlias = Mapping[str, Any]

# The paths of columns without one.
_PATHS: Final = {"Name": "metadata.name", "Age": "~metadata.creationTimestamp|<unknown>"}
# The fallbacks that are not strings.
_FALLBACKS: Final = {"false": False, "0": 0}


@attrs.frozen
class TableColumn:
    """A column of a built-in kind."""

    name: str
    type: str
    priority: int
    """kubectl shows columns of priority 1 with ``-o wide``."""
    cell: Callable[[Object, Ago], Any]
    """The cell of an object."""
    description: str = ""

    @property
    def format(self) -> str:
        return "name" if self.name == "Name" else ""


def columns(
    *parts: str | tuple[str, Callable[[Any], Any]] | TableColumn,
) -> tuple[TableColumn, ...]:
    """The columns of a kind: texts of one or more, texts with a function, and ready ones.

    >>> columns("Name, Up-to-date=status.updatedReplicas|0")[1].cell({"status": {}}, str)
    0
    """
    made: list[TableColumn] = []
    for part in parts:
        if isinstance(part, TableColumn):
            made.append(part)
        elif isinstance(part, str):
            made += (_column(text, None) for text in part.split(", "))
        else:
            made.append(_column(*part))
    return tuple(made)


def _column(text: str, function: Callable[[Any], Any] | None) -> TableColumn:
    head, _, source = text.partition("=")
    name, _, kind = head.removeprefix("*").partition(":")
    path, _, fallback = (source if source or function else _PATHS[name]).partition("|")
    is_age = path.startswith("~")
    names = path.removeprefix("~").split(".") if path.strip("~") else ()
    absent = (None, "") if fallback.startswith("|") else (None,)
    fallback = fallback.removeprefix("|")
    other = _FALLBACKS.get(fallback, fallback)

    def cell(obj: Object, ago: Ago) -> Any:
        found = get(obj, *names)
        if function is not None and found is not None:
            found = function(found)
        if found in absent:
            return other
        return ago(found) if is_age else found

    return TableColumn(name, kind or "string", int(text.startswith("*")), cell)


def get(obj: Any, *path: str, default: Any = None) -> Any:
    """The value at a path."""
    for name in path:
        obj = obj.get(name) if isinstance(obj, Mapping) else None
    return default if obj is None else obj


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels, or a selector that is a map of labels, as text."""
    return ",".join(f"{key}={labels[key]}" for key in sorted(labels))


def selector_text(selector: Object) -> str:
    """A label selector as text."""
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
    return ",".join(text for _, text in sorted(parts))


SELECTOR: Final = ("*Selector=spec.selector||<none>", selector_text)
"""The selector of a workload."""


def containers(
    template: str = "spec.template", priority: str = "*"
) -> tuple[tuple[str, Callable[[Any], Any]], ...]:
    """The columns for the names and the images of the containers of a pod's template."""

    def joined(field: str) -> Callable[[Iterable[Object]], str]:
        return lambda found: ",".join(each.get(field, "") for each in found)

    path = f"{template}.spec.containers"
    return (
        (f"{priority}Containers={path}", joined("name")),
        (f"{priority}Images={path}", joined("image")),
    )


def condition_of(obj: Object, kind: str) -> Object:
    """The condition of that type; empty when there is none."""
    for each in get(obj, "status", "conditions", default=()):
        if each.get("type") == kind:
            found: Object = each
            return found
    return {}


def join_first(items: Sequence[str], limit: int = 3, separator: str = ",") -> str:
    """The first items, and the number of the others."""
    more = f" + {len(items) - limit} more..." if len(items) > limit else ""
    return separator.join(items[:limit]) + more


def reference_text(reference: Object, first: str = "kind") -> str:
    """A reference as ``KIND/NAME``, or ``NAMESPACE/NAME``."""
    return f"{reference.get(first, '')}/{reference.get('name', '')}"
