"""The thread of a server, with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar, final

__all__ = ["ServerThread"]

_T = TypeVar("_T")

_JOIN_TIMEOUT: Final = 10.0
"""The longest wait for the thread, in seconds."""

Serve: TypeAlias = Callable[[Callable[[], None], asyncio.Event], Coroutine[Any, Any, None]]


@final
class ServerThread:
    """A thread that serves in an event loop of its own."""

    def __init__(self, name: str, serve: Serve) -> None:
        """Not started yet.

        Args:
            name: of the thread.
            serve: serves until the event that it is given is set; calls the function that it is
                given once it is ready.
        """
        self._serve = serve
        self._stopping = asyncio.Event()
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=name)

    def start(self) -> None:
        """Start it, and return once it is ready.

        Raises:
            BaseException: what it fails with before that.
        """
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        await self._serve(self._ready.set, self._stopping)

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error
            self._ready.set()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run ``coroutine`` in its event loop, from another thread; return the result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_JOIN_TIMEOUT)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is threading.current_thread()

    def stop(self) -> None:
        """End it.

        Raises:
            RuntimeError: it does not end.
        """
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_JOIN_TIMEOUT)
        if self._thread.is_alive():
            raise RuntimeError(
                f"the thread {self._thread.name} of a server did not end within {_JOIN_TIMEOUT:g} s"
            )
