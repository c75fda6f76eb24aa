"""Times of RFC 3339 and durations, parsed as Go parses them; the canonical form of times."""

from __future__ import annotations

import datetime as dt
import functools
import re
from typing import Final

from appsdk_operator.apiserver._values.go_text import go_quote

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


@functools.lru_cache(maxsize=1024)  # most objects of a moment have the same times
def normalize_time(text: str) -> str | None:
    """A time in the canonical form of ``metav1.Time``: UTC, whole seconds; None for Go's zero time.

    >>> normalize_time("2024-02-03T04:05:06.7+01:00")
    '2024-02-03T03:05:06Z'

    Raises:
        ValueError: it is not a time of RFC 3339. The text is Go's.
    """
    found = parse_time(text)
    return None if found == ZERO else f"{_written(found)}Z"


@functools.lru_cache(maxsize=1024)
def normalize_micro_time(text: str) -> str | None:
    """A time in the canonical form of ``metav1.MicroTime``: UTC, six digits of fractions.

    Raises:
        ValueError: it is not a time of RFC 3339 with microseconds. The text is Go's.
    """
    found = parse_time(text, _PRECISE_LAYOUT)
    return None if found == ZERO else f"{_written(found)}.{found % 10**9 // 1000:06d}Z"


# Python has the years 1 to 9999, Go has others. The calendar repeats after 400 years.
_ERA: Final = 146_097
_START: Final = dt.date(2000, 1, 1).toordinal()
_EPOCH: Final = dt.date(1970, 1, 1).toordinal()
ZERO: Final = (1 - _EPOCH) * 86_400 * 10**9
"""Go's zero time, as :func:`parse_time` returns it."""


def parse_time(text: str, layout: str = _LAYOUT) -> int:
    """Parse a time of RFC 3339 to nanoseconds since the Unix epoch.

    Raises:
        ValueError: it is not a time. The text is Go's.
    """
    shape = _SHAPE.fullmatch(text)
    fractions = r"\.\d{6}(?!\d)" if layout == _PRECISE_LAYOUT else r"([.,]\d+)?"
    if shape is None or (layout == _PRECISE_LAYOUT and len(shape[7] or "") != 7):
        raise ValueError(_complaint(text, layout, fractions))
    *numbers, fraction, zone = shape.groups()
    year, month, day, hour, minute, sec = map(int, numbers)
    try:
        at = dt.datetime(2000 + year % 400, month, day, hour, minute, sec, tzinfo=dt.UTC)
    except ValueError as error:
        # Python names the part first, as Go does: "day is out of range …", "month must be …".
        part = str(error).split()[0]
        raise ValueError(f'parsing time "{text}": {part} out of range') from None
    shift = 0
    if zone != "Z":
        hours, minutes = int(zone[1:3]), int(zone[4:6])
        if hours > 24 or minutes > 60:
            part = "hour" if hours > 24 else "minute"
            raise ValueError(f'parsing time "{text}": time zone offset {part} out of range')
        shift = (hours * 60 + minutes) * (-60 if zone[0] == "-" else 60)
    days = at.toordinal() + (year // 400 - 5) * _ERA - _EPOCH
    seconds = days * 86_400 + hour * 3600 + minute * 60 + sec - shift
    return seconds * 10**9 + int((fraction or ".0")[1:10].ljust(9, "0"))


def _written(nanoseconds: int) -> str:
    """The date and the time of day, to the second."""
    days, second = divmod(nanoseconds // 10**9, 86_400)
    eras, day = divmod(days + _EPOCH - _START, _ERA)
    date = dt.date.fromordinal(_START + day)
    year = date.year + 400 * eras
    hours = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
    return f"{'-' if year < 0 else ''}{abs(year):04d}-{date:%m-%d}T{hours}"


def _complaint(text: str, layout: str, fractions: str) -> str:
    rest = text
    for part, pattern in (*_PARTS, (".000000", fractions), ("Z07:00", r"Z|[+-]\d\d:\d\d")):
        match = re.match(pattern, rest, re.ASCII)
        if match is None:
            # Go names the part of the layout that did not match.
            return f'parsing time "{text}" as "{layout}": cannot parse "{rest}" as "{part}"'
        rest = rest[match.end() :]
    return f'parsing time "{text}": extra text: "{rest}"'


_PART: Final = re.compile(r"([0-9]*+)(?:\.([0-9]*+))?([^.0-9]++)")
_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}


def parse_duration(text: str) -> int:
    """Parse a duration such as ``1h30m`` to nanoseconds, as Go's ``time.ParseDuration`` does.

    >>> parse_duration("-1.5s")
    -1500000000

    Raises:
        ValueError: it is not a duration, or too long for 64 bits. The text is Go's.
    """
    sign = -1 if text[:1] == "-" else 1
    rest = text[1:] if text[:1] in ("-", "+") else text
    total = position = 0
    while position < len(rest) and rest != "0":
        part = _PART.match(rest, position)
        whole, fraction, unit = part.groups() if part else ("", None, "")
        if unit not in _UNITS or not (whole or fraction):
            break
        digits, factor = whole.lstrip("0"), _UNITS[unit]
        # Beyond 18 digits Go ignores the rest of a fraction, and 20 are too many before it.
        total += int(digits[:20] or "0") * factor
        if fraction:
            total += int(int(fraction[:18]) * (factor / 10 ** len(fraction[:18])))
        position = part.end() if part else position
    if (position < len(rest) and rest != "0") or not rest or not -(2**63) <= sign * total < 2**63:
        raise ValueError(f"time: invalid duration {go_quote(text)}")
    return sign * total
