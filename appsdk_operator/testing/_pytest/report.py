"""The report of a failed test: requests, events, the state of the operator, and its errors."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from appsdk_operator.testing import LoggedRequest


_WIDTH: Final = 200


def requests(found: Sequence[LoggedRequest], namespace: str, lines: int) -> str:
    """A line per request in the namespace, or across namespaces."""
    if namespace:
        mine = [request for request in found if _concerns(request, namespace)]
    else:
        mine = list(found)
    rows = [
        f"{request.user or '-':<12} {request.verb or request.method:<8} {request.status or 'cut'} "
        f"{request.duration * 1000:8.1f} ms  {request.path}{_query(request)}"
        + (f"   <- {request.fault}" if request.fault else "")
        for request in mine
    ]
    return _limit_lines(rows, lines)


def _concerns(request: LoggedRequest, namespace: str) -> bool:
    if request.namespace:
        return request.namespace == namespace
    return bool(request.verb) and not request.path.startswith("/api/v1/namespaces/test-")


def _query(request: LoggedRequest) -> str:
    return f"?{request.query}" if request.query else ""


def events(found: Iterable[Mapping[str, Any]], lines: int) -> str:
    """A line per Event, ordered by time."""
    rows = []
    for event in sorted(found, key=_time_of):
        regarding = event.get("involvedObject") or {}
        count = event.get("count") or (event.get("series") or {}).get("count") or 1
        rows.append(
            f"{_time_of(event)} {event.get('type', ''):<7} {event.get('reason', '')} "
            f"{regarding.get('kind', '')}/{regarding.get('name', '')}: {event.get('message', '')}"
            + (f" (x{count})" if count > 1 else "")
        )
    return _limit_lines(rows, lines)


def _time_of(event: Mapping[str, Any]) -> str:
    names = ("lastTimestamp", "eventTime", "firstTimestamp")
    times = [str(event[name]) for name in names if event.get(name)]
    return (times or [str(event.get("metadata", {}).get("creationTimestamp", ""))])[0]


def snapshot_of(target: Any) -> Any:
    """The runnable's ``debug_snapshot()``, None where it has none."""
    snapshot = getattr(target, "debug_snapshot", None)
    if not callable(snapshot):
        return None
    try:
        return snapshot()
    except Exception as error:  # the runnable may be broken: the test failed
        return f"could not be read: {error!r}"


def operators(snapshots: Iterable[tuple[str, Any]], namespace: str, lines: int) -> str:
    """The snapshots of runnables, without the rows of other namespaces."""
    rows: list[str] = []
    for name, snapshot in snapshots:
        rows.append(f"{name}:" if snapshot is not None else f"{name}: ran")
        # Of a manager and its groups only the controllers are of interest here.
        for part in list(_controllers(snapshot)) or [snapshot]:
            rows += _snapshot_lines(part, namespace, "  ")
    return _limit_lines(rows, lines, from_start=True)


def _controllers(value: Any) -> Iterator[Mapping[str, Any]]:
    """The snapshots of controllers within a snapshot."""
    if isinstance(value, Mapping):
        if "controller" in value:
            yield value
        else:
            for inner in value.values():
                yield from _controllers(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _controllers(inner)


def _snapshot_lines(value: Any, namespace: str, indent: str) -> list[str]:
    """A snapshot as indented lines, without empty values and rows of other namespaces."""
    if isinstance(value, Mapping):
        rows = []
        for key, inner in value.items():
            if inner is None or inner in ("", [], {}):
                continue
            if isinstance(inner, Mapping) and not any(map(_is_container, inner.values())):
                facts = ", ".join(f"{k}={_format_value(v)}" for k, v in inner.items())
                rows.append(f"{indent}{key}: {facts}")
                continue
            if isinstance(inner, (Mapping, list, tuple)):
                below = _snapshot_lines(inner, namespace, f"{indent}  ")
                rows += [f"{indent}{key}:", *below] if below else []
            else:
                rows.append(f"{indent}{key}: {_format_value(inner)}")
        return rows
    if isinstance(value, (list, tuple)):
        rows = []
        others = 0
        for inner in value:
            if namespace and _is_elsewhere(inner, namespace):
                others += 1
            elif isinstance(inner, Mapping) and not any(_has_nested(v) for v in inner.values()):
                facts = ", ".join(
                    f"{k}={_format_value(v)}" for k, v in inner.items() if v is not None
                )
                rows.append(f"{indent}- {facts}")
            elif isinstance(inner, (Mapping, list, tuple)):
                rows += _snapshot_lines(inner, namespace, indent)
            else:
                rows.append(f"{indent}- {_format_value(inner)}")
        return [*rows, f"{indent}- {others} of other namespaces"] if others else rows
    return [f"{indent}{_format_value(value)}"] if value is not None else []


def _is_container(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple))


def _has_nested(value: Any) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, (list, tuple)) and any(isinstance(v, (Mapping, list)) for v in value)


def _is_elsewhere(row: Any, namespace: str) -> bool:
    """Whether a row of a snapshot is about an object of another namespace."""
    if not isinstance(row, Mapping):
        return False
    name = str(row.get("object") or "")
    return "/" in name and not name.startswith(f"{namespace}/") and f"/{namespace}/" not in name


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        return "; ".join(map(_format_value, value))
    return str(value)


def errors(records: Sequence[logging.LogRecord], namespace: str, lines: int) -> str:
    """A line per warning or error of the namespace, or of no namespace."""
    rows = []
    for record in records:
        if namespace and getattr(record, "namespace", namespace) not in ("", namespace):
            continue
        cause = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        if cause is not None and str(cause) not in text:
            text += f": {cause!r}"
        rows.append(f"{record.levelname:<7} {record.name}: {text}")
    return _limit_lines(rows, lines)


def _limit_lines(rows: Sequence[str], lines: int, *, from_start: bool = False) -> str:
    """The last lines, or the first, each cut to the width of the report."""
    cut = [row if len(row) <= _WIDTH else f"{row[: _WIDTH - 1]}…" for row in map(_one_line, rows)]
    if len(cut) <= lines:
        return "\n".join(cut)
    left = f"({len(cut) - lines} more)"
    return "\n".join([*cut[:lines], left] if from_start else [left, *cut[-lines:]])


def _one_line(text: str) -> str:
    return " ".join(text.split("\n"))
