"""The elector: a candidate that runs :class:`LeaseState` with a thread and requests."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import random
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import final

from appsdk_operator.cache import Health
from appsdk_operator.manager._election.client import LeaseClient, LeaseRequests, LeaseResponse
from appsdk_operator.manager._election.lease_state import (
    CandidatePhase,
    LeaseState,
    ObservedLease,
    ReadLease,
    Wait,
    WriteLease,
)
from appsdk_operator.manager._election.options import LeaderElection, LeadershipLost, namespace_of
from appsdk_operator.manager._election.unanswered_writes import TrackedWrite, UnansweredWrites
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    NO_THREAD,
    Clock,
    Family,
    Metrics,
    OneProcess,
    Sample,
    StopSignal,
    ThreadGroup,
    after_fork,
    fork_safe,
    get_logger,
    guarded_call,
    present_clock,
    present_metrics,
    random_of,
)
from appsdk_operator.runtime.validation import check_function

_log = get_logger("appsdk_operator.manager")

_STATUS = Family(
    "leader_election_master_status",
    "gauge",
    "Whether this replica leads, by the name of the Lease: 1, or 0 while it stands by.",
    ("name",),
)
_HANGING_AT_MOST = 8
"""Hanging requests at which no more are sent. A leader has lost its lead before it has so many; the
limit is for standbys."""

_SLOW_PATHS = Family(
    "leader_election_slowpath_total",
    "counter",
    "Renewals for which the Lease had to be read first, by its name.",
    ("name",),
)
_TRANSITIONS = Family(
    "leader_election_lease_transitions",
    "gauge",
    "How often the Lease has changed hands, as this replica last saw it, by its name.",
    ("name",),
)


@final
class Elector:
    """A candidate in a leader election with a Lease.

    It leads from the moment it has the Lease until the Lease expires. It measures that with its own
    clock, from the start of the last request that renewed the Lease. As long as all clocks run at
    about the same speed, another candidate can take over only later; the clocks need not show the
    same time.

    :meth:`run` blocks a thread; all other methods may be called from any thread at any time.

    Args:
        client: reads and writes the Lease. Give the election its own client,
            ``Client(elector_config(…))``, because it must not wait behind other requests.
        options: the name of the Lease, and the times.
        clock: the clock for the lease and all waits.
        rng: the source of jitter between the tries of candidates.
        metrics: the metrics that it writes to; default: the environment's, else
            :func:`~appsdk_operator.runtime.default_metrics`.
        on_new_leader: called with the identity of each new leader, and with ``""`` when the Lease
            was released. It runs in the thread of :meth:`run` between requests, so it must be fast.
        on_event: called with the Lease and a text, ``"<identity> became leader"`` or
            ``"<identity> stopped leading"``; for an event recorder. It must be fast, too.
        on_lease: called with the Lease as last observed, at each step of the election and before
            ``on_started``. It must be fast, too.

    Raises:
        ValueError: no namespace is given, and this process does not run in a pod.
    """

    def __init__(
        self,
        client: LeaseClient,
        options: LeaderElection,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
        on_new_leader: Callable[[str], None] | None = None,
        on_event: Callable[[Object, str], None] | None = None,
        on_lease: Callable[[Object], None] | None = None,
    ) -> None:
        check_function("on_new_leader", on_new_leader)
        check_function("on_event", on_event)
        check_function("on_lease", on_lease)
        self.options = options
        self.identity: str = options.identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        """The holder in the Lease when this process leads."""
        self.namespace: str = namespace_of(options)
        """The namespace of the Lease."""
        self._leases = LeaseRequests(client, self.namespace, options.labels)
        clock = present_clock(clock)
        self._state = LeaseState(options, self.identity, rng or random_of(clock))
        self._clock = clock
        self._on_new_leader = on_new_leader
        self._on_event = on_event
        self._on_lease = on_lease
        self._lock = fork_safe(threading.Lock())
        self._running_since: float | None = None
        self._threads = ThreadGroup("elector")
        self._requests: list[threading.Thread] = []
        self._reported_leader = ""
        # By the sort of request: a read that succeeds does not clear the problem of a write.
        self._problems: dict[str, str] = {}
        self._blocked_since: float | None = None
        self._was_leading = False
        self._failure: BaseException | None = None
        self._keeps_lease = self._gives_back = False
        # A forked child has a copy of the state, but no thread that renews the Lease.
        self._process = OneProcess(repr(self), "make a new Elector in the child")
        after_fork(self._on_fork)
        self._writes = UnansweredWrites(clock)
        self._end_metrics = present_metrics(metrics).add_source(self._samples)

    def start_from(self, lease: ObservedLease, since: float) -> None:
        """Use an observation of the Lease by another part of this process, and its time."""
        self._state.observed, self._state.observed_at = lease, since

    def _on_fork(self) -> None:
        self._state.held_until = -math.inf
        # Its lock may have been held by a thread that does not exist in the child.
        self._writes = UnansweredWrites(self._clock)

    def __repr__(self) -> str:
        return f"<Elector {self.identity} for {self.namespace}/{self.options.id}>"

    # -- status ----------------------------------------------------------------------------------

    @property
    def leader(self) -> str:
        """The holder of the Lease when it was last observed; ``""`` when there was none."""
        observed = self._state.observed
        return observed.record.holder if observed is not None else ""

    @property
    def is_leader(self) -> bool:
        """Whether this process leads: it holds the Lease, unexpired by its own clock."""
        return self._clock.monotonic() < self._state.held_until

    @property
    def term(self) -> int:
        """The fencing token of the lead, which grows with each change of the holder.

        A process that leads or has led returns the number of its own last lead; a standby returns
        the number of the current leader.

        Send it with writes to other systems, and let them refuse a smaller number than they have
        seen. This stops the writes of a former leader even if its clock is wrong. If the Lease is
        deleted, the numbers start anew.
        """
        state = self._state
        if state.has_led:
            return state.own_term
        observed = state.observed
        return observed.record.transitions if observed is not None else 0

    @property
    def has_led(self) -> bool:
        """Whether this process leads or has led."""
        return self._state.has_led

    def may_write(self) -> bool:
        """Whether this process leads, and its lease lasts longer than the fence margin."""
        return self._clock.monotonic() < self._state.held_until - self.options.margin

    def check_write(self) -> None:
        """Check that a write may begin: this process leads, or has never led.

        Raises:
            LeadershipLost: it has lost the lead, or the fence margin has begun.
        """
        if self._state.has_led and not self.may_write():
            raise LeadershipLost(
                f"{self.identity} no longer holds the Lease {self.namespace}/{self.options.id}, or "
                f"holds it for less than the fence margin of {self.options.margin:g} s: another "
                "replica may write now"
            )

    def track_write(self, check: Callable[[], None] | None = None) -> TrackedWrite:
        """For :class:`FencedClient`: track a write that ``check`` allows; it raises to refuse.

        The default check is :meth:`check_write`.
        """
        return self._writes.track(check or self.check_write)

    def last_write(self) -> float:
        """The time when the last unanswered write began; the server may still carry it out."""
        return self._writes.latest

    def health(self, tolerance: float = 5.0) -> Health:
        """Whether the election works; for a readiness check, or to restart a process that hangs.

        Not ready if the lead was lost, or if for more than the lease duration plus ``tolerance``
        seconds the leader could not renew the Lease or a standby could not read or take it.
        """
        state = self._state
        if state.phase is CandidatePhase.LOST:
            return Health(False, f"leader election lost: {state.reason}")
        if self._running_since is None or state.phase is CandidatePhase.STOPPED:
            return Health(True, "the leader election does not run")
        good_at = state.renewed_at if state.phase is CandidatePhase.LEADING else state.contact_at
        if self._blocked_since is not None:
            good_at = min(good_at, self._blocked_since)
        silent = self._clock.monotonic() - max(good_at, self._running_since)
        if silent > self.options.lease_duration + tolerance:
            return Health(
                False,
                f"the Lease {self.namespace}/{self.options.id} was out of reach for {silent:.0f} s"
                + "".join(f": {problem}" for problem in list(self._problems.values())[-1:]),
            )
        return Health(True, f"the leader is {self.leader!r}" if self.leader else "no leader yet")

    # -- the run ---------------------------------------------------------------------------------

    def run(self, stop: StopSignal, on_started: Callable[[], None]) -> None:
        """Take part until ``stop``; then release the Lease if the options say so. Blocks.

        Set ``stop`` once all work that needs the lead has ended; until then this renews the Lease.
        If a stop or a deadline interrupts a request, it may go on in the background, without harm;
        :meth:`join` waits for it.

        Args:
            stop: ends the run.
            on_started: called once, when this process has become the leader. It runs in the thread
                that renews the Lease: set an event or start a thread, and return.

        Raises:
            LeadershipLost: this process has lost the lead. Raised when the Lease expires by the
                process' own clock, even while a request hangs.
            Exception: the error of ``on_started``; the process has then given up the lead.
            RuntimeError: it was run before, or (ForkedError) this process was forked from the one
                that made it.
        """
        self._process.check()
        with self._lock:
            if self._running_since is not None:
                raise RuntimeError("the elector was run before: make a new one")
            self._running_since = self._clock.monotonic()
        _log.debug("%s takes part in the election for %s", self.identity, self._name)
        try:
            while self._step(stop, on_started):
                pass
        finally:
            # Nothing renews the Lease from here on.
            self._state.abandon()
        if self._failure is not None:
            raise self._failure
        if self._state.phase is CandidatePhase.LOST:
            raise LeadershipLost(f"leader election lost: {self._state.reason}")

    def keep_lease(self) -> None:
        """Let the Lease expire after the stop, even with ``release_on_cancel``.

        For a stop during which work that needs the lead still runs.
        """
        self._keeps_lease = True

    def give_back_lease(self) -> None:
        """Release the Lease at the stop, even without ``release_on_cancel``.

        For a stop before work that needs the lead has begun.
        """
        self._gives_back = True

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for requests that still ran when :meth:`run` ended; close the client first.

        Returns:
            The names of the threads that still run after ``timeout`` seconds; default: no limit.
        """
        return self._threads.join(timeout)

    def retire(self) -> None:
        """Remove its gauges from the metrics; its counters stay in the totals.

        For programs that make many electors.
        """
        self._end_metrics()

    def _step(self, stop: StopSignal, on_started: Callable[[], None]) -> bool:
        state = self._state
        self._report(on_started)
        if stop.is_set() or self._failure is not None:
            if self._keeps_lease:
                state.abandon()
            else:
                state.stop(self._clock.monotonic(), self.last_write, releases=self._gives_back)
        action = state.next(self._clock.monotonic(), self._clock.time())
        match action:
            case None:
                self._report(on_started)
                return False
            case Wait(until):
                with self._wait_signal(stop) as done:
                    done.wait(max(0.0, until - self._clock.monotonic()))
            case ReadLease() | WriteLease():
                with self._wait_signal(stop) as done:
                    self._perform(action, done)
        return True

    @contextlib.contextmanager
    def _wait_signal(self, stop: StopSignal) -> Iterator[StopSignal]:
        """A signal for one wait. The stop sets it, too, except while the Lease is released."""
        done = StopSignal(clock=self._clock)
        if self._state.phase is CandidatePhase.RELEASING:
            yield done
            return
        detach = stop.on_set(done.set)
        try:
            yield done
        finally:
            detach()

    def _perform(self, action: ReadLease | WriteLease, done: StopSignal) -> None:
        """Send the request in a thread of its own, so that deadline and stop interrupt the wait."""
        answers: list[LeaseResponse] = []

        def work() -> None:
            try:
                answers.append(self._leases.perform(self.options.id, action))
            finally:
                done.set()

        thread = self._start(work)
        if thread is None:
            self._state.on_failure(self._clock.monotonic())
            return
        in_time = done.wait(max(0.0, action.deadline - self._clock.monotonic()))
        if not answers:
            if not in_time:
                self._note("request", "no answer from the API server in time")
            self._state.on_failure(self._clock.monotonic())
            return
        thread.join()
        response, now = answers[0], self._clock.monotonic()
        self._track_blocked_writes(response, now)
        response.apply_to(self._state, now)
        self._note("write" if isinstance(action, WriteLease) else "read", response.problem)
        self._note("request", "")

    def _track_blocked_writes(self, response: LeaseResponse, now: float) -> None:
        """Note since when the Lease can be read, but no candidate can write it."""
        before = self._state.observed
        if (
            isinstance(response.action, WriteLease)
            and response.problem
            and self._blocked_since is None
        ):
            self._blocked_since = now
        elif response.lease is not None and (
            before is None or before.version != response.lease.version
        ):
            self._blocked_since = None

    def _start(self, work: Callable[[], None]) -> threading.Thread | None:
        """Start a thread for a request; None if that is impossible, as if the request failed."""
        self._requests = [thread for thread in self._requests if thread.is_alive()]
        if len(self._requests) >= _HANGING_AT_MOST:
            # The client ignores time-outs: one more request would hang as well.
            self._note(
                "request",
                f"{len(self._requests)} requests hang: no more are sent before one has ended",
            )
            return None
        try:
            thread = self._threads.start("request", work)
        except NO_THREAD as error:
            self._note("request", f"no thread for a request: {error}")
            return None
        self._requests.append(thread)
        return thread

    # -- logs, events and callbacks ----------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self.namespace}/{self.options.id}"

    def _note(self, what: str, problem: str) -> None:
        # Log each problem once: a standby without permissions fails every two seconds.
        if problem and problem != self._problems.get(what):
            _log.warning("leader election for %s: %s", self._name, problem)
        # A new dict, because other threads read this one.
        others = {key: text for key, text in self._problems.items() if key != what}
        if self._problems and not others and not problem:
            _log.info("leader election for %s: works again", self._name)
        self._problems = {**others, what: problem} if problem else others

    def _report(self, on_started: Callable[[], None]) -> None:
        state = self._state
        if self._on_lease is not None and state.observed is not None:
            self._call_safely(functools.partial(self._on_lease, state.observed.source))
        leads = state.phase is CandidatePhase.LEADING
        if leads and not self._was_leading:
            self._was_leading = True
            _log.info("%s leads %s, since %s", self.identity, self._name, self._since())
            self._emit_event("became leader")
            try:
                on_started()
            except BaseException as error:
                self._failure = error
        if self.leader != self._reported_leader:
            self._reported_leader = self.leader
            if self.leader and not leads:
                text = "%s stands by: %s leads %s, since %s"
                _log.info(text, self.identity, self.leader, self._name, self._since())
            if self._on_new_leader is not None:
                self._call_safely(functools.partial(self._on_new_leader, self.leader))
        if self._was_leading and state.phase in (CandidatePhase.STOPPED, CandidatePhase.LOST):
            self._was_leading = False
            _log.log(
                logging.ERROR if state.phase is CandidatePhase.LOST else logging.INFO,
                "%s stopped leading %s%s",
                self.identity,
                self._name,
                f": {state.reason}" if state.reason else "",
            )
            self._emit_event("stopped leading")

    def _since(self) -> str:
        """When the present leader has acquired the Lease, as it says itself."""
        observed = self._state.observed
        return "?" if observed is None else observed.record.acquire_time.partition(".")[0]

    def _emit_event(self, text: str) -> None:
        observed = self._state.observed
        if self._on_event is not None and observed is not None:
            self._call_safely(
                functools.partial(self._on_event, observed.source, f"{self.identity} {text}")
            )

    def _call_safely(self, callback: Callable[[], None]) -> None:
        guarded_call(
            "a callback",
            callback,
            failed=lambda _: _log.exception(
                "a callback of the leader election for %s failed", self._name
            ),
        )

    def _samples(self) -> Iterable[Sample]:
        labels = (self.options.id,)
        yield Sample(_STATUS, labels, float(self.is_leader))
        yield Sample(_SLOW_PATHS, labels, float(self._state.slow_paths))
        observed = self._state.observed
        # No 0 before the Lease is read: a new replica would look like many changes of hands.
        if observed is not None:
            yield Sample(_TRANSITIONS, labels, observed.record.transitions)
