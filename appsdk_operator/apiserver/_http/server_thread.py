"""The thread of a server, with an event loop of its own."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeAlias, TypeVar, final

_T = TypeVar("_T")

_JOIN_TIMEOUT: Final = 10.0
"""The longest wait for the thread, in seconds."""

Serve: TypeAlias = Callable[
    [socket.socket, Callable[[], None], asyncio.Event], Coroutine[Any, Any, None]
]


@final
class ServerThread:
    """A thread that serves in an event loop of its own, from a start to the next stop.

    Thread-safe.
    """

    def __init__(self, name: str, listen: Callable[[], socket.socket], serve: Serve) -> None:
        """Not started yet.

        Args:
            name: of the thread; the port is added.
            listen: makes the listener of a start, which is closed if the start fails.
            serve: serves the listener until the event that it is given is set; calls the function
                that it is given once it is ready.
        """
        self._name = name
        self._listen = listen
        self._serve = serve
        self.lifecycle: contextlib.AbstractContextManager[object] = threading.RLock()
        """Held during start and stop, so that both may be called from any thread."""
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Start it, and return once it is ready. No effect on a running one.

        Raises:
            BaseException: what it fails with before that.
        """
        with self.lifecycle:
            if self._thread is not None:
                return
            listener = self._listen()
            self._stopping, self._ready = asyncio.Event(), threading.Event()
            # Set before it starts: it may ask whether it is the current one.
            self._thread = thread = threading.Thread(
                target=self._run,
                args=(listener,),
                name=f"{self._name}-{listener.getsockname()[1]}",
            )
            try:
                thread.start()
                self._ready.wait()
                if self._failure is not None:
                    thread.join()
                    raise self._failure
            except BaseException:
                if self._failure is None and thread.is_alive():
                    # Interrupted, as by Ctrl-C: nobody has a server to stop.
                    self._ready.wait(_JOIN_TIMEOUT)
                    self._end(thread)
                self._thread = self._failure = None
                listener.close()
                raise

    async def _main(self, listener: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        await self._serve(listener, self._ready.set, self._stopping)

    def _run(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self._main(listener))
        except BaseException as error:
            if self._ready.is_set():
                raise
            self._failure = error
            self._ready.set()

    def call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        """Run ``coroutine`` in its event loop, from another thread; return the result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_JOIN_TIMEOUT)

    @property
    def is_running(self) -> bool:
        """Whether it is started."""
        return self._thread is not None

    @property
    def is_current(self) -> bool:
        """Whether the caller runs in this thread."""
        return self._thread is threading.current_thread()

    def stop(self) -> None:
        """End it. No effect on a stopped one.

        Raises:
            RuntimeError: it does not end.
        """
        with self.lifecycle:
            if self._thread is None:
                return
            self._end(self._thread)
            if self._thread.is_alive():
                raise RuntimeError(
                    f"the server's thread {self._thread.name} did not end within "
                    f"{_JOIN_TIMEOUT:g} s"
                )
            self._thread = None

    def _end(self, thread: threading.Thread) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended by itself
            self._loop.call_soon_threadsafe(self._stopping.set)
        thread.join(_JOIN_TIMEOUT)
