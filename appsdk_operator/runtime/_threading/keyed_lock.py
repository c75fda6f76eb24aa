"""A lock per key."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator
from typing import final


@final
class KeyedLock:
    """A re-entrant lock per key, which exists only while it is held.

    For objects that several sources deliver: their queue keys differ although the object is the
    same.
    """

    def __init__(self) -> None:
        self._released = threading.Condition()
        self._holders: dict[Hashable, int] = {}

    @contextlib.contextmanager
    def hold(self, key: Hashable) -> Iterator[None]:
        """Hold the lock of ``key``; waits while another thread holds it."""
        me = threading.get_ident()
        with self._released:
            while self._holders.get(key, me) != me:
                self._released.wait()
            is_outermost = key not in self._holders
            self._holders[key] = me
        try:
            yield
        finally:
            if is_outermost:
                with self._released:
                    del self._holders[key]
                    self._released.notify_all()
