"""Which failures become Events, and when they are over."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from appsdk_operator.client import ClientConfig
from appsdk_operator.manager import FailureEvents, Manager, ManagerOptions
from appsdk_operator.manager._events.failures import FailureEventObserver
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import CallRecord, FailureCause, ManualClock, Metrics, StopSignal

POD = kinds.core.v1.Pod


class Rig:
    """An observer, what it recorded, and a clock."""

    def __init__(self, options: FailureEvents | None = None) -> None:
        self.clock = ManualClock()
        self.told: list[tuple[str, ...]] = []
        self.gone: set[str] = set()
        self.observer = FailureEventObserver(
            options or FailureEvents(),
            find=self.find,  # type: ignore[arg-type]
            recorder=lambda: self,  # type: ignore[arg-type, return-value]
            clock=self.clock,
        )

    def find(self, call: CallRecord) -> MutableObject | None:
        if call.name in self.gone:
            return None
        return MutableObject.new(POD, call.name, namespace=call.namespace)

    def event(self, obj: MutableObject, *words: str) -> None:
        self.told.append((obj.name, *words))

    def end(
        self, error: Exception | None = None, name: str = "a", outcome: str = "", target: int = 1
    ) -> None:
        call = CallRecord(
            controller="shop",
            callback="make",
            role="watcher",
            kind="pods.v1",
            namespace="red",
            name=name,
            target=target,
        )
        call.outcome = outcome or ("done" if error is None else "retrying")  # type: ignore[assignment]
        call.cause = None if error is None else FailureCause(error)
        self.observer.call_ended(call)
        self.clock.advance(10)

    def fail(self, times: int = 1, **given: object) -> None:
        for _ in range(times):
            self.end(ConnectionError("no storage"), **given)  # type: ignore[arg-type]


@pytest.fixture
def rig() -> Rig:
    return Rig()


FAILING = ("a", "Warning", "Failing", "make/ConnectionError")


def test_the_third_failure_in_a_row_is_an_event_and_the_success_after_it(rig: Rig) -> None:
    rig.fail(2)
    assert rig.told == []
    rig.fail(2)
    rig.end()
    rig.end()
    then = "ConnectionError: no storage; tried again with growing delays"
    assert rig.told == [
        (*FAILING, f"make failed 3 times in a row: {then}"),
        (*FAILING, f"make failed 4 times in a row: {then}"),
        ("a", "Normal", "Recovered", "make", "make works again, after 4 failures in 40 s"),
    ]


def test_retries_within_milliseconds_are_no_failure_that_persists() -> None:
    rig = Rig(FailureEvents(lasting=25.0))
    rig.fail(3)
    assert rig.told == []
    rig.fail()
    ((*_, note),) = rig.told
    assert note.startswith("make failed 4 times in a row")


def test_a_success_begins_the_count_anew(rig: Rig) -> None:
    for _ in range(5):
        rig.fail(2)
        rig.end()
    assert rig.told == []


def test_objects_and_watchers_are_counted_apart(rig: Rig) -> None:
    rig.fail(2)
    rig.fail(2, name="b")
    rig.fail(2, target=2)
    assert rig.told == []
    rig.fail(1, target=2)
    rig.end(target=1)
    assert [event[:3] for event in rig.told] == [("a", "Warning", "Failing")]
    rig.end(target=2)
    assert [event[:3] for event in rig.told[1:]] == [("a", "Normal", "Recovered")]


@pytest.mark.parametrize("outcome", ["given up", "terminal", "fatal"])
def test_what_is_not_tried_again_is_told_at_once(rig: Rig, outcome: str) -> None:
    rig.fail(outcome=outcome)
    ((*_, note),) = rig.told
    assert note.startswith("make failed once: ConnectionError: no storage; ")
    assert "growing" not in note


def test_what_is_given_up_may_be_all_that_is_told() -> None:
    rig = Rig(FailureEvents(after=None))
    assert rig.observer.failures_only
    rig.fail(5)
    assert rig.told == []
    rig.fail(outcome="terminal")
    rig.end()
    then = "ConnectionError: no storage; not tried again before the object changes"
    assert rig.told == [(*FAILING, f"make failed: {then}")]


def test_who_asks_to_be_called_later_has_not_failed(rig: Rig) -> None:
    from appsdk_operator.controllers import RetryAfter

    for _ in range(10):
        rig.end(RetryAfter(5.0, "still creating"))
    assert rig.told == []
    rig.fail(2)
    rig.end(RetryAfter(5.0, "still creating"))
    rig.fail()
    assert len(rig.told) == 1


def test_an_object_that_is_gone_has_no_events(rig: Rig) -> None:
    rig.gone.add("a")
    rig.fail(5)
    assert rig.told == []


def test_the_text_of_an_error_may_be_kept_away() -> None:
    rig = Rig(FailureEvents(after=1, lasting=0, error_text=False))
    rig.end(ConnectionError("password=hunter2"))
    assert "hunter2" not in str(rig.told)
    assert "ConnectionError" in str(rig.told)


def test_a_recorder_that_fails_costs_a_line_alone(
    rig: Rig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rig, "event", None)
    rig.fail(3)
    assert "could not write an Event about make failed 3 times in a row" in caplog.text


def test_memory_is_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    from appsdk_operator.manager._events import failures

    monkeypatch.setattr(failures, "_MOST_FAILING", 10)
    for number in range(100):
        rig.fail(name=f"pod-{number}")
    assert len(rig.observer._failing) == 10


class Observed:
    """A controller that counts who observes it."""

    def __init__(self) -> None:
        self.observers = 0

    def object_of(self, call: CallRecord) -> None:
        return None

    def observe_activity(self, observer: object) -> Callable[[], None]:
        self.observers += isinstance(observer, FailureEventObserver)
        return lambda: None

    def run(self, stop: StopSignal) -> None:
        stop.wait()


@pytest.mark.parametrize(
    "order", [("add", "begin", "look"), ("begin", "look", "add"), ("begin", "add", "look")]
)
def test_a_controller_that_is_added_as_the_run_begins_is_observed_once(
    monkeypatch: pytest.MonkeyPatch, order: tuple[str, ...]
) -> None:
    config = ClientConfig(server="http://127.0.0.1:1")
    part = Observed()
    with Manager(config, failure_events=True, metrics=Metrics()) as manager:
        groups = manager._lifecycle.groups
        add = groups.add

        steps: dict[str, Callable[[], object]] = {
            "add": lambda: add(part),
            "begin": lambda: monkeypatch.setattr(manager, "_is_running", True),
            "look": manager._observe_for_options,
        }

        def meanwhile(_: Observed) -> None:
            for name in order:
                steps[name]()

        monkeypatch.setattr(groups, "add", meanwhile)
        manager.add(part)
        monkeypatch.setattr(groups, "add", add)
        other = Observed()
        manager.add(other)
        manager._observe_for_options()
        monkeypatch.undo()
    assert (part.observers, other.observers) == (1, 1)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FailureEvents(after=0), "after=0: use a whole number of failures"),
        (lambda: FailureEvents(after=True), "after=True: use a whole number"),
        (lambda: FailureEvents(lasting=-1), "lasting=-1"),
        (lambda: ManagerOptions(failure_events=3), "failure_events=3: give True, or FailureEvents"),
    ],
)
def test_options_are_checked_when_they_are_given(make: Callable[[], object], text: str) -> None:
    with pytest.raises((ValueError, TypeError), match=text):
        make()
    assert ManagerOptions(failure_events=True).failure_events == FailureEvents()
    assert ManagerOptions(failure_events=False).failure_events is None
