"""The memory that an operator needs, by what its informers hold. Pure."""

from __future__ import annotations

import math
from typing import Final

__all__ = ["memory_limit"]

_PROCESS: Final = 33.4e6
"""Bytes of a process with an informer and a watcher, without objects: docs/performance.md."""
_PER_OBJECT: Final = 550
"""Bytes that an object takes beyond its JSON: a line through the table of docs/performance.md."""
_ROOM: Final = 0.9
"""The share of the limit that is used, as in that table."""
_STEP: Final = 32
_MIB: Final = 1 << 20


def memory_limit(objects: int, object_size: int, extra: int = 0) -> int:
    """The memory limit of a container, in MiB, in steps of 32.

    Args:
        objects: the objects that its informers hold.
        object_size: their size, in bytes of JSON.
        extra: MiB for what the operator's own functions import and keep.

    >>> memory_limit(35_000, 2_000)
    160
    """
    needed = (_PROCESS + objects * (object_size + _PER_OBJECT)) / _ROOM + extra * _MIB
    return math.ceil(needed / _MIB / _STEP) * _STEP
