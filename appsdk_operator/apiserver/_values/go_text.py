"""Values printed as Go prints them in messages."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["GO_TYPES", "go_float", "go_json", "go_quote", "parse_integer"]


GO_TYPES: Final[dict[type, str]] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    list: "[]interface {}",
    dict: "map[string]interface {}",
    type(None): "<nil>",
}
"""Go's names for the types of decoded JSON, by Python type."""


def go_float(value: float) -> str:
    """Format a float64 as Go's ``%v`` does.

    >>> go_float(1.5), go_float(10.0), go_float(1e30)
    ('1.5', '10', '1e+30')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}[repr(value)]
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    digits, _, exponent = f"{value!r}".partition("e")
    if not exponent and 1e-4 <= abs(value) < 1e21:
        return digits.removesuffix(".0")
    if not exponent or 1e-4 <= abs(value) < 1e21:
        return f"{value:f}".rstrip("0").rstrip(".") if abs(value) >= 1e-4 else _small(value)
    sign, power = ("-" if exponent[0] == "-" else "+"), exponent.lstrip("+-")
    return f"{digits.removesuffix('.0')}e{sign}{power:0>2}"


def _small(value: float) -> str:
    mantissa, _, exponent = f"{value:e}".partition("e")
    shortest = f"{value!r}"
    if "e" in shortest:
        mantissa, _, exponent = shortest.partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{exponent}"


def go_json(value: Any) -> str:
    """Encode JSON as Go does: sorted keys, no spaces, ``<``, ``>`` and ``&`` escaped."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if isinstance(value, dict):
        inner = ",".join(f"{go_json(key)}:{go_json(value[key])}" for key in sorted(value))
        return f"{{{inner}}}"
    if isinstance(value, list):
        return f"[{','.join(map(go_json, value))}]"
    text = json.dumps(value, ensure_ascii=False)
    if isinstance(value, str):
        for char, escape in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
            text = text.replace(char, escape)
    return text


_MOST_DIGITS: Final = 20


def parse_integer(text: str) -> int | None:
    """Parse an integer of ASCII digits with an optional sign; None if ``text`` is not one.

    ``int()`` takes other digits, underscores and spaces, and refuses thousands of digits. Numbers
    of more than 20 digits become 10**20, which is beyond every bound that the server checks.

    >>> [parse_integer(text) for text in ("-12", "\u00b2", "1_0")]
    [-12, None, None]
    >>> parse_integer("9" * 5000) == 10**20
    True
    """
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0") or "0"
    number = int(digits) if len(digits) <= _MOST_DIGITS else 10**_MOST_DIGITS
    return -number if text[0] == "-" else number


def go_quote(text: str) -> str:
    """Quote a string as Go's ``%q`` does."""
    return json.dumps(text, ensure_ascii=False)
