"""What a reconcile's failure says about trying again."""

from __future__ import annotations

import math
from typing import Any

from appsdk_operator.cache import NotCachedError
from appsdk_operator.client import ApiError

__all__ = ["bug_in", "retry_after_of", "sole_error"]

_BUGS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    RecursionError,
    TypeError,
)


def sole_error(error: BaseException) -> BaseException:
    """``error``, or what is in it if it is a group of one, as task groups raise.

    >>> sole_error(ExceptionGroup("tasks", [ValueError("no")]))
    ValueError('no')
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def bug_in(error: BaseException) -> bool:
    """Whether ``error`` says that the program is wrong: what would be a panic in Go.

    >>> bug_in(KeyError("spec")), bug_in(SystemExit()), bug_in(ConnectionError("reset"))
    (True, True, False)
    """
    if isinstance(error, BaseExceptionGroup):
        return any(bug_in(inner) for inner in error.exceptions)
    if not isinstance(error, Exception):
        return True
    return isinstance(error, _BUGS) and not isinstance(error, NotCachedError)


def retry_after_of(error: BaseException) -> float:
    """The seconds after which the API server wants to be asked again; 0: it did not say."""
    seconds: Any = error.retry_after if isinstance(error, ApiError) else None
    return seconds if seconds is not None and math.isfinite(seconds) and seconds > 0 else 0.0
