"""What a reconcile learns of itself: id, reasons, attempt, deadline, stop, logger."""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.controllers import (
    ReconcileContext,
    Request,
    Result,
    RetryAfter,
    reconcile_context,
)
from appsdk_operator.controllers._reasons import compact_reason
from appsdk_operator.resource import Kind, Object
from appsdk_operator.runtime import StopSignal, safe_text
from tests.controllers.controller_tools import PATIENCE, Rig
from tests.waiting import eventually

FAIL = ConnectionError("no server")
POD = Kind(group="", version="v1", kind="Pod")


def pod(name: str = "web-1") -> Object:
    metadata = {"name": name, "namespace": "default", "uid": "u", "resourceVersion": "1"}
    return Object.from_dict(POD, {"metadata": metadata})


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig()
    yield made
    made.close()


def test_there_is_no_context_outside_of_a_reconcile(rig: Rig) -> None:
    assert reconcile_context() is None
    rig.begin().add("a")
    rig.work()
    assert reconcile_context() is None


def test_each_reconcile_has_an_id_of_its_own_that_stays(rig: Rig) -> None:
    rig.begin()
    for name in "ab":
        rig.add(name)
    rig.work()
    first, second = rig.script.contexts
    assert first.id == first.id != second.id
    assert uuid.UUID(first.id).version == 4


def test_the_context_says_what_is_reconciled_by_whom(rig: Rig) -> None:
    rig.begin().add("a", priority=3)
    rig.work()
    (context,) = rig.script.contexts
    assert (context.request, context.controller, context.priority) == ("a", rig.controller.name, 3)
    assert repr(context) == f"<reconcile of a by {rig.controller.name}, attempt 0>"


# Reasons.


def test_reasons_say_why_and_are_kept_up_to_a_bound(rig: Rig) -> None:
    rig.begin()
    for number in range(20):
        rig.add("a", reason=f"change {number}")
    rig.work()
    reasons = rig.script.contexts[0].reasons
    assert len(reasons) == 8
    assert (reasons[0], reasons[-1]) == ("change 0", "change 19")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (Event(ResourceAction.UPDATE, pod(), pod()), "Pod default/web-1 updated"),
        (Event(ResourceAction.CREATE, pod()), "Pod default/web-1 created"),
        (
            Event(ResourceAction.CREATE, pod(), None, True),
            "Pod default/web-1 was there at the start",
        ),
        (Event(ResourceAction.DELETE, pod()), "Pod default/web-1 deleted"),
        (Event(ResourceAction.RESYNC, pod()), "Pod default/web-1 resynced"),
        (Event(ResourceAction.GENERIC, pod()), "Pod default/web-1 signalled"),
        (pod(), "Pod default/web-1 signalled"),
        (ValueError("x" * 500), "ValueError: " + "x" * 188),
        (None, "None"),
        ("by hand", "by hand"),
        (5, "5"),
    ],
)
def test_what_may_be_a_reason_and_how_it_reads(event: Any, expected: str) -> None:
    assert safe_text(compact_reason(event)) == expected


def test_a_reason_whose_text_fails_breaks_nothing(rig: Rig) -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no text")

    rig.begin().add("a", reason=Odd())
    rig.work()
    assert rig.script.contexts[0].reasons == ("<Odd whose text failed: ValueError>",)


def test_retries_and_requeues_say_so_and_retries_name_what_began_them(rig: Rig) -> None:
    rig.script.plan = [FAIL, RetryAfter(1.0), Result(requeue_after=30.0), None]
    rig.begin().add("a", reason=Event(ResourceAction.UPDATE, pod(), pod()))
    rig.work()
    for seconds in (1.0, 1.0, 30.0):
        rig.after(seconds)
    assert [context.reasons for context in rig.script.contexts] == [
        ("Pod default/web-1 updated",),
        ("retry 1 after ConnectionError (first: Pod default/web-1 updated)",),
        ("retry 2 after RetryAfter (first: Pod default/web-1 updated)",),
        ("requeued after 30 s",),
    ]


