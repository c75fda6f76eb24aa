"""Groups of threads, and an event loop in a thread for ``async def`` callbacks."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar, final

from appsdk_operator.runtime._environment import entered_environment, thread_clock
from appsdk_operator.runtime._logs.loggers import get_logger
from appsdk_operator.runtime._logs.texts import safe_repr
from appsdk_operator.runtime._logs.tracebacks import awaiting_place, present_place
from appsdk_operator.runtime._threading.waiters import Gate
from appsdk_operator.runtime._user_code import as_exception

# asyncio is imported where it is used: it takes longer to load than the rest of the room, and many
# programs have no coroutines.
if TYPE_CHECKING:
    import asyncio


_log = get_logger("appsdk_operator.runtime")
T = TypeVar("T")
NO_THREAD: Final = (RuntimeError, MemoryError)
"""What the start of a thread raises where the system has none left."""
_HELD_FOR = 1.0
"""Seconds that a coroutine may block its event loop before that is logged."""
_LOOK_EVERY = 30.0
"""The longest pause in seconds between two looks by a thread that waits for a coroutine."""
_MOST_PLACES = 100
"""Places in the code of which one loop warns."""
_awaited: dict[int, AwaitedCoroutine[Any] | _Link] = {}
"""The coroutine that a thread waits for in :meth:`LoopThread.run`, by the thread's ident."""
Following: TypeAlias = Callable[[Any], tuple[contextvars.Context, Coroutine[Any, Any, Any]] | None]
"""Called in the loop's thread with what a coroutine has returned; what it returns runs next."""
_bound = threading.local()
_owner: contextvars.ContextVar[object] = contextvars.ContextVar("owner_of_thread", default=None)
_origin: contextvars.ContextVar[contextvars.Context | None] = contextvars.ContextVar(
    "origin_of_thread", default=None
)
"""The context in which the user started what the thread is part of."""


@final
class owned_by:  # noqa: N801
    """Within the block, start threads for ``owner``; the threads that they start are its, too.

    A class, because a generator's context replaces a user's exception that takes no traceback.
    """

    def __init__(self, owner: object) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        self._token = _owner.set(self._owner)

    def __exit__(self, *_: object) -> None:
        _owner.reset(self._token)


def present_owner() -> object:
    """What the calling thread or coroutine runs for: a manager, for example; None for nothing."""
    return _owner.get()


