"""Many parts of one call: all are run, and those that have succeeded are not repeated."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable
from typing import Any, Never, TypeVar, final, overload

from appsdk_operator.app._returned import is_async
from appsdk_operator.runtime import (
    add_note,
    call_memory,
    callback_name,
    current_stop,
    is_cancelled,
    safe_repr,
    settle,
)
from appsdk_operator.runtime.validation import no_awaitable

T = TypeVar("T")


@final
class Parts:
    """The parts of one function's call that have succeeded for one state of the object.

    The engine keeps one for each function and object from a failed call to its repetition; it is
    the memory of the call (:func:`~appsdk_operator.runtime.call_memory`). Calls for one object do
    not overlap, so there is no lock.
    """

    # Most calls have no parts, and there is one of these for each call.
    _done: set[tuple[Hashable, Hashable]] | None = None
    _asked: set[tuple[Hashable, Hashable]] | None = None

    @property
    def is_begun(self) -> bool:
        """Whether a part has succeeded."""
        return bool(self._done)

    def ask(self, part: tuple[Hashable, Hashable]) -> bool:
        """Whether it has succeeded in an earlier attempt.

        Raises:
            ValueError: it was asked in this call already, so it would be taken for another one.
        """
        if self._asked is None:
            self._asked = set()
        if part in self._asked:
            raise ValueError(
                f"each: the key {safe_repr(part[1])} was used in this call already, with the same "
                "function: give key=, with which the items of both calls have different keys"
            )
        self._asked.add(part)
        return self._done is not None and part in self._done

    def succeeded(self, part: tuple[Hashable, Hashable]) -> None:
        """It has succeeded."""
        if self._done is None:
            self._done = set()
        self._done.add(part)

    def begin(self) -> None:
        """An attempt begins."""
        self._asked = None


@overload
def each(  # type: ignore[overload-overlap]  # a coroutine is an object, too
    items: Iterable[T],
    function: Callable[[T], Awaitable[object]],
    *,
    key: Callable[[T], Hashable] | None = None,
) -> Coroutine[Any, Any, None]: ...
@overload
def each(
    items: Iterable[T],
    function: Callable[[T], object],
    *,
    key: Callable[[T], Hashable] | None = None,
) -> None: ...
def each(
    items: Iterable[T],
    function: Callable[[T], Any],
    *,
    key: Callable[[T], Hashable] | None = None,
) -> Coroutine[Any, Any, None] | None:
    """Call ``function`` for each item, even if it fails for another one.

        @app.on_add(BUCKET)
        def make(bucket: Object[BucketSpec]) -> None:
            each(bucket.spec.regions, lambda region: storage.make(region, bucket.name))

    If the App's function fails and the App retries it, ``each`` skips the items for which
    ``function`` has succeeded already. This ends when the App's function succeeds as a whole, or
    when the spec, labels or annotations of the object, or the fields of ``when=``, change; for a
    timer also when its interval is over. The memory ends with the process: after a restart
    ``each`` calls ``function`` for all items again. Outside of App functions, such as in a
    reconciler or in a test, it does so each time. Once the call has to end, as at its time limit,
    ``each`` calls no further item.

    Args:
        items: the items, in the order of the calls.
        function: is called with each item; its result is dropped. If it is ``async def``, await the
            result: ``await each(…)``.
        key: a function from an item to its key: unique among the items, and the same at the next
            attempt. Default: the item itself.

    Raises:
        ExceptionGroup: ``function`` failed for one item or more. The errors are in the order of the
            items, each with a note that has the key.
        ValueError: two items have the same key, in one call of ``each`` or in two with the same
            ``function`` within one call of the App's function; nothing is called.
        TypeError: an item without ``key``, or a key, cannot be hashed; nothing is called.
        concurrent.futures.CancelledError: the call has to end (:func:`current_stop`).

    >>> each(["a", "b"], print)
    a
    b
    """
    if not callable(function):
        raise TypeError(f"each(…, {function!r}): give a function of one item")
    # Once: a thread or task that outlives its call must not write to the memory of the next.
    parts = call_memory(Parts)
    todo = _todo(items, function, key, parts)
    if is_async(function):
        return _call_async(todo, function, parts)
    errors: list[Exception] = []
    stop = current_stop()
    for name, part, item in todo:
        if stop.is_set():
            _raise(errors, function)
            _raise_stopped(function)
        try:
            settle(function(item))
        except Exception as error:
            if is_cancelled(error):
                raise  # the call has to end
            errors.append(_noted(error, name))
        else:
            if parts is not None:
                parts.succeeded(part)
    _raise(errors, function)
    return None


async def _call_async(
    todo: list[Any], function: Callable[[Any], Awaitable[object]], parts: Parts | None
) -> None:
    errors: list[Exception] = []
    for name, part, item in todo:
        try:
            await function(item)
        except Exception as error:
            errors.append(_noted(error, name))
        else:
            if parts is not None:
                parts.succeeded(part)
    _raise(errors, function)


def _todo(
    items: Iterable[T],
    function: Callable[[T], Any],
    key: Callable[[T], Hashable] | None,
    parts: Parts | None,
) -> list[tuple[Hashable, tuple[Hashable, Hashable], T]]:
    """The items that are to be called, with their keys."""
    code = _code_of(function)
    found: dict[Hashable, T] = {}
    for item in items:
        name: Any = item if key is None else no_awaitable("each: key=", key(item))
        try:
            is_taken = name in found
        except TypeError as error:
            what = "a key" if key is not None else "an item"
            raise TypeError(
                f"each: {what} is a {type(name).__name__}, which cannot be hashed: give key=, a "
                "function from an item to its name"
            ) from error
        if is_taken:
            raise ValueError(
                f"each: two items have the key {safe_repr(name)}: give key=, with which they have "
                "different keys"
            )
        found[name] = item
    return [
        (name, (code, name), item)
        for name, item in found.items()
        if parts is None or not parts.ask((code, name))
    ]


def _raise_stopped(function: Callable[..., Any]) -> Never:
    from concurrent.futures import CancelledError

    raise CancelledError(f"{callback_name(function)}: the call has to end, and items are left")


def _code_of(function: Any) -> Hashable:
    """What is the same in all attempts, each of which may make the function, a closure, anew."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None)
    return callback_name(function) if code is None else code


def _noted(error: Exception, name: Hashable) -> Exception:
    add_note(error, f"each: {safe_repr(name)}")
    return error


def _raise(errors: list[Exception], function: Callable[..., Any]) -> None:
    if errors:
        of = f"{len(errors)} of the items failed" if len(errors) > 1 else "an item failed"
        raise ExceptionGroup(f"{callback_name(function)}: {of}", errors)
