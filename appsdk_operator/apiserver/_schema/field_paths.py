"""Field paths in a schema, as rules and selectable fields have them: ``.spec.a['b.c']``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

_ESCAPES: Final = dict(zip("abfnrtv'\\", "\a\b\f\n\r\t\v'\\", strict=True))
_TOKEN: Final = re.compile(r"'(?:[^'\\]|\\.)*'|[.\[\]]|[^.\[\]']+|'")


class FieldPathError(ValueError):
    """A path that leads to no field. The text is the real server's."""


def resolve_field_path(
    path: str, schema: Mapping[str, Any], *, brackets: bool = True
) -> tuple[str, Mapping[str, Any], str]:
    """Resolve a path to its canonical form, the schema of the field and the first field's name.

    Args:
        path: the path, starting with a dot or a bracket.
        schema: the schema that it starts in.
        brackets: whether names in brackets are allowed.

    Raises:
        FieldPathError: the path leads to no field.
    """
    tokens = _TOKEN.findall(path)
    made, first, position = "", "", 0
    while position < len(tokens):
        token = tokens[position]
        if token == ".":  # noqa: S105 - no password
            name = _at(tokens, position + 1)
            position += 2
        elif token == "[":  # noqa: S105
            if not brackets:
                raise FieldPathError("array notation is not allowed")
            name = _quoted(_at(tokens, position + 1))
            closing = _at(tokens, position + 2)
            if closing != "]":
                raise FieldPathError(f"expected ] but got {closing}")
            position += 3
        else:
            raise FieldPathError(f"expected [ or . but got: {token}")
        schema, named = _child_schema(schema, name)
        made += (f".{name}" if made else name) if named else f"[{name}]"
        first = first or name
    return made, schema, first


def _at(tokens: list[str], position: int) -> str:
    if position >= len(tokens):
        raise FieldPathError("unexpected end of JSON path")
    return tokens[position]


def _quoted(token: str) -> str:
    if len(token) < 2 or token[0] != "'" or token[-1] != "'":
        raise FieldPathError(f"expected single quoted string but got {token}")

    def unescape(found: re.Match[str]) -> str:
        if found[1] not in _ESCAPES:
            raise FieldPathError(f"invalid string literal: invalid escape char {found[0]}")
        return _ESCAPES[found[1]]

    return re.sub(r"\\(.)", unescape, token[1:-1])


def _child_schema(schema: Mapping[str, Any], name: str) -> tuple[Mapping[str, Any], bool]:
    """The schema of a child, and whether the child is a field, not a key of a map."""
    properties, additional = schema.get("properties"), schema.get("additionalProperties")
    if properties:
        if name not in properties:
            raise FieldPathError("does not refer to a valid field")
        return properties[name], True
    if isinstance(additional, Mapping):
        return additional, False
    raise FieldPathError("does not refer to a valid field")
