"""The record of calls: what it keeps, what it forgets, and what observers see."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from appsdk_operator.runtime import (
    ActivityLog,
    CallRecord,
    CallSlot,
    FailureCause,
    ManualClock,
    ObservedParts,
    Observers,
    RequestRecord,
    observed_request,
    present_call,
)


class Seen:
    """An observer that writes down what it is shown."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def call_began(self, call: CallRecord) -> None:
        self.lines.append(f"{call.callback} of {call.name} began")

    def call_ended(self, call: CallRecord) -> None:
        self.lines.append(f"{call.callback} of {call.name} {call.outcome}")

    def request_began(self, request: RequestRecord) -> None:
        request.headers["traceparent"] = "00-1"
        self.lines.append(f"{request.verb} began")

    def request_ended(self, request: RequestRecord) -> None:
        self.lines.append(f"{request.verb} {request.status}{request.error}")


class Engine:
    """Makes calls as the engine does; the trigger is the object's name."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = ActivityLog("c", clock=self.clock, describe=self._describe)

    def _describe(self, slot: CallSlot) -> CallRecord:
        return CallRecord(
            controller="c",
            callback="work",
            role="reconciler",
            kind="Widget",
            namespace="default",
            name=slot.trigger,
            reasons=("created",),
            started=slot.started,
        )

    def call(self, name: str = "a", *, fails: bool = False, writes: int = 0) -> None:
        log, error = self.log, None
        with log.entered():
            slot = next(iter(log.slots.values()))
            slot.trigger, slot.started = name, self.clock.monotonic()
            if log.observers.present:
                log.begin(slot)
            for _ in range(writes):
                self.request("patch", 200)
            if fails:
                error = FailureCause(ValueError("no"))
            slot.trigger = None
            if error or slot.is_noted or slot.started >= log.skip_until:
                log.end(slot, name, 0.5, "retrying" if fails else "done", 2.0, error)

    def request(self, verb: str, status: int) -> dict[str, str]:
        with observed_request(
            Observers(),
            self.clock,
            method={"get": "GET"}.get(verb, "PATCH"),
            verb=verb,
            resource="widgets",
            namespace="default",
            name="a",
        ) as observed:
            observed.answered(status)
            return observed.headers


@pytest.fixture
def engine() -> Engine:
    return Engine()


def test_a_call_has_its_outcome_and_its_writes(engine: Engine) -> None:
    engine.call("a", writes=1)
    (call,) = engine.log.calls()
    shown = call.to_json(engine.clock.monotonic() + 1, 100.0)
    assert (shown["outcome"], shown["reasons"], shown["started"]) == ("done", ["created"], 99.0)
    assert shown["next_in"] == 1.5
    assert [(write["verb"], write["status"]) for write in shown["writes"]] == [("patch", 200)]


def test_reads_are_no_part_of_a_record(engine: Engine) -> None:
    with engine.log.entered():
        slot = next(iter(engine.log.slots.values()))
        slot.trigger = "a"
        engine.request("get", 200)
        assert not slot.is_noted
        slot.trigger = None


def test_a_write_outside_of_calls_is_recorded_nowhere(engine: Engine) -> None:
    with engine.log.entered():
        engine.request("patch", 200)
    engine.call("a")
    assert engine.log.calls()[0].requests == []


def test_many_writes_are_counted(engine: Engine) -> None:
    engine.call("a", writes=25)
    engine.call("b", writes=1)
    newest, call = engine.log.calls()
    assert (len(call.requests), call.omitted_requests) == (20, 5)
    assert (len(newest.requests), newest.omitted_requests) == (1, 0)


def test_calls_failures_and_objects_are_bounded(engine: Engine) -> None:
    for number in range(700):
        engine.clock.advance(1.0)
        engine.call(f"o{number}", fails=True)
    log = engine.log
    assert (len(log.calls()), len(log.failures()), len(log.objects())) == (200, 200, 500)
    assert log.objects()[0] == ("Widget", "default", "o699")
    assert not log.timeline("default", "o10")


def test_an_object_keeps_its_last_calls_while_others_are_busy(engine: Engine) -> None:
    for _ in range(15):
        engine.clock.advance(1.0)
        engine.call("quiet")
    for number in range(499):
        engine.clock.advance(1.0)
        engine.call(f"busy-{number}")
    assert len(engine.log.timeline("default", "quiet")) == 10
    assert not engine.log.timeline("default", "quiet", kind="Gadget")


def test_a_flood_is_sampled_but_failures_and_writes_never(engine: Engine) -> None:
    for number in range(600):
        engine.call(f"a-{number}")
    assert engine.log.is_limited
    assert engine.log.objects()[0][2] == "a-199"
    engine.call("failed", fails=True)
    engine.call("wrote", writes=1)
    assert [key[2] for key in engine.log.objects()[:2]] == ["wrote", "failed"]
    engine.clock.advance(1.0)
    engine.call("later")
    assert engine.log.objects()[0][2] == "later"
    engine.clock.advance(61.0)
    assert not engine.log.is_limited


def test_an_observer_sees_calls_and_requests_and_adds_headers(engine: Engine) -> None:
    seen = Seen()
    remove = engine.log.observers.add(seen)
    engine.call("a", writes=1)
    assert seen.lines == ["work of a began", "patch began", "patch 200", "work of a done"]
    remove()
    engine.call("b")
    assert len(seen.lines) == 4


def test_an_observer_that_raises_is_logged_and_harms_nothing(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Seen):
        def call_began(self, call: CallRecord) -> None:
            raise ValueError("broken")

    seen = Seen()
    engine.log.observers.add(Broken())
    engine.log.observers.add(seen)
    engine.call("a")
    assert seen.lines == ["work of a began", "work of a done"]
    assert "an observer failed" in caplog.text


def test_a_failed_request_has_its_error(engine: Engine) -> None:
    seen = Seen()
    observers = Observers()
    observers.add(seen)
    what: dict[str, Any] = {"method": "GET", "verb": "list", "resource": "widgets"}
    with (
        pytest.raises(OSError, match="gone"),
        observed_request(observers, engine.clock, namespace="", name="", **what),
    ):
        raise OSError("gone")
    assert seen.lines == ["list began", "list 0OSError: gone"]


def test_the_present_call_is_known_within_and_nowhere_else(engine: Engine) -> None:
    assert present_call() is None
    with engine.log.entered():
        assert present_call() is None
        slot = next(iter(engine.log.slots.values()))
        slot.trigger = "a"
        assert present_call() is not None
        assert [call.name for call in engine.log.running()] == ["a"]
        slot.trigger = None
    assert engine.log.running() == []


def test_observers_see_parts_that_come_later_until_they_are_removed() -> None:
    class Part:
        def __init__(self) -> None:
            self.observers = Observers()

        def observe_activity(self, observer: Any) -> Any:
            return self.observers.add(observer)

    parts, first, second, seen = ObservedParts(), Part(), Part(), Seen()
    parts.join(first)
    parts.join(object())
    end = parts.observe(seen)
    parts.join(second)
    assert first.observers.present == second.observers.present == (seen,)
    end()
    assert first.observers.present == second.observers.present == ()


def test_nothing_is_kept_of_parts_that_are_gone() -> None:
    gone: list[weakref.ref[Any]] = []

    class Part:
        def observe_activity(self, observer: Any) -> Any:
            def remove() -> None: ...

            gone.append(weakref.ref(remove))
            return remove

    parts, living = ObservedParts(), Part()
    end = parts.observe(Seen())
    for _ in range(10):
        parts.join(Part())
    parts.join(living)
    gc.collect()
    assert sum(ref() is not None for ref in gone) == 1
    end()
    assert gone[-1]() is None


def test_failures_in_a_row_are_counted_since_the_first_until_a_success() -> None:
    engine = Engine()
    for _ in range(3):
        engine.call(fails=True)
        engine.clock.advance(10.0)
    engine.call("other", fails=True)
    failing = {each.last.name: each for each in engine.log.failing()}
    assert (failing["a"].count, failing["other"].count) == (3, 1)
    assert failing["a"].last.started - failing["a"].since == 20.0
    engine.call()
    assert [each.last.name for each in engine.log.failing()] == ["other"]
    assert engine.log.last_trouble == engine.clock.monotonic() + 0.5
    engine.clock.advance(10.0)
    engine.call(fails=True)
    (failing_again,) = (each for each in engine.log.failing() if each.last.name == "a")
    assert (failing_again.count, failing_again.since) == (1, engine.clock.monotonic())


def test_time_that_does_not_count_counts_neither_for_a_call_nor_for_the_part_that_runs() -> None:
    clock = ManualClock()
    log = ActivityLog("c", clock=clock, describe=Engine()._describe)
    with log.entered():
        (slot,) = log.slots.values()
        slot.limit = [0.0, 20.0]
        call = log.limited_call(slot)
        part = log.begin_limited(slot, 10.0)
        clock.advance(5.0)
        with log.not_counted():
            assert (call and call.remaining(), part.remaining()) == (None, None)
            clock.advance(100.0)
        assert (call and call.remaining(), part.remaining()) == (15.0, 5.0)
