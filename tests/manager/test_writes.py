"""Writes without an answer: a lease is not given up while the server may yet carry one out."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.client import (
    ClientError,
    Conflict,
    ConnectFailed,
    ConnectionLost,
    InternalError,
    NotFound,
    ReadTimeout,
    Timeout,
    TooManyRequests,
)
from appsdk_operator.client._transport.write_guard import run_write_checks
from appsdk_operator.manager import FencedClient, LeaderElection, LeadershipLost
from appsdk_operator.manager._election.lease_state import (
    CandidatePhase,
    LeaseRecord,
    LeaseState,
    ObservedLease,
    ReadLease,
    Wait,
)
from appsdk_operator.manager._election.unanswered_writes import TrackedWrite, UnansweredWrites
from appsdk_operator.resource import DecodeError, MutableObject, kinds
from appsdk_operator.runtime import ManualClock
from tests.manager.lease_fakes import FakeLeases, Running
from tests.waiting import eventually


@pytest.fixture
def leases() -> Iterator[FakeLeases]:
    leases = FakeLeases()
    yield leases
    for running in Running.all:
        running.stop_signal.set()
        running.clock.advance(60.0)
        if running.thread.ident is not None:
            running.end()
    Running.all.clear()


DRAFT = MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="default")


class Fence:
    """A fence that counts time and writes."""

    def __init__(self) -> None:
        self.clock = ManualClock(start=100.0)
        self.writes = UnansweredWrites(self.clock)
        self.is_open = True

    def check_write(self) -> None:
        if not self.is_open:
            raise LeadershipLost("too late")

    def track_write(self) -> TrackedWrite:
        return self.writes.track(self.check_write)


class Sender:
    """A client that looks right before the bytes, as the real one, and then does as it is told."""

    def __init__(self, fence: Fence, *steps: Any) -> None:
        self.fence = fence
        self.steps = list(steps)
        self.seen: list[float] = []

    def create(self, obj: Any, **_: Any) -> Any:
        for step in self.steps:
            self.fence.clock.advance(1.0)
            if isinstance(step, BaseException):
                raise step
            if callable(step):
                step()
            else:
                run_write_checks()
            self.seen.append(self.fence.writes.latest)
        return obj


SEND = "send"


def status(kind: Callable[..., Exception], code: int) -> Exception:
    return kind("no", status=code, reason="")


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        (None, False),
        (status(Conflict, 409), False),
        (status(NotFound, 404), False),
        (status(TooManyRequests, 429), False),
        (DecodeError("what was done cannot be read"), False),
        (ConnectFailed("nothing was sent", sent=False), False),
        (ConnectionLost("the connection broke", sent=True), True),
        (ReadTimeout("no answer", sent=True), True),
        (status(InternalError, 500), True),
        (status(Timeout, 504), True),
        (KeyboardInterrupt(), True),
        (ClientError("of an unknown sort"), True),
    ],
)
def test_what_failed_without_an_answer_may_be_carried_out_yet(
    error: BaseException | None, is_lost: bool
) -> None:
    fence = Fence()
    sender = Sender(fence, SEND, *([] if error is None else [error]))
    client = FencedClient(sender, fence)  # type: ignore[arg-type]
    if error is None:
        client.create(DRAFT)
    else:
        with pytest.raises(type(error)):
            client.create(DRAFT)
    assert sender.seen == [101.0], "while it is under way it counts from the last look"
    assert fence.writes.latest == (101.0 if is_lost else -math.inf)


def test_an_earlier_try_of_a_write_that_succeeded_may_be_carried_out_yet() -> None:
    fence = Fence()
    FencedClient(Sender(fence, SEND, SEND, SEND), fence).create(DRAFT)  # type: ignore[arg-type]
    assert fence.writes.latest == 102.0


def test_a_try_that_the_fence_refused_was_not_sent() -> None:
    fence = Fence()
    client = FencedClient(  # type: ignore[arg-type]
        Sender(fence, lambda: setattr(fence, "is_open", False), SEND), fence
    )
    with pytest.raises(LeadershipLost):
        client.create(DRAFT)
    assert fence.writes.latest == -math.inf
    with pytest.raises(LeadershipLost):
        client.create(DRAFT)
    assert fence.writes.latest == -math.inf


def test_a_write_is_noted_before_the_fence_lets_it_begin() -> None:
    # Or a lead that ends in between would know nothing of it.
    fence = Fence()
    noted: list[float] = []
    fence.check_write = lambda: noted.append(fence.writes.latest)  # type: ignore[method-assign]
    FencedClient(Sender(fence, SEND), fence).create(DRAFT)  # type: ignore[arg-type]
    assert noted == [100.0, 101.0]


# -- the lease -------------------------------------------------------------------------------------


def leader(**options: Any) -> LeaseState:
    """A state that leads since 100."""
    election = LeaderElection(id="lock", release_on_cancel=True, **options)
    state = LeaseState(election, "me", random.Random(1))
    state.next(100.0, 0.0)
    state.on_read(100.0, None)
    action: Any = state.next(100.0, 0.0)
    state.on_write(100.0, ObservedLease(action.record, "1"))
    return state


def test_a_lease_is_given_up_the_margin_after_the_last_write_without_an_answer() -> None:
    state = leader()
    state.stop(101.0, lambda: 100.5)
    assert state.held_until == -math.inf, "no write begins from now on"
    assert state.phase is CandidatePhase.RELEASING
    assert state.next(101.0, 0.0) == Wait(103.0)
    assert state.next(103.0, 0.0) == ReadLease(108.0)
    assert state.next(112.9, 0.0) == ReadLease(113.0), "and the release has all its time"
    assert state.next(113.0, 0.0) is None


@pytest.mark.parametrize("last", [-math.inf, 90.0, 98.5])
def test_a_write_that_is_long_gone_delays_nothing(last: float) -> None:
    state = leader()
    state.stop(101.0, lambda: last)
    assert state.next(101.0, 0.0) == ReadLease(106.0)


def test_the_wait_is_over_before_the_lease_is() -> None:
    for margin in (0.0, 1.0, 5.0):
        state = leader(fence_margin=margin)
        held_until = state.held_until
        last = held_until - margin  # no write begins later
        state.stop(last, lambda last=last: last)
        action = state.next(last, 0.0)
        assert (action.until if isinstance(action, Wait) else last) <= held_until


def test_whoever_holds_the_lease_after_the_wait_keeps_it() -> None:
    state = leader()
    state.stop(101.0, lambda: 100.5)
    state.next(103.0, 0.0)
    state.on_read(103.0, ObservedLease(LeaseRecord("them", 15, "", "", 4), "9"))
    assert state.phase is CandidatePhase.STOPPED


def test_an_elector_gives_its_lease_up_when_no_write_can_be_on_its_way(
    leases: FakeLeases,
) -> None:
    running = Running(leases, release_on_cancel=True).lead()
    client = FencedClient(
        Sender(Fence(), SEND, ConnectionLost("broke", sent=True)), running.elector
    )  # type: ignore[arg-type]
    with pytest.raises(ConnectionLost):
        client.create(DRAFT)
    began = running.clock.monotonic()
    running.stop_signal.set()
    assert eventually(lambda: running.clock.next_deadline() == began + 2.5)
    assert leases.holder() == "me"
    with pytest.raises(LeadershipLost):
        client.create(DRAFT)
    running.clock.advance(2.5)
    running.end()
    assert leases.holder() == ""


def test_a_forked_child_waits_for_no_thread_of_its_parent(leases: FakeLeases) -> None:
    running = Running(leases, release_on_cancel=True).lead()
    elector = running.elector
    elector.track_write().begin()
    lock = elector._writes._lock
    with lock:  # another thread's, at the moment of the fork
        elector._on_fork()
        with pytest.raises(LeadershipLost):
            elector.track_write().begin()
    assert elector.last_write() == -math.inf