def test_reasons_keep_no_object_and_no_traceback_alive(rig: Rig) -> None:
    class LeafError(ConnectionError):
        pass

    rig.begin()
    error = LeafError("no server")
    gone = weakref.ref(error)
    event = Event(ResourceAction.UPDATE, pod(), pod())
    rig.add("a", reason=event, after=5.0)
    rig.add("a", reason=error, after=5.0)
    del error
    assert gone() is None
    assert rig.controller._run is not None
    entries = rig.controller._run.queue._state._entries
    (entry,) = entries.values()
    assert not any(isinstance(reason, (Event, Object)) for reason in entry.reasons or ())
    (shown,) = rig.controller.debug_snapshot()["planned"]
    assert shown["why"] == "Pod default/web-1 updated; LeafError: no server"


def test_the_queue_of_a_source_can_rate_limit_too(rig: Rig) -> None:
    rig.begin()
    assert rig.tap.queue is not None
    assert rig.tap.queue.add_rate_limited("a", reason=FAIL) == 1.0
    assert rig.tap.queue.add_rate_limited("a", priority=5) == 2.0
    (shown,) = rig.controller.debug_snapshot()["planned"]
    assert (shown["due_in"], shown["priority"]) == (1.0, 5)
    assert shown["why"] == "ConnectionError: no server"
    assert rig.after(1.0) == ["a"]
    assert rig.script.contexts[0].attempt == 0


@pytest.mark.parametrize("priority", ["5", float("nan"), 2.5])
def test_a_priority_that_is_no_whole_number_is_refused_and_blocks_no_request(
    rig: Rig, priority: Any
) -> None:
    rig.begin()
    with pytest.raises(TypeError, match=r"priority=.*: give a whole number"):
        rig.add("a", priority=priority)
    assert rig.tap.queue is not None
    with pytest.raises(TypeError, match="give a whole number"):
        rig.tap.queue.add_rate_limited("a", priority=priority)
    rig.add("a")
    assert rig.work() == ["a"]


def test_the_debug_snapshot_shows_what_runs_and_what_waits_and_is_plain_json(rig: Rig) -> None:
    import json

    shown: list[dict[str, Any]] = []
    rig.begin()

    def look(_: Any) -> None:
        rig.clock.advance(2.0)
        shown.append(rig.controller.debug_snapshot())

    rig.script.during = look
    rig.add(Request("default", "web"), reason="hello")
    rig.add(Request("default", "next"), after=5.0, reason=Event(ResourceAction.DELETE, pod()))
    rig.controller.process_next()
    (snapshot,) = shown
    context = rig.script.contexts[0]
    assert snapshot["running"] == [
        {
            "object": "default/web",
            "reconcile_id": context.id,
            "attempt": 0,
            "seconds": 2.0,
            "why": "hello",
        }
    ]
    assert snapshot["queued"] == 0
    assert snapshot["planned"] == [
        {
            "object": "default/next",
            "callback": "",
            "why": "Pod default/web-1 deleted",
            "attempt": 0,
            "due_in": 3.0,
            "error": "",
            "place": "waiting",
            "priority": 0,
        }
    ]
    assert snapshot["sources"] == [{"source": "source tap", "state": "synced"}]
    assert json.loads(json.dumps(snapshot)) == snapshot


# Logger.


