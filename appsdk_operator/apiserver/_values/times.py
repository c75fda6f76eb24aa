"""Times of RFC 3339, parsed as Go parses them and written in their canonical form."""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

__all__ = ["normalize_micro_time", "normalize_time"]

_SHAPE: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)([.,]\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII
)
_PARTS: Final = (
    ("2006", r"\d{4}"),
    ("-", "-"),
    ("01", r"\d\d"),
    ("-", "-"),
    ("02", r"\d\d"),
    ("T", "T"),
    ("15", r"\d\d"),
    (":", ":"),
    ("04", r"\d\d"),
    (":", ":"),
    ("05", r"\d\d"),
)
_LAYOUT: Final = "2006-01-02T15:04:05Z07:00"
_PRECISE_LAYOUT: Final = "2006-01-02T15:04:05.000000Z07:00"


def normalize_time(text: str) -> str:
    """A time in the canonical form of ``metav1.Time``: UTC, whole seconds.

    >>> normalize_time("2024-02-03T04:05:06.7+01:00")
    '2024-02-03T03:05:06Z'

    Raises:
        ValueError: it is not a time of RFC 3339. The text is Go's.
    """
    return _parse(text, _LAYOUT).strftime("%Y-%m-%dT%H:%M:%SZ")


def normalize_micro_time(text: str) -> str:
    """A time in the canonical form of ``metav1.MicroTime``: UTC, six digits of fractions.

    Raises:
        ValueError: it is not a time of RFC 3339 with microseconds. The text is Go's.
    """
    return _parse(text, _PRECISE_LAYOUT).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _parse(text: str, layout: str) -> dt.datetime:
    shape = _SHAPE.fullmatch(text)
    fractions = r"\.\d{6}(?!\d)" if layout == _PRECISE_LAYOUT else r"([.,]\d+)?"
    if shape is None or (layout == _PRECISE_LAYOUT and len(shape[7] or "") != 7):
        raise ValueError(_complaint(text, layout, fractions))
    *numbers, fraction, zone = shape.groups()
    year, month, day, hour, minute, sec = map(int, numbers)
    micros = int((fraction or ".0")[1:7].ljust(6, "0"))
    try:
        found = dt.datetime(year, month, day, hour, minute, sec, micros, tzinfo=dt.UTC)
    except ValueError as error:
        # Python names the part first, as Go does: "day is out of range …", "month must be …".
        part = str(error).split()[0]
        raise ValueError(f'parsing time "{text}": {part} out of range') from None
    if zone != "Z":
        shift = dt.timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
        found = found + shift if zone[0] == "-" else found - shift
    return found


def _complaint(text: str, layout: str, fractions: str) -> str:
    rest = text
    for part, pattern in (*_PARTS, (".000000", fractions), ("Z07:00", r"Z|[+-]\d\d:\d\d")):
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            # Go names the part of the layout that did not match.
            return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{part}"'
        rest = rest[match.end() :]
    return f'parsing time "{text}": extra text: "{rest}"'
