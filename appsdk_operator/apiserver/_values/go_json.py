"""JSON bodies, decoded with the limits and the error texts of Go."""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

import msgspec

from appsdk_operator.resource import load_first

_SUMMARY: Final = 30

_KINDS: Final[dict[type, str]] = {
    list: "array",
    dict: "object",
    str: "string",
    int: "number",
    float: "number",
    bool: "bool",
}


# A number beyond float64 has at least as many digits, in any base that YAML has.
_LONG_NUMBER: Final = re.compile(rb"[0-9a-fA-F_]{250}")
# Bytes. Parsing 40 kB of YAML takes a second. Clients send JSON, which has no such limit.
_YAML_LIMIT: Final = 256 * 1024


def decode(body: bytes) -> Any:
    """Decode a JSON body.

    Raises:
        ValueError: it is not JSON, is nested too deeply, or has a number that fits no type of Go.
            The text is Go's.
    """
    try:
        value = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ValueError(syntax_error(body)) from None
    if _LONG_NUMBER.search(body):
        check_values(value)
    return value


def read_yaml(body: bytes) -> tuple[Any, list[str]]:
    """The first document of a YAML body, None if there is none; and its duplicate keys.

    Raises:
        ValueError: it is not YAML, cannot be parsed in reasonable time, or has a value that JSON or
            Go cannot hold.
    """
    if len(body) > _YAML_LIMIT:
        raise ValueError(
            f"the embedded server reads at most {_YAML_LIMIT} bytes of YAML: send JSON"
        )
    # As many as a body without aliases can have.
    value, repeated = load_first(body, most_values=_YAML_LIMIT // 2)
    check_values(value)
    return value, repeated


def check_values(value: Any) -> None:
    """Refuse decoded values that JSON or Go cannot hold.

    Raises:
        ValueError: a number is beyond float64, or a string is not valid Unicode.
    """
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
        elif isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError:
                raise ValueError("found invalid Unicode character escape code") from None
        elif isinstance(value, (int, float)) and not abs(value) <= sys.float_info.max:
            raise ValueError("json: cannot unmarshal number into Go value of type float64")


def kind_of(value: Any) -> str:
    """Go's name for the JSON type of a value."""
    return _KINDS.get(type(value), "null")


def mismatch(value: Any, place: str, wanted: str) -> str:
    """Go's error text for a JSON value of the wrong type.

    Args:
        value: the value.
        place: ``value`` for the whole body, else ``struct field …``.
        wanted: the Go type that the place needs.
    """
    return f"json: cannot unmarshal {kind_of(value)} into Go {place} of type {wanted}"


def syntax_error(body: bytes) -> str:
    """Go's error text for a body that is not JSON."""
    text = body.decode(errors="replace")
    try:
        # Numbers stay strings: Python refuses to convert thousands of digits.
        json.loads(text, parse_int=str, parse_float=str)
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
    return "json: cannot unmarshal number into Go value of type float64"


def _literal_error(text: str, literal: str) -> str:
    # Go reads a space after the end of the body.
    for at, wanted in zip(f"{text} ", literal, strict=False):
        if at != wanted:
            return f"invalid character '{at}' in literal {literal} (expecting '{wanted}')"
    return "unexpected end of JSON input"


def summary(body: bytes) -> str:
    """The first bytes of a body, as errors quote it."""
    if not body:
        return "<empty>"
    shown, more = body[:_SUMMARY], " ..." if len(body) > _SUMMARY else ""
    if body[:1] == b"{":
        return f"{shown.decode(errors='replace')}{more}"
    return f"{shown.hex()}{more}"