def test_the_logger_of_the_context_adds_its_fields(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    def log(_: Any) -> None:
        context = reconcile_context()
        assert context is not None
        context.logger.info("made %d pods", 3, extra={"pods": 3, "attempt": "mine"})

    rig.script.during = log
    rig.begin().add(Request("default", "web"))
    rig.work()
    (record,) = caplog.records
    assert record.getMessage() == "made 3 pods"
    assert record.__dict__["pods"] == 3
    assert record.__dict__["object"] == "web"
    assert record.__dict__["attempt"] == "mine"
    assert record.__dict__["reconcile_id"] == rig.script.contexts[0].id


# Stop.


def test_the_stop_of_a_context_is_set_when_the_reconcile_is_over_and_not_before(rig: Rig) -> None:
    seen: list[StopSignal] = []

    def look(_: Any) -> None:
        context = reconcile_context()
        assert context is not None
        assert context.stop is context.stop
        assert not context.stop.is_set()
        assert (context.deadline, context.remaining()) == (None, None)
        seen.append(context.stop)

    rig.script.during = look
    rig.begin().add("a")
    rig.work()
    assert seen[0].is_set()
    assert rig.script.contexts[0].stop.is_set()
    assert not rig.controller._own._callbacks, "a finished reconcile stays listed"


def test_a_late_look_at_the_stop_of_a_finished_reconcile_finds_it_set(rig: Rig) -> None:
    rig.begin().add("a")
    rig.work()
    assert rig.script.contexts[0].stop.is_set()


def test_a_reconciler_that_sets_its_stop_stops_only_itself(rig: Rig) -> None:
    def set_it(_: Any) -> None:
        context = reconcile_context()
        assert context is not None
        context.stop.set()

    rig.script.during = set_it
    rig.begin().add("a")
    rig.work()
    rig.add("b")
    assert rig.work() == ["b"]


def test_the_stop_of_the_controller_reaches_the_reconciles_that_run() -> None:
    rig = Rig()
    rig.tap.requests = ("a",)
    entered = threading.Event()

    def wait(_: Any) -> None:
        context = reconcile_context()
        assert context is not None
        entered.set()
        assert context.stop.wait()

    rig.script.during = wait
    rig.controller.watch(rig.tap)
    rig.start()
    assert entered.wait(PATIENCE)
    assert rig.stop() == []


# async def.


def test_an_async_reconciler_and_its_tasks_have_the_context() -> None:
    seen: list[ReconcileContext | None] = []

    async def look() -> None:
        await asyncio.sleep(0)
        seen.append(reconcile_context())

    async def reconcile(request: Any) -> Result:
        await look()
        async with asyncio.TaskGroup() as group:
            group.create_task(look())
        await asyncio.to_thread(lambda: seen.append(reconcile_context()))
        return Result(requeue_after=5.0)

    rig = Rig(reconciler=reconcile).begin()
    rig.add("a", reason="why")
    assert rig.controller.process_next()
    assert rig.due_in == 5.0
    assert len(seen) == 3
    assert {context.id for context in seen if context} == {seen[0].id if seen[0] else ""}
    assert seen[0] is not None
    assert seen[0].reasons == ("why",)
    assert reconcile_context() is None
    rig.close()


def test_async_reconcilers_that_run_side_by_side_have_their_own_contexts() -> None:
    meeting: list[str] = []
    everybody = threading.Event()
    mine: dict[str, Any] = {}

    async def reconcile(request: str) -> None:
        meeting.append(request)
        if len(meeting) == 3:
            everybody.set()
        await asyncio.to_thread(everybody.wait, PATIENCE)
        context = reconcile_context()
        mine[request] = context and context.request

    rig = Rig(reconciler=reconcile, max_concurrent_reconciles=3)
    rig.tap.requests = ("a", "b", "c")
    rig.controller.watch(rig.tap)
    rig.start()
    eventually(lambda: len(mine) == 3)
    assert mine == {name: name for name in "abc"}
    assert rig.stop() == []


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_async_reconciler_that_would_end_the_loop_is_a_bug(error: BaseException) -> None:
    calls: list[str] = []

    async def reconcile(request: str) -> None:
        calls.append(request)
        if len(calls) == 1:
            raise error

    rig = Rig(reconciler=reconcile)
    rig.tap.requests = ("a", "b")
    rig.controller.watch(rig.tap)
    rig.start()
    eventually(lambda: rig.results() == {"success": 1, "error": 1})
    assert rig.value("reconcile_panics_total") == 1
    assert rig.stop() == []


# Deadlines.


def timed(reconcile: Any = None, seconds: float = 10.0, **options: Any) -> Rig:
    return Rig(reconciler=reconcile, reconcile_timeout=seconds, **options)


def test_the_deadline_is_seen_in_the_context() -> None:
    rig = timed().begin()
    left: list[float | None] = []

    def look(_: Any) -> None:
        context = reconcile_context()
        assert context is not None
        left.append(context.remaining())
        rig.clock.advance(4.0)
        left.append(context.remaining())
        assert not context.stop.is_set()

    rig.script.during = look
    rig.add("a")
    rig.work()
    assert left == [10.0, 6.0]
    assert rig.value("reconcile_timeouts_total") == 0
    rig.close()


@pytest.mark.parametrize("asks_before", [True, False])
def test_at_the_deadline_the_stop_is_set_and_the_time_out_counted_each_time(
    asks_before: bool,
) -> None:
    rig = timed().begin()

    def overstay(_: Any) -> None:
        context = reconcile_context()
        assert context is not None
        if asks_before:
            assert not context.stop.is_set()
        rig.clock.advance(10.0)
        assert context.stop.wait()
        assert context.remaining() == 0.0

    rig.script.during = overstay
    for count in (1, 2):
        rig.add("a")
        rig.work()
        assert rig.value("reconcile_timeouts_total") == count
    assert rig.results() == {"success": 2}
    rig.close()


def test_a_plain_reconciler_that_looks_at_nothing_is_counted_too() -> None:
    rig = timed().begin()
    rig.script.during = lambda _: rig.clock.advance(11.0)
    rig.add("a")
    rig.work()
    assert rig.value("reconcile_timeouts_total") == 1
    rig.close()


@pytest.mark.parametrize("seconds", [0, 100.0])
def test_without_a_time_out_and_before_it_none_is_counted(seconds: float) -> None:
    rig = Rig(TimeoutError("the reconciler's own"), reconcile_timeout=seconds).begin()
    rig.script.during = lambda _: rig.clock.advance(50.0)
    rig.add("a")
    rig.work()
    assert rig.value("reconcile_timeouts_total") == 0
    assert rig.results()["error"] == 1
    rig.close()


def test_what_the_reconciler_stops_itself_is_no_time_out() -> None:
    rig = timed().begin()

    def give_up(_: Any) -> None:
        context = reconcile_context()
        assert context is not None
        context.stop.set()
        raise TimeoutError

    rig.script.during = give_up
    rig.add("a")
    rig.work()
    assert rig.value("reconcile_timeouts_total") == 0
    rig.close()


def test_a_reconcile_that_outlives_the_stop_of_the_controller_is_no_time_out() -> None:
    rig = timed()
    rig.tap.requests = ("a",)
    entered, leave = threading.Event(), threading.Event()

    def linger(_: Any) -> None:
        entered.set()
        assert leave.wait(PATIENCE)

    rig.script.during = linger
    rig.controller.watch(rig.tap)
    rig.start()
    assert entered.wait(PATIENCE)
    rig.stop_signal.set()
    rig.clock.advance(11.0)
    leave.set()
    assert rig.stop() == []
    assert rig.value("reconcile_timeouts_total") == 0


def test_an_async_reconciler_is_cancelled_at_its_deadline_and_retried() -> None:
    cleaned = threading.Event()
    entered = threading.Event()

    async def reconcile(request: str) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    rig = timed(reconcile)
    rig.tap.requests = ("a",)
    rig.controller.watch(rig.tap)
    rig.start()
    for count in (1, 2):
        assert entered.wait(PATIENCE)
        entered.clear()
        rig.clock.advance(10.0)
        assert cleaned.wait(PATIENCE)
        eventually(lambda: rig.value("reconcile_timeouts_total") == count)  # noqa: B023
        eventually(lambda: rig.controller.debug_snapshot()["failing"] == {"a": count})  # noqa: B023
        eventually(lambda: rig.due_in is not None)
        rig.clock.advance(float(2 ** (count - 1)))
    assert entered.wait(PATIENCE)
    assert rig.value("reconcile_panics_total") == 0
    rig.controller._loop.close()
    rig.stop()


def test_an_async_reconciler_that_ends_in_time_is_not_cancelled() -> None:
    async def reconcile(request: str) -> None:
        await asyncio.sleep(0)

    rig = timed(reconcile).begin()
    for _ in range(3):
        rig.add("a")
        rig.controller.process_next()
        rig.clock.advance(100.0)
    assert rig.results() == {"success": 3}
    assert rig.value("reconcile_timeouts_total") == 0
    rig.close()


def test_deadlines_of_reconciles_side_by_side_are_kept_apart() -> None:
    rig = timed(max_concurrent_reconciles=2)
    entered = {name: threading.Event() for name in "ab"}
    gone = {name: threading.Event() for name in "ab"}

    def wait(request: str) -> None:
        context = reconcile_context()
        assert context is not None
        entered[request].set()
        context.stop.wait()
        gone[request].set()

    rig.script.during = wait
    rig.controller.watch(rig.tap)
    rig.start()
    eventually(lambda: rig.controller._works)
    rig.add("a")
    assert entered["a"].wait(PATIENCE)
    rig.clock.advance(6.0)
    rig.add("b")
    assert entered["b"].wait(PATIENCE)
    rig.clock.advance(4.0)
    assert gone["a"].wait(PATIENCE)
    assert not gone["b"].is_set()
    rig.clock.advance(6.0)
    assert gone["b"].wait(PATIENCE)
    assert rig.stop() == []
    assert rig.value("reconcile_timeouts_total") == 2
