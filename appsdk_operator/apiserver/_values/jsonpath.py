"""JSONPath for printer columns, in the dialect of client-go's ``jsonpath``."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from appsdk_operator.apiserver._values.go_text import parse_integer

__all__ = ["find"]

Segment = Callable[[Any], Iterator[Any]]

_FIELD: Final = re.compile(r"\.((?:\\.|[^.\[\]\\ ])+)")
_QUOTED: Final = re.compile(r"\['((?:[^'\\]|\\.)*)'\]")
_RANGE: Final = re.compile(r"\[(-?\d*):(-?\d*)(?::(-?\d*))?\]")
_INDEXES: Final = re.compile(r"\[(-?\d+(?:,-?\d+)*)\]")
_FILTER: Final = re.compile(
    r"\[\?\(\s*@((?:[.\[][^=!<>)]*)?)\s*(?:(==|!=|<=|>=|<|>)\s*(.*?))?\s*\)\]"
)
_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _index(text: str) -> int:
    found = parse_integer(text)
    if found is None:
        raise ValueError(f"invalid array index {text}")
    return found


def find(value: Any, path: str) -> list[Any]:
    """All values that ``path`` selects in ``value``; none for a path with a syntax error."""
    found = [value]
    for segment in _segments(path):
        found = [item for value in found for item in segment(value)]
    return found


@functools.lru_cache(maxsize=1024)
def _segments(path: str) -> tuple[Segment, ...]:
    segments: list[Segment] = []
    position = 0
    while position < len(path):
        if path.startswith("..", position):
            segments.append(_everything)
            position += 1
        elif path.startswith("[*]", position) or path.startswith(".*", position):
            segments.append(_members)
            position += 3 if path[position] == "[" else 2
        elif (match := _FIELD.match(path, position)) is not None:
            segments.append(_field(re.sub(r"\\(.)", r"\1", match[1])))
            position = match.end()
        elif (match := _QUOTED.match(path, position)) is not None:
            # client-go splits at a dot even inside quotes.
            segments += [_field(name) for name in match[1].split(".")]
            position = match.end()
        elif (match := _INDEXES.match(path, position)) is not None:
            segments.append(
                _items([slice(i, i + 1 or None) for i in map(_index, match[1].split(","))])
            )
            position = match.end()
        elif (match := _RANGE.match(path, position)) is not None:
            bounds = [_index(text) if text else None for text in match.groups()]
            segments.append(_items([slice(*bounds)]))
            position = match.end()
        elif (match := _FILTER.match(path, position)) is not None:
            segments.append(_filter(match[1], match[2], match[3]))
            position = match.end()
        elif path[position] == "." and position + 1 == len(path):
            break
        else:
            return (_nothing,)
    return tuple(segments)


def _nothing(_value: Any) -> Iterator[Any]:
    yield from ()


def _field(name: str) -> Segment:
    def segment(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return segment


def _members(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _everything(value: Any) -> Iterator[Any]:
    yield value
    for member in _members(value):
        yield from _everything(member)


def _items(slices: list[slice]) -> Segment:
    def segment(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            for part in slices:
                yield from value[part]

    return segment


def _filter(path: str, compare: str | None, literal: str | None) -> Segment:
    def segment(value: Any) -> Iterator[Any]:
        for item in value if isinstance(value, list) else ():
            found = find(item, path)
            if compare is None:
                if found:
                    yield item
            elif found and _holds(found[0], compare, literal or ""):
                yield item

    return segment


def _holds(value: Any, compare: str, literal: str) -> bool:
    wanted: Any = literal
    if literal[:1] in ("'", '"'):
        wanted = literal[1:-1]
    elif literal in ("true", "false"):
        wanted = literal == "true"
    elif re.fullmatch(r"-?\d+(\.\d+)?", literal):
        wanted = float(literal)
    try:
        return _COMPARE[compare](value, wanted)
    except TypeError:
        return False
