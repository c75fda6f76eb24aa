"""Argument checks of the room's constructors and add methods."""

from __future__ import annotations

import inspect
from types import FunctionType

from appsdk_operator.controllers import check_ignored_result
from appsdk_operator.resource import Kind
from appsdk_operator.runtime.validation import check_callable, check_count


def check_argument_order(method: str, what: str, given: object, kind: object) -> None:
    """Refuse swapped arguments.

    Raises:
        TypeError: the kind comes first.
    """
    if isinstance(given, (str, Kind)) and not isinstance(kind, (str, Kind, type(None))):
        raise TypeError(
            f"{method}({given}, {what}): the two are swapped, write {method}({what}, {given})"
        )


def check_calls(
    workers: object, retry_policy: object, retry_dequeue_policy: object, error_handler: object
) -> None:
    """Check how watchers are called, and when again.

    Raises:
        TypeError, ValueError: an option that cannot be used; the text says what to do.
    """
    check_count("workers", workers, 1)
    check_callable("retry_policy", retry_policy, "error", "attempt")
    check_callable(
        "retry_dequeue_policy",
        retry_dequeue_policy,
        *("new_action", "new_object", "retry_action", "retry_object", "retry_error"),
    )
    check_callable("error_handler", error_handler, "error", "call")


def checked_kind(kind: str | Kind) -> str:
    if not isinstance(kind, (str, Kind)):
        raise TypeError(f"kind={kind!r}: name the kind with a Kind or a string")
    text = str(kind)
    if not text:
        raise ValueError("kind='': name the kind that connects informers with watchers")
    return text


def check_cache(cache: object, kind: object) -> None:
    if not isinstance(kind, Kind):
        raise TypeError(f"kind={kind!r} is not a Kind: name the kind whose objects the cache keeps")
    if not callable(getattr(cache, "add_event_handler", None)) or isinstance(cache, type):
        raise TypeError(f"cache={cache!r} is not a cache: give one, or add an informer")


def check_watcher(watcher: object) -> None:
    methods = {"add": ("obj",), "update": ("old", "new"), "delete": ("obj",)}
    missing = [name for name in methods if not callable(getattr(watcher, name, None))]
    if missing and callable(getattr(watcher, "reconcile", None)):
        raise TypeError(f"watcher={watcher!r} is a reconciler: give it to add_reconciler")
    if missing:
        raise TypeError(
            f"watcher={watcher!r} is not a watcher: it has no method {' and no '.join(missing)}; "
            "add it, or make a watcher from functions with SimpleWatcher"
        )
    if isinstance(watcher, type) and any(
        isinstance(inspect.getattr_static(watcher, name), FunctionType) for name in methods
    ):
        raise TypeError(f"watcher={watcher!r} is a class: add an instance, {watcher.__name__}(…)")
    for name, arguments in methods.items():
        method = getattr(watcher, name)
        check_callable(f"watcher.{name}", method, *arguments, is_awaited=True)
    check_callable("watcher.concerns", getattr(watcher, "concerns", None), "old", "new")


def check_returned(watcher: object, returned: object) -> None:
    """Refuse a return value that would be ignored although the watcher means something by it.

    Raises:
        TypeError: it is a Result or an error; the text says what to do instead.
    """
    check_ignored_result(
        f"watcher {watcher!r}",
        returned,
        "raise an error, or RetryAfter(seconds) to be called again; or make it a reconciler, "
        "whose Result counts",
    )
