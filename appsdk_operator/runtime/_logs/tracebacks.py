"""Tracebacks of the user's code: frames of the kit, and of what it calls, are left out."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from types import (
    AsyncGeneratorType,
    CodeType,
    CoroutineType,
    FrameType,
    GeneratorType,
    TracebackType,
)
from typing import Any

from appsdk_operator.runtime._logs.texts import is_interrupt, safe_text

_KIT = f"{__file__.rsplit(os.sep, 3)[0]}{os.sep}"
_LIBRARY = f"{logging.__file__.rsplit(os.sep, 2)[0]}{os.sep}"
_PACKAGES = (f"{_LIBRARY}site-packages{os.sep}", f"{_LIBRARY}dist-packages{os.sep}")
# What the kit is built on; anything else in a folder of packages may be the user's operator.
_DEPENDENCIES = tuple(
    f"{os.sep}site-packages{os.sep}{name}{os.sep}"
    for name in (
        *("attr", "kubernetes", "msgspec", "prometheus_client", "tenacity", "urllib3", "yaml"),
    )
)
_LONGEST_ERROR = 2000
"""Characters of an error's text in a log line; answers of servers may be long."""


# Of the base class, because a user's exception may be frozen, or have properties of these names.
_TRACEBACK, _CAUSE, _CONTEXT = (
    BaseException.__dict__[name] for name in ("__traceback__", "__cause__", "__context__")
)
_MEMBERS: Any = BaseExceptionGroup.exceptions


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of ``error``, whatever its class makes of the attribute; never raises."""
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    return trace


def root_cause(error: BaseException) -> BaseException:
    """The last one in the chain of its causes, also where that is a circle; never raises."""
    seen: set[int] = set()
    while (cause := _CAUSE.__get__(error)) is not None and id(error) not in seen:
        seen.add(id(error))
        error = cause
    return error


def forget_frames(error: BaseException) -> None:
    """Remove the tracebacks of ``error`` and of its causes; never raises.

    For an error that is stored: its tracebacks keep the frames of the failed call alive.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            _TRACEBACK.__set__(each, None)
            left += (_CAUSE.__get__(each), _CONTEXT.__get__(each))
            left += _members(each)


def group_members(error: BaseException) -> tuple[BaseException, ...]:
    """The errors in a group, none if ``error`` is not a group; never raises."""
    return tuple(map(with_class, _members(error)))


def _members(error: BaseException) -> tuple[BaseException, ...]:
    # By its type: isinstance() reads the attribute __class__ of other errors, and a user's class
    # may replace that and the one of the members.
    if not issubclass(type(error), BaseExceptionGroup):
        return ()
    members: tuple[BaseException, ...] = _MEMBERS.__get__(error)
    return members


def with_class(error: BaseException) -> BaseException:
    """``error``, or a RuntimeError of the same text if its ``__class__`` cannot be read.

    ``isinstance()`` reads that attribute, unless the error's type already is of the class.
    """
    try:
        _ = error.__class__
    except BaseException as raised:
        return _stand_in(error, "class", raised)
    return error


def formattable(error: BaseException) -> BaseException:
    """``error``, or a RuntimeError of the same text if :mod:`traceback` cannot format it."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    try:
        while left:
            each = left.pop()
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                _ = each.__class__, each.__suppress_context__, each.__traceback__, bool(each)
                _ = getattr(each, "__notes__", None)
                left += (each.__cause__, each.__context__)
                left += each.exceptions if isinstance(each, BaseExceptionGroup) else ()
    except BaseException as raised:
        return _stand_in(error, "attributes", raised)
    return error


def _stand_in(error: BaseException, what: str, raised: BaseException) -> RuntimeError:
    """What is shown for an error of which ``what`` cannot be read: that has raised ``raised``."""
    if is_interrupt(raised):
        raise raised
    failure = RuntimeError(f"{error_text(error)}, and its {what} cannot be read")
    return failure.with_traceback(traceback_of(error))


def add_note(error: BaseException, note: str) -> None:
    """Add a note to a user's exception, where it takes notes; never raises."""
    with contextlib.suppress(Exception):  # frozen, for example
        BaseException.add_note(error, note)


def _is_users(filename: str, *, after_kit: bool) -> bool:
    """Whether a frame is the user's: not the kit's, and no library's that the kit called."""
    if filename.startswith(_KIT):
        return False
    if not after_kit:
        return True
    if any(name in filename for name in _DEPENDENCIES):
        return False
    return not filename.startswith(_LIBRARY) or filename.startswith(_PACKAGES)


def _kept(filenames: Iterable[str]) -> Iterator[bool]:
    """Whether each frame of a traceback, outermost first, is one to show."""
    after_kit = True  # a traceback that begins in the library comes from a thread or loop of ours
    for filename in filenames:
        is_users = _is_users(filename, after_kit=after_kit)
        after_kit = not is_users
        yield is_users


def _frames(trace: TracebackType | None) -> list[TracebackType]:
    found = []
    while trace is not None:
        found.append(trace)
        trace = trace.tb_next
    return found


