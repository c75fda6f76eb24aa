"""Threads that are named, owned and joined, and one event loop for ``async def`` callbacks."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, final

__all__ = ["LoopThread", "ThreadGroup", "as_blocking"]

_log = logging.getLogger("appsdk_operator.runtime")
T = TypeVar("T")


@final
class ThreadGroup:
    """Threads that belong together: started under one name, joined together.

    None of them is a daemon, so none is killed in the middle of a write when the interpreter ends.
    Thread-safe.
    """

    def __init__(self, name: str) -> None:
        """A group whose threads are called ``name/…``."""
        self._name = name
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def start(self, name: str, target: Callable[[], None]) -> threading.Thread:
        """Run ``target`` in a new thread; what it raises is logged."""

        def run() -> None:
            try:
                target()
            except Exception:
                _log.exception("thread %s failed", thread.name)

        thread = threading.Thread(target=run, name=f"{self._name}/{name}", daemon=False)
        with self._lock:
            self._threads = [t for t in self._threads if t.is_alive() or t.ident is None]
            self._threads.append(thread)
        thread.start()
        return thread

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for all of them, at most ``timeout`` seconds each.

        Returns:
            The names of those that still run; empty when all have ended.
        """
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout)
        return [t.name for t in threads if t.is_alive() and t is not threading.current_thread()]


@final
class LoopThread:
    """One asyncio event loop in a thread of its own, started at the first use.

    Blocking code hands coroutines over with :meth:`run` and waits for their result, so that
    ``async def`` callbacks keep every promise of order that plain functions have. Thread-safe.
    """

    def __init__(self, name: str) -> None:
        """A loop whose thread will be called ``name/loop``."""
        self._group = ThreadGroup(name)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run ``coroutine`` on the loop; returns its result or raises its error.

        Raises:
            RuntimeError: the loop was closed.
        """
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise RuntimeError("the event loop of this controller was closed: it has stopped")
            loop = self._loop
            if loop is None:
                loop = self._loop = asyncio.new_event_loop()
                self._group.start("loop", lambda: _run_loop(loop))
            future = asyncio.run_coroutine_threadsafe(coroutine, loop)
        return future.result()

    def close(self) -> None:
        """Cancel what still runs, stop the loop and join its thread; twice is harmless."""
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
        self._group.join()


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.gather(*pending, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def as_blocking(function: Callable[..., Any], loop: LoopThread) -> Callable[..., Any]:
    """``function`` itself, or for an ``async def`` one that runs it on ``loop`` and waits.

    A plain function that returns an awaitable (a wrapped or partial coroutine function) is
    awaited too.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if inspect.iscoroutine(result):
            return loop.run(result)
        if inspect.isawaitable(result):
            return loop.run(_wait_for(result))
        return result

    return call


async def _wait_for(awaitable: Any) -> Any:
    return await awaitable
