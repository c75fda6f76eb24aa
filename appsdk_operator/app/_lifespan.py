"""Lifespans: functions around everything else that a manager of an App does."""

from __future__ import annotations

import inspect
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias, final

from appsdk_operator.app._declarations import name_of
from appsdk_operator.runtime import (
    LoopThread,
    StopSignal,
    ThreadGroup,
    add_note,
    as_exception,
    callback_place,
    get_logger,
    safe_repr,
    settle,
)

_log = get_logger("appsdk_operator.app")
_PATIENCE: Final = 10.0
"""Seconds after which the kit names the line at which a part of a lifespan is."""

LifespanFunction: TypeAlias = Callable[[], Iterator[None]] | Callable[[], AsyncIterator[None]]
"""A generator function, plain or async, with one ``yield``."""


def check_lifespan(function: object) -> None:
    """Check that it is a generator function without arguments.

    Raises:
        TypeError: the text says what to write.
    """
    target = inspect.unwrap(function) if callable(function) else function
    if not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        hint = "write def or async def with one yield, between what begins and what ends"
        if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
            hint = "declare the generator function itself, without contextlib's decorator"
        raise TypeError(f"lifespan: {function!r} is not a generator function: {hint}")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise TypeError(
            f"lifespan: {function!r} is called without arguments; app.client is the client: {error}"
        ) from None


@final
class Lifespans:
    """Runs lifespans: begins each after the one before, and ends them in reverse order.

    Each has a thread of its own from its first line to its last; an async one is one task.
    """

    def __init__(
        self, functions: Sequence[LifespanFunction], *, name: str, loop: LoopThread
    ) -> None:
        """Lifespans that have not begun.

        Args:
            functions: the functions, in their order.
            name: the prefix of the threads' names.
            loop: the event loop of async ones.
        """
        self._functions = functions
        self._threads = ThreadGroup(name)
        self._loop = loop
        self._begun: list[_Lifespan] = []

    def begin(self) -> None:
        """Run each to its ``yield``; what has begun ends where a later one fails.

        Raises:
            Exception: what the function raised, or that it does not yield once.
        """
        for function in self._functions:
            lifespan = _Lifespan(function)
            try:
                lifespan.begin(self._threads, self._loop)
            except Exception as error:
                for other in self._end():
                    add_note(error, f"after that: {safe_repr(other)}")
                raise
            self._begun.append(lifespan)

    def end(self) -> None:
        """Run the rest of each, also where another fails.

        Raises:
            Exception: what a function raised; an ExceptionGroup if several did.
        """
        errors = self._end()
        if len(errors) > 1:
            raise ExceptionGroup(f"{len(errors)} lifespans failed at their end", errors)
        if errors:
            raise errors[0]

    def _end(self) -> list[Exception]:
        errors = []
        while self._begun:
            error = self._begun.pop().end()
            if error is not None:
                errors.append(error)
        self._threads.join()
        return errors


@final
class _Lifespan:
    """One call of a lifespan function."""

    def __init__(self, function: LifespanFunction) -> None:
        self._function: Callable[[], Any] = function
        self._name = name_of(function)
        self._is_at_yield = StopSignal()
        self._may_end = StopSignal()
        self._is_over = StopSignal()
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None

    def begin(self, threads: ThreadGroup, loop: LoopThread) -> None:
        """Run it to its ``yield``.

        Raises:
            Exception: it failed before.
        """

        def run() -> None:
            try:
                with loop.bound():
                    self._run()
            except BaseException as error:
                part = "after" if self._is_at_yield.is_set() else "before"
                self._error = as_exception(f"lifespan {self._name}", error)
                add_note(self._error, f"raised by the lifespan {self._name} {part} its yield")
            finally:
                self._is_over.set()

        self._thread = threads.start(self._name, run)
        self._wait(self._is_at_yield.child(self._is_over), "come to its yield")
        if not self._is_at_yield.is_set():
            self._is_over.wait()
            assert self._error is not None
            raise self._error

    def end(self) -> Exception | None:
        """Run the rest; returns what it raised."""
        self._may_end.set()
        self._wait(self._is_over, "ended")
        return self._error

    def _wait(self, signal: StopSignal, what: str) -> None:
        if signal.wait(_PATIENCE):
            return
        ident = None if self._thread is None else self._thread.ident
        place = "" if ident is None else callback_place(ident)
        _log.warning(
            "the lifespan %s has not %s after %g s%s: the program waits for it",
            self._name,
            what,
            _PATIENCE,
            f", and is at {place}" if place else "",
        )
        signal.wait()

    def _run(self) -> None:
        if inspect.isasyncgenfunction(self._function):
            settle(self._run_async(self._function()))
            return
        generator = self._function()
        for value in generator:
            self._note_yield(value)
            self._may_end.wait()
        self._check_yielded()

    async def _run_async(self, generator: Any) -> None:
        import asyncio

        ended = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            loop.call_soon_threadsafe(ended.set)

        async for value in generator:
            self._note_yield(value)
            detach = self._may_end.on_set(wake)
            try:
                await ended.wait()
            finally:
                detach()
        self._check_yielded()

    def _note_yield(self, value: object) -> None:
        if self._is_at_yield.is_set():
            raise RuntimeError(f"the lifespan {self._name} yields twice: it needs one yield")
        if value is not None:
            raise TypeError(
                f"the lifespan {self._name} yields {type(value).__name__}, which an App drops: "
                "yield nothing, and keep it in a variable of the module"
            )
        self._is_at_yield.set()

    def _check_yielded(self) -> None:
        if not self._is_at_yield.is_set():
            raise RuntimeError(f"the lifespan {self._name} ended without a yield: it needs one")
