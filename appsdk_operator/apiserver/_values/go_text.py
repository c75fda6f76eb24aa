"""Values printed as Go prints them in messages."""

from __future__ import annotations

from typing import Final

from appsdk_operator.resource import go_float, go_json, go_quote

__all__ = ["GO_TYPES", "go_float", "go_json", "go_quote", "is_control", "parse_integer"]


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


_MOST_DIGITS: Final = 20


def is_control(char: str) -> bool:
    """Whether Go's ``unicode.IsControl`` holds: C0, DEL and C1."""
    return char < " " or "\x7f" <= char <= "\x9f"


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
