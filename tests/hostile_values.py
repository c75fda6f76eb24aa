"""What users' functions may return to whoever called them, and what they may do instead."""

from __future__ import annotations

import decimal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, NoReturn

from tests.hostile_errors import HOSTILE_ERRORS

__all__ = ["HOSTILE_VALUES", "MISBEHAVIOURS", "Misbehaving"]


def _refuse(*_: object) -> NoReturn:
    raise RuntimeError("nobody may ask")


def _exit(*_: object) -> NoReturn:
    raise SystemExit(3)


class NoTruth:
    """Has neither truth, length nor equality, and cannot be gone through."""

    __bool__ = __len__ = __eq__ = __hash__ = __iter__ = __getitem__ = _refuse  # type: ignore[assignment]
    __float__ = __index__ = __lt__ = __le__ = __gt__ = __ge__ = _refuse
    __repr__ = __str__ = __format__ = _refuse


class ExitsAtItsTruth:
    """Ends the program when somebody asks for its truth or goes through it."""

    __bool__ = __len__ = __eq__ = __iter__ = __float__ = __le__ = _exit  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


class NoAttributes:
    """Has no attribute, not even a class."""

    __getattribute__ = _refuse  # type: ignore[assignment]


class HostileText(str):
    """A text that cannot be compared or shown."""

    __slots__ = ()
    __eq__ = __hash__ = __str__ = __repr__ = __format__ = _refuse  # type: ignore[assignment]


async def _coroutine() -> int:
    return 1


def _generator() -> Iterator[int]:
    yield 1


def _endless() -> Iterator[object]:
    yield from ()
    raise SystemExit(3)


async def _async_generator() -> AsyncIterator[int]:
    yield 1


class AwaitedInVain:
    """Raises when it is awaited."""

    __await__ = _refuse


HOSTILE_VALUES: dict[str, Callable[[], Any]] = {
    "a coroutine": _coroutine,
    "a generator": _generator,
    "a generator that exits": _endless,
    "an async generator": _async_generator,
    "an awaitable that raises": AwaitedInVain,
    "no truth": NoTruth,
    "an exit at its truth": ExitsAtItsTruth,
    "no attributes": NoAttributes,
    "a hostile text": lambda: HostileText("text"),
    "a list of hostile ones": lambda: [NoTruth(), HostileText("text"), NoAttributes(), None],
    "no number": lambda: float("nan"),
    "an endless number": lambda: float("inf"),
    "a negative number": lambda: -1.0,
    "a huge number": lambda: 10**400,
    "a decimal": lambda: decimal.Decimal("0.001"),
    "a text": lambda: "text",
    "bytes": lambda: b"bytes",
    "true": lambda: True,
    "a class": lambda: NoTruth,
    "an error": lambda: ValueError("returned, not raised"),
    "an object": object,
    "a lock": threading.Lock,
}
"""Makers of values by what is hostile in them."""


def _raising(make: Callable[[], BaseException]) -> Callable[[], Any]:
    def fail() -> NoReturn:
        raise make()

    return fail


MISBEHAVIOURS: dict[str, Callable[[], Any]] = {
    **{f"raises {name}": _raising(make) for name, make in HOSTILE_ERRORS.items()},
    **{f"returns {name}": make for name, make in HOSTILE_VALUES.items()},
}
"""What a function of the user's may do instead of what it is for."""


class Misbehaving:
    """A function that does all of :data:`MISBEHAVIOURS`, one in each call, and then its work."""

    def __init__(self, work: Callable[..., Any] = lambda *_: None) -> None:
        self.work = work
        self.left = list(MISBEHAVIOURS)
        self.has_worked = False
        self.tracebacks = [True]
        """Which records one failure leads to: one, which has its traceback."""
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **options: Any) -> Any:
        with self._lock:
            name = self.left.pop(0) if self.left else ""
        if name:
            return MISBEHAVIOURS[name]()
        self.has_worked = True
        return self.work(*args, **options)
