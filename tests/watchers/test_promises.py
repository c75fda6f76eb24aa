"""The promises of the watchers room, over generated histories, faults, failures and restarts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Kind
from appsdk_operator.testing import (
    BrokenPromise,
    Entry,
    Simulation,
    check_converged,
    check_exclusion,
    check_object_order,
    check_watcher_order,
)
from appsdk_operator.testing.strategies import faults
from appsdk_operator.watchers import (
    ConstantBackoff,
    ExponentialBackoff,
    SimpleWatcher,
    keep_all_retries,
    never_retry,
    opinionated_retry_dequeue_policy,
)
from tests.hypothesis_profiles import scaled

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
NAMES = ("a", "b", "c")
WATCHERS = 3
FAILING = 1  # the watcher in the middle: those before and after it must not notice

names = st.sampled_from(NAMES)


@attrs.frozen
class Step:
    """Something that happens in a history."""

    what: str
    name: str = ""
    value: Any = None


writes = st.one_of(
    st.builds(Step, st.sampled_from(["spec", "status", "delete", "recreate"]), names),
    st.builds(Step, st.just("spec"), names),
)
world = st.one_of(
    writes,
    st.builds(Step, st.just("poll"), st.just(""), faults()),
    st.builds(Step, st.just("poll"), st.just(""), st.just([])),
    st.builds(Step, st.just("handle"), st.just(""), st.integers(1, 4)),
    st.builds(Step, st.just("advance"), st.just(""), st.sampled_from([0.5, 1.0, 5.0, 35.0])),
    st.builds(Step, st.sampled_from(["compact", "restart"])),
    st.builds(Step, st.just("luck"), st.just(""), st.integers(0, 99)),
)
histories = st.lists(world, min_size=3, max_size=40)

retry_policies = st.sampled_from(
    [
        ExponentialBackoff(initial=5.0, max_attempts=5),
        ExponentialBackoff(initial=1.0, max_attempts=1),
        ConstantBackoff(3.0),
        ConstantBackoff(0.0, max_attempts=3),
        never_retry,
    ]
)
dequeue_policies = st.sampled_from([None, opinionated_retry_dequeue_policy, keep_all_retries])

many = settings(
    max_examples=scaled(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def simulated(**options: Any) -> Simulation:
    return Simulation(WIDGET, lambda _: [SimpleWatcher() for _ in range(WATCHERS)], **options)


def write(simulation: Simulation, step: Step) -> None:
    name = step.name
    present = simulation.find(name)
    if present is None:
        simulation.create(name, {"n": 0})
    elif step.what == "spec":
        simulation.patch(name, {"spec": {"n": present.spec["n"] + 1}})
    elif step.what == "status":
        count = (present.status or {"seen": 0})["seen"]
        simulation.patch(name, {"status": {"seen": count + 1}}, subresource="status")
    else:
        simulation.delete(name)
        if step.what == "recreate":
            simulation.create(name, {"n": 0})


def play(simulation: Simulation, step: Step) -> None:
    if step.what == "poll":
        simulation.poll(*step.value)
    elif step.what == "handle":
        for _ in range(step.value):
            simulation.handle()
    elif step.what == "advance":
        simulation.advance(step.value)
    elif step.what == "compact":
        simulation.compact()
    elif step.what == "restart":
        simulation.restart()
    elif step.what == "luck":
        simulation.clock.rng.seed(step.value)
    else:
        write(simulation, step)


class Failures:
    """Makes the watcher in the middle fail when the example says so."""

    def __init__(self, plan: list[bool]) -> None:
        self._plan = iter(plan)

    def __call__(self, call: Entry) -> None:
        if call.watcher == FAILING and next(self._plan, False):
            raise ConnectionError("planned")


@many
@given(
    history=histories,
    failures=st.lists(st.booleans(), max_size=40),
    retry_policy=retry_policies,
    dequeue_policy=dequeue_policies,
)
def test_every_watcher_ends_with_the_servers_state_whatever_happened(
    history: list[Step], failures: list[bool], retry_policy: Any, dequeue_policy: Any
) -> None:
    with simulated(retry_policy=retry_policy, retry_dequeue_policy=dequeue_policy) as simulation:
        simulation.during_call = Failures(failures)
        for step in history:
            play(simulation, step)
        # From here on nothing fails any more, and a deletion that was given up on is told by
        # nobody but a new operator.
        simulation.during_call = lambda _: None
        simulation.settle()
        note(simulation.timeline())
        check_object_order(simulation)
        check_watcher_order(simulation)
        check_exclusion(simulation)
        for watcher in range(WATCHERS):
            if watcher == FAILING and _gave_up_on_a_deletion(simulation):
                continue
            check_converged(simulation, watcher)


def _gave_up_on_a_deletion(simulation: Simulation) -> bool:
    last = {
        call.object.uid: call
        for call in simulation.calls
        if call.process == simulation.process.process and call.watcher == FAILING
    }
    return any(call.action == "DELETE" and call.error for call in last.values())


@many
@given(
    history=histories,
    failures=st.lists(st.booleans(), max_size=40),
    overlaps=st.lists(st.integers(0, 2), max_size=60),
    dequeue_policy=dequeue_policies,
)
def test_nothing_runs_twice_at_once_for_one_object_with_many_workers(
    history: list[Step], failures: list[bool], overlaps: list[int], dequeue_policy: Any
) -> None:
    fail = Failures(failures)
    plan = iter(overlaps)
    with simulated(
        workers=4, retry_policy=ConstantBackoff(1.0), retry_dequeue_policy=dequeue_policy
    ) as simulation:

        def during_call(call: Entry) -> None:
            # While this worker is in user code, the world goes on and other workers work.
            for _ in range(next(plan, 0)):
                simulation.poll()
                simulation.advance(1.0)
                simulation.handle()
            fail(call)

        simulation.during_call = during_call
        for step in history:
            play(simulation, step)
        simulation.during_call = lambda _: None
        simulation.settle()
        note(simulation.timeline())
        check_exclusion(simulation)
        check_object_order(simulation)
        check_watcher_order(simulation)
        for watcher in range(WATCHERS):
            check_converged(simulation, watcher)


def test_the_deletion_of_an_earlier_object_of_the_same_name_is_retried_to_the_end() -> None:
    with simulated(retry_policy=ConstantBackoff(1.0)) as simulation:
        simulation.during_call = Failures([False, True])
        for what in ("spec", "poll", "recreate", "poll", "handle"):
            play(simulation, Step(what, "a", 9 if what == "handle" else []))
        simulation.settle()
        for watcher in range(WATCHERS):
            check_converged(simulation, watcher)


@many
@example(
    history=[
        Step("spec", "b"),
        Step("spec", "a"),
        Step("poll", "", []),
        Step("handle", "", 1),
        Step("spec", "a"),
        Step("advance", "", 5.0),
        Step("handle", "", 1),
        Step("spec", "b"),
    ],
    failures=[True],
)
@given(history=histories, failures=st.lists(st.booleans(), max_size=40))
def test_with_one_worker_events_of_all_objects_come_in_the_order_of_their_arrival(
    history: list[Step], failures: list[bool]
) -> None:
    with simulated(retry_policy=ConstantBackoff(2.0)) as simulation:
        arrived = _arrivals(simulation)
        simulation.during_call = Failures(failures)
        for step in history:
            if step.what != "restart":
                play(simulation, step)
        simulation.settle()
        note(simulation.timeline())
        for watcher in (0, 2):
            told = [
                (call.action, call.object.uid, call.object.resource_version)
                for call in simulation.calls
                if call.watcher == watcher and call.action != "RESYNC"
            ]
            assert told == arrived, "a watcher that never fails is told each event once, in order"


def _arrivals(simulation: Simulation) -> list[tuple[str, str, str]]:
    arrived: list[tuple[str, str, str]] = []

    class Recorder:
        def on_events(self, events: list[Event]) -> None:
            arrived.extend(
                (e.action.value, e.object.uid, e.object.resource_version)
                for e in events
                if e.action is not ResourceAction.RESYNC
            )

        def on_initial_list_end(self) -> None:
            pass

    simulation.informer.add_event_handler(Recorder())
    return arrived


@attrs.define
class AskedPolicy:
    """A retry policy that remembers what it was asked and what it said."""

    clock: Callable[[], float]
    asked: list[tuple[str, int, float | None]] = attrs.field(factory=list)

    def __call__(self, error: Exception, attempt: int) -> float | None:
        delay = None if attempt > 4 else 2.0 * (attempt + 1)
        due = None if delay is None else self.clock() + delay
        self.asked.append((str(error), attempt, due))
        return delay


@many
@given(
    writes_before=st.lists(writes, min_size=1, max_size=6),
    failures=st.lists(st.booleans(), min_size=1, max_size=30),
    ticks=st.lists(st.sampled_from([0.1, 0.9, 1.0, 2.0, 3.0, 8.0]), max_size=30),
)
def test_retries_are_asked_for_with_rising_attempts_and_never_run_before_they_are_due(
    writes_before: list[Step], failures: list[bool], ticks: list[float]
) -> None:
    policy = AskedPolicy(clock=lambda: simulation.clock.monotonic())  # noqa: PLW0108 - made below
    with simulated(retry_policy=policy, resync=0.0) as simulation:
        plan = iter(failures)
        owed: dict[str, tuple[int, float | None]] = {}

        def during_call(call: Entry) -> None:
            if call.watcher != FAILING:
                return
            name = call.object.name
            event = simulation.calls[-2]
            is_event = (
                event.watcher == FAILING - 1
                and event.object is call.object
                and event.began == call.began - 2
                and event.action == call.action
            )
            if is_event:
                owed[name] = (0, None)
            else:
                attempt, due = owed[name]
                assert due is not None, f"{name}: a retry that nobody asked for"
                assert due <= simulation.clock.monotonic(), f"{name}: a retry before it was due"
                owed[name] = (attempt + 1, None)
            if next(plan, False):
                raise ConnectionError(name)

        simulation.during_call = during_call
        for step in writes_before:
            write(simulation, step)
        for tick in [0.0, *ticks]:
            simulation.advance(tick)
            simulation.poll()
            while True:
                asked = len(policy.asked)
                if not simulation.handle():
                    break
                for name, attempt, due in policy.asked[asked:]:
                    assert attempt == owed[name][0], f"{name}: attempts must rise by one"
                    owed[name] = (attempt, due)
            late = [
                due
                for _, due in owed.values()
                if due is not None and due <= simulation.clock.monotonic()
            ]
            assert not late, "on an idle machine a retry runs when it is due"
        note(simulation.timeline())


@many
@given(
    history=histories,
    failures=st.lists(st.booleans(), min_size=10, max_size=60),
)
def test_a_failing_watcher_keeps_no_other_watcher_from_an_event(
    history: list[Step], failures: list[bool]
) -> None:
    with simulated(retry_policy=ConstantBackoff(1.0)) as simulation:
        simulation.during_call = Failures(failures)
        for step in history:
            play(simulation, step)
        simulation.settle()
        events: dict[int, list[tuple[int, str, str]]] = {0: [], 2: []}
        for call in simulation.calls:
            if call.watcher in events:
                events[call.watcher].append(
                    (call.process, call.action, call.object.resource_version)
                )
        note(simulation.timeline())
        assert events[0] == events[2]


def test_a_broken_promise_is_found_and_told_as_a_timeline() -> None:
    with simulated() as simulation:
        simulation.create("a")
        simulation.settle()
        simulation.patch("a", {"spec": {"n": 1}})
        with pytest.raises(BrokenPromise, match=r"operator is called for a \(watcher 0\)"):
            check_converged(simulation, 0)
        old = simulation.calls[0]
        simulation.journal.entries[:] = [old, attrs.evolve(old, began=1)]
        with pytest.raises(BrokenPromise, match="two calls for default/a at once"):
            check_exclusion(simulation)