@final
class ThreadGroup:
    """Threads with a common name prefix, which are joined together.

    None of them is a daemon, so the end of the interpreter kills none in the middle of a write.
    Thread-safe.
    """

    def __init__(self, name: str, *, on_failure: Callable[[Exception], None] | None = None) -> None:
        """A group of threads.

        Args:
            name: the prefix of the threads' names, ``name/…``.
            on_failure: called with the error that ended a thread, after that was logged; for owners
                that cannot go on without the thread.
        """
        self._name = name
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._forget_at = 1
        """The number of threads at which those that have ended are looked for."""

    def start(self, name: str, target: Callable[[], None]) -> threading.Thread:
        """Run ``target`` in a new thread; its errors, ``SystemExit`` included, are logged.

        The thread works for the same controller or manager as the calling one, in the same
        :class:`environment`. It has the other context variables of the thread of the user in which
        everything began, and not those of a callback that it happens to be started in.
        """
        owner = _owner.get()
        environment = entered_environment()
        origin = _origin.get() or contextvars.copy_context()

        def run() -> None:
            _owner.set(owner)
            _origin.set(origin)
            try:
                with environment:
                    target()
            except BaseException as error:
                _log.exception("thread %s failed", thread.name)
                if self._on_failure is not None:
                    self._on_failure(as_exception(f"thread {thread.name}", error))

        thread = threading.Thread(
            target=origin.copy().run, args=(run,), name=f"{self._name}/{name}", daemon=False
        )
        with self._lock:
            if len(self._threads) >= self._forget_at:
                self._threads = [t for t in self._threads if t.is_alive()]
                self._forget_at = 2 * len(self._threads) or 1
            # Added first: Ctrl-C may come while it starts.
            self._threads.append(thread)
            thread.start()
        return thread

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for all threads, including those that they start meanwhile.

        Args:
            timeout: the longest wait for all together, in seconds of real time; default: no limit.

        Returns:
            The names of the threads that still run; empty when all have ended.
        """
        clock = thread_clock()
        deadline = None if timeout is None else clock.monotonic() + timeout
        joined = [threading.current_thread()]
        while True:
            with self._lock:
                # A thread whose start failed has no ident, and cannot be joined.
                threads = [t for t in self._threads if t.ident is not None and t not in joined]
            if not threads:
                return [t.name for t in joined[1:] if t.is_alive()]
            for thread in threads:
                left = None if deadline is None else deadline - clock.monotonic()
                thread.join(None if left is None else max(0.0, left))
            joined += threads


@final
class LoopThread:
    """An asyncio event loop in a thread of its own, started on first use.

    Blocking code runs coroutines with :meth:`run` and waits for their results, so that
    ``async def`` callbacks have the same guarantees of order as plain functions. Thread-safe.
    """

    def __init__(self, name: str) -> None:
        """The thread has the name ``name/loop``."""
        self._name = name
        self._held_at: set[str] = set()
        self._group = ThreadGroup(name)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._has_to_end = False

    def run(self, coroutine: Coroutine[Any, Any, T], *, following: Following | None = None) -> T:
        """Run ``coroutine`` on the loop; returns its result or raises its error.

        Args:
            coroutine: the coroutine.
            following: called once it has returned, and has not been cancelled. It may return
                another one, which runs in that context, and whose end is as this one's. So the
                calling thread waits for several, at the cost of one wait.

        Raises:
            RuntimeError: the caller runs in the loop's thread, or that cannot be started; the next
                call tries again.
            OSError: there is no file descriptor for it; the same.
            concurrent.futures.CancelledError: the loop was closed, before or meanwhile.
        """
        return self.wait_for(self.begin(coroutine, following=following))

    def begin(
        self,
        coroutine: Coroutine[Any, Any, T],
        *,
        may_lend: bool = False,
        following: Following | None = None,
    ) -> AwaitedCoroutine[T]:
        """Begin to run a coroutine, for which the same thread then calls :meth:`wait_for`.

        Args:
            coroutine: the coroutine.
            may_lend: whether that is given a ``lend``.
            following: as for :meth:`run`.

        Raises:
            RuntimeError, OSError, concurrent.futures.CancelledError: as :meth:`run`.
        """
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise _cancelled("the controller's event loop was closed")
            if self._thread is threading.current_thread():
                coroutine.close()
                raise RuntimeError(
                    "the event loop's own thread cannot wait for a coroutine: await it instead"
                )
            try:
                loop = self._loop or self._start()
            except BaseException:
                coroutine.close()
                raise
            # Before it begins: from then on it can be cancelled.
            awaited = AwaitedCoroutine(coroutine, loop, tells_when_waiting=may_lend)
            thread = threading.get_ident()
            if following is None:
                _awaited[thread] = awaited
            else:
                awaited.chain(thread, self._unless_closed(following))
            awaited.schedule()
        return awaited

    def wait_for(
        self,
        awaited: AwaitedCoroutine[T],
        lend: Callable[[], Callable[[], None] | None] | None = None,
    ) -> T:
        """The result of a coroutine that this thread has begun.

        Args:
            awaited: the coroutine.
            lend: called if the coroutine waits for something, so that this thread has nothing to
                do meanwhile; what it returns is called at the end, before this returns.
        """
        try:
            return self._result_of(awaited, lend)
        finally:
            _awaited.pop(threading.get_ident(), None)

    def _unless_closed(self, following: Following) -> Following:
        return lambda outcome: None if self._is_closed else following(outcome)

    def _start(self) -> asyncio.AbstractEventLoop:
        """Start the loop in its thread; the lock is held."""
        import asyncio

        loop = self._loop = asyncio.new_event_loop()
        try:
            self._thread = self._group.start("loop", lambda: self._run_loop(loop))
        except Exception:
            # Nothing would ever run on it.
            self._loop = None
            loop.close()
            raise
        return loop

    def _run_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio

        asyncio.set_event_loop(loop)
        loop.set_exception_handler(_log_loop_error)
        try:
            while not self._has_to_end:
                # A task that a coroutine has started may raise SystemExit, or stop the loop.
                self._outlive(loop.run_forever)
            # In the order of their creation, as they are called by their numbers.
            while pending := sorted(
                asyncio.all_tasks(loop), key=lambda task: (len(task.get_name()), task.get_name())
            ):
                for task in pending:
                    task.cancel()
                ended = asyncio.gather(*pending, return_exceptions=True)
                if self._outlive(functools.partial(loop.run_until_complete, ended)):
                    break
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            with self._lock:
                if self._loop is loop:
                    self._loop = None  # it broke: the next call starts another one
            asyncio.set_event_loop(None)
            loop.close()

    def _outlive(self, run: Callable[[], object]) -> bool:
        """Whether ``run`` ended by itself, and not by what a task raises to end the program."""
        try:
            run()
        except (SystemExit, KeyboardInterrupt) as error:
            _log.exception("a task on the event loop of %s raised %s", self._name, safe_repr(error))
            return False
        return True

    def _end(self, loop: asyncio.AbstractEventLoop) -> None:
        """End the loop, in its thread."""
        self._has_to_end = True
        loop.stop()

    def _result_of(
        self,
        awaited: AwaitedCoroutine[T],
        lend: Callable[[], Callable[[], None] | None] | None,
    ) -> T:
        """The result; meanwhile a look now and then at whether the loop is held."""
        pause, loop = _HELD_FOR, awaited.loop
        take_back: Callable[[], None] | None = None
        try:
            while not awaited.has_ended():
                if awaited.changed.wait(pause):
                    if lend is not None and not awaited.has_ended():
                        take_back, lend = lend(), None
                    continue
                self._look_at(loop)
                if loop.is_closed() and not awaited.has_ended():  # nobody else will end it
                    awaited.coroutine.close()
                    raise _cancelled("the controller's event loop was closed")
                pause = min(2 * pause, _LOOK_EVERY)
            return awaited.outcome()
        finally:
            if take_back is not None:
                take_back()

    def _look_at(self, loop: asyncio.AbstractEventLoop) -> None:
        """Warn if the loop does not answer for a second: a coroutine blocks its thread."""
        answered = threading.Event()
        try:
            loop.call_soon_threadsafe(answered.set)
        except RuntimeError:  # it was closed
            return
        if answered.wait(_HELD_FOR):
            return
        thread = self._thread
        place = present_place(None if thread is None else thread.ident)
        if not place or place in self._held_at or len(self._held_at) >= _MOST_PLACES:
            return
        self._held_at.add(place)
        _log.warning(
            "%s has blocked the event loop of %s for more than a second. No other async callback "
            "runs meanwhile. Await an async library there, put blocking calls into "
            "asyncio.to_thread(…), or make the callback a plain def",
            place,
            self._name,
            extra={"controller": self._name, "callback": place},
        )

    @property
    def thread_name(self) -> str:
        """The name of its thread."""
        return f"{self._name}/loop"

    def bound(self) -> contextlib.AbstractContextManager[None]:
        """Make :func:`settle` use this loop in the calling thread."""
        return settle_on(self)

    def close(self, timeout: float | None = None) -> list[str]:
        """Cancel running coroutines, stop the loop and join its thread; twice is harmless.

        Args:
            timeout: the longest wait in seconds for coroutines that ignore their cancellation;
                default: no limit.

        Returns:
            The name of the thread if it still runs.
        """
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it broke meanwhile
                loop.call_soon_threadsafe(self._end, loop)
        return self._group.join(timeout)


@final
class LoopPart:
    """The coroutines of one of those who share a :class:`LoopThread`, which end together.

    Thread-safe.
    """

    def __init__(
        self,
        loop: LoopThread,
        *,
        lend: Callable[[], Callable[[], None] | None] | None = None,
    ) -> None:
        """A part of ``loop``; ``lend`` is that of :meth:`LoopThread.wait_for`."""
        self._loop = loop
        self._lend = lend
        self._changed = threading.Condition()
        # By insertion: the order of cancellations is the same in each run.
        self._running: dict[AwaitedCoroutine[Any], None] = {}
        self._is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, T], *, following: Following | None = None) -> T:
        """As :meth:`LoopThread.run`."""
        with self._changed:
            if self._is_closed:
                coroutine.close()
                raise _cancelled("the controller has stopped")
            may_lend = self._lend is not None
            awaited = self._loop.begin(coroutine, may_lend=may_lend, following=following)
            self._running[awaited] = None
        try:
            return self._loop.wait_for(awaited, self._lend)
        finally:
            with self._changed:
                del self._running[awaited]
                self._changed.notify_all()

    def bound(self) -> contextlib.AbstractContextManager[None]:
        """Make :func:`settle` use this part of the loop in the calling thread."""
        return settle_on(self)

    def close(self, timeout: float | None = None) -> list[str]:
        """Cancel its coroutines, and wait until they have ended; twice is harmless.

        Args:
            timeout: the longest wait in seconds for coroutines that ignore their cancellation;
                default: no limit.

        Returns:
            The name of the loop's thread if some of them still run.
        """
        with self._changed:
            running = [] if self._is_closed else list(self._running)
            self._is_closed = True
        for awaited in running:
            awaited.cancel()
        with self._changed:
            has_ended = self._changed.wait_for(lambda: not self._running, timeout)
        return [] if has_ended else [self._loop.thread_name]


@final
class AwaitedCoroutine(Generic[T]):
    """A coroutine that a thread waits for, which another one may cancel.

    With :meth:`chain` it stands for several, one after the other: :meth:`cancel` ends them all.
    """

    __slots__ = (
        "_error",
        "_following",
        "_has_ended",
        "_is_cancelled",
        "_link",
        "_outcome",
        "_task",
        "_tells_when_waiting",
        "_thread",
        "changed",
        "coroutine",
        "loop",
    )

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, T],
        loop: asyncio.AbstractEventLoop,
        *,
        tells_when_waiting: bool,
    ) -> None:
        self.coroutine: Coroutine[Any, Any, T] = coroutine
        self.loop: asyncio.AbstractEventLoop = loop
        self.changed: Gate = Gate()
        """Opened when it is over, and if it is to tell that, when it waits for something."""
        self._has_ended = False
        self._task: asyncio.Task[Any] | None = None
        self._is_cancelled = False
        self._tells_when_waiting = tells_when_waiting
        self._outcome: Any = None
        self._error: BaseException | None = None
        self._following: Following | None = None
        self._thread = 0
        self._link: _Link | None = None

    def chain(self, thread: int, following: Following) -> None:
        """Before it begins: go on with the coroutines of ``following``, for ``thread``."""
        self._following, self._thread = following, thread
        self._link = _awaited[thread] = _Link(self, self.coroutine)

    def schedule(self) -> None:
        """Begin it on the loop, with the context variables of the caller."""
        self.loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> None:
        """Cancel it, from any thread. The thread that waits goes on once it has ended."""
        with contextlib.suppress(RuntimeError):  # a closed loop has cancelled it
            self.loop.call_soon_threadsafe(self._cancel)

    def has_ended(self) -> bool:
        """Whether it is over."""
        return self._has_ended

    def outcome(self) -> T:
        """What it has returned, once it is over; or raises its error."""
        error, self._error = self._error, None
        if error is None:
            outcome: T = self._outcome
            return outcome
        try:
            raise error
        finally:
            del error  # whose traceback holds this frame

    def _begin(self) -> None:
        if self._is_cancelled:
            self.coroutine.close()
            self._end(None, _cancelled("it was cancelled before it began"))
            return
        running = self._run()
        try:
            self._task = task = self.loop.create_task(running)
        except BaseException as error:  # of a task factory
            running.close()
            self.coroutine.close()
            self._end(None, error)
            return
        task.add_done_callback(self._ended)
        if self._tells_when_waiting:
            self.loop.call_soon(self._look)  # after its first step

    async def _run(self) -> T:
        """Await it; SystemExit and the like become errors, or they would end the loop."""
        try:
            return await self.coroutine
        except (SystemExit, KeyboardInterrupt) as error:
            raise RuntimeError(f"the coroutine raised {safe_repr(error)}") from error

    def _look(self) -> None:
        if self._task is not None and not self._task.done():
            self.changed.open()

    def _cancel(self) -> None:
        self._is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    def cancel_link(self, link: _Link) -> None:
        """Cancel one of several, in the loop's thread, unless it is over."""
        if self._link is link:
            self._cancel()

    def _goes_on(self, outcome: Any) -> bool:
        """Begin what follows; False: nothing does."""
        following = self._following
        if following is None or self._is_cancelled:
            return False
        # Before the next call can be seen: who ends that at its limit must not find this one, whose
        # cancellation would come to nothing.
        self._task = self._link = None
        _awaited.pop(self._thread, None)
        try:
            found = following(outcome)
            if found is None:
                return False
            context, self.coroutine = found
            self._link = _awaited[self._thread] = _Link(self, self.coroutine)
            context.run(self._begin)
        except BaseException as error:
            self._end(None, error)
        return True

    def _ended(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.coroutine.close()  # if it never began
            self._end(None, _cancelled("the coroutine was cancelled"))
        elif (error := task.exception()) is not None:
            self._end(None, error)
        elif not self._goes_on(outcome := task.result()):
            self._end(outcome, None)

    def _end(self, outcome: T | None, error: BaseException | None) -> None:
        self._task = None  # which refers to this in turn
        self._outcome, self._error, self._has_ended = outcome, error, True
        self.changed.open()


@final
class _Link:
    """One of several coroutines that a thread waits for; what is cancelled is only this one."""

    __slots__ = ("_chain", "coroutine")

    def __init__(self, chain: AwaitedCoroutine[Any], coroutine: Coroutine[Any, Any, Any]) -> None:
        self._chain = chain
        self.coroutine: Coroutine[Any, Any, Any] = coroutine

    def cancel(self) -> None:
        """Cancel it, from any thread, unless it is over."""
        chain = self._chain
        with contextlib.suppress(RuntimeError):  # a closed loop has cancelled it
            chain.loop.call_soon_threadsafe(chain.cancel_link, self)


def _cancelled(text: str) -> Exception:
    from concurrent.futures import CancelledError

    return CancelledError(text)


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an error of asyncio; an error of a log filter must not end the loop."""
    try:
        loop.default_exception_handler(context)
    except Exception as error:
        _log.error("asyncio could not log an error: %s", context.get("message"), exc_info=error)


def callback_place(thread: int) -> str:
    """The line of the user's code at which a thread is, or the coroutine that it waits for.

    Returns:
        ``function (file.py:12)``; ``""`` if it is nowhere in code of the user.
    """
    awaited = _awaited.get(thread)
    return present_place(thread) if awaited is None else awaiting_place(awaited.coroutine)


def awaited_by(thread: int) -> AwaitedCoroutine[Any] | _Link | None:
    """The coroutine that a thread waits for on an event loop's thread; None: for none."""
    return _awaited.get(thread)


class CoroutineRunner(Protocol):
    """Runs coroutines for threads that wait for them, as :class:`LoopThread` does."""

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine and return its result."""
        ...


def settle_on(runner: CoroutineRunner | None) -> contextlib.AbstractContextManager[None]:
    """Make :func:`settle` use ``runner`` in the calling thread; None: a loop for each call."""
    return _Binding(runner)


@final
class _Binding:
    """What :func:`settle_on` returns; servers enter one for each request."""

    __slots__ = ("_before", "_runner")

    def __init__(self, runner: CoroutineRunner | None) -> None:
        self._runner = runner
        self._before: CoroutineRunner | None = None

    def __enter__(self) -> None:
        self._before = getattr(_bound, "loop", None)
        _bound.loop = self._runner

    def __exit__(self, *_: object) -> None:
        _bound.loop = self._before


def present_runner() -> CoroutineRunner | None:
    """The runner of :func:`settle` in the calling thread, for :func:`settle_on` in another one."""
    runner: CoroutineRunner | None = getattr(_bound, "loop", None)
    return runner


def settle(outcome: Any) -> Any:
    """Return ``outcome``, or if that is awaitable, its result.

    It is awaited on the :class:`LoopThread` to which this thread is bound, or without one on a loop
    of its own: when a test calls a watcher directly, and within a coroutine, whose own loop stands
    still meanwhile, in another thread.
    """
    if outcome is None or not inspect.isawaitable(outcome):
        return outcome
    loop = present_runner()
    # A coroutine is not wrapped, so that a closed loop can close it instead of leaving it open.
    coroutine = outcome if inspect.iscoroutine(outcome) else _wait_for(outcome)
    if loop is not None:
        return loop.run(coroutine)
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    own = LoopThread(threading.current_thread().name)
    try:
        return own.run(coroutine)
    finally:
        own.close()


async def _wait_for(awaitable: Any) -> Any:
    return await awaitable
