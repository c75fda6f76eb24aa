"""Events in the middle of an outage: what counts as an attempt, and when the retries come."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.client import TooManyRequests
from appsdk_operator.controllers import Request, Result, RetryAfter, TerminalError
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import CallRecord
from tests.controllers.controller_tools import Rig, Tap

FAIL = ConnectionError("no server")
WIDGET = Kind(group="example.com", version="v1", kind="Widget")
KEY = Request("default", "a")


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


class StoreTap(Tap):
    """A source with a local copy of one object."""

    kind = WIDGET

    def __init__(self) -> None:
        super().__init__()
        self.object: Object | None = None

    def put(self, *, uid: str = "1", generation: int = 1, **metadata: Any) -> None:
        self.object = Object.from_dict(
            WIDGET,
            {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {
                    "name": "a",
                    "namespace": "default",
                    "uid": uid,
                    "generation": generation,
                    "resourceVersion": "1",
                    **metadata,
                },
            },
        )

    def find(self, name: str, namespace: str) -> Object | None:
        assert (namespace, name) == KEY
        return self.object


class StoreRig(Rig):
    def __init__(self, *plan: Any, **options: Any) -> None:
        super().__init__(*plan, kind=WIDGET, **options)
        self.tap: StoreTap = StoreTap()
        self.tap.put()

    @property
    def attempts(self) -> list[int]:
        return [context.attempt for context in self.script.contexts]


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[StoreRig] = []

    def make_rig(*plan: Any, **options: Any) -> StoreRig:
        made.append(StoreRig(*plan, **options))
        made[-1].begin()
        return made[-1]

    yield make_rig
    for rig in made:
        rig.close()


def test_an_event_before_the_planned_retry_neither_counts_nor_moves_it(make: Any) -> None:
    rig = make(*[FAIL] * 9)
    rig.add(KEY)
    rig.work()
    rig.after(1.0)
    assert rig.due_in == 2.0
    for left in (1.5, 1.0, 0.5):
        rig.clock.advance(0.5)
        rig.add(KEY)
        assert rig.work() == [KEY]
        assert rig.due_in == left
    assert rig.controller.debug_snapshot()["failing"] == {"default/a": 2}
    assert rig.after(0.5) == [KEY]
    assert rig.due_in == 4.0
    assert rig.attempts == [0, 1, 2, 2, 2, 2]
    assert rig.results() == {"error": 6}


def test_an_event_at_the_time_of_the_planned_retry_is_that_retry(make: Any) -> None:
    rig = make(*[FAIL] * 3)
    rig.add(KEY)
    rig.work()
    rig.clock.advance(1.0)
    rig.add(KEY)
    assert rig.work() == [KEY]
    assert rig.due_in == 2.0


def test_an_event_during_a_call_that_fails_does_not_count_either(make: Any) -> None:
    rig = make(*[FAIL] * 5)
    events = [KEY, None, KEY]
    rig.script.during = lambda _: events and (event := events.pop(0)) and rig.add(event)
    rig.add(KEY)
    assert rig.work() == [KEY, KEY]
    assert rig.due_in == 1.0
    assert rig.after(1.0) == [KEY, KEY]
    assert rig.due_in == 2.0


def test_a_call_of_an_event_that_outlasts_the_planned_time_is_followed_by_the_retry(
    make: Any,
) -> None:
    rig = make(*[FAIL] * 3)
    rig.add(KEY)
    rig.work()
    rig.add(KEY)
    durations = [5.0]
    rig.script.during = lambda _: durations and rig.clock.advance(durations.pop())
    assert rig.work() == [KEY, KEY]
    assert rig.attempts == [0, 1, 1]
    assert rig.due_in == 2.0


def test_events_do_not_use_up_the_attempts_and_are_never_the_last(make: Any) -> None:
    rig = make(*[FAIL] * 20, max_attempts=3)
    rig.add(KEY)
    rig.work()
    rig.after(1.0)
    for _ in range(10):
        rig.add(KEY)
        rig.work()
    assert not any(context.is_last_attempt for context in rig.script.contexts)
    assert rig.due_in == 2.0
    rig.after(2.0)
    assert rig.script.contexts[-1].is_last_attempt
    assert rig.due_in is None
    assert rig.value("terminal_reconcile_errors_total") == 1
    assert rig.controller.debug_snapshot()["failing"] == {}


def test_an_event_that_brings_success_ends_the_series(make: Any) -> None:
    rig = make(FAIL, FAIL, None, FAIL)
    rig.add(KEY)
    rig.work()
    rig.after(1.0)
    rig.add(KEY)
    rig.work()
    assert rig.due_in is None
    rig.add(KEY)
    rig.work()
    assert rig.due_in == 1.0


def test_what_an_events_call_asks_for_is_done(make: Any) -> None:
    rig = make(FAIL, Result(requeue_after=30.0), FAIL, TerminalError("no such color"))
    rig.add(KEY)
    rig.work()
    rig.add(KEY)
    rig.work()
    assert rig.due_in == 30.0
    rig.add(KEY)
    rig.work()
    assert rig.due_in == 1.0
    rig.add(KEY)
    rig.work()
    assert rig.due_in is None
    assert rig.controller.debug_snapshot()["failing"] == {}


@pytest.mark.parametrize(("asked", "planned"), [(0.25, 2.0), (9.0, 9.0)])
def test_a_retry_after_of_an_events_call_may_postpone_the_planned_retry_only(
    make: Any, asked: float, planned: float
) -> None:
    rig = make(FAIL, FAIL, RetryAfter(asked), FAIL)
    rig.add(KEY)
    rig.work()
    rig.after(1.0)
    rig.add(KEY)
    rig.work()
    assert rig.due_in == asked
    rig.after(asked)
    assert rig.due_in == (planned - asked or 4.0)
    assert rig.attempts == [0, 1, 2, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"generation": 2},
        {"uid": "2"},
        {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/f"]},
        None,
    ],
    ids=["generation", "uid", "deletion", "gone"],
)
def test_another_state_of_the_object_starts_anew(make: Any, change: dict[str, Any] | None) -> None:
    rig = make(*[FAIL] * 9, max_attempts=4)
    rig.add(KEY)
    for seconds in (0.0, 1.0, 2.0):
        rig.after(seconds)
    assert rig.due_in == 4.0
    if change is None:
        rig.tap.object = None
    else:
        rig.tap.put(**change)
    rig.add(KEY)
    rig.work()
    assert rig.attempts == [0, 1, 2, 0]
    assert rig.due_in == 1.0


def test_a_write_of_the_status_does_not_start_anew(make: Any) -> None:
    rig = make(*[FAIL] * 9)
    rig.add(KEY)
    rig.work()
    rig.after(1.0)
    rig.tap.put(resourceVersion="2", labels={"tried": "2"})
    rig.add(KEY)
    rig.work()
    assert rig.due_in == 2.0


def test_a_generation_that_comes_during_a_failing_call_starts_anew(make: Any) -> None:
    rig = make(*[FAIL] * 9)
    rig.add(KEY)
    for seconds in (0.0, 1.0):
        rig.after(seconds)

    def change(_: Any) -> None:
        rig.script.during = lambda _: None
        rig.tap.put(generation=2)
        rig.add(KEY)

    rig.script.during = change
    rig.after(2.0)
    assert rig.attempts == [0, 1, 2, 0]
    assert rig.due_in == 1.0


@pytest.mark.parametrize(
    "error", [RuntimeError("no store"), SystemExit("no store"), GeneratorExit()]
)
def test_a_state_that_cannot_be_read_leaves_the_plan_as_it_is(
    make: Any, error: BaseException
) -> None:
    rig = make(*[FAIL] * 9)

    def find(name: str, namespace: str) -> Any:
        raise error

    rig.controller._finders[:] = [find]
    rig.add(KEY)
    rig.work()
    rig.add(KEY)
    rig.work()
    assert rig.due_in == 1.0
    # Once it can be read, the state is the one to compare with.
    rig.controller._finders[:] = [rig.tap.find]
    rig.add(KEY)
    rig.work()
    rig.after(1.0)
    assert rig.due_in == 2.0
    rig.tap.put(generation=2)
    rig.add(KEY)
    rig.work()
    assert rig.attempts == [0, 1, 1, 1, 0]


@pytest.mark.parametrize(
    "answer", [RuntimeError("no store"), SystemExit("no store"), "not an object", Tap]
)
def test_a_copy_that_cannot_be_read_leaves_the_object_to_the_other_ones(
    make: Any, answer: Any
) -> None:
    rig = make()

    def find(name: str, namespace: str) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    call = CallRecord(
        controller="c",
        callback="reconcile",
        role="reconciler",
        kind="widgets",
        namespace=KEY.namespace,
        name=KEY.name,
        target=1,
    )
    rig.controller._finders[:] = [find, rig.tap.find]
    assert rig.controller.object_of(call) is rig.tap.object
    rig.controller._finders[:] = [find]
    assert rig.controller.object_of(call) is None


@pytest.mark.parametrize("seconds", ["soon", None, float("nan"), -1.0, [], 2**1024])
def test_a_retry_after_that_is_no_number_counts_for_nothing(make: Any, seconds: Any) -> None:
    busy = TooManyRequests("busy", status=429, retry_after=1.0)
    asks = RetryAfter(5.0)
    busy.retry_after = asks.seconds = seconds
    rig = make(busy, asks, TerminalError("no"))
    rig.add(KEY)
    rig.work()
    assert rig.due_in == 1.0
    rig.after(1.0)
    assert rig.due_in == 2.0
    rig.after(2.0)
    assert rig.attempts == [0, 1, 2]


def test_requests_of_another_type_have_no_generation_and_keep_their_plan(make: Any) -> None:
    rig = make(*[FAIL] * 9)
    rig.add("elsewhere")
    rig.work()
    rig.add("elsewhere")
    rig.work()
    assert rig.due_in == 1.0


QUARTERS = st.integers(0, 400).map(lambda quarter: quarter / 4)


@given(
    events=st.lists(
        st.one_of(
            QUARTERS,
            # At planned times, and just beside them.
            st.tuples(st.sampled_from([0, 1, 3, 7, 15, 31, 63]), st.sampled_from([-0.25, 0, 0.25]))
            .map(sum)
            .filter(lambda at: at >= 0),
        ),
        max_size=40,
    ),
    burst=st.integers(1, 3),
    outage=st.integers(1, 120),
    max_attempts=st.sampled_from([0, 1, 2, 4, 6]),
)
def test_events_in_an_outage_leave_the_schedule_of_retries_as_it_is(
    events: list[float], burst: int, outage: int, max_attempts: int
) -> None:
    """Without events the calls come at 0, 1, 3, 7, … until one succeeds or is the last."""
    planned, at, count = [], 0.0, 0
    while True:
        planned.append(at)
        count += 1
        if at >= outage or count == max_attempts:
            break
        at += 2.0 ** (count - 1)
    end = planned[-1]

    rig = StoreRig(max_attempts=max_attempts)
    rig.begin()
    try:
        began = rig.clock.monotonic()
        rig.script.during = lambda _: _fail_until(rig, began + outage)
        rig.add(KEY)
        calls = [(0.0, context) for context in _worked(rig)]
        for event in sorted({event for event in events if event < min(end, outage)}):
            while (due := rig.controller.next_due) is not None and due - began <= event:
                if due - began == event:
                    rig.add(KEY)  # merges with the planned retry
                rig.clock.advance(due - rig.clock.monotonic())
                calls += [(due - began, context) for context in _worked(rig)]
            rig.clock.advance(began + event - rig.clock.monotonic())
            for _ in range(burst):
                rig.add(KEY)
                calls += [(event, context) for context in _worked(rig)]
        while (due := rig.controller.next_due) is not None:
            rig.clock.advance(due - rig.clock.monotonic())
            calls += [(due - began, context) for context in _worked(rig)]

        # Of the calls of one attempt the last one is that which was planned, and counted.
        lasts = {context.attempt: time for time, context in calls}
        assert [lasts[attempt] for attempt in sorted(lasts)] == planned
        assert all(
            context.is_last_attempt == (0 < max_attempts == context.attempt + 1 and time == end)
            for time, context in calls
        )
    finally:
        rig.close()


def _fail_until(rig: Rig, end: float) -> None:
    if rig.clock.monotonic() < end:
        raise ConnectionError("no server")


def _worked(rig: Rig) -> list[Any]:
    before = len(rig.script.contexts)
    rig.work()
    return rig.script.contexts[before:]
