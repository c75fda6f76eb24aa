"""What declared functions return: a coroutine, nothing, or a result."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from appsdk_operator.controllers import check_ignored_result
from appsdk_operator.runtime import callback_name, settle


def returning_nothing(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` with a check of what it returns, which would be dropped silently.

    The value of a lambda may be a by-product, such as that of ``dict.pop``.
    """
    name = callback_name(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> None:
        returned = function(*arguments)
        if returned is not None:
            check_nothing(name, settle(returned))

    call.__qualname__ = name
    return call


def nothing_of(function: Callable[..., Any]) -> Callable[[Any], None]:
    """The check of :func:`returning_nothing`, for who calls ``function`` itself."""
    name = callback_name(function)
    return lambda returned: check_nothing(name, settle(returned))


def returning_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, whose value is written to the object, with a check that it is a value."""
    name = callback_name(function)

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        returned = settle(function(*arguments))
        check_ignored_result(
            name,
            returned,
            "return the value of result=, and raise RetryAfter(seconds) to be called again",
        )
        return returned

    call.__qualname__ = name
    return call


def check_nothing(name: str, returned: object) -> None:
    """Check what a function has returned.

    Raises:
        TypeError: anything; the text says what to do instead.
    """
    if returned is None:
        return
    check_ignored_result(
        name, returned, "raise an error, or RetryAfter(seconds) to be called again"
    )
    if not name.endswith("<lambda>"):
        # Not the value: it may be a Secret's content.
        raise TypeError(
            f"{name} returned {type(returned).__name__}, which an App drops: return None, or give "
            "the decorator result='status.…' to have it written; to be called again raise "
            "RetryAfter(seconds)"
        )


def is_async(function: Any) -> bool:
    """Whether calling the function makes a coroutine."""
    while isinstance(function, functools.partial):
        function = function.func
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - of an object, which may be async
    )
