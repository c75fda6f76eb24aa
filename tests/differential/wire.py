"""Parts of messages of protobuf whose definition is not at hand: fields by their numbers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from tests.differential.paths import split

_TEXT, _NAMED = 2, {"1", "2"}


def find(message: bytes, path: str) -> Any:
    """What stands at a path; a step that is no number is the name of a pair of name and value."""
    found = [message]
    for step in split(path):
        if step.isdigit():
            found = [part for each in found for part in _all(each, int(step))]
        else:
            named = [each for each in found if _all(each, 1) == [step.encode()]]
            found = [part for each in named for part in _all(each, 2)]
    values = [_value(each) for each in found]
    return values[0] if len(values) == 1 else values or None


def _all(message: bytes, number: int) -> list[bytes]:
    return [value for at, value in _fields(message) if at == number and isinstance(value, bytes)]


def _value(content: bytes) -> Any:
    """A message as its fields, without their order; else text."""
    try:
        fields = list(_fields(content))
    except (ValueError, IndexError, struct.error):
        return content.decode()
    found: dict[str, list[Any]] = {}
    for number, value in fields:
        made = _value(value) if isinstance(value, bytes) else value
        found.setdefault(str(number), []).append(made)
    return {number: _joined(values) for number, values in sorted(found.items())}


def _joined(values: list[Any]) -> Any:
    if all(isinstance(v, dict) and v.keys() == _NAMED and isinstance(v["1"], str) for v in values):
        return {value["1"]: value["2"] for value in values}
    return values[0] if len(values) == 1 else values


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    at = 0
    while at < len(content):
        tag, at = _number(content, at)
        number, kind = tag >> 3, tag & 7
        if not 0 < number < 64:
            raise ValueError(number)
        if kind == _TEXT:
            size, at = _number(content, at)
            if at + size > len(content):
                raise ValueError(size)
            yield number, content[at : at + size]
            at += size
        elif kind == 1:
            yield number, struct.unpack_from("<d", content, at)[0]
            at += 8
        elif kind == 0:
            value, at = _number(content, at)
            yield number, value
        else:
            raise ValueError(kind)


def _number(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
