"""Background functions: a thread or a coroutine for each object of a kind."""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, final

from appsdk_operator._generics import SpecT_co, StatusT_co, subscript
from appsdk_operator.app._background_state import Act, BackgroundState, Phase
from appsdk_operator.app._returned import check_nothing, is_async
from appsdk_operator.cache import Health, NotCachedError
from appsdk_operator.client import ClientLike, NotFound
from appsdk_operator.controllers import TerminalError, retry_after_seconds, sole_error
from appsdk_operator.resource import Object, ObjectKey, is_older_version
from appsdk_operator.runtime import (
    Clock,
    FailureLog,
    LoopPart,
    LoopThread,
    StopSignal,
    ThreadGroup,
    as_exception,
    asked_delay,
    callback_name,
    callback_place,
    counted,
    error_text,
    get_logger,
    settle,
)
from appsdk_operator.runtime.validation import FALLBACK_DELAY
from appsdk_operator.watchers import RetryPolicy

_log = get_logger("appsdk_operator.app")
Relents: TypeAlias = Callable[[Object[Any, Any], Object[Any, Any]], bool]
"""Whether what was given up for one state of an object is tried for another one."""
GRACE: Final = 10.0
"""Seconds that a run has to end after its stop, before its coroutine is cancelled, or the place is
logged at which its thread is."""
_MOST_SHOWN: Final = 100


@final
class Live(Generic[SpecT_co, StatusT_co]):
    """The newest state of the object of a background function. Thread-safe."""

    if not TYPE_CHECKING:
        __class_getitem__ = subscript

    def __init__(self, client: ClientLike, obj: Object[SpecT_co, StatusT_co]) -> None:
        """Made by the App."""
        self._client = client
        self._newest = obj

    @property
    def object(self) -> Object[SpecT_co, StatusT_co]:
        """The newest state of the object; once the object is gone, its last state."""
        newest = self._newest
        try:
            found = self._client.get(newest.kind, newest.name, namespace=newest.namespace)
        except (NotFound, NotCachedError):
            return newest
        if found.uid != newest.uid:
            return newest
        self._newest = found
        return found

    def __repr__(self) -> str:
        return f"<live {self._newest!r}>"


@final
class _Run:
    """One call of the function, for one object."""

    def __init__(
        self, key: ObjectKey, obj: Object[Any, Any], client: ClientLike, clock: Clock
    ) -> None:
        self.key = key
        self.uid = obj.uid
        self.live = Live(client, obj)
        self.stop = StopSignal(clock=clock)
        self.thread: threading.Thread | None = None
        self.cancel: Callable[[], None] | None = None
        """Cancels the coroutine, on its loop."""
        self.expires: float | None = None
        """When its grace is over; None: it was not asked to end, or that was noted."""

    @property
    def seen(self) -> Object[Any, Any]:
        """The state of its object that the function has seen last."""
        return self.live._newest  # noqa: SLF001 - no attribute for users


