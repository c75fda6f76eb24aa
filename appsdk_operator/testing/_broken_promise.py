"""The error that simulations and worlds fail a test with."""

from __future__ import annotations

from typing import Any


class BrokenPromise(AssertionError):  # noqa: N818 - what a test fails with
    """The kit, or the operator under test, did something that it promises not to do."""


def hides_kit_frames(info: Any) -> bool:
    """Whether pytest leaves the kit's own frames out of a traceback: for assertions it does.

    A module sets ``__tracebackhide__ = hides_kit_frames``. The text of a :class:`BrokenPromise`
    says everything; its cause is what a function of the test raised, usually an assertion.
    """
    return isinstance(info.value, AssertionError)
