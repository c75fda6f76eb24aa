"""Exceptions of users that make trouble for whoever reports them."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
from collections.abc import Callable
from typing import Any, NoReturn

from appsdk_operator.controllers import RetryAfter

__all__ = ["HOSTILE_ERRORS", "RaisesAtItsClass"]


def _refuse(*_: object) -> NoReturn:
    raise RuntimeError("nobody may ask")


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):  # noqa: N818
    """Takes no attribute: no traceback, no cause, no note."""

    reason: str = "not today"


class RaisesAtText(Exception):  # noqa: N818
    """Has neither text nor representation."""

    __str__ = __repr__ = __format__ = _refuse


class ExitsAtText(Exception):  # noqa: N818
    """Ends the program when somebody asks for its text."""

    def __str__(self) -> str:
        raise SystemExit(3)

    __repr__ = __str__


class NoText(Exception):  # noqa: N818
    """Its text is none."""

    def __str__(self) -> Any:
        return 7  # noqa: PLE0307

    __repr__ = __str__


class RaisesAtAttributes(Exception):  # noqa: N818
    """Its attributes cannot be read or set."""

    __traceback__ = __cause__ = __context__ = property(_refuse)  # type: ignore[assignment]
    __notes__ = property(_refuse)  # type: ignore[assignment]
    __setattr__ = _refuse


class RaisesWhenCompared(Exception):  # noqa: N818
    """Has no truth, no hash and no equality."""

    __eq__ = __hash__ = __bool__ = _refuse  # type: ignore[assignment]


class RaisesAtItsClass(Exception):  # noqa: N818
    """Is asked in vain whether it is of another class, as ``isinstance()`` does."""

    __class__ = property(_refuse)  # type: ignore[assignment]


class AnAttributeError(AttributeError):
    """Python's own error, without a text, whose remedy the kit looks for in its text."""

    __str__ = __repr__ = _refuse


class HidesItsErrors(ExceptionGroup[Exception]):
    """A group whose errors cannot be read."""

    exceptions = property(_refuse)  # type: ignore[assignment]


class NoSeconds(RetryAfter):
    """Does not call the ``__init__`` of its base."""

    def __init__(self) -> None:
        pass


def _with_notes(notes: object) -> Exception:
    error = ValueError("has notes")
    error.__notes__ = notes  # type: ignore[assignment]
    return error


def _in_groups(levels: int) -> BaseException:
    error: Exception = RaisesAtText()
    for level in range(levels):
        error = ExceptionGroup(f"level {level}", [error, ValueError("beside")])
    return error


def _with_cause(cause: BaseException) -> Exception:
    error = ValueError("has a cause")
    error.__cause__ = cause
    return error


def _in_a_circle() -> Exception:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


def _with_many_causes() -> Exception:
    error: Exception = ValueError("0")
    for number in range(1, 3000):
        error, cause = ValueError(str(number)), error
        error.__cause__ = cause
    return error


HOSTILE_ERRORS: dict[str, Callable[[], BaseException]] = {
    "frozen": Frozen,
    "raises at its text": RaisesAtText,
    "exits at its text": ExitsAtText,
    "no text": NoText,
    "raises at its attributes": RaisesAtAttributes,
    "raises when compared": RaisesWhenCompared,
    "an attribute error without a text": AnAttributeError,
    "a circle of causes": _in_a_circle,
    "many causes": _with_many_causes,
    "no class": RaisesAtItsClass,
    "a cause without a class": lambda: _with_cause(RaisesAtItsClass()),
    "a group of one without a class": lambda: ExceptionGroup("one", [RaisesAtItsClass()]),
    "notes that are none": lambda: _with_notes(7),
    "notes without a text": lambda: _with_notes([RaisesAtText(), b"bytes", None]),
    "groups in groups": lambda: _in_groups(50),
    "a cancellation": asyncio.CancelledError,
    "a cancelled future": concurrent.futures.CancelledError,
    "a Ctrl-C of a library": lambda: KeyboardInterrupt("not the user's"),
    "a text of bytes that are no text": lambda: ValueError("\ud800" * 3),
    "a long text": lambda: ValueError("x" * 1_000_000),
    "a format": lambda: ValueError("%s %d %(name)s {0} {name}"),
    "a group of hostile ones": lambda: ExceptionGroup("many", [RaisesAtText(), Frozen()]),
    "a group of one": lambda: ExceptionGroup("one", [RaisesAtAttributes()]),
    "a group that hides its errors": lambda: HidesItsErrors("many", [RaisesAtText()]),
    "a retry without a time": NoSeconds,
    "a group of what is no Exception": lambda: BaseExceptionGroup("exits", [SystemExit(3)]),
    "an exit": lambda: SystemExit("3"),
    "an end of a generator": GeneratorExit,
    "an end of an iteration": StopIteration,
    "a BaseException": lambda: BaseException("plain"),
}
"""Makers of exceptions by what is hostile in them."""
