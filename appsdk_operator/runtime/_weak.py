"""Weak references to bound methods."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any


def weak_method(
    method: Callable[..., Any], when_gone: Callable[[], object] | None = None
) -> Callable[[], Callable[..., Any] | None]:
    """A function that returns ``method`` as long as its object lives, and None afterwards.

    ``when_gone`` is called once the object is gone. Unlike :class:`weakref.WeakMethod` it raises no
    errors at the end of the interpreter, which frees objects in any order.
    """
    function: Any = method.__func__  # type: ignore[attr-defined]
    owner = weakref.ref(
        method.__self__,  # type: ignore[attr-defined]
        None if when_gone is None else lambda _: when_gone(),
    )

    def find() -> Callable[..., Any] | None:
        present = owner()
        return None if present is None else function.__get__(present)

    return find
