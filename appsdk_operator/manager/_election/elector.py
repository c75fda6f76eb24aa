"""Takes part in a leader election: the thread and the requests around :class:`LeaseState`."""

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
    Clock,
    Family,
    Metrics,
    OneProcess,
    Sample,
    StopSignal,
    ThreadGroup,
    after_fork,
    default_metrics,
    fork_safe,
    get_logger,
    random_of,
    system_clock,
)

__all__ = ["Elector"]

_log = get_logger("appsdk_operator.manager")

_STATUS = Family(
    "leader_election_master_status",
    "gauge",
    "Whether this replica leads, by the name of the Lease: 1, or 0 while it stands by.",
    ("name",),
)
_HANGING_AT_MOST = 8
"""More than a leader can have before it has lost: the limit is for a standby, which waits on."""

_SLOW_PATHS = Family(
    "leader_election_slowpath_total",
    "counter",
    "Renewals for which the Lease had to be read first, by its name.",
    ("name",),
)


@final
class Elector:
    """One candidate for the lead.

    It leads from the moment it has the Lease until the Lease runs out by its own clock, counted
    from before the request that renewed it last. Another candidate takes over later than that, as
    long as the clocks run at about the same speed; what they show does not matter.

    :meth:`run` drives it; everything else may be called from any thread at any time.

    Args:
        client: reads and writes the Lease; best one of its own, ``Client(elector_config(…))``,
            since an election must not wait behind other requests.
        options: which Lease, and the times.
        clock: what it reads and waits on.
        rng: spreads the tries of candidates.
        metrics: where it counts; default: the kit's own.
        on_new_leader: told the identity of each leader that is seen, and ``""`` when the Lease was
            given up. Called by the thread of :meth:`run` between its requests, so it must be quick.
        on_event: told the Lease and what happened to it, ``"<identity> became leader"`` or
            ``"… stopped leading"``; for an event recorder. It must be as quick.

    Raises:
        ValueError: no namespace is given, and this process does not run in a pod.
    """

    def __init__(
        self,
        client: LeaseClient,
        options: LeaderElection,
        *,
        clock: Clock = system_clock,
        rng: random.Random | None = None,
        metrics: Metrics | None = None,
        on_new_leader: Callable[[str], None] | None = None,
        on_event: Callable[[Object, str], None] | None = None,
    ) -> None:
        self.options = options
        self.identity: str = options.identity or f"{socket.gethostname()}_{uuid.uuid4()}"
        """What the Lease says when this process leads."""
        self.namespace: str = namespace_of(options)
        """Where the Lease is."""
        self._leases = LeaseRequests(client, self.namespace, options.labels)
        self._state = LeaseState(options, self.identity, rng or random_of(clock))
        self._clock = clock
        self._on_new_leader = on_new_leader
        self._on_event = on_event
        self._lock = fork_safe(threading.Lock())
        self._running_since: float | None = None
        self._threads = ThreadGroup("elector")
        self._requests: list[threading.Thread] = []
        self._reported_leader = ""
        # By what had it: a read that succeeds says nothing about writes.
        self._problems: dict[str, str] = {}
        self._blocked_since: float | None = None
        self._was_leading = False
        self._failure: BaseException | None = None
        self._keeps_lease = False
        # A forked child has a copy of the Lease's state, and no thread that renews it.
        self._process = OneProcess(repr(self), "a child takes part with an Elector of its own")
        after_fork(self._on_fork)
        self._writes = UnansweredWrites(clock)
        self._take_series_off = (metrics or default_metrics()).add_source(self._samples)

    def start_from(self, seen: ObservedLease, since: float) -> None:
        """Begin with what somebody else in this process has seen of the Lease, and since when."""
        self._state.observed, self._state.observed_at = seen, since

    def _on_fork(self) -> None:
        self._state.held_until = -math.inf
        # Another thread may have held its lock, and is not there to let go of it.
        self._writes = UnansweredWrites(self._clock)

    def __repr__(self) -> str:
        return f"<Elector {self.identity} for {self.namespace}/{self.options.id}>"

    # -- what others ask -------------------------------------------------------------------------

    @property
    def leader(self) -> str:
        """The identity in the Lease when it was last seen; ``""`` when there is none."""
        observed = self._state.observed
        return observed.record.holder if observed is not None else ""

    @property
    def is_leader(self) -> bool:
        """Whether this process leads: it has the Lease, which has not run out by its own clock."""
        return self._clock.monotonic() < self._state.held_until

    @property
    def term(self) -> int:
        """The number of the lead, which grows with each change of the holder.

        In a process that leads, or has led, it is that of its own lead and never the successor's;
        in a standby that of the present leader.

        Give it along with writes to other systems, and have them refuse a smaller one than they
        have seen: that keeps out a former leader even where no clock can. It begins anew when
        somebody deletes the Lease.
        """
        state = self._state
        if state.has_led:
            return state.own_term
        observed = state.observed
        return observed.record.transitions if observed is not None else 0

    @property
    def has_led(self) -> bool:
        """Whether this process leads or ever did."""
        return self._state.has_led

    def may_write(self) -> bool:
        """Whether it leads, and will for the fence margin at least."""
        return self._clock.monotonic() < self._state.held_until - self.options.margin

    def check_write(self) -> None:
        """Return if a write may begin: while it leads, and in a process that has never led.

        Raises:
            LeadershipLost: it has led, and does not any more, or the fence margin has begun.
        """
        if self._state.has_led and not self.may_write():
            raise LeadershipLost(
                f"{self.identity} does not hold the Lease {self.namespace}/{self.options.id} any "
                f"more, or for less than the fence margin of {self.options.margin:g} s: another "
                "replica may write now"
            )

    def track_write(self, check: Callable[[], None] | None = None) -> TrackedWrite:
        """For :class:`FencedClient`: a write until its end, which ``check`` lets begin.

        The default is :meth:`check_write`.
        """
        return self._writes.track(check or self.check_write)

    def last_write(self) -> float:
        """When the last write began that has no answer, and so may yet be carried out."""
        return self._writes.latest

    def health(self, tolerance: float = 5.0) -> Health:
        """Whether the election goes on; for a readiness check, or to end a process that hangs.

        Not ready when the lead was lost, and when the Lease could not be renewed, or by a
        candidate not be read or not be taken, for longer than its duration and ``tolerance``
        seconds.
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
        """Take part until ``stop``; then give the Lease up if the options say so. Blocks.

        Set ``stop`` when everything that the lead was for has ended: the Lease is renewed until
        then. A request that a stop or a deadline has cut short may go on in the background; it does
        no harm, and :meth:`join` waits for it.

        Args:
            stop: ends it.
            on_started: called once, when this process has become the leader, by this thread, which
                has to renew the Lease: set an event or start a thread, and return.

        Raises:
            LeadershipLost: this process has led and does not any more. It is raised when the Lease
                runs out by the own clock, whatever a request under way is waiting for.
            Exception: what ``on_started`` raised; the lead was given up then.
            RuntimeError: it was run before, or (ForkedError) in the process that forked this one.
        """
        self._process.check()
        with self._lock:
            if self._running_since is not None:
                raise RuntimeError("the elector was run before: make a new one")
            self._running_since = self._clock.monotonic()
        _log.info("%s takes part in the election for %s", self.identity, self._name)
        try:
            while self._step(stop, on_started):
                pass
        finally:
            # Whatever ended it, nobody renews the Lease from here on.
            self._state.abandon()
        if self._failure is not None:
            raise self._failure
        if self._state.phase is CandidatePhase.LOST:
            raise LeadershipLost(f"leader election lost: {self._state.reason}")

    def keep_lease(self) -> None:
        """Let the Lease run out after the stop, whatever ``release_on_cancel`` says.

        For a stop that has to be made although not everything that the lead was for has ended.
        """
        self._keeps_lease = True

    def join(self, timeout: float | None = None) -> list[str]:
        """Wait for requests that were under way when :meth:`run` ended; close the client before.

        Returns:
            The names of the threads that still run after ``timeout`` seconds; default: no limit.
        """
        return self._threads.join(timeout)

    def retire(self) -> None:
        """Take its series off the metrics; what it has counted stays in the totals.

        For programs that make electors again and again.
        """
        self._take_series_off()

    def _step(self, stop: StopSignal, on_started: Callable[[], None]) -> bool:
        state = self._state
        self._report(on_started)
        if stop.is_set() or self._failure is not None:
            if self._keeps_lease:
                state.abandon()
            else:
                state.stop(self._clock.monotonic(), self.last_write)
        action = state.next(self._clock.monotonic(), self._clock.time())
        match action:
            case None:
                self._report(on_started)
                return False
            case Wait(until):
                with self._signal(stop) as done:
                    done.wait(max(0.0, until - self._clock.monotonic()))
            case ReadLease() | WriteLease():
                with self._signal(stop) as done:
                    self._perform(action, done)
        return True

    @contextlib.contextmanager
    def _signal(self, stop: StopSignal) -> Iterator[StopSignal]:
        """What a wait is for; the stop sets it too, but not while the Lease is given up."""
        done = StopSignal(clock=self._clock)
        if self._state.phase is CandidatePhase.RELEASING:
            yield done
            return
        forget = stop.on_set(done.set)
        try:
            yield done
        finally:
            forget()

    def _perform(self, action: ReadLease | WriteLease, done: StopSignal) -> None:
        """Do the request in a thread of its own, so that neither deadline nor stop wait for it."""
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
        """Since when the Lease can be read but not be written, by anybody."""
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
        """A thread for a request; None when there can be none now, as if it had failed."""
        self._requests = [thread for thread in self._requests if thread.is_alive()]
        if len(self._requests) >= _HANGING_AT_MOST:
            # A client that keeps to no time-out: one more request would hang just the same.
            self._note(
                "request",
                f"{len(self._requests)} requests hang: no more are sent before one has ended",
            )
            return None
        try:
            thread = self._threads.start("request", work)
        except RuntimeError as error:
            self._note("request", f"no thread for a request: {error}")
            return None
        self._requests.append(thread)
        return thread

    # -- what others are told ----------------------------------------------------------------------

    @property
    def _name(self) -> str:
        return f"{self.namespace}/{self.options.id}"

    def _note(self, what: str, problem: str) -> None:
        # Once each: a standby without permissions would say the same every two seconds.
        if problem and problem != self._problems.get(what):
            _log.warning("leader election for %s: %s", self._name, problem)
        # Made anew: others read it meanwhile.
        others = {key: text for key, text in self._problems.items() if key != what}
        self._problems = {**others, what: problem} if problem else others

    def _report(self, on_started: Callable[[], None]) -> None:
        state = self._state
        leads = state.phase is CandidatePhase.LEADING
        if leads and not self._was_leading:
            self._was_leading = True
            _log.info("%s became leader of %s", self.identity, self._name)
            self._tell_event("became leader")
            try:
                on_started()
            except BaseException as error:
                self._failure = error
        if self.leader != self._reported_leader:
            self._reported_leader = self.leader
            if self.leader and not leads:
                _log.info("the leader of %s is %s", self._name, self.leader)
            if self._on_new_leader is not None:
                self._tell(functools.partial(self._on_new_leader, self.leader))
        if self._was_leading and state.phase in (CandidatePhase.STOPPED, CandidatePhase.LOST):
            self._was_leading = False
            _log.log(
                logging.ERROR if state.phase is CandidatePhase.LOST else logging.INFO,
                "%s stopped leading %s%s",
                self.identity,
                self._name,
                f": {state.reason}" if state.reason else "",
            )
            self._tell_event("stopped leading")

    def _tell_event(self, text: str) -> None:
        observed = self._state.observed
        if self._on_event is not None and observed is not None:
            self._tell(
                functools.partial(self._on_event, observed.source, f"{self.identity} {text}")
            )

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            _log.exception("a callback of the leader election for %s failed", self._name)

    def _samples(self) -> Iterable[Sample]:
        labels = (self.options.id,)
        yield Sample(_STATUS, labels, float(self.is_leader))
        yield Sample(_SLOW_PATHS, labels, float(self._state.slow_paths))
