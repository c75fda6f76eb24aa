"""Writes that are tried again when somebody else has changed the object meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from appsdk_operator.client import Conflict

__all__ = ["despite_conflicts"]

_T = TypeVar("_T")
_ATTEMPTS: Final = 10


def despite_conflicts(write: Callable[[], _T]) -> _T:
    """The result of ``write``, which reads the object anew for each of its ten attempts.

    A server's own controllers write conditions of new definitions, and some inject a ``caBundle``.

    Raises:
        Conflict: of the last attempt.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return write()
        except Conflict:
            continue
    return write()
