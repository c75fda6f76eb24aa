"""What is made by the first who asks, while no lock is held."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, final

from appsdk_operator.runtime import StopSignal

__all__ = ["LazyValue"]

T = TypeVar("T")


@final
class LazyValue(Generic[T]):
    """Something that is made when it is first asked for. Thread-safe.

    >>> LazyValue(lambda: [1]).get()
    [1]
    """

    def __init__(self, make: Callable[[], T]) -> None:
        """Not made yet; ``make`` is called with no lock held."""
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []
        self._maker: int | None = None
        self._is_over = StopSignal()

    def get(self) -> T:
        """It, made now by the first who asks; the others wait. If that fails, the next one tries.

        Raises:
            RuntimeError: making it asks for it.
            Exception: what ``make`` raised.
        """
        me = threading.get_ident()
        while True:
            with self._lock:
                if self._made:
                    return self._made[0]
                if self._maker is None:
                    self._maker, self._is_over = me, StopSignal()
                    is_over = self._is_over
                    break
                if self._maker == me:
                    raise RuntimeError("it asks for what it is to make: return a new one instead")
                is_over = self._is_over
            is_over.wait()
        try:
            made = self._make()
            with self._lock:
                self._made.append(made)
            return made
        finally:
            with self._lock:
                self._maker = None
            is_over.set()
