"""The values of ``format`` in a schema, and their checks. Any string fits an unknown format."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import ipaddress
import re
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

__all__ = ["decode_base64", "is_checked", "is_known", "is_valid"]

_DATE_TIME: Final = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:?\d\d)?")
_DURATION: Final = re.compile(r"[-+]?((\d+(\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h))+|[-+]?0")
# Beside Go's durations anything with a number before a word for a unit, such as PT90S.
# It begins at the first digit of a number only, so that the time grows with the length alone.
_AMOUNT: Final = re.compile(r"(?<![0-9])([0-9]++)[ \t\n\f\r]*([A-Za-zµ]+)")
_UNIT: Final = re.compile(
    r"(ns|nano.*|us|µs|micro.*|ms|milli.*|s|sec.*|m|min.*|h|hr|hour.*|d|day.*|w|wk|week.*)"
)
_HOSTNAME: Final = re.compile(
    r"(?=.{1,253}$)[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?"
    r"(\.[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*\.?"
)
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+")
_UUID: Final = re.compile(r"(?i)[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}")
_MAC: Final = re.compile(r"(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5}")
_HEX_COLOR: Final = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")

_KNOWN_FORMATS: Final = (
    *("bsonobjectid", "byte", "cidr", "creditcard", "date", "datetime", "duration", "email"),
    *("hexcolor", "hostname", "ipv4", "ipv6", "isbn", "isbn10", "isbn13", "k8slongname"),
    *("k8sshortname", "mac", "password", "rgbcolor", "ssn", "uri", "uuid", "uuid3", "uuid4"),
    "uuid5",
)


def is_known(name: str) -> bool:
    """Whether Kubernetes knows this format. It ignores others."""
    return name.replace("-", "") in _KNOWN_FORMATS


def is_checked(name: str) -> bool:
    """Whether :func:`is_valid` has a check for this format."""
    return name in _CHECKS


def is_valid(name: str, value: str) -> bool:
    """Whether ``value`` has the format ``name``."""
    check = _CHECKS.get(name)
    if check is None:
        return True
    try:
        return check(value)
    except ValueError:
        return False


def _is_duration(value: str) -> bool:
    if _DURATION.fullmatch(value):
        return True
    amounts = _AMOUNT.findall(value)
    numbers = [number.lstrip("0") or "0" for number, _ in amounts]
    if any(len(number) > 19 or int(number) >= 2**63 for number in numbers):
        return False
    return any(_UNIT.fullmatch(unit.lower()) for _, unit in amounts)


def _is_date_time(value: str) -> bool:
    if not _DATE_TIME.fullmatch(value):
        return False
    # Seconds may be 60 in RFC 3339, and Python reads six digits of a fraction only.
    dt.datetime.fromisoformat(value[:17].upper() + "00")
    return int(value[17:19]) <= 60


def _is_date(value: str) -> bool:
    return len(value) == 10 and bool(dt.date.fromisoformat(value))


def decode_base64(value: str) -> bytes:
    """Decode a string of the format ``byte``.

    Raises:
        ValueError: it is not base64.
    """
    return base64.b64decode(value, validate=True)


def _is_base64(value: str) -> bool:
    try:
        decode_base64(value)
    except binascii.Error:
        return False
    return True


def _is_cidr(value: str) -> bool:
    return "/" in value and bool(ipaddress.ip_network(value, strict=False))


def _is_uri(value: str) -> bool:
    return bool(urlsplit(value).scheme) or value.startswith("/")


_CHECKS: Final[dict[str, Callable[[str], bool]]] = {
    "byte": _is_base64,
    "cidr": _is_cidr,
    "date": _is_date,
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": lambda value: bool(_EMAIL.fullmatch(value)),
    "hexcolor": lambda value: bool(_HEX_COLOR.fullmatch(value)),
    "hostname": lambda value: bool(_HOSTNAME.fullmatch(value)),
    "ipv4": lambda value: bool(ipaddress.IPv4Address(value)) or True,
    "ipv6": lambda value: bool(ipaddress.IPv6Address(value)) or True,
    "mac": lambda value: bool(_MAC.fullmatch(value)),
    "uri": _is_uri,
    "uuid": lambda value: bool(_UUID.fullmatch(value)),
}
