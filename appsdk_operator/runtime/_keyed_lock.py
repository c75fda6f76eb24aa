"""One at a time for each name, whoever comes with it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Hashable, Iterator
from typing import final

__all__ = ["Turns"]


@final
class Turns:
    """Lets one thread at a time in for each name; the same thread may enter again.

    For objects that several sources show, at the same time or one after the other: their queue keys
    differ although the object is the same.
    """

    def __init__(self) -> None:
        self._freed = threading.Condition()
        self._busy: dict[Hashable, int] = {}

    @contextlib.contextmanager
    def alone(self, name: Hashable) -> Iterator[None]:
        """Wait until no other thread is in with ``name``, and keep them out."""
        me = threading.get_ident()
        with self._freed:
            while self._busy.get(name, me) != me:
                self._freed.wait()
            is_outermost = name not in self._busy
            self._busy[name] = me
        try:
            yield
        finally:
            if is_outermost:
                with self._freed:
                    del self._busy[name]
                    self._freed.notify_all()
