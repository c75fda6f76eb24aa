"""The error that simulations and worlds fail a test with."""

from __future__ import annotations

import os
import traceback
from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final

from appsdk_operator.runtime import root_cause, traceback_of

_KIT: Final = str(Path(__file__).parents[1]) + os.sep


class BrokenPromise(AssertionError):  # noqa: N818 - what a test fails with
    """The kit, or the operator under test, did something that it promises not to do."""


def is_of_kit(path: str) -> bool:
    """Whether a file with code is one of the kit's own."""
    return path.startswith(_KIT)


def promise_of(error: BrokenPromise) -> Hashable:
    """What is equal for two errors of one promise, whatever values their texts name.

    For a promise of the kit, the text before the first colon; for an error of the user's code, its
    class and place.
    """
    cause = root_cause(error)
    if cause is error:
        return str(error).partition("\n")[0].partition(":")[0]
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(traceback_of(cause))
        if not frame.f_locals.get("__tracebackhide__")  # pytest.fail, for example
    ]
    own = [place for place in frames if not is_of_kit(place[0])]
    return type(cause), *(own or frames)[-1:]


def hides_kit_frames(info: Any) -> bool:
    """Whether pytest leaves the kit's own frames out of a traceback: for assertions it does.

    A module sets ``__tracebackhide__ = hides_kit_frames``. The text of a :class:`BrokenPromise`
    says everything; its cause is what a function of the test raised, usually an assertion.
    """
    return isinstance(info.value, AssertionError)
