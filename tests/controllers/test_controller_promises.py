"""The promises of a controller under schedules that nobody would write down."""

from __future__ import annotations

import collections
import logging
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from appsdk_operator.controllers import (
    Controller,
    ControllerOptions,
    Result,
    RetryAfter,
    TerminalError,
    reconcile_context,
)
from appsdk_operator.runtime import ItemExponential, Metrics, StopSignal
from tests.controllers.controller_tools import PATIENCE, Rig, Tap
from tests.hypothesis_profiles import scaled
from tests.waiting import eventually

MAX_ATTEMPTS = 4


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def _many_switches() -> Iterator[None]:
    """Let threads take turns far more often than the interpreter would by itself."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class _Due:
    """What the model knows of a queued request."""

    def __init__(self, at: float, priority: int) -> None:
        self.at = at
        self.priority = priority


outcomes = st.one_of(
    st.just(None),
    st.builds(
        lambda after, priority: Result(requeue_after=float(after), priority=priority),
        st.integers(0, 5),
        st.one_of(st.none(), st.integers(-1, 1)),
    ),
    st.builds(lambda: ConnectionError("no server")),
    st.builds(lambda: KeyError("spec")),
    st.builds(lambda: TerminalError("no such color")),
    st.builds(lambda seconds: RetryAfter(float(seconds)), st.integers(0, 5)),
)


class ControllerMachine(RuleBasedStateMachine):
    """A controller step by step, beside the table of outcomes as a model of a few lines."""

    @initialize()
    def begin(self) -> None:
        logging.disable()
        self.rig = Rig(max_attempts=MAX_ATTEMPTS).begin()
        self.queued: dict[str, _Due] = {}
        self.failures: collections.Counter[str] = collections.Counter()
        self.planned: dict[str, float] = {}
        self.counts: collections.Counter[str] = collections.Counter()

    def _merge(self, key: str, after: float, priority: int) -> None:
        at = self.rig.clock.monotonic() + after
        known = self.queued.get(key)
        if known is None:
            self.queued[key] = _Due(at, priority)
        else:
            known.at = min(known.at, at)
            known.priority = max(known.priority, priority)

    @rule(key=st.sampled_from("abc"), after=st.integers(0, 5), priority=st.integers(-1, 1))
    def ask(self, key: str, after: int, priority: int) -> None:
        self.rig.add(key, after=float(after), priority=priority)
        self._merge(key, after, priority)

    @rule(seconds=st.integers(1, 4))
    def wait(self, seconds: int) -> None:
        self.rig.clock.advance(float(seconds))

    @rule(outcome=outcomes, meanwhile=st.sampled_from(["", "a", "b", "c"]))
    def step(self, outcome: Any, meanwhile: str) -> None:
        now = self.rig.clock.monotonic()
        ready = {key: due for key, due in self.queued.items() if due.at <= now}
        self.rig.script.plan = [outcome]
        self.rig.script.during = lambda _: meanwhile and self.rig.add(meanwhile)
        assert self.rig.controller.process_next() == bool(ready)
        if not ready:
            self.rig.script.plan = []
            return
        key = self.rig.script.calls[-1]
        assert key in ready
        priority = self.queued.pop(key).priority
        assert priority == max(due.priority for due in ready.values())
        if meanwhile:
            self._merge(meanwhile, 0, 0)
        context = self.rig.script.contexts[-1]
        assert (context.attempt, context.priority) == (self.failures[key], priority)
        is_early = now < self.planned.get(key, 0.0)
        is_last = self.failures[key] == MAX_ATTEMPTS - 1 and not is_early
        assert context.is_last_attempt == is_last
        self._expect(key, priority, outcome, is_early=is_early, is_last=is_last)
        if not self.failures[key]:
            self.planned.pop(key, None)

    def _expect(
        self, key: str, priority: int, outcome: Any, *, is_early: bool, is_last: bool
    ) -> None:
        now = self.rig.clock.monotonic()
        if outcome is None or isinstance(outcome, Result):
            del self.failures[key]
            if outcome is not None and outcome.requeue_after is not None:
                self.counts["requeue_after"] += 1
                chosen = priority if outcome.priority is None else outcome.priority
                self._merge(key, outcome.requeue_after, chosen)
            else:
                self.counts["success"] += 1
            return
        self.counts["error"] += 1
        self.counts["panics"] += isinstance(outcome, KeyError)
        if isinstance(outcome, RetryAfter):
            self._merge(key, outcome.seconds, priority)
            self.planned[key] = max(self.planned.get(key, 0.0), now + outcome.seconds)
        elif isinstance(outcome, TerminalError) or is_last:
            self.counts["terminal"] += 1
            del self.failures[key]
        elif is_early:
            self._merge(key, self.planned[key] - now, priority)
        else:
            delay = 2.0 ** self.failures[key]
            self._merge(key, delay, priority)
            self.planned[key] = now + delay
            self.failures[key] += 1

    @invariant()
    def the_queue_is_what_the_table_says(self) -> None:
        if not hasattr(self, "rig"):
            return
        now = self.rig.clock.monotonic()
        shown = {
            entry["object"]: (entry["due_in"], entry["priority"])
            for entry in self.rig.controller.debug_snapshot()["planned"]
        }
        assert shown == {
            key: (max(0.0, due.at - now), due.priority) for key, due in self.queued.items()
        }
        assert self.rig.controller.debug_snapshot()["failing"] == +self.failures

    def teardown(self) -> None:
        logging.disable(logging.NOTSET)
        if not hasattr(self, "rig"):
            return
        results = {
            name: count
            for name, count in self.counts.items()
            if name in ("success", "error", "requeue_after") and count
        }
        assert self.rig.results() == results
        assert self.rig.value("reconcile_panics_total") == self.counts["panics"]
        assert self.rig.value("terminal_reconcile_errors_total") == self.counts["terminal"]
        self.rig.close()


TestControllerMachine = ControllerMachine.TestCase
TestControllerMachine.settings = settings(
    max_examples=scaled(120), stateful_step_count=50, deadline=None, print_blob=True
)


@pytest.mark.stress
@pytest.mark.usefixtures("_many_switches")
@pytest.mark.parametrize("seed", range(3))
def test_many_workers_never_overlap_on_a_request_and_lose_none(seed: int) -> None:
    """Feeders raise what is wanted of a key; a reconcile that succeeds has done all it saw."""
    keys = range(25)
    lock = threading.Lock()
    wanted: collections.Counter[int] = collections.Counter()
    done: collections.Counter[int] = collections.Counter()
    running: set[int] = set()
    overlaps: list[int] = []
    outcomes_seen: collections.Counter[str] = collections.Counter()
    dice = threading.local()

    def roll() -> float:
        if not hasattr(dice, "random"):
            dice.random = random.Random(f"{seed} {threading.current_thread().name}")
        return float(dice.random.random())

    def reconcile(key: int) -> Result | None:
        with lock:
            if key in running:
                overlaps.append(key)
            running.add(key)
            seen = wanted[key]
        try:
            context = reconcile_context()
            assert context is not None
            assert context.request == key
            chance = roll()
            if chance < 0.1:
                outcomes_seen_add("error")
                raise ConnectionError("no server")
            if chance < 0.15:
                outcomes_seen_add("error")
                raise KeyError("spec")
            if chance < 0.2:
                outcomes_seen_add("error")
                raise RetryAfter(0.001)
            with lock:
                done[key] = max(done[key], seen)
            if chance < 0.3:
                outcomes_seen_add("requeue_after")
                return Result(requeue_after=0.001, priority=int(chance * 100) % 3)
            outcomes_seen_add("success")
            return None
        finally:
            with lock:
                running.discard(key)

    def outcomes_seen_add(name: str) -> None:
        with lock:
            outcomes_seen[name] += 1

    metrics = Metrics()
    controller: Controller[Any] = Controller(
        f"stress-{seed}",
        reconcile,
        options=ControllerOptions(
            max_concurrent_reconciles=8,
            rate_limiter=lambda: ItemExponential(base=0.0005, maximum=0.005),
        ),
        metrics=metrics,
    )
    tap = Tap()
    controller.watch(tap)
    stop = StopSignal()
    runner = threading.Thread(target=controller.run, args=(stop,))
    runner.start()
    eventually(lambda: controller._works)

    def feed(number: int) -> None:
        own = random.Random(f"{seed} feeder {number}")
        for _ in range(3000):
            key = own.choice(keys)
            with lock:
                wanted[key] += 1
            if own.random() < 0.02:
                controller.wait_idle(0.001)  # let the workers come to rest now and then
            tap.add(key, priority=own.choice([-100, 0, 0, 5]), reason=own.random())

    feeders = [threading.Thread(target=feed, args=(number,)) for number in range(4)]
    for feeder in feeders:
        feeder.start()
    for feeder in feeders:
        feeder.join()
    # Whatever failed last has succeeded since.
    eventually(lambda: done == wanted and not controller.debug_snapshot()["failing"])
    stop.set()
    runner.join(PATIENCE)
    assert not runner.is_alive()
    assert overlaps == []
    assert done == wanted
    counted = {
        result: metrics.value(
            "controller_runtime_reconcile_total", controller=controller.name, result=result
        )
        for result in outcomes_seen
    }
    assert counted == dict(outcomes_seen)
    assert controller.name not in {thread.name for thread in threading.enumerate()}
