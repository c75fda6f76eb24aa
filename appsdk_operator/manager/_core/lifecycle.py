"""The order in which a manager's groups start and stop, and what comes of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from typing import Protocol, final

from appsdk_operator.cache import Health
from appsdk_operator.manager._core.cluster import Cluster
from appsdk_operator.manager._core.groups import Groups
from appsdk_operator.manager._core.runnable import Runnable, RunnableGroup, name_of
from appsdk_operator.manager._election.options import LeadershipLost
from appsdk_operator.runtime import Clock, StopSignal, ThreadGroup, get_logger, system_clock

__all__ = ["Elected", "ElectorLike", "Lifecycle"]

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
"""Seconds for servers to close their ports when there is no time left."""


class ElectorLike(Protocol):
    """Takes part in a leader election; an :class:`Elector` does it with a Lease."""

    @property
    def identity(self) -> str:
        """This candidate's name, which no other has."""
        ...

    @property
    def leader(self) -> str:
        """Who leads, as far as is known; "" when nobody does."""
        ...

    @property
    def is_leader(self) -> bool:
        """Whether this process leads."""
        ...

    def check_write(self) -> None:
        """Raise LeadershipLost when a write that begins now would come too late."""
        ...

    def run(self, stop: StopSignal, on_started: Callable[[], None], /) -> None:
        """Take part until ``stop``; call ``on_started``, which returns at once, when it leads.

        Raises:
            LeadershipLost: it has led, and does not any more.
        """
        ...

    def keep_lease(self) -> None:
        """Do not give the lease up at the stop: what it protects has not ended."""
        ...

    def health(self) -> Health:
        """Not ready when the election has been out of reach for too long."""
        ...


@final
class Elected:
    """Whether this process leads and what runs on the leader only has started. Thread-safe.

    Without leader election it does from the moment in which everything has started. It never
    turns false again: a process that loses the lead ends.
    """

    def __init__(self, signal: StopSignal) -> None:
        """Set when ``signal`` is."""
        self._signal = signal

    def is_set(self) -> bool:
        """Whether it does."""
        return self._signal.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for it for at most ``timeout`` seconds; whether it does."""
        return self._signal.wait(timeout)

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` once it does; see :meth:`StopSignal.on_set`."""
        return self._signal.on_set(callback)


