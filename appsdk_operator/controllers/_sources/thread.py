"""The thread of a source that calls a function repeatedly, with backoff after failures."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import final

from appsdk_operator.cache import Health
from appsdk_operator.controllers._sources.claim import Claim
from appsdk_operator.runtime import (
    Backoff,
    Clock,
    Family,
    LoopThread,
    Metrics,
    Sample,
    StopSignal,
    ThreadGroup,
    as_exception,
    entered_metrics,
    get_logger,
    present_clock,
    present_metrics,
    random_of,
    safe_repr,
    safe_text,
)
from appsdk_operator.runtime.validation import check_environment, check_number, check_text

_log = get_logger("appsdk_operator.controllers")

_ERRORS = Family(
    "source_errors_total", "counter", "Calls of a source's own function that failed.", ("source",)
)
_FIRST_DELAY = 1.0
_LONGEST_DELAY = 60.0
_GRACE = 10.0
"""Seconds of failure that do not count yet, as for informers."""


def checked_interval(interval: float) -> float:
    """``interval``, checked to be a number of seconds above 0.

    Raises:
        ValueError: it is not.
    """
    check_number("interval", interval)
    if not 0 < interval < float("inf"):
        raise ValueError(f"interval={interval}: use more than 0 seconds")
    return interval


def checked_jitter(jitter: float) -> float:
    """``jitter``, checked to be a share from 0 on.

    Raises:
        ValueError: it is not.
    """
    check_number("jitter", jitter)
    if not 0 <= jitter < float("inf"):
        raise ValueError(f"jitter={jitter}: use a share of the interval from 0 on, such as 0.1")
    return jitter


@final
class SourceThread:
    """Calls ``function`` until that returns None, or until a stop. Thread-safe.

    Errors are logged and counted, and it is called again with growing delays (1 s, doubling, up to
    a minute). ``async def`` functions run on one event loop, and are cancelled at the stop.
    """

    def __init__(
        self,
        name: str,
        function: Callable[[StopSignal], float | None],
        *,
        longest_delay: float = _LONGEST_DELAY,
        is_lasting: bool = False,
        clock: Clock | None,
        metrics: Metrics | None,
        rng: random.Random | None,
    ) -> None:
        """A thread that does not run yet.

        Args:
            name: for logs, threads and metrics.
            function: returns the seconds until the next call; None ends the thread.
            longest_delay: the longest delay after failures in seconds, 60 at most.
            is_lasting: whether a call that has lasted 10 s counts as a success; default: only a
                call that has returned does.
            clock: the clock for all waits; default: the environment's.
            metrics: the metrics that it writes to; default: its Manager's, else
                :func:`~appsdk_operator.runtime.default_metrics`.
            rng: the source of jitter.
        """
        check_text("name", name, empty=False)
        check_environment(clock=clock, metrics=metrics, rng=rng)
        self.name = name
        self._call = function
        self._backoff = Backoff(
            initial=_FIRST_DELAY, maximum=min(longest_delay, _LONGEST_DELAY), jitter=0.1
        )
        self._is_lasting = is_lasting
        self._called_at: float | None = None
        clock = present_clock(clock)
        self.clock: Clock = clock
        self._metrics = entered_metrics(metrics)
        self.random = rng or random_of(clock)
        self._threads = ThreadGroup("source")
        self._loop = LoopThread(f"source/{name}")
        self._lock = threading.RLock()
        self._stop = StopSignal(clock=clock)
        self._detach: Callable[[], None] = lambda: None
        self._retire: Callable[[], None] = lambda: None
        self._claim = Claim(name)
        self._failures = 0
        self._errors = 0
        self._failing_since: float | None = None
        self._newest_error = ""

    def start(self, stop: StopSignal) -> None:
        """Start the thread, until ``stop``.

        Raises:
            RuntimeError: it was started before.
        """
        self._claim.take()
        self._retire = present_metrics(self._metrics).add_source(self._samples)
        # Waits use our own clock, whichever clock the given signal has.
        self._detach = stop.on_set(self._stop.set)
        self._stop.on_set(self._cancel)
        self._threads.start(self.name, self._run)

    @property
    def stop(self) -> StopSignal:
        """The stop signal of the thread."""
        return self._stop

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for its threads after the stop; returns the names of those that still run."""
        self._detach()
        running = self._threads.join(timeout)
        running += self._loop.close(timeout)
        self._retire()
        return running

    def health(self, is_synced: bool = True) -> Health:
        """Ready once started, unless the function has failed for more than 10 s."""
        with self._lock:
            now, since, error = self.clock.monotonic(), self._failing_since, self._newest_error
            called_at = self._called_at
        if self._is_lasting and called_at is not None and now - called_at >= _GRACE:
            since = None
        if not self._claim.is_taken:
            return Health(False, f"source {self.name}: not started")
        if self._stop.is_set():
            return Health(False, f"source {self.name}: stopped")
        if since is None:
            is_ready = is_synced
            words = "ok" if is_synced else "the first call has not ended yet"
        else:
            is_ready = is_synced and now - since <= _GRACE
            words = f"has failed for {now - since:.0f} s, and is retried; newest: {error}"
        return Health(is_ready, f"source {self.name}: {words}")

    def _run(self) -> None:
        with self._loop.bound():
            while not self._stop.is_set():
                began = self._called_at = self.clock.monotonic()
                try:
                    delay = self._call(self._stop)
                except BaseException as raised:
                    if self._stop.is_set():
                        _log.debug(
                            "source %s ended with its stop: %s", self.name, safe_repr(raised)
                        )
                        return
                    self._called_at = None
                    delay = self._failed(as_exception(f"source {self.name}", raised), began)
                else:
                    with self._lock:
                        self._called_at = self._failing_since = None
                        self._failures = 0
                if delay is None or self._stop.wait(delay):
                    return

    def _failed(self, error: Exception, began: float) -> float:
        now = self.clock.monotonic()
        with self._lock:
            if now - began > _LONGEST_DELAY:
                # A long call has worked for a while, such as one that receives messages.
                self._failures, self._failing_since = 0, None
            self._failures += 1
            self._errors += 1
            if self._failing_since is None:
                self._failing_since = now
            self._newest_error = f"{type(error).__name__}: {safe_text(error)}"[:300]
            failures = self._failures
        delay = self._backoff.delay(failures - 1, self.random)
        _log.error(
            "source %s failed, and is tried again in %.3g s: %s",
            self.name,
            delay,
            safe_repr(error),
            exc_info=error if failures == 1 else None,
            extra={"source": self.name, "attempt": failures - 1},
        )
        return delay

    def _cancel(self) -> None:
        self._loop.close(0.0)

    def _samples(self) -> list[Sample]:
        with self._lock:
            return [Sample(_ERRORS, (self.name,), self._errors)]
