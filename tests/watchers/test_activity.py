"""What an InformerController records of its calls, and shows observers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from appsdk_operator.controllers import Result, TerminalError
from appsdk_operator.runtime import CallRecord, present_call
from appsdk_operator.watchers import ConstantBackoff, ReconcileRequest, SimpleReconciler
from tests.watchers.conftest import WIDGET, Rig, make_widget


def outcomes(rig: Rig) -> list[tuple[str, str, str, int, float | None]]:
    """Oldest first."""
    return [
        (call.callback, call.action, call.outcome, call.attempt, call.next_in)
        for call in reversed(rig.controller.activity.timeline("default", "a"))
    ]


def test_a_watchers_calls_and_retries_are_recorded(make_rig: Callable[..., Rig]) -> None:
    rig = make_rig(retry_policy=ConstantBackoff(delay=5.0, max_attempts=0))
    rig.watcher("w", ValueError("one"), ValueError("two"), TerminalError("three"))
    rig.informer.add(make_widget("a"))
    rig.work()
    rig.after(5.0)
    rig.informer.update(make_widget("a"), make_widget("a", 2))
    rig.work()
    add, update = "RecordedWatcher.add", "RecordedWatcher.update"
    assert outcomes(rig) == [
        (add, "CREATE", "retrying", 0, 5.0),
        (add, "CREATE", "given up", 1, None),
        (update, "UPDATE", "terminal", 0, None),
    ]
    failed = rig.controller.activity.failures()[-1]
    assert (failed.kind, failed.role) == (str(WIDGET), "watcher")
    assert failed.cause is not None
    assert (failed.cause.text, failed.cause.function) == ("one", "RecordedWatcher.add")
    assert [str(reason) for reason in failed.reasons] == ["Widget default/a created"]


def test_a_reconcilers_calls_are_recorded_with_what_it_asked_for(rig: Rig) -> None:
    def reconcile(request: ReconcileRequest) -> Result | None:
        return Result(requeue_after=3.0) if request.object.resource_version == "1" else None

    rig.controller.add_reconciler(SimpleReconciler(reconcile), WIDGET)
    rig.informer.add(make_widget("a"))
    rig.work()
    rig.informer.update(make_widget("a"), make_widget("a", 2))
    rig.work()
    assert [outcome[2:] for outcome in outcomes(rig)] == [("requeued", 0, 3.0), ("done", 0, None)]


def test_a_watcher_knows_its_call_which_is_shown_as_running(rig: Rig) -> None:
    shown: list[Any] = []

    def look(_: str) -> None:
        shown.append(present_call())
        shown.extend(rig.controller.activity.running())

    rig.watcher("w").during = look
    rig.informer.add(make_widget("a"))
    rig.work()
    assert [(call.name, call.seconds) for call in shown] == [("a", None), ("a", None)]
    assert all(isinstance(call, CallRecord) for call in shown)
    assert rig.controller.activity.running() == []


def test_the_record_keeps_no_object(rig: Rig) -> None:
    rig.watcher("w", ValueError("one"))
    rig.start()
    assert rig.informer.is_running.wait(10)
    rig.informer.add(make_widget("a"))
    assert rig.controller.wait_idle(10)
    (slot,) = rig.controller.activity.slots.values()
    assert slot.trigger is None
    assert rig.controller.activity.running() == []
    (call,) = rig.controller.activity.calls()
    assert {type(getattr(call, field)).__name__ for field in CallRecord.__slots__} <= {
        *("str", "int", "bool", "float", "NoneType", "tuple", "list", "FailureCause")
    }


def test_a_call_that_a_flood_leaves_out_does_not_stay_as_running(rig: Rig) -> None:
    rig.watcher("w")
    rig.start()
    assert rig.informer.is_running.wait(10)
    rig.controller.activity.skip_until = math.inf
    rig.informer.add(make_widget("a"))
    assert rig.controller.wait_idle(10)
    assert rig.calls
    assert rig.controller.activity.calls() == rig.controller.activity.running() == []