@final
class Lifecycle:
    """Starts the groups one after another, waits, and stops them in the reverse order.

    1. Servers, webhooks, caches, others, warm-up: each is ready before the next one starts.
    2. The election; once it is won, or at once without one, what runs on the leader only.
    3. At a stop or a failure: warm-up and others, leader only, caches, webhooks, servers; then
       the election, so that the lease is held until what it protects has ended.
    """

    def __init__(
        self,
        *,
        elector: ElectorLike | None = None,
        base_stop: StopSignal | None = None,
        graceful_shutdown_timeout: float | None = 30.0,
        clock: Clock = system_clock,
    ) -> None:
        """Nothing runs yet; for the arguments see :class:`ManagerOptions`."""
        self._elector = elector
        self._base_stop = base_stop
        self._grace = graceful_shutdown_timeout
        self._clock = clock
        self._halt = StopSignal(clock=clock)
        self._lost = StopSignal(clock=clock)
        self._errors: list[tuple[str, Exception]] = []
        self._work: list[str] = []
        self._runs = False
        self._lock = threading.Lock()
        self._threads = ThreadGroup("manager")
        self._elector_stop = StopSignal(clock=clock)
        self.has_time = graceful_shutdown_timeout != 0
        """Whether an end may take its time: everything has ended so far when it should."""
        self._leads = StopSignal(clock=clock)
        self.elected = Elected(self._leads)
        self.groups = Groups(on_failure=self._fail, base_stop=base_stop, clock=clock)

    @property
    def is_stopping(self) -> bool:
        """Whether a stop was asked for, or something has failed."""
        return self._halt.is_set()

    def close(self) -> None:
        """End the run, without waiting for it; where there is none, there never will be one."""
        self._halt.set()
        with self._lock:
            if self._runs:
                return  # it closes what is left when all else has ended
        left = self.groups.close()
        for name in RunnableGroup:
            if not self.groups[name].has_started:
                self.groups[name].stop()
        _close_all(left)

    def run(self, stop: StopSignal | None = None) -> None:
        """Start all, wait for the stop or a failure, stop all; see :meth:`Manager.run`."""
        with self._lock:
            self._runs = True
        signals = [signal for signal in (stop, self._base_stop) if signal is not None]
        forget = [signal.on_set(self._halt.set) for signal in signals]
        stuck: Sequence[str] = ()
        try:
            self._start()
            self._halt.wait()
        finally:
            self._halt.set()
            for forget_one in forget:
                forget_one()
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
            self._leads.set()

    def _lead(self, elector: ElectorLike) -> bool:
        """Take part in the election; whether it was won before the stop."""
        leading = StopSignal(clock=self._clock)
        forget = self._halt.on_set(leading.set)

        def run() -> None:
            try:
                elector.run(self._elector_stop, leading.set)
                if not self._elector_stop.is_set():
                    raise RuntimeError("the leader election ended although nobody stopped it")
            except LeadershipLost as error:
                self._lost.set()
                self._fail("leader election", error)
            except BaseException as error:
                failure = error if isinstance(error, Exception) else RuntimeError(repr(error))
                # Whoever leads now, it is not known to be this process.
                self._lost.set()
                self._fail("leader election", failure)

        self._threads.start("elector", run)
        leading.wait()
        forget()
        return not self._halt.is_set()

    def _fail(self, name: str, error: Exception) -> None:
        with self._lock:
            self._errors.append((name, error))
            is_late = self._halt.is_set()
        self._halt.set()
        if is_late:  # perhaps nobody raises it
            text = "runnable %s failed while the manager stops: %s"
            _log.error(text, name, error, exc_info=error)
        else:
            _log.error("runnable %s failed, the manager stops: %s", name, error)

    # Stop.

    def _end(self) -> Sequence[str]:
        """Stop everything; the names of those that were given their time and still run."""
        left = self.groups.close()
        try:
            return self._stop_in_order(left)
        except BaseException:
            # An interrupt while it stops: nobody is waited for any more, and nobody is left untold.
            self.has_time = False
            for name in RunnableGroup:
                self.groups[name].stop()
            if self._elector is not None:
                self._elector.keep_lease()
            self._elector_stop.set()
            raise

    def _stop_in_order(self, left: Sequence[Runnable]) -> Sequence[str]:
        grace = self._grace
        deadline = None if grace is None or grace < 0 else self._clock.monotonic() + grace
        stuck: list[str] = []
        for step in _STOP_ORDER:
            for name in step:
                self.groups[name].stop()
            if self.has_time:
                for name in step:
                    running = self.groups[name].wait_ended(deadline, self._lost)
                    stuck += [f"{one} (group {name})" for one in running]
                    if running:
                        self._work += _reconciles(self.groups[name].runnables)
                self.has_time = not stuck and not self._lost.is_set()
        if grace != 0:
            self.groups[RunnableGroup.WEBHOOKS].join(_SERVERS_END)
            self.groups[RunnableGroup.HTTP_SERVERS].join(_SERVERS_END)
        _close_all(left)
        self._end_election()
        # Without the lease there is no time to give, so nobody has exceeded it.
        return () if self._lost.is_set() else stuck

    def _end_election(self) -> None:
        if self._elector is None:
            return
        running = self.groups[RunnableGroup.LEADER_ELECTION].running
        if running and not self._lost.is_set():
            _log.warning("the lease is left to run out: %s still runs", ", ".join(running))
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
                with contextlib.suppress(Exception):  # it takes no notes, or cannot be shown
                    first.add_note(f"after that, runnable {name} failed too: {error!r}")
            failures.append(first)
        if stuck:
            text = (
                "failed waiting for all runnables to end within grace period of "
                f"{self._grace:g}s: {', '.join(stuck)} still running"
            )
            if self._work:
                text += (
                    f"; reconciles that do not return: {'; '.join(self._work)}: let them look at "
                    "reconcile_context().stop, and give what they wait for a time-out"
                )
            failures.append(TimeoutError(text))
        if len(failures) > 1:
            raise ExceptionGroup("a runnable failed, and not all of them ended", failures)
        if failures:
            raise failures[0]


def _reconciles(runnables: Sequence[Runnable]) -> list[str]:
    """What the controllers among them reconcile now."""
    from appsdk_operator.controllers import Controller

    return [
        f"{one.name}: {work}"
        for one in runnables
        if isinstance(one, Controller)
        for work in one.running_reconciles()
    ]


def _close_all(left: Sequence[Runnable]) -> None:
    """Let what was never started go of what it holds: ports, or what its warm-up began.

    Last first, each once. Clusters are not among them: their clients write the last events.
    """
    for runnable in {id(one): one for one in reversed(left)}.values():
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
