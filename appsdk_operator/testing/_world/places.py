"""Which lines of an operator ran in its last calls, for the report of a broken promise."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import Any, Final, final

from appsdk_operator.runtime import code_name, guarded_call, place_text
from appsdk_operator.testing._broken_promise import is_of_kit
from appsdk_operator.testing._world.journal import Entry, Lines

_MOST: Final = 5
"""The most places of a call."""


@final
class Traced:
    """A ``with`` block in which the lines of the operator that this thread runs are noted.

    Not a generator, which would set the traceback of an error that passes through.
    """

    def __init__(self, lines: Lines) -> None:
        """Notes them in ``lines``."""
        self._lines = lines
        self._before: Any = None

    def __enter__(self) -> None:
        self._before = sys.gettrace()
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Callable[..., Any] | None:
        code = frame.f_code
        if event == "call":
            return self._trace if _is_users(code.co_filename) else None
        if event == "line":
            line = code.co_filename, frame.f_lineno
            self._lines.pop(line, None)
            self._lines[line] = code_name(code)
        return self._trace


def place_of(function: Any) -> str:
    """Where a function of the operator begins, as ``function (file.py:12)``; empty: not known."""
    code = guarded_call("__code__", _code_of, function, failed=lambda _: None)
    if not isinstance(code, CodeType) or not _is_users(code.co_filename):
        return ""
    return place_text(code_name(code), code.co_filename, code.co_firstlineno)


def _code_of(function: Any) -> object:
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(inspect.unwrap(function), "__code__", None)


def places_of(entries: Sequence[Entry]) -> str:
    """The operator's code in its last call, and in the last one that wrote, as lines of text."""
    calls = [entry for entry in entries if entry.what == "call"]
    wrote = [call for call in calls if any(one.what == "write" for one in call.writes)]
    latest = (next((c for c in reversed(some) if _places(c)), None) for some in (calls, wrote))
    shown = {id(call): call for call in latest if call is not None}.values()
    lines: list[str] = []
    for number, call in enumerate(shown):
        what = "the last call that wrote" if number else "the last call"
        lines += [f"\nlines that ran in {what}, of {call.key}:"]
        lines += [f"\n  {place}" for place in _places(call)]
    return "".join(lines)


def _places(call: Entry) -> list[str]:
    if not call.lines:  # a coroutine, which another thread runs
        return list(dict.fromkeys(one.place for one in (call, *call.writes) if one.place))
    by_function: dict[tuple[str, str], list[int]] = {}
    for (path, number), name in call.lines.items():
        by_function.setdefault((path, name), []).append(number)
    places = [
        place_text(name, path, _ranges(numbers)) for (path, name), numbers in by_function.items()
    ]
    return places[-_MOST:]


def _ranges(numbers: Sequence[int]) -> str:
    """Numbers of lines in their order, those that follow one another as a range."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


@functools.cache
def _is_users(path: str) -> bool:
    """Whether it is neither the kit's, nor Python's, nor of an installed package."""
    return not (path.startswith(("<", *_installed())) or is_of_kit(path))


@functools.cache
def _installed() -> tuple[str, ...]:
    return tuple({path + os.sep for path in sysconfig.get_paths().values()})
