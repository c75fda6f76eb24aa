"""Durations as people read them."""

from __future__ import annotations


def duration_text(seconds: float) -> str:
    """``seconds`` with three digits at most, in the unit that suits.

    >>> duration_text(0.00515), duration_text(5), duration_text(160), duration_text(1000)
    ('5.2 ms', '5 s', '160 s', '16.7 min')
    """
    if 0 < seconds < 0.9995:
        return f"{seconds * 1000:.{2 if seconds < 0.01 else 3}g} ms"
    if seconds < 600:
        return f"{seconds:.3g} s"
    minutes = seconds / 60
    return f"{minutes:.3g} min" if minutes < 120 else f"{minutes / 60:.3g} h"
