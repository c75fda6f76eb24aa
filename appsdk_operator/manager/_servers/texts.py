"""Durations, sizes, moments and names as the live page and its verdict show them."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterable


def seconds_text(seconds: float | None) -> str:
    """A duration in few characters; ``""`` for None.

    >>> [seconds_text(each) for each in (0.0004, 0.0042, 3.21, 75, 7300, 200000)]
    ['< 1 ms', '4 ms', '3.2 s', '1 min 15 s', '2 h 1 min', '2 d 7 h']
    """
    if seconds is None or not math.isfinite(seconds):
        return ""
    seconds = max(0.0, seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.001 else "< 1 ms"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    for size, name, smaller, small in ((86400, "d", 3600, "h"), (3600, "h", 60, "min")):
        if whole >= size:
            return f"{whole // size} {name} {whole % size // smaller} {small}"
    return f"{whole // 60} min {whole % 60} s"


def bytes_text(count: float) -> str:
    """A number of bytes in few characters.

    >>> [bytes_text(each) for each in (0, 1500, 2_500_000)]
    ['0 B', '1.5 KB', '2.5 MB']
    """
    for size, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "KB")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count:.0f} B"


def moment(time: float, now: float) -> str:
    """A time since 1970 as the hour, with the date if it is another day's.

    >>> moment(50520.0, 50600.0), moment(50520.0, 200000.0)
    ('14:02 UTC', '1970-01-01 14:02 UTC')
    """
    one, other = (dt.datetime.fromtimestamp(each, dt.UTC) for each in (time, now))
    return one.strftime("%H:%M UTC" if one.date() == other.date() else "%Y-%m-%d %H:%M UTC")


def short_names(names: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Names without the operator's, and without the API group where they stay distinct.

    >>> short_names(["shop/tenants.example.com", "shop/keys.a.com", "keys.b.com"], "shop")
    {'shop/tenants.example.com': 'tenants', 'shop/keys.a.com': 'keys.a.com', \
'keys.b.com': 'keys.b.com'}
    """
    names = list(dict.fromkeys(names))
    bare = {name: name.removeprefix(f"{prefix}/") if prefix else name for name in names}
    heads = Counter(each.partition(".")[0] for each in bare.values())
    return {
        name: head if (head := each.partition(".")[0]) and heads[head] == 1 else each
        for name, each in bare.items()
    }
