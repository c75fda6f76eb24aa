"""The promises of an election, whatever the machines, the network and the server do.

A model of a Lease on a server and of N processes with clocks of their own. One thread, and a
scheduler that decides from a seed which message is late, lost or done without an answer, who
sleeps when and for how long, who crashes, who stops in good order, and who comes back, and when
somebody touches the Lease who has no part in it.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from appsdk_operator.manager import LeaderElection
from appsdk_operator.manager._election.lease_state import (
    LeaseState,
    ObservedLease,
    ReadLease,
    Wait,
    WriteLease,
)
from tests.hypothesis_profiles import scaled
from tests.manager.lease_model import LATENCY, TIMES, Process, Server

FAULTS_END = 90.0


class World:
    """The scheduler: everything happens here, one thing after the other."""

    def __init__(
        self,
        seed: int,
        count: int,
        options: LeaderElection,
        *,
        drift: float = 0.0,
        faults: bool = True,
        state: Callable[..., Any] = LeaseState,
    ) -> None:
        self.rng = random.Random(seed)
        self.options = options
        self.server = Server()
        self.now = 0.0
        self.has_faults = faults
        self.make = state
        self.last_effect = 0.0
        self.led: list[tuple[float, str]] = []
        self.writers: list[Process] = []
        self.queue: list[tuple[float, int, Callable[[], None]]] = []
        self.sequence = itertools.count()
        self.margin = options.margin if drift else 0.0
        rates = [1.0 + self.rng.uniform(-drift, drift) for _ in range(count)]
        self.processes = [Process(number, rate) for number, rate in enumerate(rates)]
        for process in self.processes:
            self.at(self.rng.uniform(0.0, 3.0), lambda process=process: self.start(process))
        if faults:
            self.at(self.rng.uniform(0.0, 20.0), self.touch)

    def touch(self) -> None:
        """Somebody who is no candidate labels the Lease."""
        if self.server.lease is not None:
            self.server.lease = ObservedLease(
                self.server.lease.record, str(next(self.server.versions))
            )
            self.last_effect = self.now
        after = self.now + self.rng.expovariate(1 / 10.0)
        if after < FAULTS_END:
            self.at(after, self.touch)

    def at(self, when: float, what: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (max(when, self.now), next(self.sequence), what))

    def run(self, until: float) -> None:
        while self.queue and self.queue[0][0] <= until:
            self.now, _, what = heapq.heappop(self.queue)
            what()
            leaders = [p.identity for p in self.processes if self.leads(p, self.margin)]
            assert len(leaders) <= 1, f"{leaders} lead at {self.now}"
            if leaders and (not self.led or self.led[-1][1] != leaders[0]):
                self.led.append((self.now, leaders[0]))
        self.now = until

    def leads(self, process: Process, margin: float = 0.0) -> bool:
        return process.alive and process.clock(self.now) < process.state.held_until - margin

    # -- processes -------------------------------------------------------------------------------

    def start(self, process: Process) -> None:
        process.life += 1
        process.alive = True
        process.offset = self.rng.uniform(-1e6, 1e6)
        process.awake_at = self.now
        process.state = self.make(self.options, process.identity, self.rng)
        if self.has_faults:
            self.disturb(process)
        self.step(process, process.life)

    def disturb(self, process: Process) -> None:
        """Decide when something happens to this life of a process."""
        life, after = process.life, self.now + self.rng.expovariate(1 / 25.0)
        if after < FAULTS_END:
            what = self.rng.choice([self.sleep, self.sleep, self.crash, self.stop])
            self.at(after, lambda: what(process) if self.is_life(process, life) else None)

    def is_life(self, process: Process, life: int) -> bool:
        return process.alive and process.life == life

    def sleep(self, process: Process) -> None:
        process.awake_at = self.now + self.rng.choice([0.3, 2.0, 8.0, 40.0]) * self.rng.random()
        self.disturb(process)

    def crash(self, process: Process) -> None:
        process.alive = False
        self.at(self.now + self.rng.uniform(0.1, 5.0), lambda: self.start(process))

    def stop(self, process: Process) -> None:
        process.request += 1  # what is under way is not waited for
        process.state.stop(process.clock(self.now))
        self.step(process, process.life)

    def step(self, process: Process, life: int) -> None:
        if not self.is_life(process, life):
            return
        if self.now < process.awake_at:
            self.at(process.awake_at, lambda: self.step(process, life))
            return
        wall = self.rng.choice([0.0, 1e9, 1e9 + self.now, 1e9 + self.rng.uniform(-1e5, 1e5)])
        action = process.state.next(process.clock(self.now), wall)
        process.request += 1
        request = process.request

        def again(after: Callable[[], None] = lambda: None) -> None:
            """Go on, unless something else has come first; later when it is asleep."""
            if not self.is_life(process, life) or request != process.request:
                return
            if self.now < process.awake_at:
                self.at(process.awake_at, lambda: again(after))
                return
            after()
            self.step(process, life)

        if action is None:
            self.crash(process)  # it has lost, or was stopped: a program ends, and is started anew
        elif isinstance(action, Wait):
            self.at(process.when(action.until), again)
        else:
            failed = lambda: process.state.on_failure(process.clock(self.now))  # noqa: E731
            self.at(process.when(action.deadline), lambda: again(failed))
            self.send(process, action, again)

    def send(
        self, process: Process, action: ReadLease | WriteLease, again: Callable[..., None]
    ) -> None:
        fault = self.rng.random() if self.has_faults and self.now < FAULTS_END else 1.0
        there, back = self.latency(), self.latency()
        state = process.state
        identity = process.identity
        if isinstance(action, WriteLease):
            self.writers.append(process)

        def clock() -> float:
            return process.clock(self.now)

        if fault < 0.05:  # the connection fails, nothing was sent
            self.at(self.now + there, lambda: again(lambda: state.on_failure(clock())))
            return
        if fault < 0.08:  # it gets lost
            return

        def arrive() -> None:
            if isinstance(action, ReadLease):
                seen = self.server.lease
                answer = lambda: state.on_read(clock(), seen)  # noqa: E731
            elif (done := self.server.write(identity, action)) is not None:
                self.last_effect = self.now
                answer = lambda: state.on_write(clock(), done)  # noqa: E731
            else:
                answer = lambda: state.on_conflict(clock())  # noqa: E731
            if 0.08 <= fault < 0.13:  # done, and the connection breaks before the answer
                answer = lambda: state.on_failure(clock())  # noqa: E731
            if not 0.13 <= fault < 0.16:  # done, and no answer ever comes
                self.at(self.now + back, lambda: again(answer))

        self.at(self.now + there, arrive)

    def latency(self) -> float:
        if self.has_faults and self.now < FAULTS_END and self.rng.random() < 0.15:
            return self.rng.choice([1.0, 6.0, 25.0]) * self.rng.random()
        return LATENCY * self.rng.random()


def bound(options: LeaderElection) -> float:
    """After the last write of who leads no more, somebody else leads within this time."""
    watch = options.record_duration + 2.2 * options.retry_period
    return watch + 8 * LATENCY


@settings(max_examples=scaled(300), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(2, 5),
    times=st.sampled_from(TIMES),
    release=st.booleans(),
)
def test_there_are_never_two_leaders_and_when_the_faults_end_there_is_one(
    seed: int, count: int, times: dict[str, float], release: bool
) -> None:
    options = LeaderElection(id="lock", release_on_cancel=release, **times)
    world = World(seed, count, options)
    world.run(FAULTS_END + 50.0)  # whatever slept or was on its way has come by now
    since = max(world.now, world.last_effect)
    world.run(since + options.request_timeout + 6.0 + bound(options))
    assert any(world.leads(process) for process in world.processes)
    assert world.led


@settings(max_examples=scaled(100), deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(2, 5), times=st.sampled_from(TIMES))
def test_clocks_that_run_apart_make_no_two_writers_within_the_margin(
    seed: int, count: int, times: dict[str, float]
) -> None:
    options = LeaderElection(id="lock", **times)
    drift = options.margin / (2 * options.lease_duration)
    World(seed, count, options, drift=drift).run(FAULTS_END + 50.0)


@settings(max_examples=scaled(100), deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(2, 5), times=st.sampled_from(TIMES))
@example(seed=0, count=2, times=TIMES[0])
def test_after_a_crash_another_leads_within_the_lease_and_two_point_two_retry_periods(
    seed: int, count: int, times: dict[str, float]
) -> None:
    options = LeaderElection(id="lock", **times)
    world = World(seed, count, options, faults=False)
    world.run(60.0)
    assert [name for _, name in world.led] == [world.led[0][1]], "without a fault nobody changes"
    for _ in range(5):
        (leader,) = (p for p in world.processes if world.leads(p))
        leader.alive = False
        crashed = world.now
        world.run(crashed + bound(options))
        taken, name = world.led[-1]
        assert taken > crashed
        assert name != leader.identity
        assert world.last_effect - crashed <= bound(options)
        world.start(leader)
        world.run(world.now + world.rng.uniform(5.0, 30.0))


@settings(max_examples=scaled(50), deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(2, 5), times=st.sampled_from(TIMES))
def test_after_a_release_another_leads_within_two_point_two_retry_periods(
    seed: int, count: int, times: dict[str, float]
) -> None:
    options = LeaderElection(id="lock", release_on_cancel=True, **times)
    world = World(seed, count, options, faults=False)
    world.run(60.0)
    (leader,) = (p for p in world.processes if world.leads(p))
    before = leader.identity
    stopped = world.now
    world.stop(leader)
    world.run(stopped + 2.2 * options.retry_period + 8 * LATENCY)
    assert world.led[-1][0] > stopped
    assert world.led[-1][1] != before


@settings(max_examples=scaled(100), deadline=None)
@given(seed=st.integers(0, 2**32), count=st.integers(2, 5), times=st.sampled_from(TIMES))
@example(seed=2601030205, count=5, times=TIMES[0])
def test_a_stop_in_the_middle_of_an_acquisition_lets_nobody_wait_for_a_lease_to_end(
    seed: int, count: int, times: dict[str, float]
) -> None:
    options = LeaderElection(id="lock", release_on_cancel=True, **times)
    world = World(seed, count, options, faults=False)
    while not world.writers:
        world.run(world.now + 0.001)
    first = world.writers[0]
    before = first.identity
    world.run(world.now + 2 * LATENCY * world.rng.random())
    stopped = world.now
    world.stop(first)
    world.run(max(stopped, 3.0) + 2.2 * options.retry_period + 12 * LATENCY)
    assert world.led
    assert world.led[-1][1] != before


class CountsFromTheAnswer(LeaseState):  # type: ignore[misc]
    """Believes in its lease from when it heard of it."""

    def on_write(self, now: float, seen: ObservedLease) -> None:
        self._sent_at = now
        super().on_write(now, seen)


class BelievesTheRecord(LeaseState):  # type: ignore[misc]
    """Takes a record that it sees for the first time to be as old as it may be."""

    def on_read(self, now: float, seen: ObservedLease | None) -> None:
        super().on_read(now, seen)
        if self.observed is not None and self.observed_at == now:
            self.observed_at -= self._options.lease_duration / 2


class ForgetsTheEnd(LeaseState):  # type: ignore[misc]
    """Leads until somebody tells it otherwise."""

    def on_write(self, now: float, seen: ObservedLease) -> None:
        super().on_write(now, seen)
        self.held_until += self._options.lease_duration


class ReleasesFromMemory(LeaseState):  # type: ignore[misc]
    """Gives up what it remembers to hold, as client-go does."""

    def on_read(self, now: float, seen: ObservedLease | None) -> None:
        if self.phase.value == "releasing" and seen is not None:
            self._write_at(now, seen, is_fast=False)
        else:
            super().on_read(now, seen)


@pytest.mark.parametrize(
    "careless", [CountsFromTheAnswer, BelievesTheRecord, ForgetsTheEnd, ReleasesFromMemory]
)
def test_the_model_finds_out_who_is_careless(careless: type[LeaseState]) -> None:
    options = LeaderElection(id="lock", release_on_cancel=True, **TIMES[1])

    def is_found(seed: int) -> bool:
        try:
            World(seed, 4, options, state=careless).run(FAULTS_END + 50.0)
        except AssertionError:
            return True
        return False

    assert any(is_found(seed) for seed in range(300))
