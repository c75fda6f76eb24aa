"""The start of a controller's sources: in parallel, with one time-out each."""

from __future__ import annotations

import enum
import functools
import threading
from collections.abc import Callable, Hashable
from typing import Any, Generic, Protocol, TypeVar, final, runtime_checkable

from appsdk_operator.cache import Health
from appsdk_operator.controllers._protocols import (
    JoinableSource,
    RequestQueue,
    Source,
    SyncingSource,
)
from appsdk_operator.runtime import (
    Clock,
    StopSignal,
    ThreadGroup,
    Waiters,
    as_exception,
    get_logger,
    guarded_call,
    safe_repr,
    safe_text,
    thread_clock,
)

_log = get_logger("appsdk_operator.controllers")

R = TypeVar("R", bound=Hashable)


@runtime_checkable
class _HealthSource(Protocol):
    """A source that reports its health."""

    def health(self) -> Health: ...


class _StartState(enum.Enum):
    STARTING = "starting"
    SYNCING = "syncing"
    SYNCED = "synced"
    STOPPED = "stopped"
    FAILED = "failed"


_PENDING_STATES = (_StartState.STARTING, _StartState.SYNCING)


class SourceStart:
    """The start of one source; it refers to the source only while that is needed.

    Created without a lock, because the source's ``__str__`` is called.
    """

    def __init__(self, source: Source[Any]) -> None:
        self.source: Source[Any] | None = source
        self.text = f"source {safe_text(source)}"
        self.join = source.join if isinstance(source, JoinableSource) else None
        # Only of sources with threads, which live until the stop anyway.
        self.health: Callable[[], Health] | None = None
        if self.join is not None and isinstance(source, _HealthSource):
            self.health = source.health
        self.state = _StartState.STARTING
        self.error: Exception | None = None
        self.deadline = 0.0
        # Added while the workers run: no wait() waits for it.
        self.is_late = False
        # Whether its start was called and has not returned yet, and whether it has returned.
        self.is_starting = False
        self.has_started = False


