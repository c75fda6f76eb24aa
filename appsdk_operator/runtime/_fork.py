"""What the child of a ``fork()`` may use of its parent's objects, and what not.

The child has a copy of every object, but only one thread: nobody releases the locks that other
threads held, nobody runs the work that is queued, and each socket is shared with the parent.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, TypeVar, final

from appsdk_operator.runtime._weak import weak_method

__all__ = ["ForkedError", "OneProcess", "after_fork", "fork_safe"]

_L = TypeVar("_L", threading.Lock, threading.RLock)


class ForkedError(RuntimeError):
    """An object was used in the child of the process that made it, where it cannot work."""


class _Inherited:
    """What is to be called in each child, as long as its object lives."""

    def __init__(self) -> None:
        # Each step on a dict is one for other threads, so that a fork finds it whole without a
        # lock, which the child would have to free first. In the order in which they were added.
        self._calls: dict[int, Callable[[], Any]] = {}

    def add(self, ref: Callable[[Callable[[], None]], Callable[[], Any]]) -> None:
        key = 0

        def forget() -> None:
            self._calls.pop(key, None)

        made = ref(forget)
        key = id(made)
        self._calls[key] = made

    def living(self) -> list[Any]:
        return [found for ref in list(self._calls.values()) if (found := ref()) is not None]


_locks = _Inherited()
_methods = _Inherited()


def fork_safe(lock: _L) -> _L:
    """The same lock, which is free again in the child of a fork, whoever held it in the parent.

    For locks that are held for a moment and guard what is whole between two statements:

    >>> lock = fork_safe(threading.Lock())
    """
    _locks.add(lambda forget: weakref.ref(lock, lambda _: forget()))
    return lock


def after_fork(method: Callable[[], object]) -> None:
    """Call a bound method in each child that is forked while its object lives.

    It runs before anything else does in the child, in its only thread and when the locks of
    :func:`fork_safe` are free; earlier added ones first. What it raises is dropped. The object is
    held weakly.
    """
    _methods.add(lambda forget: weak_method(method, forget))


@final
class OneProcess:
    """Ties an object to the process that made it; keep it in an attribute of that object.

    What is done often looks at :attr:`inherited`, which costs no call:

    >>> class Queue:
    ...     def __init__(self):
    ...         self._process = OneProcess("this queue", "make it in the child")
    ...
    ...     def put(self, item):
    ...         if self._process.inherited:
    ...             self._process.refuse()
    """

    __slots__ = ("__weakref__", "_pid", "_remedy", "_what", "inherited")

    def __init__(self, what: str, remedy: str) -> None:
        """For the object that errors call ``what``, with what to do instead of using it."""
        self.inherited: bool = False
        """Whether this is the child of a process that made it."""
        self._pid = os.getpid()
        self._what = what
        self._remedy = remedy
        after_fork(self._on_fork)

    def check(self) -> None:
        """Pass where it was made.

        Raises:
            ForkedError: this is a child of that process.
        """
        if self.inherited:
            self.refuse()

    def refuse(self) -> None:
        """Say that it cannot be used here.

        Raises:
            ForkedError: always.
        """
        raise ForkedError(
            f"{self._what} belongs to process {self._pid}, which made it, and process "
            f"{os.getpid()} got a copy by fork() that cannot work: {self._remedy}"
        )

    def _on_fork(self) -> None:
        self.inherited = True


def _in_child() -> None:
    for lock in _locks.living():
        # Private, but what logging, concurrent.futures and threading itself do to their locks.
        lock._at_fork_reinit()  # noqa: SLF001
    for method in _methods.living():
        with contextlib.suppress(Exception):
            method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