def user_traceback(error: BaseException) -> TracebackType | None:
    """The traceback of ``error`` with the user's frames alone; all of it if there are none."""
    frames = _frames(traceback_of(error))
    shown = _kept(frame.tb_frame.f_code.co_filename for frame in frames)
    trace: TracebackType | None = None
    for frame in reversed(
        [frame for frame, is_shown in zip(frames, shown, strict=True) if is_shown]
    ):
        trace = TracebackType(trace, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return traceback_of(error) if trace is None else trace


def has_user_frames(error: BaseException) -> bool:
    """Whether ``error`` came through a function of the user's."""
    frames = _frames(traceback_of(error))
    return any(_kept(frame.tb_frame.f_code.co_filename for frame in frames))


def failed_function(error: BaseException) -> str:
    """The name of the user's function that raised; ``""`` if there is no frame of one."""
    if not has_user_frames(error):
        return ""
    trace = user_traceback(error)
    assert trace is not None
    return code_name(trace.tb_frame.f_code)


def callback_name(function: Any) -> str:
    """The name of a callback as its author knows it: of the function, or of the object's class.

    >>> callback_name(functools.partial(print, "hello"))
    'print'
    """
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    if not isinstance(name, str):
        name = type(function).__qualname__
    return name.replace("<locals>.", "")


def current_frames() -> dict[int, FrameType]:
    """The topmost frame of each thread, by the thread's identifier.

    Without garbage collection meanwhile: Python holds a lock that each new thread needs, so that
    code of a finalizer that lets another thread run would hold all threads up for ever (CPython
    gh-106883, in 3.11).
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()  # noqa: SLF001 - there is no other way
    finally:
        if was_enabled:
            gc.enable()


def present_place(thread: int | None) -> str:
    """Where the user's code of a thread is now, as ``function (file.py:12)``; "" if nowhere."""
    frame = current_frames().get(thread) if thread is not None else None
    while frame is not None:
        if _is_users(frame.f_code.co_filename, after_kit=True):
            return _place_of_frame(frame)
        frame = frame.f_back
    return ""


def awaiting_place(coroutine: Any) -> str:
    """Where the user's code of a coroutine waits, as :func:`present_place`."""
    place, awaited = "", coroutine
    # Python's own alone: an object of the user's may have any attributes.
    while isinstance(awaited, (CoroutineType, GeneratorType, AsyncGeneratorType)):
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None and _is_users(frame.f_code.co_filename, after_kit=True):
            place = _place_of_frame(frame)
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
    return place


def _first(awaitable: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(awaitable, name, None))), None)


def _place_of_frame(frame: FrameType) -> str:
    code = frame.f_code
    return place_text(code_name(code), code.co_filename, frame.f_lineno)


def code_name(code: CodeType) -> str:
    """The name of a function as its author knows it, by its code."""
    return code.co_qualname.replace("<locals>.", "")


def place_text(name: str, path: str, lines: object) -> str:
    """Lines of a function for people, as ``function (file.py:12)``.

    Args:
        name: the function's.
        path: of its file.
        lines: the number of a line, or a text of several.
    """
    return f"{name} ({path.rpartition(os.sep)[2]}:{lines})"


def error_text(error: BaseException) -> str:
    """What an error says, after its type, on one line; never raises.

    >>> error_text(KeyError("spec"))
    "KeyError: 'spec'"
    """
    name = type(error).__qualname__.replace("<locals>.", "")
    text = safe_text(error)
    if len(text) > _LONGEST_ERROR:
        text = f"{text[:_LONGEST_ERROR]}…"
    return f"{name}: {text}" if text else name


def format_user_exception(error: BaseException, trace: TracebackType | None) -> str:
    """An exception with its causes, as :mod:`traceback` formats it, with the user's frames alone.

    All frames if none of the exceptions has any of the user's.
    """
    whole = traceback.TracebackException(type(error), error, trace, compact=True)
    found = list(_chain(whole))
    shown = [
        [
            frame
            for frame, is_shown in zip(each.stack, _kept_of(each.stack), strict=True)
            if is_shown
        ]
        for each in found
    ]
    if any(shown):
        for each, frames in zip(found, shown, strict=True):
            each.stack = traceback.StackSummary.from_list(frames)
    return "".join(whole.format()).rstrip("\n")


def _kept_of(stack: traceback.StackSummary) -> Iterator[bool]:
    return _kept(frame.filename for frame in stack)


def _chain(error: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    left = [error]
    while left:
        each = left.pop()
        if each is not None:
            yield each
            left += [each.__cause__, each.__context__, *(getattr(each, "exceptions", None) or ())]


def place_of(error: BaseException) -> str:
    """The file and line of the user's code that raised ``error``, such as ``shop.py:12``."""
    found = user_traceback(error)
    if found is None:
        return ""
    return f"{os.path.basename(found.tb_frame.f_code.co_filename)}:{found.tb_lineno}"  # noqa: PTH119
