"""The boundary to user code: its exceptions, and calls of it whose errors end nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from appsdk_operator.runtime._logs.texts import is_interrupt, safe_repr
from appsdk_operator.runtime._logs.tracebacks import with_class
from appsdk_operator.runtime.validation import FALLBACK_DELAY, no_awaitable, retry_delay


def as_exception(what: str, error: BaseException, *, for_main_thread: bool = True) -> Exception:
    """An error of user code as an Exception: ``SystemExit`` and its like become a RuntimeError.

    They would end a thread of the kit silently. An error whose ``__class__`` cannot be read becomes
    a RuntimeError, too.

    Args:
        what: what raised it, for the text.
        error: what was raised.
        for_main_thread: raise others than Exceptions again in the main thread, for which they are
            meant: there a test runs single steps, and Ctrl-C ends it.

    Raises:
        BaseException: ``error``, as described.
    """
    error = with_class(error)
    if isinstance(error, Exception):
        return error
    if for_main_thread and threading.current_thread() is threading.main_thread():
        raise error
    failure = RuntimeError(f"{what} raised {safe_repr(error)}")
    failure.__cause__ = error
    return failure


def guarded_call(
    what: str,
    function: Callable[..., Any],
    *args: Any,
    failed: Callable[[Exception], object],
    check: Callable[[Any], Any] | None = None,
) -> Any:
    """Call a function of the user's; whatever it raises or returns, its caller goes on.

    Args:
        what: the function, for texts: ``on_new_leader``.
        function: the function, which is not ``async``.
        args: its arguments.
        failed: is called with its error, within the ``except`` clause: it reports the error. What
            it returns is returned.
        check: converts the value, within the guard: a value of the user's may raise when it is
            asked for its truth.

    Raises:
        KeyboardInterrupt: in the main thread, for which Ctrl-C is meant.

    >>> guarded_call("a check", lambda: 1 / 0, failed=lambda error: "no")
    'no'
    """
    try:
        value = function(*args)
        if value is not None:
            value = no_awaitable(what, value)
        return value if check is None else check(value)
    except BaseException as raised:
        if is_interrupt(raised):
            raise
        return failed(as_exception(what, raised, for_main_thread=False))


def asked_delay(
    what: str,
    policy: Callable[[Exception, int], Any],
    error: Exception,
    attempt: int,
    *,
    failed: Callable[[Exception], object],
) -> float | None:
    """The answer of a retry policy: seconds, or None for no retry; ten seconds where it fails.

    Args:
        what: the option, for texts.
        policy: the policy.
        error: what the call raised.
        attempt: the number of the attempt that failed, from 0.
        failed: reports an error of the policy, as for :func:`guarded_call`.
    """

    def report(raised: Exception) -> float:
        failed(raised)
        return FALLBACK_DELAY

    delay: float | None = guarded_call(
        what, policy, error, attempt, failed=report, check=lambda value: retry_delay(what, value)
    )
    return delay
