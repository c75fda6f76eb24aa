"""Checks of user functions, and their names for logs."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from appsdk_operator.runtime.validation import check_callable, check_plain


def name_of(function: Any) -> str:
    """The name of ``function`` for logs and health texts."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__name__


def check_function(what: str, function: Any, *arguments: str) -> None:
    """Refuse what is not a function of ``arguments``.

    Raises:
        TypeError: it cannot be called so; the text says what to give.
    """

    def explain(mismatch: TypeError | None) -> str:
        wanted = f"give a function of ({', '.join(arguments)})"
        if mismatch is None:
            return f"{what}={function!r} cannot be called: {wanted}"
        return f"{what}={name_of(function)}{inspect.signature(function)}: {mismatch}: {wanted}"

    check_callable(what, function, *arguments, required=True, is_awaited=True, explain=explain)


def check_sync_function(what: str, function: Any, *arguments: str) -> None:
    """:func:`check_function`, which also refuses ``async def``.

    Raises:
        TypeError: as :func:`check_function`, or the function is async.
    """
    check_function(what, function, *arguments)
    check_plain(
        f"{what}={name_of(function)}",
        function,
        "but it is called for every event and must only use the event and memory, such as a cache "
        "(put work into the reconciler, or an async handler)",
    )
