"""What Go says about JSON that it cannot read."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["kind_of", "mismatch", "summary", "syntax_error"]

_SUMMARY: Final = 30

_KINDS: Final[dict[type, str]] = {
    list: "array",
    dict: "object",
    str: "string",
    int: "number",
    float: "number",
    bool: "bool",
}


def kind_of(value: Any) -> str:
    """What Go calls the kind of a value in JSON."""
    return _KINDS.get(type(value), "null")


def mismatch(value: Any, place: str, wanted: str) -> str:
    """A value of the wrong type.

    Args:
        value: what is there.
        place: ``value`` for the whole, else ``struct field …``.
        wanted: the Go type it should have.
    """
    return f"json: cannot unmarshal {kind_of(value)} into Go {place} of type {wanted}"


def syntax_error(body: bytes) -> str:
    """What is wrong with a body that is no JSON."""
    text = body.decode(errors="replace")
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            return "unexpected end of JSON input"
        at, where = text[error.pos], "looking for beginning of value"
        for literal in ("null", "true", "false"):
            if at == literal[0] and error.msg.startswith("Expecting value"):
                return _literal_error(text[error.pos :], literal)
        if error.msg.startswith("Expecting property name"):
            where = "looking for beginning of object key string"
        elif error.msg.startswith("Expecting ':'"):
            where = "after object key"
        elif error.msg.startswith("Expecting ','"):
            where = "after object key:value pair" if "{" in text else "after array element"
        elif error.msg.startswith("Extra data"):
            where = "after top-level value"
        elif error.msg.startswith("Unterminated string"):
            return "unexpected end of JSON input"
        return f"invalid character '{at}' {where}"
    except RecursionError:
        return "exceeded max depth"
    return "invalid character"


def _literal_error(text: str, literal: str) -> str:
    # Go reads a space past the end.
    for at, wanted in zip(f"{text} ", literal, strict=False):
        if at != wanted:
            return f"invalid character '{at}' in literal {literal} (expecting '{wanted}')"
    return "unexpected end of JSON input"


def summary(body: bytes) -> str:
    """The beginning of a body, as errors show it."""
    if not body:
        return "<empty>"
    shown, more = body[:_SUMMARY], " ..." if len(body) > _SUMMARY else ""
    if body[:1] == b"{":
        return f"{shown.decode(errors='replace')}{more}"
    return f"{shown.hex()}{more}"
