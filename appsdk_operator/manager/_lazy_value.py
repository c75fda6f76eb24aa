"""A value made on first use, outside of any lock."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar, final

from appsdk_operator.runtime import StopSignal

T = TypeVar("T")


@final
class LazyValue(Generic[T]):
    """A value that is made when it is first needed. Thread-safe.

    >>> LazyValue(lambda: [1]).get()
    [1]
    """

    def __init__(self, make: Callable[[], T]) -> None:
        """``make`` is called once, with no lock held."""
        self._make = make
        self._lock = threading.Lock()
        self._made: list[T] = []
        self._maker: int | None = None
        self._is_over = StopSignal()

    @property
    def is_made(self) -> bool:
        """Whether the value was made."""
        return bool(self._made)

    def get(self) -> T:
        """The value. The first caller makes it, others wait; if that fails, the next caller tries.

        Raises:
            RuntimeError: ``make`` itself asks for the value.
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
                    raise RuntimeError(
                        "the function asks for the value that it makes: return a new one instead"
                    )
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
