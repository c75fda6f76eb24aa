"""What options may be, checked where they are given; and ends that take no longer than they may."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from appsdk_operator.cache._delivery.event_source import Overflow
from appsdk_operator.resource import Kind, check_kind, check_namespace_name
from appsdk_operator.runtime import system_clock
from appsdk_operator.runtime.validation import (
    check_client,
    check_count,
    check_function,
    check_number,
    check_text,
    checked_seconds,
)

__all__ = [
    "check_client",
    "check_count",
    "check_function",
    "check_index",
    "check_indexes",
    "check_informer",
    "check_number",
    "check_overflow",
    "checked_seconds",
    "join_all",
    "kind_tuple",
]


def check_indexes(indexes: Mapping[Any, Any] | None) -> None:
    """Refuse indexes that are no functions by name."""
    if indexes is not None and not isinstance(indexes, Mapping):
        raise TypeError(f"indexes={indexes!r}: give a mapping of names to functions")
    for name, function in (indexes or {}).items():
        if not isinstance(name, str) or not callable(function):
            raise TypeError(
                f"indexes={{{name!r}: {function!r}}}: give functions by name, each from an object "
                "to the values under which it is found"
            )


def check_informer(
    kind: Kind,
    namespace: str,
    page_size: int,
    watch_timeout: tuple[float, float],
    silence_limit: float | None,
) -> None:
    """Refuse what no informer can do."""
    check_namespace_name(namespace)
    if not check_kind(kind).is_namespaced and namespace:
        raise ValueError(f"{kind} is cluster-scoped: leave namespace={namespace!r} out")
    check_count("page_size", page_size)
    if page_size < 0:
        raise ValueError(f"page_size={page_size}: use 0 for all at once, or more")
    try:
        low, high = watch_timeout
    except (TypeError, ValueError):
        raise TypeError(
            f"watch_timeout={watch_timeout!r}: give two numbers of seconds, (300.0, 600.0)"
        ) from None
    for seconds in (low, high):
        check_number("watch_timeout", seconds)
    if not 1 <= low <= high:
        raise ValueError(f"watch_timeout={watch_timeout}: use 1 <= low <= high seconds")
    if silence_limit is not None:
        check_number("silence_limit", silence_limit)
        if not silence_limit > 0:
            raise ValueError(f"silence_limit={silence_limit}: use more than 0 seconds")


def check_index(name: object, function: object) -> None:
    """Refuse an index that is no function by name."""
    check_text("name", name, empty=False)
    check_function("function", function, required=True)


def check_overflow(overflow: object) -> None:
    """Refuse what is no :class:`Overflow`, such as its value."""
    if not isinstance(overflow, Overflow):
        raise TypeError(f"overflow={overflow!r}: use Overflow.COALESCE or Overflow.BLOCK")


def kind_tuple(what: str, kinds: Iterable[Kind]) -> tuple[Kind, ...]:
    """``kinds`` as a tuple.

    Raises:
        TypeError: it is a single kind, or has what is none.
    """
    given: Any = kinds
    if isinstance(given, Kind):
        raise TypeError(f"{what}={given}: give a list of kinds, {what}=[kind]")
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{what}={given!r}: give a list of kinds")
    return tuple(check_kind(kind, what) for kind in kinds)


def join_all(joins: Sequence[Callable[[float], list[str]]], timeout: float, whose: str) -> None:
    """Wait for threads to end, for all of them together at most ``timeout`` seconds.

    Raises:
        TimeoutError: some still run; the text names them.
    """
    deadline = system_clock.monotonic() + timeout
    stuck = [name for join in joins for name in join(max(0.0, deadline - system_clock.monotonic()))]
    if stuck:
        raise TimeoutError(
            f"{whose} was stopped, but after {timeout:g} s these threads still run: "
            f"{', '.join(stuck)}. Let what they do end with the stop, or give them a longer "
            "stop_timeout"
        )
