"""Kubernetes' quantities, such as ``500m``, ``1Gi`` and ``2e3``, and their canonical form."""

from __future__ import annotations

import decimal
import functools
import re
from decimal import ROUND_UP, Decimal
from typing import Any, Final

# Without any digit it is 0, as in Go.
_SHAPE: Final = re.compile(
    r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?([eEinumkKMGTP]*+[-+]?[0-9]*+)", re.ASCII
)
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL: Final = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_EXPONENT: Final = re.compile(r"[eE]([-+]?[0-9]+)")
_MALFORMED: Final = (
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
)
_SMALLEST: Final = Decimal("1e-9")
_MOST_BINARY: Final = Decimal(2**63 - 1)
# Characters. The real server takes longer quantities, which nobody writes.
_LONGEST: Final = 400
# Digits of precision: enough for the longest quantity times the largest suffix or exponent.
_PRECISION: Final = _LONGEST + 120


class QuantityError(ValueError):
    """A string that is not a quantity. The text is the real server's."""


def canonical(value: Any) -> str:
    """The canonical form of a quantity, given as a string or a number.

    >>> canonical("1000m"), canonical("1024Mi"), canonical(0.5), canonical("1.5G")
    ('1', '1Gi', '500m', '1500M')

    Raises:
        QuantityError: it is not a quantity.
    """
    text = value if isinstance(value, str) else _number_text(value)
    return _canonical(text)


def amount(text: str) -> Decimal:
    """The number that a quantity stands for.

    Raises:
        QuantityError: it is not a quantity.
    """
    return _parse(text)[0]


def _number_text(value: Any) -> str:
    return str(value) if isinstance(value, (int, float)) else "?"


@functools.lru_cache(maxsize=4096)
def _canonical(text: str) -> str:
    number, form = _parse(text)
    with decimal.localcontext(prec=_PRECISION):
        return _formatted(text, number, form)


def _formatted(text: str, number: Decimal, form: str) -> str:
    if not number:
        return "0"
    if _is_already_canonical(text, form):
        return text
    if form == "binary" and (abs(number) < 1024 or number != number.to_integral_value()):
        form = "decimal"
    if form == "binary":
        whole, power = int(number), 0
        while whole % 1024 == 0 and power < 60:
            whole, power = whole // 1024, power + 10
        suffix = next((name for name, bits in _BINARY.items() if bits == power), "")
        return f"{whole}{suffix}"
    exponent = -9
    scaled = number.scaleb(9)
    while exponent < 18 and scaled % 1000 == 0:
        scaled, exponent = scaled / 1000, exponent + 3
    if form == "exponent":
        return f"{int(scaled)}e{exponent}" if exponent else str(int(scaled))
    return f"{int(scaled)}{_SUFFIXES[exponent]}"


_MOST_DIGITS: Final = 18


def _is_already_canonical(text: str, form: str) -> bool:
    """Whether the real server considers ``text`` canonical and keeps it."""
    shape = _SHAPE.fullmatch(text)
    assert shape is not None
    _, whole, fraction, suffix = shape.groups("")
    digits = (whole.lstrip("0") or "0") + fraction
    if form == "binary":
        bits = _BINARY[suffix]
        fits = 15 - len(digits) - int(bits * 3 / 10) - 1 >= 0
        return fits and not fraction and int(digits) & 7 != 0
    exponent = _EXPONENT.fullmatch(suffix)
    scale = int(exponent[1]) if exponent else _DECIMAL[suffix]
    scale -= len(fraction)
    return (
        len(digits) <= _MOST_DIGITS
        and scale >= -3
        and scale % 3 == 0
        and not digits.endswith("000")
        and digits[0] != "0"
    )


@functools.lru_cache(maxsize=4096)
def _parse(text: str) -> tuple[Decimal, str]:
    with decimal.localcontext(prec=_PRECISION):
        return _parse_uncached(text)


def _parse_uncached(text: str) -> tuple[Decimal, str]:
    shape = _SHAPE.fullmatch(text) if 0 < len(text) <= _LONGEST else None
    if shape is None:
        raise QuantityError(_MALFORMED)
    sign, whole, fraction, suffix = shape.groups("0")
    exponent = _EXPONENT.fullmatch(suffix)
    number = Decimal(f"{sign}{whole or 0}.{fraction or 0}")
    if suffix in _BINARY:
        form, number = "binary", number * 2 ** _BINARY[suffix]
    elif suffix in _DECIMAL:
        form, number = "decimal", number.scaleb(_DECIMAL[suffix])
    elif exponent and abs(int(exponent[1])) < 100:
        form, number = "exponent", number.scaleb(int(exponent[1]))
    else:
        raise QuantityError("unable to parse quantity's suffix")
    # The smallest unit is a billionth; smaller fractions are rounded away from zero.
    number = number.quantize(_SMALLEST, rounding=ROUND_UP)
    if form == "binary" and abs(number) > _MOST_BINARY:
        number = _MOST_BINARY.copy_sign(number)
    return number, form
