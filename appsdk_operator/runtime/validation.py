"""Checks of arguments, so that errors appear at the call and not at the first use.

Each checker takes the name of the argument first, so that the error says which one it is.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from types import FunctionType, MethodType
from typing import Any, Final, TypeVar

__all__ = [
    "FALLBACK_DELAY",
    "check_callable",
    "check_choice",
    "check_client",
    "check_count",
    "check_environment",
    "check_flag",
    "check_function",
    "check_instance",
    "check_number",
    "check_plain",
    "check_text",
    "check_wait",
    "checked_limit",
    "checked_seconds",
    "checked_texts",
    "no_awaitable",
    "retry_delay",
]

_T = TypeVar("_T")

_ASYNC = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_MOST_BITS = 1023
"""Of a whole number that is sure to fit a float."""


def check_callable(
    name: str,
    function: Any,
    *arguments: str,
    required: bool = False,
    is_awaited: bool = False,
    explain: Callable[[TypeError | None], str] | None = None,
) -> None:
    """Refuse a value that cannot be called with ``arguments``; None passes unless ``required``.

    Callables without a signature pass; some of those written in C have none.

    Args:
        name: the option, for the error text.
        function: what will be called.
        arguments: the names of its positional arguments.
        required: refuse None too.
        is_awaited: whether it may be ``async def``.
        explain: makes the error text, from the mismatch or from None for what is not callable;
            default: "name=... is not a function of (...)", and the mismatch.

    Raises:
        TypeError: it cannot be called so.
    """
    if function is None and not required:
        return
    if not is_awaited:
        check_plain(name, function)
    mismatch: TypeError | None = None
    if _takes(function, len(arguments)):
        return
    if callable(function):
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return
        try:
            signature.bind(*arguments)
        except TypeError as error:
            mismatch = error
        else:
            return
    if explain is not None:
        raise TypeError(explain(mismatch))
    text = f"{name}={function!r} is not a function of ({', '.join(arguments)})"
    raise TypeError(text if mismatch is None else f"{text}: {mismatch}")


def _takes(function: Any, count: int) -> bool:
    """Whether a function or method takes that many positional arguments, for all that is simple.

    A signature says it of any callable, and takes far longer to make.
    """
    if type(function) is MethodType:
        function, count = function.__func__, count + 1
    # An attribute may change its signature.
    if type(function) is not FunctionType or function.__dict__:
        return False
    code, defaults = function.__code__, function.__defaults__ or ()
    return (
        code.co_argcount - len(defaults) <= count <= code.co_argcount and not code.co_kwonlyargcount
    )


def check_function(
    name: str, function: object, *, required: bool = False, is_awaited: bool = False
) -> None:
    """Refuse a value that cannot be called; None passes unless it is ``required``.

    Raises:
        TypeError: the text says what to give; also for ``async def``, unless it ``is_awaited``.
    """
    if function is None and not required:
        return
    if not is_awaited:
        check_plain(name, function)
    if callable(function):
        return
    raise TypeError(
        f"{name}={function!r}: give a function" + ("" if required else ", or leave it out")
    )


def check_plain(name: str, function: Any, hint: str = "but its result is used at once") -> None:
    """Refuse ``async def``, where nothing would await it.

    Raises:
        TypeError: it is async; ``hint`` says why it must not be.
    """
    plain = function.__func__ if type(function) is MethodType else function
    if type(plain) is FunctionType and not plain.__dict__:
        is_async = bool(plain.__code__.co_flags & _ASYNC)
    else:
        is_async = _is_async(function)
    if is_async:
        raise TypeError(f"{name} is async, {hint}: make it a plain function")


def _is_async(function: Any) -> bool:
    return any(
        test(each)
        for test in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        for each in (function, getattr(function, "__call__", None))  # noqa: B004 - to inspect it
    )


def no_awaitable(what: str, value: _T) -> _T:
    """The result; refuses an awaitable, for example of a lambda that calls an async function.

    Raises:
        TypeError: it is awaitable.
    """
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # an unawaited coroutine causes a warning
        raise TypeError(f"{what} returned {type(value).__name__}: make it a plain function")
    return value


FALLBACK_DELAY: Final = 10.0
"""Seconds until the retry of a failed call where the retry policy fails itself."""


def retry_delay(what: str, answer: Any) -> float | None:
    """The answer of a retry policy: seconds, or None for no retry.

    Raises:
        TypeError: it cannot be seconds: a timedelta, an object.
        ValueError: it is text that is no number, or below 0, infinite or NaN.
    """
    if no_awaitable(what, answer) is None:
        return None
    if callable(getattr(answer, "total_seconds", None)):
        raise TypeError(f"{what} returned {answer!r}: return its total_seconds()")
    seconds = float(answer)
    if not 0 <= seconds < math.inf:
        raise ValueError(
            f"{what} returned {answer!r}: return seconds from 0 up, or None for no retry"
        )
    return seconds


def check_number(name: str, seconds: object, *, example: bool = True) -> None:
    """Check that ``seconds`` is a number, not text or a timedelta.

    Args:
        name: the option, for the error text.
        seconds: the value.
        example: whether the text has an example; without one it shows how to convert a timedelta.

    Raises:
        TypeError: the text shows how to give them.
        ValueError: it is greater than any time, and no float.
    """
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool):
        if isinstance(seconds, int) and seconds.bit_length() > _MOST_BITS:
            raise ValueError(f"{name} has {seconds.bit_length()} bits: give fewer seconds")
        return
    hint = f", for example {name}=30.0" if example else ""
    if not example and callable(getattr(seconds, "total_seconds", None)):
        hint = ", with .total_seconds()"
    raise TypeError(f"{name}={seconds!r}: give seconds as a number{hint}")


def check_client(client: object, *methods: str, option: str = "client") -> None:
    """Check that ``client`` has ``methods``, which a ClientConfig has not.

    Raises:
        TypeError: the text says what to give.
    """
    missing = [name for name in methods if not callable(getattr(client, name, None))]
    if missing or isinstance(client, type):
        raise TypeError(f"{option}={client!r} is not a client: give one, such as Client(config)")


def check_count(name: str, count: object, least: int | None = None) -> None:
    """Check that ``count`` is a whole number, and not below ``least``.

    Raises:
        TypeError, ValueError: the text says what to give.
    """
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name}={count!r}: give a whole number")
    if least is not None and count < least:
        raise ValueError(f"{name}={count}: use {least} or more")


def check_choice(name: str, value: object, *choices: str) -> None:
    """Check that ``value`` is None or one of ``choices``.

    Raises:
        ValueError: the text lists them.
    """
    if value is not None and not (isinstance(value, str) and value in choices):
        raise ValueError(f"{name}={value!r}: use {', '.join(map(repr, choices))} or None")


def check_environment(
    *,
    clock: object = None,
    metrics: object = None,
    rng: object = None,
    stop: object = None,
) -> None:
    """Check clock, metrics, random source and stop signal, as far as they are given.

    Raises:
        TypeError: the text shows what to give.
    """
    for name, value, methods, example in (
        (
            "clock",
            clock,
            ("monotonic", "time", "wait"),
            "system_clock, or in tests ManualClock()",
        ),
        ("metrics", metrics, ("counter", "gauge", "add_source"), "Metrics()"),
        ("rng", rng, ("random", "uniform"), "random.Random(7)"),
        ("stop", stop, ("is_set", "wait", "on_set"), "StopSignal()"),
    ):
        if value is not None and (
            isinstance(value, type)
            or not all(callable(getattr(value, method, None)) for method in methods)
        ):
            kind = {"rng": "Random", "stop": "StopSignal"}.get(name, name.capitalize())
            raise TypeError(f"{name}={_short(value)} is not of type {kind}: give {example}")


def check_flag(name: str, value: object) -> None:
    """Check that ``value`` is True or False, and not, for example, the text ``"false"``.

    Raises:
        TypeError: the text says what to give.
    """
    if not isinstance(value, bool):
        raise TypeError(f"{name}={value!r}: give True or False")


def check_text(name: str, value: object, *, empty: bool = True) -> None:
    """Check that ``value`` is text, and unless ``empty`` that it is not ``""``.

    Raises:
        TypeError, ValueError: the text says what to give.
    """
    if not isinstance(value, str):
        raise TypeError(f"{name}={value!r}: give text")
    if not value and not empty:
        raise ValueError(f"{name}='': give some text")


def check_instance(name: str, value: object, wanted: type, example: str) -> None:
    """Check that ``value`` is an instance of ``wanted``, and not the class itself.

    Raises:
        TypeError: the text shows how to get one. It does not show the parts of the value.
    """
    if isinstance(value, wanted):
        return
    given = f"the class {value.__qualname__}" if isinstance(value, type) else _short(value)
    raise TypeError(
        f"{name}={given} is not of type {wanted.__name__}: give one, for example {example}"
    )


def check_wait(stop: object, timeout: object) -> None:
    """Check a stop signal, and a time-out in seconds or None.

    Raises:
        TypeError, ValueError: the text says what to give.
    """
    if stop is None:
        raise TypeError("stop=None is not a StopSignal: give StopSignal()")
    check_environment(stop=stop)
    if timeout is not None:
        check_number("timeout", timeout)
        if timeout != timeout:
            raise ValueError("timeout=nan: give seconds, or None for no limit")


def checked_seconds(name: str, seconds: float) -> float:
    """Return ``seconds`` after a check that they are finite and not negative."""
    check_number(name, seconds)
    if not (math.isfinite(seconds) and seconds >= 0):
        hint = "use 0 for never, or seconds" if name == "resync" else "use 0 or more seconds"
        raise ValueError(f"{name}={seconds}: {hint}")
    return seconds


def checked_limit(name: str, seconds: float | None) -> float | None:
    """Return ``seconds``, a time limit, after a check; None is no limit.

    Raises:
        TypeError: it is not a number.
        ValueError: it is not above 0, or not finite.
    """
    if seconds is None:
        return None
    check_number(name, seconds)
    if not (math.isfinite(seconds) and seconds > 0):
        raise ValueError(f"{name}={seconds}: give more than 0 seconds, or None for no limit")
    return float(seconds)


def checked_texts(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return ``values`` as a tuple of texts; a single text is refused.

    Raises:
        TypeError: the text says what to give.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{name}={values!r}: give a list of texts")
    given = tuple(values)
    for value in given:
        if not isinstance(value, str):
            raise TypeError(f"{name}: {value!r} in it is not text")
    return given


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{type(value).__name__}(…)"
