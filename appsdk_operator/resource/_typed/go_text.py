"""Values as Go prints them in messages."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from appsdk_operator.resource._json import values as json_values
from appsdk_operator.resource._typed.spec_types import encode_hook


class Verbatim(str):
    """A value that is printed as it is, for values that Go formats in its own way."""

    __slots__ = ()


def go_value(value: Any) -> str:
    """A value as in Kubernetes' field errors: strings with ``%q``, numbers with ``%v``, others as
    JSON, or with ``str`` where JSON cannot carry them.

    >>> go_value("a"), go_value(1e21), go_value(None), go_value({"b": [1.0], "a": True})
    ('"a"', '1e+21', 'null', '{"a":true,"b":[1]}')
    """
    if isinstance(value, str):
        text = str.__str__(value)
        return text if isinstance(value, Verbatim) else go_quote(text)
    if isinstance(value, float):
        return go_float(value)
    try:
        return go_json(value)
    except (TypeError, ValueError, OverflowError):
        return str(value)


def go_float(value: float) -> str:
    """Format a float64 as Go's ``%v`` does.

    >>> go_float(1.5), go_float(10.0), go_float(1e6)
    ('1.5', '10', '1e+06')
    """
    return _float(value, range(-4, 6))


def _float(value: float, exponents: range) -> str:
    """The shortest decimal text; with an exponent unless that is in ``exponents``."""
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[repr(value)]
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    sign = "-" if value < 0 else ""
    mantissa, _, power = repr(abs(value)).partition("e")
    whole, _, part = mantissa.partition(".")
    digits = (whole + part).lstrip("0")
    exponent = int(power or 0) + len(whole) - 1  # of the first digit
    if whole == "0":
        exponent = int(power or 0) - (len(part) - len(part.lstrip("0"))) - 1
    digits = digits.rstrip("0")
    if exponent not in exponents:
        shown = digits[0] + ("." + digits[1:] if len(digits) > 1 else "")
        return f"{sign}{shown}e{'-' if exponent < 0 else '+'}{abs(exponent):02}"
    if exponent < 0:
        return f"{sign}0.{'0' * (-exponent - 1)}{digits}"
    whole = digits[: exponent + 1].ljust(exponent + 1, "0")
    part = digits[exponent + 1 :]
    return f"{sign}{whole}.{part}" if part else f"{sign}{whole}"


_ESCAPES: Final = {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    7: "\\a",
    8: "\\b",
    9: "\\t",
    10: "\\n",
    11: "\\v",
    12: "\\f",
    13: "\\r",
}


def go_quote(text: str) -> str:
    r"""Quote a string as Go's ``%q`` does.

    >>> print(go_quote('a"\x00é\u200b'))
    "a\"\x00é\u200b"
    """
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_quoted, text))}"'


def _quoted(char: str) -> str:
    code = ord(char)
    if code in _ESCAPES:
        return _ESCAPES[code]
    if char == " " or unicodedata.category(char)[0] in "LMNPS":
        return char
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# -- JSON ------------------------------------------------------------------------------------


class _Text(str):
    """A part of the result, among the values that are still to be written."""

    __slots__ = ()


_HTML: Final = {ord(char): f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"}


def go_json(value: Any) -> str:
    """Encode JSON as Go does: no spaces, sorted keys of mappings, ``<``, ``>`` and ``&`` escaped.

    Typed values keep the order of their fields, without those that are None.

    Raises:
        TypeError, ValueError: JSON cannot carry it.
    """
    parts: list[str] = []
    pending: list[Any] = [value]
    around: dict[int, Any] = {}  # the containers that the next item is in, by identity
    while pending:
        item = pending.pop()
        if isinstance(item, _Text):
            parts.append(item)
            if item in ("]", "}"):
                around.popitem()
        elif isinstance(item, str):
            parts.append(_json_string(item))
        elif isinstance(item, float):
            parts.append(_json_float(item))
        elif item is None or isinstance(item, (bool, int)):
            parts.append(msgspec.json.encode(item).decode())
        else:
            if id(item) in around:
                raise ValueError("a value contains itself")
            found = list(_json_parts(item))
            if isinstance(found[0], _Text):
                around[id(item)] = item
            pending += reversed(found)
    return "".join(parts)


def _json_parts(value: Any) -> Iterator[Any]:
    """The values in a container, and the text around them."""
    if isinstance(value, Mapping):
        yield from _json_members((str(key), value[key]) for key in sorted(value, key=str))
        return
    if isinstance(value, (list, tuple)):
        yield _Text("[")
        for index, item in enumerate(value):
            if index:
                yield _Text(",")
            yield item
        yield _Text("]")
        return
    fields = json_values.fields_of(value)
    if fields is not value:
        yield from _json_members((key, item) for key, item in fields.items() if item is not None)
    else:
        yield msgspec.to_builtins(value, enc_hook=encode_hook)


def _json_members(members: Iterator[tuple[str, Any]]) -> Iterator[Any]:
    yield _Text("{")
    for index, (key, item) in enumerate(members):
        yield _Text(f"{',' if index else ''}{_json_string(key)}:")
        yield item
    yield _Text("}")


def _json_string(text: str) -> str:
    return json.dumps(str.__str__(text), ensure_ascii=False).translate(_HTML)


def _json_float(value: float) -> str:
    text = _float(value, range(-6, 21))
    # Go shortens 1e-07 in JSON, and in JSON alone.
    return text.replace("e-0", "e-")
