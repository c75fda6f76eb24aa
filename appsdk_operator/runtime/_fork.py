"""Protection of objects against use in the child of a ``fork()``.

The child has a copy of every object, but only one thread: locks that other threads held are never
released, queued work is never done, and each socket is shared with the parent.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Final, TypeVar, final

from appsdk_operator.runtime._weak import weak_method

_L = TypeVar("_L", threading.Lock, threading.RLock)


class ForkedError(RuntimeError):
    """An object was used in a forked child of the process that made it, where it cannot work."""


# What to handle in each child, in the order of addition. Operations on a dict are atomic, so that a
# fork finds it consistent without a lock, which the child would have to release first.
_locks: Final[dict[weakref.ref[Any], None]] = {}
_methods: Final[dict[int, Callable[[], Callable[[], object] | None]]] = {}


def fork_safe(lock: _L) -> _L:
    """Return ``lock``, and release it in each child of a fork, whichever thread has held it.

    For locks that are held briefly, and guard data that is consistent between two statements:

    >>> lock = fork_safe(threading.Lock())
    """
    # Every object with a lock comes here: nothing is made but a reference that takes itself out.
    _locks[weakref.ref(lock, _locks.pop)] = None
    return lock


@final
class _ForkGate:
    """Keeps forks out of sections that a child cannot finish.

    Sections of several threads run at once. A fork waits until those that have begun end, and new
    ones wait for the fork; after a second it goes on all the same, so that a signal handler that
    forks does not wait for the section that it interrupts. Sections must be short, and must
    neither wait nor nest.
    """

    _PATIENCE: Final = 1.0

    def __init__(self) -> None:
        """A gate, for the life of the process."""
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._forks = 0
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self._before, after_in_parent=self._after, after_in_child=self._in_child
            )

    def __enter__(self) -> None:
        """Begin a section."""
        with self._changed:
            while self._forks:
                self._changed.wait(self._PATIENCE)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        """End a section."""
        with self._changed:
            self._inside -= 1
            if self._forks:
                self._changed.notify_all()

    def _before(self) -> None:
        # It may be this thread that holds the lock, in a signal handler.
        if self._changed.acquire(timeout=self._PATIENCE):
            self._forks += 1
            self._changed.wait_for(lambda: not self._inside, self._PATIENCE)
            self._changed.release()

    def _after(self) -> None:
        if self._changed.acquire(timeout=self._PATIENCE):
            self._forks = max(0, self._forks - 1)
            self._changed.notify_all()
            self._changed.release()

    def _in_child(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = self._forks = 0


forks_wait: Final = _ForkGate()
"""Forks wait for the sections in it: those within OpenSSL, whose locks no child could release.

>>> import ssl
>>> with forks_wait:
...     context = ssl.create_default_context()
"""


def after_fork(method: Callable[[], object]) -> None:
    """Call a bound method in each child that is forked while its object lives.

    It runs before anything else in the child, in its only thread, after the locks of
    :func:`fork_safe` were released, in order of addition. Its errors are dropped. The object is
    held weakly.
    """
    # At the end of the interpreter there may be no module to look it up in.
    pop, key = _methods.pop, 0
    found = weak_method(method, lambda: pop(key, None))
    key = id(found)
    _methods[key] = found


@final
class OneProcess:
    """Ties an object to the process that made it; keep it in an attribute of that object.

    Frequent operations read :attr:`inherited`, which costs no call:

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
        """``what`` names the object in errors, ``remedy`` says what to do instead of using it."""
        self.inherited: bool = False
        """Whether this process is a forked child of the one that made it."""
        self._pid = os.getpid()
        self._what = what
        self._remedy = remedy
        after_fork(self._on_fork)

    def check(self) -> None:
        """Check that this process made it.

        Raises:
            ForkedError: this process is a forked child of it.
        """
        if self.inherited:
            self.refuse()

    def refuse(self) -> None:
        """Raise the error for a forked child.

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
    for ref in list(_locks):
        if (lock := ref()) is not None:
            # Private, but logging, concurrent.futures and threading do the same with their locks.
            lock._at_fork_reinit()  # noqa: SLF001
    # First find all methods: a call may drop the last reference to the object of another one.
    for method in [find() for find in list(_methods.values())]:
        if method is not None:
            with contextlib.suppress(Exception):
                method()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
