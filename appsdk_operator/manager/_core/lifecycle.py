"""The life of a manager: its groups start in order, run, and stop in reverse order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Protocol, final

from appsdk_operator.cache import Health
from appsdk_operator.manager._core.announcements import Announcements
from appsdk_operator.manager._core.cluster import Cluster
from appsdk_operator.manager._core.groups import Groups
from appsdk_operator.manager._core.runnable import Runnable, RunnableGroup, name_of
from appsdk_operator.manager._core.signals import wait_until_set
from appsdk_operator.runtime import (
    Clock,
    StopSignal,
    ThreadGroup,
    add_note,
    as_exception,
    get_logger,
    present_clock,
    raise_all,
    safe_repr,
    safe_text,
)

_log = get_logger("appsdk_operator.manager")

_BEFORE_ELECTION = (
    RunnableGroup.HTTP_SERVERS,
    RunnableGroup.WEBHOOKS,
    RunnableGroup.CACHES,
    RunnableGroup.OTHERS,
    RunnableGroup.WARM_UP,
)
_STOP_ORDER = (
    (RunnableGroup.WARM_UP, RunnableGroup.OTHERS),
    (RunnableGroup.LEADER_ELECTION,),
    (RunnableGroup.CACHES,),
    (RunnableGroup.WEBHOOKS,),
    (RunnableGroup.HTTP_SERVERS,),
)
_SERVERS_END = 1.0
"""Seconds for servers to close their ports when the grace period is over."""


class ElectorLike(Protocol):
    """A candidate in a leader election; :class:`Elector` is the one that uses a Lease."""

    @property
    def identity(self) -> str:
        """The name of this candidate, unique among all of them."""
        ...

    @property
    def leader(self) -> str:
        """The identity of the leader that was last observed; "" when there is none."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this process leads."""
        ...

    def check_write(self) -> None:
        """Raise LeadershipLost if this process may no longer begin a write."""
        ...

    def run(self, stop: StopSignal, on_started: Callable[[], None], /) -> None:
        """Take part until ``stop``; call ``on_started``, which returns at once, once it leads.

        Raises:
            LeadershipLost: this process has lost the lead.
        """
        ...

    def keep_lease(self) -> None:
        """Do not release the lease at the stop, because work that it protects still runs."""
        ...

    def health(self) -> Health:
        """Not ready if the lease could not be reached for too long."""
        ...


@final
class Elected:
    """Set once this process leads and its leader-only runnables have started. Thread-safe.

    Without leader election it is set once all runnables have started. It is never unset: a process
    that loses the lead ends.
    """

    def __init__(self, signal: StopSignal) -> None:
        """Follow ``signal``, which the manager sets."""
        self._signal = signal

    def is_set(self) -> bool:
        """Whether this process was elected and has started its leader-only runnables."""
        return self._signal.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for at most ``timeout`` seconds; returns :meth:`is_set`."""
        return self._signal.wait(timeout)

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once it is set; see :meth:`StopSignal.on_set`."""
        return self._signal.on_set(callback)