@final
class SourceStarts(Generic[R]):
    """The started sources of one controller. Thread-safe."""

    def __init__(
        self, name: str, threads: ThreadGroup, clock: Clock, *, timeout: float, stop: StopSignal
    ) -> None:
        self._name = name
        self._threads = threads
        self._clock = clock
        self._timeout = timeout
        self._stop = stop
        self._changed = threading.Condition(threading.Lock())
        # Not the condition: a signal handler may stop the controller in the thread that waits.
        self._settled = Waiters(clock)
        self._starts: list[SourceStart] = []
        self._is_closed = False

    @property
    def is_empty(self) -> bool:
        """Whether there is no source."""
        with self._changed:
            return not self._starts

    def prepare(self, start: SourceStart, queue: RequestQueue[R]) -> Callable[[], object]:
        """Register a source, so that :meth:`wait` waits for it.

        Returns:
            A function that starts it in a thread, which waits until it has synced.

        Raises:
            RuntimeError: the sources are being joined.
        """
        source = self._register(start)
        run = functools.partial(self._run, start, source, queue)
        return lambda: self._threads.start(start.text, run)

    def start_late(self, start: SourceStart, queue: RequestQueue[R]) -> None:
        """Start a source in this thread while the workers run; :meth:`wait` does not wait for it.

        A thread logs when it does not sync in time. If its start raises it is not registered.

        Raises:
            RuntimeError: the sources are being joined.
            Exception: what the start of the source raised.
        """
        start.is_late = True
        source = self._register(start)
        self._start_here(start, source, queue)
        if isinstance(source, SyncingSource):
            self._set(start, _StartState.SYNCING)
            self._threads.start(start.text, functools.partial(self._watch_late, start, source))
        else:
            self._set(start, _StartState.SYNCED)

    def start_by_hand(
        self, start: SourceStart, queue: RequestQueue[R], *, stays: bool = False
    ) -> None:
        """Start a source in this thread, without waiting for its sync; for tests.

        One whose start raises is not registered, unless it ``stays`` as a failed one.
        """
        self._start_here(start, self._register(start), queue, stays=stays)
        self._set(start, _StartState.SYNCED)

    def wait(self) -> bool:
        """Wait until all sources have synced; False when stopped.

        Raises:
            Exception: what the first failed source raised.
            TimeoutError: one did not start or did not sync in time.
        """
        while not self._stop.is_set():
            with self._changed:
                starts = [start for start in self._starts if not start.is_late]
                for start in starts:
                    if start.error is not None:
                        raise start.error
                pending = [start for start in starts if start.state in _PENDING_STATES]
            if not pending:
                return True
            first = min(pending, key=lambda start: start.deadline)
            left = first.deadline - self._clock.monotonic()
            if left <= 0:
                error = self._too_late(first)
                self._fail(first, error)
                raise error
            has_news = functools.partial(self._has_news, pending, first.deadline)
            self._settled.wait(has_news, self._stop, left)
        return False

    def _has_news(self, pending: list[SourceStart], deadline: float) -> bool:
        """Whether one of those that were pending is not, another one has failed, or it is time."""
        return (
            any(start.state not in _PENDING_STATES for start in pending)
            or any(start.error is not None for start in self._starts.copy() if not start.is_late)
            or self._clock.monotonic() >= deadline
        )

    def join(self, timeout: float) -> list[str]:
        """Wait for the sources' threads after the stop; returns the names of those that still run.

        No source is started after this. A source whose start failed is not joined: it has no
        threads, or belongs to another controller.
        """
        clock = thread_clock()
        deadline = clock.monotonic() + timeout
        with self._changed:
            self._is_closed = True
            # A source that is starting may have no threads yet.
            while any(start.is_starting for start in self._starts):
                left = deadline - clock.monotonic()
                if left <= 0:
                    break
                clock.wait(self._changed, left)
            # The start threads of the others are joined, and reported, by the controller.
            running = [s.text for s in self._starts if s.is_starting and s.is_late]
            joins = [s.join for s in self._starts if s.join is not None and s.has_started]
            for start in self._starts:
                start.source = start.health = start.join = None
        for join in joins:
            left = max(0.0, deadline - clock.monotonic())
            running += guarded_call("join", join, left, failed=self._log_join, check=list)
        return running

    def _log_join(self, _: Exception) -> list[str]:
        _log.exception("controller %s: join() of a source failed at the stop", self._name)
        return []

    @property
    def has_synced(self) -> bool:
        """Whether all have synced."""
        with self._changed:
            return all(start.state is _StartState.SYNCED for start in self._starts)

    @property
    def is_pending(self) -> bool:
        """Whether one that is waited for has not synced yet."""
        with self._changed:
            return any(s.state is not _StartState.SYNCED and not s.is_late for s in self._starts)

    def health(self) -> Health:
        """Whether all have synced and can be relied on, and what they have to say."""
        with self._changed:
            starts = list(self._starts)
        found = [health for start in starts if (health := _health(start)) is not None]
        problems = [health.text for health in found if not health.is_ready]
        return Health(not problems, "; ".join(problems or [health.text for health in found]))

    def snapshot(self) -> list[dict[str, str]]:
        """Each source and its state, for debug pages."""
        with self._changed:
            return [{"source": start.text, "state": start.state.value} for start in self._starts]

    def _register(self, start: SourceStart) -> Source[R]:
        source = start.source
        if source is None:
            raise RuntimeError(f"{start.text} was started before")
        start.deadline = self._clock.monotonic() + self._timeout
        with self._changed:
            if self._is_closed:
                raise self._ended()
            self._starts.append(start)
        return source

    def _ended(self) -> RuntimeError:
        return RuntimeError(
            f"controller {self._name} has ended and starts no further sources: make a new one"
        )

    def _call_start(self, start: SourceStart, source: Source[R], queue: RequestQueue[R]) -> bool:
        """Start the source; False when it is too late for that."""
        with self._changed:
            if self._is_closed:
                return False
            start.is_starting = True
        try:
            source.start(queue, self._stop)
            start.has_started = True
            return True
        finally:
            with self._changed:
                start.is_starting = False
                self._changed.notify_all()

    def _run(self, start: SourceStart, source: Source[R], queue: RequestQueue[R]) -> None:
        try:
            if not self._call_start(start, source, queue):
                self._set(start, _StartState.STOPPED)
                return
            self._set(start, _StartState.SYNCING)
            if isinstance(source, SyncingSource):
                self._sync(start, source)
            else:
                self._set(start, _StartState.SYNCED)
        except BaseException as error:
            self._fail(start, as_exception(start.text, error, for_main_thread=False))

    def _watch_late(self, start: SourceStart, source: SyncingSource[R]) -> None:
        """Wait for the sync of a late source; logs its failure and keeps the controller running."""
        try:
            try:
                self._sync(start, source)
                return
            except TimeoutError as error:
                self._fail(start, error)
                self._log(start, error)
            if source.wait_for_sync(self._stop):
                self._set(start, _StartState.SYNCED)
        except BaseException as error:
            self._fail(start, as_exception(start.text, error, for_main_thread=False))
            self._log(start, error)

    def _log(self, start: SourceStart, error: BaseException) -> None:
        _log.error(
            "controller %s: %s, added while it runs, failed: %s",
            self._name,
            start.text,
            safe_text(error),
            extra={"controller": self._name},
        )

    def _start_here(
        self,
        start: SourceStart,
        source: Source[R],
        queue: RequestQueue[R],
        *,
        stays: bool = False,
    ) -> None:
        try:
            if not self._call_start(start, source, queue):
                raise self._ended()
        except BaseException as error:
            if stays and isinstance(error, Exception):
                self._fail(start, error)
                raise
            with self._changed:
                self._starts.remove(start)
            raise

    def _sync(self, start: SourceStart, source: SyncingSource[R]) -> None:
        left = max(0.0, start.deadline - self._clock.monotonic())
        if source.wait_for_sync(self._stop, left):
            self._set(start, _StartState.SYNCED)
        elif self._stop.is_set():
            self._set(start, _StartState.STOPPED)
        else:
            raise self._too_late(start)

    def _too_late(self, start: SourceStart) -> TimeoutError:
        within = f"within {self._timeout:g} s (cache_sync_timeout)"
        if start.state is _StartState.STARTING:
            return TimeoutError(
                f"controller {self._name}: {start.text} did not return from start {within}. "
                "Please ensure that its start is non-blocking: it begins to feed the queue and "
                "returns; put waits into wait_for_sync or into a thread"
            )
        return TimeoutError(
            f"controller {self._name}: {start.text} has not synced {within}"
            f"{_health_note(start.source)}: see whether the kind exists and the service account "
            "may list and watch it, or give it more time"
        )

    def _set(self, start: SourceStart, state: _StartState) -> None:
        with self._changed:
            start.state = state
            if state not in _PENDING_STATES:
                start.source = start.error = None
        self._settled.wake()

    def _fail(self, start: SourceStart, error: Exception) -> None:
        with self._changed:
            start.error = start.error or error
            start.state = _StartState.FAILED
        self._settled.wake()


def _health(start: SourceStart) -> Health | None:
    """The health of a source, if there is anything to report; None if all is well."""
    if start.error is not None:
        return Health(False, f"{start.text} failed: {safe_text(start.error)}")
    if start.state is not _StartState.SYNCED:
        return Health(False, f"{start.text} is {start.state.value}{_health_note(start.source)}")
    health = start.health
    if health is None:
        return None
    is_ready, words = _ask(health)
    if is_ready and words.endswith("ok"):
        return None
    return Health(is_ready, f"{start.text}: {words.removeprefix(f'{start.text}: ')}")


def _health_note(source: object) -> str:
    return f" ({_ask(source.health)[1]})" if isinstance(source, _HealthSource) else ""


def _ask(health: Callable[[], Health]) -> tuple[bool, str]:
    """Whether a source is ready, and its words; never raises."""
    found: tuple[bool, str] = guarded_call(
        "health",
        health,
        failed=lambda error: (False, f"its health failed: {safe_repr(error)}"),
        check=lambda own: (bool(own.is_ready), f"{own.text}"),
    )
    return found