@final
class BackgroundRunner:
    """Runs one background function of an App; a runnable of the leader.

    Starts and stops are made by the thread of :meth:`run`, so that no run has the context of a
    call. Thread-safe.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str,
        loop: LoopThread,
        client: ClientLike,
        clock: Clock,
        retry: RetryPolicy,
        relents: Relents,
    ) -> None:
        """A runner that starts nothing before :meth:`run`.

        Args:
            function: what is called with a :class:`Live` and a stop signal.
            name: its name as a runnable.
            loop: where coroutines run; somebody else closes it.
            client: reads from the cache.
            clock: for delays and graces.
            retry: when it starts again after a failure.
            relents: whether a function that was given up for a state starts for another one.
        """
        self.name = name
        self.function = function
        self._is_async = is_async(function)
        self._callback = callback_name(function)
        self._loop = loop
        self._client = client
        self._clock = clock
        self._retry = retry
        self._relents = relents
        self._changed = threading.Condition()
        self._states: dict[ObjectKey, BackgroundState] = {}
        self._runs: dict[ObjectKey, _Run] = {}
        self._dirty: dict[ObjectKey, None] = {}
        self._times: list[tuple[float, ObjectKey]] = []
        self._is_held = False
        self._failures = FailureLog(_log, clock)

    # For the engine.

    def see(self, obj: Object[Any, Any], *, is_wanted: bool) -> None:
        """Take the newest state of an object; ``is_wanted``: it is to run in this state."""
        key = obj.key
        if self._is_from_before(obj):
            obj = Live(self._client, obj).object
        with self._changed:
            state = self._states.get(key)
            if state is None:
                if not is_wanted:
                    return
                state = self._states[key] = BackgroundState(self._relents)
            state.see(obj, is_wanted=is_wanted)
            self._note(key)

    def gone(self, obj: Object[Any, Any]) -> None:
        """The object does not exist any more."""
        with self._changed:
            state = self._states.get(obj.key)
            if state is not None:
                state.gone(obj.uid)
                self._note(obj.key)

    def wants_to_see(self, obj: Object[Any, Any], *, is_wanted: bool) -> bool:
        """Whether :meth:`see` with the same arguments may change what runs."""
        with self._changed:
            state = self._states.get(obj.key)
            if state is None:
                return is_wanted
            if state.uid != obj.uid or state.is_given_up:
                return True
            return is_wanted is (state.wanted is None)

    def is_wanted_for(self, obj: Object[Any, Any]) -> bool:
        """Whether it is to run for this very object, as :meth:`see` has said."""
        with self._changed:
            state = self._states.get(obj.key)
            return state is not None and state.wanted is not None and state.uid == obj.uid

    def is_running_for(self, obj: Object[Any, Any]) -> bool:
        """Whether a run for this very object has not ended."""
        with self._changed:
            run = self._runs.get(obj.key)
            return run is not None and run.uid == obj.uid

    def place_for(self, obj: Object[Any, Any]) -> str:
        """The line at which the run for the object is, for texts; ``""`` if it is not known."""
        with self._changed:
            run = self._runs.get(obj.key)
        ident = None if run is None or run.thread is None else run.thread.ident
        return "" if ident is None else callback_place(ident)

    # A runnable.

    def run(self, stop: StopSignal) -> None:
        """Start and stop runs until ``stop`` is set; then wait until all have ended."""
        threads, loop = ThreadGroup(self.name), LoopPart(self._loop)
        host = _Host(threads, loop) if self._is_async else None
        detach = stop.on_set(self._wake)
        with self._changed:
            self._look_at_all()
        try:
            while True:
                is_open = self._is_open(stop)
                self._look(threads, loop, host, is_open=is_open)
                with self._changed:
                    if stop.is_set() and not self._runs and not is_open:
                        break
                    if self._dirty or is_open is not self._is_open(stop):
                        continue
                    due = self._times[0][0] if self._times else None
                    left = None if due is None else max(0.0, due - self._clock.monotonic())
                    if left is None or left > 0:
                        self._clock.wait(self._changed, left)
        finally:
            detach()
            if host is not None:
                host.close()
            threads.join()
            loop.close()

    def hold(self) -> None:
        """End all runs, and start none until :meth:`let_go`; twice is harmless."""
        with self._changed:
            self._is_held = True
            self._changed.notify_all()

    def let_go(self) -> None:
        """Start again what is to run now, after :meth:`hold`."""
        with self._changed:
            self._is_held = False
            self._look_at_all()

    def health(self) -> Health:
        """Ready; with a note where the function was given up."""
        with self._changed:
            over = [key for key, state in self._states.items() if state.is_given_up]
        text = f"{self.name}: ok"
        if not over:
            return Health(True, text)
        names = ", ".join(map(str, over[:3])) + (", …" if len(over) > 3 else "")
        note = f"{self.name} was given up for {counted(len(over), 'object')}: {names}"
        return Health(True, text, note)

    def debug_snapshot(self) -> dict[str, Any]:
        """The phases of its objects, as JSON values; at most 100 of them by name."""
        with self._changed:
            phases = {str(key): str(state.phase) for key, state in self._states.items()}
        counts = {str(phase): 0 for phase in Phase}
        for phase in phases.values():
            counts[phase] += 1
        shown = dict(sorted(phases.items())[:_MOST_SHOWN])
        return {"function": self._callback, "phases": counts, "objects": shown}

    # Internals.

    def _is_from_before(self, obj: Object[Any, Any]) -> bool:
        """Whether the function was given up for a later state: it reads the cache, which is ahead.

        After a restore of the server the cache has no later state either.
        """
        with self._changed:
            state = self._states.get(obj.key)
            refused = None if state is None or state.uid != obj.uid else state.refused
        return refused is not None and is_older_version(
            obj.resource_version, refused.resource_version
        )

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _is_open(self, stop: StopSignal) -> bool:
        """Whether runs may start."""
        return not (stop.is_set() or self._is_held)

    def _look_at_all(self) -> None:
        """Look at all keys soon; the lock is held."""
        self._dirty.update(dict.fromkeys(self._states))
        self._changed.notify_all()

    def _note(self, key: ObjectKey) -> None:
        """Look at the key soon; the lock is held."""
        self._dirty[key] = None
        self._changed.notify_all()

    def _look(
        self, threads: ThreadGroup, loop: LoopPart, host: _Host | None, *, is_open: bool
    ) -> None:
        """Do what is due for the keys that have changed, and those whose time has come."""
        started: list[_Run] = []
        stopped: list[_Run] = []
        expired: list[_Run] = []
        with self._changed:
            now = self._clock.monotonic()
            while self._times and self._times[0][0] <= now:
                self._dirty[heapq.heappop(self._times)[1]] = None
            keys = list(self._dirty) if is_open else [*self._dirty, *self._runs]
            self._dirty.clear()
            for key in dict.fromkeys(keys):
                state = self._states.get(key)
                if state is None:
                    continue
                act = state.next(now, is_open=is_open)
                if act is Act.START:
                    assert state.running is not None
                    run = self._runs[key] = _Run(key, state.running, self._client, self._clock)
                    started.append(run)
                elif act is Act.STOP:
                    run = self._runs[key]
                    run.expires = now + GRACE
                    heapq.heappush(self._times, (run.expires, key))
                    stopped.append(run)
                elif (
                    (present := self._runs.get(key)) is not None
                    and present.expires is not None
                    and present.expires <= now
                ):
                    present.expires = None
                    if present.cancel is not None:
                        # The kit warns of one that goes on after its cancellation, too.
                        present.expires = now + GRACE
                        heapq.heappush(self._times, (present.expires, key))
                    expired.append(present)
                if state.is_forgettable:
                    del self._states[key]
        for run in stopped:
            run.stop.set()
        for run in expired:
            self._expire(run)
        for run in started:
            self._start(run, threads, loop, host)

    def _start(self, run: _Run, threads: ThreadGroup, loop: LoopPart, host: _Host | None) -> None:
        try:
            if host is not None:
                host.start(lambda: self._call_async(run))
                return

            def call() -> None:
                error: BaseException | None = None
                try:
                    with loop.bound():
                        check_nothing(self._callback, settle(self.function(run.live, run.stop)))
                except BaseException as raised:
                    error = raised
                self._ended(run, error)

            run.thread = threads.start(str(run.key), call)
        except Exception as error:  # no thread is left
            self._ended(run, error)

    async def _call_async(self, run: _Run) -> None:
        import asyncio

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        run.cancel = cancel
        error: BaseException | None = None
        try:
            check_nothing(self._callback, await self.function(run.live, run.stop))
        except asyncio.CancelledError as raised:
            if not run.stop.is_set():
                error = RuntimeError("it was cancelled, but the kit had not asked it to end")
                error.__cause__ = raised
        except BaseException as raised:
            error = raised
        run.cancel = None
        self._ended(run, error)

    def _expire(self, run: _Run) -> None:
        """The grace of a run is over."""
        cancel, run.cancel = run.cancel, None
        if cancel is not None:
            _log.warning(
                "%s has not ended %g s after its stop for %s: the kit cancels it",
                self._callback,
                GRACE,
                run.key,
            )
            cancel()
            return
        ident = None if run.thread is None else run.thread.ident
        place = "" if ident is None else callback_place(ident)
        _log.warning(
            "%s has not ended %g s after its stop for %s%s: the next step waits for it. Check the "
            "stop signal in it, and set a time-out on what it waits for",
            self._callback,
            GRACE,
            run.key,
            f", and is at {place}" if place else "",
        )

    def _ended(self, run: _Run, raised: BaseException | None) -> None:
        error = None
        if raised is not None:
            error = as_exception(self._callback, raised, for_main_thread=False)
        with self._changed:
            state = self._states[run.key]
            attempt = state.count_failure(self._clock.monotonic())
        delay, attempt = (None, 0) if error is None else self._delay(error, attempt)
        if error is not None:
            self._log_failure(run, error, delay)
        with self._changed:
            if error is None:
                state.returned()
            else:
                seen, wanted = run.seen, state.wanted
                if (
                    wanted is not None
                    and wanted.uid == seen.uid
                    and is_older_version(wanted.resource_version, seen.resource_version)
                ):
                    # The run reads the cache, which is ahead of the engine.
                    state.wanted = seen
                state.failed(seen, delay, attempt, self._clock.monotonic())
                if state.due is not None:
                    heapq.heappush(self._times, (state.due, run.key))
            del self._runs[run.key]
            self._note(run.key)

    def _delay(self, error: Exception, attempt: int) -> tuple[float | None, int]:
        """Seconds until the next start, None: not for this state; and the next attempt."""
        sole = sole_error(error)
        asked = retry_after_seconds(sole)
        if asked is not None:
            return asked, attempt
        if isinstance(sole, TerminalError):
            return None, 0
        delay = asked_delay(
            "retry",
            self._retry,
            *(error, attempt),
            failed=lambda _: _log.exception(
                "the retry policy of %s failed: the kit starts it again in %g s",
                self._callback,
                FALLBACK_DELAY,
            ),
        )
        return (None, 0) if delay is None else (delay, attempt + 1)

    def _log_failure(self, run: _Run, error: Exception, delay: float | None) -> None:
        asks = retry_after_seconds(sole_error(error)) is not None
        if run.stop.is_set():
            then = "was asked to end"
        elif delay is None:
            then = "does not start again before the object changes"
        else:
            then = f"starts again in {delay:g} s"
        self._failures.failed(
            error,
            self._callback,
            "%s failed in the background of %s, and %s: %s",
            self._callback,
            run.key,
            then,
            error_text(error),
            about=run.key,
            level=logging.DEBUG if asks else logging.ERROR,
        )


@final
class Backgrounds:
    """The background functions of a kind, for the reconciler of its other functions.

    It says which objects may have one: handled ones with the finalizer, that are not deleted.
    """

    def __init__(
        self, runners: Sequence[tuple[BackgroundRunner, Callable[[Object[Any, Any]], bool]]]
    ) -> None:
        """Runners, each with the objects for which it runs."""
        self._runners = runners

    def __bool__(self) -> bool:
        return bool(self._runners)

    @property
    def runners(self) -> list[BackgroundRunner]:
        """The runners, in the order of declaration."""
        return [runner for runner, _ in self._runners]

    def wants_to_see(
        self, obj: Object[Any, Any], *, may_run: bool, may_begin: bool = False
    ) -> bool:
        """Whether :meth:`see` with the same arguments may change what runs."""
        return any(
            runner.wants_to_see(obj, is_wanted=wanted)
            for runner, wanted in self._wanted(obj, may_run=may_run, may_begin=may_begin)
        )

    def see(self, obj: Object[Any, Any], *, may_run: bool, may_begin: bool = False) -> None:
        """Take the newest state of an object.

        Args:
            obj: the object.
            may_run: whether one that has begun for it may go on.
            may_begin: whether another one may begin, if it may run.
        """
        for runner, wanted in self._wanted(obj, may_run=may_run, may_begin=may_begin):
            runner.see(obj, is_wanted=wanted)

    def _wanted(
        self, obj: Object[Any, Any], *, may_run: bool, may_begin: bool
    ) -> Iterator[tuple[BackgroundRunner, bool]]:
        for runner, where in self._runners:
            may = may_run and (may_begin or runner.is_wanted_for(obj))
            yield runner, may and where(obj)

    def gone(self, obj: Object[Any, Any]) -> None:
        """The object does not exist any more."""
        for runner, _ in self._runners:
            runner.gone(obj)

    def running_for(self, obj: Object[Any, Any]) -> BackgroundRunner | None:
        """The first one with a run for this very object that has not ended."""
        for runner, _ in self._runners:
            if runner.is_running_for(obj):
                return runner
        return None


@final
class _Host:
    """Starts coroutines on an event loop; one thread waits for all of them."""

    def __init__(self, threads: ThreadGroup, loop: LoopPart) -> None:
        import asyncio

        self._has_begun = StopSignal()
        self._over = StopSignal()
        self._loop: asyncio.AbstractEventLoop | None = None
        coroutine = self._hold()

        def run() -> None:
            try:
                loop.run(coroutine)
            finally:
                self._has_begun.set()

        threads.start("coroutines", run)
        self._has_begun.wait()

    def start(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run the coroutine that ``make`` returns.

        Raises:
            RuntimeError: the loop could not be started, or has ended.
        """
        import asyncio

        if self._loop is None:
            raise RuntimeError("the event loop of the background functions could not be started")
        coroutine = make()
        try:
            asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except BaseException:
            coroutine.close()
            raise

    def close(self) -> None:
        """Let the waiting thread end; the coroutines have ended."""
        self._over.set()

    async def _hold(self) -> None:
        import asyncio

        self._loop = asyncio.get_running_loop()
        self._has_begun.set()
        await self._over.wait_async()