@final
class Lifecycle:
    """Starts the groups one after another, waits for the stop, and stops them in reverse order.

    1. Servers, webhooks, caches, others, warm-up: each is ready before the next one starts.
    2. The election; once it is won, or at once without one, the leader-only group.
    3. At a stop or a failure: warm-up and others, leader-only, caches, webhooks, servers; then
       the election, so that the lease is held until everything that it protects has ended. Where
       nothing of that has started, the election ends at once, and so wins no lease any more.
    """

    def __init__(
        self,
        *,
        elector: ElectorLike | None = None,
        base_stop: StopSignal | None = None,
        graceful_shutdown_timeout: float | None = 30.0,
        announce: Announcements | None = None,
        clock: Clock | None = None,
    ) -> None:
        """For the arguments see :class:`ManagerOptions`; ``announce`` logs the end of the start,
        and the stop."""
        self._announce = announce
        self._elector = elector
        self._base_stop = base_stop
        self._grace = graceful_shutdown_timeout
        self._clock = clock = present_clock(clock)
        self._halt = StopSignal(clock=clock)
        self._lost = StopSignal(clock=clock)
        self._errors: list[tuple[str, Exception]] = []
        self._running_reconciles: list[str] = []
        self._is_running = False
        self._lock = threading.Lock()
        self._threads = ThreadGroup("manager")
        self._elector_stop = StopSignal(clock=clock)
        self.stop_reason = ""
        """Why a stop was requested, for the log; set before the stop."""
        self.has_time = graceful_shutdown_timeout != 0
        """Whether the grace period goes on: it is not 0, and no group has exceeded it yet."""
        self._elected_signal = StopSignal(clock=clock)
        self.elected = Elected(self._elected_signal)
        self.groups = Groups(on_failure=self._fail, base_stop=base_stop, clock=clock)

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was requested, or a runnable has failed."""
        return self._halt.is_set()

    def close(self) -> None:
        """Stop the run, without waiting for it; without a run, prevent one."""
        self._halt.set()
        with self._lock:
            if self._is_running:
                return  # the run closes the rest when everything has ended
        never_started = self.groups.close()
        for name in RunnableGroup:
            if not self.groups[name].has_started:
                self.groups[name].stop()
        _close_all(never_started)

    def run(self, stop: StopSignal | None = None) -> None:
        """Start all, wait for the stop or a failure, stop all; see :meth:`Manager.run`."""
        with self._lock:
            self._is_running = True
        signals = [signal for signal in (stop, self._base_stop) if signal is not None]
        detachers = [signal.on_set(self._halt.set) for signal in signals]
        stuck: Sequence[str] = ()
        try:
            self._start()
            wait_until_set(self._halt, self._clock)
        except Exception as error:  # a thread cannot be started
            _log.error("the manager cannot start all runnables and stops: %s", safe_text(error))
            with self._lock:
                self._errors.append(("start", error))
        finally:
            self._halt.set()
            for detach in detachers:
                detach()
            stuck = self._end()
        self._raise(stuck)

    # Start.

    def _start(self) -> None:
        for name in _BEFORE_ELECTION:
            if not self.groups[name].start(self._halt):
                return
        if self._elector is not None and not self._lead(self._elector):
            return
        if self.groups[RunnableGroup.LEADER_ELECTION].start(self._halt):
            if self._announce is not None:
                self._announce.has_started(self.groups.runnables)
            self._elected_signal.set()

    def _lead(self, elector: ElectorLike) -> bool:
        """Run the election in a thread; returns whether it was won before the stop."""
        leading = StopSignal(clock=self._clock)
        detach = self._halt.on_set(leading.set)

        def run() -> None:
            try:
                elector.run(self._elector_stop, leading.set)
                if not self._elector_stop.is_set():
                    raise RuntimeError("the leader election ended although nobody stopped it")
            except BaseException as error:
                # Without a running election this process cannot know whether it still leads.
                self._lost.set()
                self._fail(
                    "leader election",
                    as_exception("the leader election", error, for_main_thread=False),
                )

        self._threads.start("elector", run)
        wait_until_set(leading, self._clock)
        detach()
        return not self._halt.is_set()

    def _fail(self, name: str, error: Exception) -> None:
        with self._lock:
            self._errors.append((name, error))
            is_late = self._halt.is_set()
        self._halt.set()
        if is_late:  # run() may have collected its errors already
            text = "runnable %s failed while the manager stops: %s"
            _log.error(text, name, safe_text(error), exc_info=error)
        else:
            _log.error("runnable %s failed, the manager stops: %s", name, safe_text(error))

    # Stop.

    @property
    def _has_led(self) -> bool:
        """Whether anything was started that the lease protects."""
        return self.groups[RunnableGroup.LEADER_ELECTION].has_started

    def _end(self) -> Sequence[str]:
        """Stop everything; returns the names of runnables that exceeded the grace period."""
        never_started = self.groups.close()
        try:
            if self._elector is not None and not self._has_led:
                give_back = getattr(self._elector, "give_back_lease", None)
                if callable(give_back):
                    give_back()
                self._elector_stop.set()
            return self._stop_in_order(never_started)
        except BaseException:
            # Ctrl-C during the stop: set all stop signals, and wait for nothing any more.
            self.has_time = False
            for name in RunnableGroup:
                self.groups[name].stop()
            if self._elector is not None:
                self._elector.keep_lease()
            self._elector_stop.set()
            raise

    def _stop_in_order(self, never_started: Sequence[Runnable]) -> Sequence[str]:
        grace = self._grace
        if self._announce is not None:
            self._announce.stops(self.stop_reason, grace, has_failed=bool(self._errors))
        deadline = None if grace is None or grace < 0 else self._clock.monotonic() + grace
        stuck: list[str] = []
        for names in _STOP_ORDER:
            for name in names:
                self.groups[name].stop()
            if self.has_time:
                for name in names:
                    running = self.groups[name].wait_ended(deadline, self._lost)
                    stuck += [f"{one} (group {name})" for one in running]
                    if running:
                        self._running_reconciles += _reconciles(self.groups[name].runnables)
                self.has_time = not stuck and not self._lost.is_set()
        if grace != 0:
            self.groups[RunnableGroup.WEBHOOKS].join(_SERVERS_END)
            self.groups[RunnableGroup.HTTP_SERVERS].join(_SERVERS_END)
        _close_all(never_started)
        self._end_election()
        if self._announce is not None and not stuck:
            self._announce.has_stopped()
        # A lost lease ends the grace period at once, so no runnable has exceeded it.
        return () if self._lost.is_set() else stuck

    def _end_election(self) -> None:
        if self._elector is None:
            return
        leaders = self.groups[RunnableGroup.LEADER_ELECTION]
        running = [*leaders.running, *leaders.left_behind]
        if running and not self._lost.is_set():
            _log.warning(
                "%s still runs, so the manager does not release the lease: another replica leads "
                "when it has expired",
                ", ".join(running),
            )
            self._elector.keep_lease()
        self._elector_stop.set()
        self._threads.join()

    def _raise(self, stuck: Sequence[str]) -> None:
        with self._lock:
            errors = list(self._errors)
        failures: list[Exception] = []
        if errors:
            _, first = errors[0]
            for name, error in errors[1:]:
                add_note(first, f"after that, runnable {name} failed too: {safe_repr(error)}")
            failures.append(first)
        if stuck:
            text = (
                "failed waiting for all runnables to end within grace period of "
                f"{self._grace:g}s: {', '.join(stuck)} still running"
            )
            if self._running_reconciles:
                reconciles = "; ".join(self._running_reconciles)
                text += (
                    f"; reconciles that do not return: {reconciles}: let them look at "
                    "reconcile_context().stop, and set a time-out for what they wait for"
                )
            failures.append(TimeoutError(text))
        raise_all("a runnable failed, and not all of them ended", failures)


def _reconciles(runnables: Sequence[Runnable]) -> list[str]:
    """The reconciles that run now, by controller."""
    from appsdk_operator.controllers import Controller

    return [
        f"{one.name}: {work}"
        for one in runnables
        if isinstance(one, Controller)
        for work in one.running_reconciles()
    ]


def _close_all(never_started: Sequence[Runnable]) -> None:
    """Close runnables that were never started: they may hold ports, or run after a warm-up.

    The last one first, each once. Clusters stay open: their clients write the last events.
    """
    for runnable in {id(one): one for one in reversed(never_started)}.values():
        if isinstance(runnable, Cluster):
            continue
        close = getattr(runnable, "close", None)
        if not callable(close):
            continue
        try:
            close()
        except KeyboardInterrupt:
            raise
        except BaseException:
            _log.exception("%s was never started, and could not be closed", name_of(runnable))
