"""Which errors of two histories count as one broken promise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import appsdk_operator
from appsdk_operator.testing._broken_promise import BrokenPromise, promise_of

KIT = str(Path(appsdk_operator.__file__).parent)


def failure(path: str, line: int) -> BrokenPromise:
    """What leads to it where that line of that file calls a function of the kit."""
    scope: dict[str, object] = {}
    exec(compile("def part(): raise ValueError(1)", f"{KIT}/part.py", "exec"), scope)
    with pytest.raises(ValueError, match="1") as raised:
        exec(compile("\n" * (line - 1) + "part()", path, "exec"), scope)
    promise = BrokenPromise("calls: 3")
    promise.__cause__ = raised.value.with_traceback(raised.tb.tb_next)
    return promise


def test_the_kits_promises_are_told_apart_by_their_names() -> None:
    assert promise_of(BrokenPromise("calls: 3")) == promise_of(BrokenPromise("calls: 4"))
    assert promise_of(BrokenPromise("calls: 3")) != promise_of(BrokenPromise("order: 3"))


class HostileError(Exception):
    """Its own text, cause and traceback raise."""

    @property
    def __cause__(self) -> Any:
        raise KeyError

    __traceback__ = __cause__


def test_no_exception_of_the_users_keeps_the_search_from_its_end() -> None:
    circle, of_itself = failure("/home/u/op.py", 3), failure("/home/u/op.py", 3)
    cause = circle.__cause__
    assert cause is not None
    cause.__cause__ = KeyError()
    cause.__cause__.__cause__ = cause
    assert promise_of(circle) == promise_of(circle)
    assert of_itself.__cause__ is not None
    of_itself.__cause__.__cause__ = of_itself.__cause__
    assert promise_of(of_itself) == (ValueError, ("/home/u/op.py", 3))
    hostile = BrokenPromise("calls: 3")
    hostile.__cause__ = HostileError()
    assert promise_of(hostile) == (HostileError,)


@pytest.mark.parametrize("file", ["/home/u/op.py", f"{KIT}_plugins/op.py"])
def test_errors_of_the_users_code_are_told_apart_by_their_places_in_it(file: str) -> None:
    assert promise_of(failure(file, 3)) == promise_of(failure(file, 3)) == (ValueError, (file, 3))
    assert promise_of(failure(file, 3)) != promise_of(failure(file, 4))
