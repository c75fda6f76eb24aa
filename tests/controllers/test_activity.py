"""What a controller records of its reconciles, and shows observers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from appsdk_operator.controllers import Request, Result, TerminalError
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import CallRecord, RequestRecord, present_call
from tests.controllers.controller_tools import Rig

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


class Seen:
    """An observer that writes down the outcomes, and which calls it knew from their beginning."""

    def __init__(self) -> None:
        self.began: list[CallRecord] = []
        self.outcomes: list[str] = []

    def call_began(self, call: CallRecord) -> None:
        self.began.append(call)

    def call_ended(self, call: CallRecord) -> None:
        assert call in self.began
        self.outcomes.append(call.outcome)

    def request_began(self, request: RequestRecord) -> None:
        raise AssertionError(request)

    def request_ended(self, request: RequestRecord) -> None:
        raise AssertionError(request)


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(
        ValueError("boom"), None, Result(requeue_after=5.0), TerminalError("no"), kind=WIDGET
    )
    yield made.begin()
    made.close()


def test_each_outcome_is_recorded_with_its_reasons_and_the_next_time(rig: Rig) -> None:
    request = Request("default", "web")
    rig.add(request, reason="asked for")
    rig.work()
    rig.after(1.0)
    rig.add(request)
    rig.work()
    rig.after(5.0)
    terminal, requeued, done, failed = rig.controller.activity.timeline("default", "web")
    assert [call.outcome for call in (failed, done, requeued, terminal)] == [
        *("retrying", "done", "requeued", "terminal")
    ]
    assert (failed.next_in, requeued.next_in) == (1.0, 5.0)
    assert str(failed.reasons[0]) == "asked for"
    assert (failed.kind, failed.callback) == ("Widget.example.com", "Script.reconcile")
    assert failed.cause is not None
    assert (failed.cause.type, failed.cause.text) == ("ValueError", "boom")
    assert failed.cause.function == "Script.reconcile"
    assert done.attempt == 1
    assert rig.controller.activity.failures() == [terminal, failed]


def test_an_observer_sees_beginnings_and_outcomes_until_it_is_removed(rig: Rig) -> None:
    seen = Seen()
    remove = rig.controller.observe_activity(seen)
    rig.add(Request("default", "web"))
    rig.work()
    remove()
    rig.after(1.0)
    assert seen.outcomes == ["retrying"]
    assert len(rig.controller.activity.calls()) == 2


def test_a_reconcile_knows_its_call_and_the_log_shows_it_as_running(rig: Rig) -> None:
    rig.script.plan.clear()
    shown: list[object] = []

    def look(_: object) -> None:
        shown.append(present_call())
        shown.extend(rig.controller.activity.running())

    rig.script.during = look
    rig.add("a text")
    rig.work()
    assert [(call.name, call.seconds) for call in shown if isinstance(call, CallRecord)] == [
        *(("a text", None), ("a text", None))
    ]
    assert rig.controller.activity.running() == []


def test_a_reconcile_that_runs_for_half_a_minute_is_shown_with_its_line(rig: Rig) -> None:
    rig.script.plan.clear()
    shown: list[object] = []

    def look(_: object) -> None:
        for seconds in (29.0, 1.0):
            rig.clock.advance(seconds)
            now = rig.clock.monotonic()
            (call,) = rig.controller.activity.running()
            shown.append(call.to_json(now, 0.0)["held_at"])

    rig.script.during = look
    rig.add("a text")
    rig.work()
    early, late = shown
    assert early == ""
    assert str(late).endswith(")")
    assert ".py:" in str(late)
    (ended,) = rig.controller.activity.calls()
    assert ended.to_json(rig.clock.monotonic(), 0.0)["held_at"] == ""
