"""Reconcilers beside watchers: who is called when, with what, and again."""

from __future__ import annotations

import asyncio
import threading

import pytest

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import Request, Result, RetryAfter, TerminalError
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import Simulation
from appsdk_operator.watchers import (
    ConstantBackoff,
    KeyReconciler,
    SimpleReconciler,
    SimpleWatcher,
    keep_all_retries,
)

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction
FAIL = ValueError("planned")
SOON = Result(requeue_after=10.0)


class Recorded:
    """Writes down its requests; ``plan`` has a result, an error or a function for each call."""

    def __init__(self, calls, *plan, name="r") -> None:
        self.calls = calls
        self.plan = list(plan)
        self.name = name
        self.requests = []

    def reconcile(self, request):
        obj = request.object
        self.calls.append(
            f"{self.name} {request.action.value} {obj.resource_version} of {obj.name}"
        )
        self.requests.append(request)
        outcome = self.plan.pop(0) if self.plan else None
        if callable(outcome):
            outcome = outcome(request)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome


@pytest.fixture
def add():
    """Adds a reconciler with a plan to a rig."""

    def add(rig, *plan, name="r"):
        made = Recorded(rig.calls, *plan, name=name)
        rig.controller.add_reconciler(made, WIDGET)
        return made

    return add


def is_idle(rig) -> bool:
    return not rig.controller._dispatcher._pending


# Who is called, and with what.


def test_watchers_and_reconcilers_of_a_kind_run_in_the_order_in_which_they_were_added(
    rig, add, widget
):
    add(rig, name="first")
    rig.watcher("second")
    add(rig, name="third")
    rig.watcher("fourth")
    rig.informer.add(widget("x"))
    names = [call.split()[0] for call in rig.work()]
    assert names == ["first", "second", "third", "fourth"]


def test_a_request_has_the_action_the_object_and_for_an_update_what_was_before(rig, add, widget):
    reconciler = add(rig)
    one, two = widget("x", 1), widget("x", 2)
    rig.informer.add(one)
    rig.informer.update(one, two)
    rig.work()
    rig.informer.resync(two)
    rig.informer.delete(two)
    rig.work()
    assert [(r.action, r.object, r.old) for r in reconciler.requests] == [
        (CREATE, one, None),
        (UPDATE, two, one),
        (RESYNC, two, None),
        (DELETE, two, None),
    ]
    first = reconciler.requests[0]
    assert (first.attempt, first.error, first.state, first.key) == (0, None, {}, one.key)
    assert "CREATE" in str(first)


def test_a_request_cannot_be_changed_but_for_its_state(rig, add, widget):
    reconciler = add(rig)
    rig.informer.add(widget("x"))
    rig.work()
    with pytest.raises(AttributeError):
        reconciler.requests[0].action = DELETE
    reconciler.requests[0].state["mine"] = 1


def test_a_failing_reconciler_keeps_no_other_from_the_event(rig, add, widget):
    add(rig, FAIL, name="bad")
    rig.watcher("w")
    add(rig, name="good")
    rig.informer.add(widget("x"))
    assert rig.work() == ["bad CREATE 1 of x", "w CREATE 1 of x", "good CREATE 1 of x"]
    [(error, call)] = rig.errors
    assert error is FAIL
    assert call.watcher.name == "bad"


def test_a_reconciler_that_comes_late_is_told_of_what_is_there():
    seen = []
    late = SimpleReconciler(lambda request: seen.append((request.action, request.object.name)))
    with Simulation(WIDGET, lambda process: []) as simulation:
        simulation.create("a")
        simulation.controller.add_watcher(SimpleWatcher(), WIDGET)
        simulation.settle()
        simulation.controller.add_reconciler(late, WIDGET)
        simulation.settle()
    assert seen[0] == (CREATE, "a")


# When a call fails.


def test_a_failed_call_is_made_again_as_the_policy_says_and_is_told_of_the_error(
    make_rig, add, widget
):
    rig = make_rig(retry_policy=ConstantBackoff(5.0))
    reconciler = add(rig, FAIL, FAIL)
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.controller.pending_retries == 1
    assert rig.after(4.5) == []
    rig.after(0.5)
    rig.after(5)
    assert [(r.attempt, r.error) for r in reconciler.requests] == [(0, None), (1, FAIL), (2, FAIL)]
    assert is_idle(rig)


def test_a_retry_gets_the_newest_state_of_the_object(make_rig, add, widget):
    rig = make_rig(retry_policy=ConstantBackoff(5.0), retry_dequeue_policy=keep_all_retries)
    reconciler = add(rig, FAIL)
    one, two = widget("x", 1), widget("x", 2)
    rig.informer.add(one)
    rig.work()
    rig.informer.update(one, two)
    rig.work()
    assert rig.after(5) == ["r CREATE 2 of x"]
    assert reconciler.requests[-1].object is two


def test_retry_after_says_itself_when_and_does_not_count_as_an_attempt(make_rig, add, widget):
    asked = []
    rig = make_rig(retry_policy=lambda error, attempt: asked.append(attempt) or 1.0)
    reconciler = add(rig, FAIL, RetryAfter(60.0, "busy"), FAIL)
    rig.informer.add(widget("x"))
    rig.work()
    rig.after(1)
    assert rig.after(59.5) == []
    rig.after(0.5)
    rig.after(1)
    assert asked == [0, 1], "not asked about RetryAfter"
    assert [r.attempt for r in reconciler.requests] == [0, 1, 1, 2]
    assert [str(error) for error, _ in rig.errors] == ["planned", "busy", "planned"]


def test_a_terminal_error_is_tried_again_when_the_object_has_changed(rig, add, widget):
    reconciler = add(rig, TerminalError("no such color"))
    obj = widget("x")
    rig.informer.add(obj)
    rig.work()
    assert rig.controller.given_up_calls == 0, "a resync would bring those back"
    assert rig.controller.pending_retries == 0
    assert rig.after(1e6) == []
    rig.informer.resync(obj)
    assert rig.work() == []
    rig.informer.update(obj, widget("x", 2))
    assert rig.work() == ["r UPDATE 2 of x"]
    assert reconciler.requests[-1].attempt == 0
    assert is_idle(rig)


def test_watchers_may_raise_retry_after_and_terminal_errors_too(rig, widget):
    rig.watcher("w", RetryAfter(60.0), TerminalError("no"))
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.after(59) == []
    assert rig.after(1) == ["w CREATE 1 of x"]
    assert rig.after(1e6) == []


def test_a_task_group_of_one_failure_is_taken_for_what_is_in_it(rig, add, widget):
    add(rig, ExceptionGroup("tasks", [RetryAfter(60.0)]), ExceptionGroup("x", [TerminalError()]))
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.after(59) == []
    assert rig.after(1) == ["r CREATE 1 of x"]
    assert rig.controller._dispatcher.terminal() == 1


def test_what_is_no_result_is_a_failure_that_says_so(rig, add, widget):
    add(rig, 30)
    rig.informer.add(widget("x"))
    rig.work()
    [(error, _)] = rig.errors
    assert isinstance(error, TypeError)
    assert "return None when all is done, Result(" in str(error)
    assert rig.controller.pending_retries == 1


# When a call is asked for.


def test_requeue_after_brings_the_next_call_at_its_time_with_the_newest_object(rig, add, widget):
    reconciler = add(rig, SOON)
    reconciler.concerns = lambda old, new: False
    rig.controller.remove_reconciler(reconciler, WIDGET)
    rig.controller.add_reconciler(reconciler, WIDGET)  # now that it says what concerns it
    one, two = widget("x", 1), widget("x", 2)
    rig.informer.add(one)
    rig.work()
    rig.informer.update(one, two)
    rig.work()
    assert rig.after(9.5) == []
    assert rig.after(0.5) == ["r CREATE 2 of x"]
    assert (reconciler.requests[-1].attempt, reconciler.requests[-1].error) == (0, None)
    assert is_idle(rig)


def test_a_requeue_is_neither_a_retry_nor_given_up(rig, add, widget):
    add(rig, SOON)
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.controller.pending_retries == rig.controller.given_up_calls == 0
    assert rig.controller.pending_requeues == 1
    assert not rig.errors


def test_an_event_takes_the_place_of_what_was_asked_for_and_gets_its_state(rig, add, widget):
    def note(request):
        request.state["step"] = 1
        return SOON

    reconciler = add(rig, note)
    one, two = widget("x", 1), widget("x", 2)
    rig.informer.add(one)
    rig.work()
    rig.informer.update(one, two)
    assert rig.work() == ["r UPDATE 2 of x"]
    assert reconciler.requests[-1].state == {"step": 1}
    assert rig.after(1e6) == []
    assert is_idle(rig)


def test_a_resync_brings_what_was_asked_for_forward(rig, add, widget):
    def note(request):
        request.state["step"] = 1
        return SOON

    reconciler = add(rig, note)
    obj = widget("x")
    rig.informer.add(obj)
    rig.work()
    rig.informer.resync(obj)
    assert rig.work() == ["r CREATE 1 of x"], "the same call, and no resync beside"
    assert reconciler.requests[-1].state == {"step": 1}
    assert rig.after(1e6) == []


def test_a_resync_does_not_hurry_what_failed(make_rig, add, widget):
    rig = make_rig(retry_policy=ConstantBackoff(5.0))
    add(rig, FAIL)
    obj = widget("x")
    rig.informer.add(obj)
    rig.work()
    rig.informer.resync(obj)
    assert rig.work() == []


def test_the_dequeue_policy_is_asked_about_failures_only(make_rig, add, widget):
    asked = []
    rig = make_rig(retry_dequeue_policy=lambda *args: asked.append(args))
    add(rig, SOON)
    one, two = widget("x", 1), widget("x", 2)
    rig.informer.add(one)
    rig.work()
    rig.informer.update(one, two)
    rig.work()
    assert not asked
    assert rig.after(1e6) == []


def test_a_requeue_may_ask_again_and_then_fail(make_rig, add, widget):
    rig = make_rig(retry_policy=ConstantBackoff(1.0))
    reconciler = add(rig, SOON, SOON, FAIL)
    rig.informer.add(widget("x"))
    rig.work()
    for delay in (10, 10, 1):
        assert rig.after(delay) == ["r CREATE 1 of x"]
    assert [r.attempt for r in reconciler.requests] == [0, 0, 0, 1]
    assert is_idle(rig)


def test_requeue_after_0_is_again_at_once(rig, add, widget):
    reconciler = add(rig, Result(requeue_after=0), Result(requeue_after=0.0), None, None)
    rig.informer.add(widget("x"), widget("y"))
    assert sorted(rig.work()) == [*3 * ["r CREATE 1 of x"], "r CREATE 1 of y"]
    assert [request.attempt for request in reconciler.requests] == [0, 0, 0, 0]
    assert is_idle(rig)


def test_who_asks_for_another_call_at_once_for_ever_keeps_nobody_from_theirs(rig, add, widget):
    reconciler = Recorded(
        rig.calls, *1000 * [lambda r: Result(requeue_after=0) if r.object.name == "x" else None]
    )
    rig.controller.add_reconciler(reconciler, WIDGET)
    rig.informer.add(widget("x"), widget("y"))
    for _ in range(10):
        assert rig.controller.process_next()
    assert "r CREATE 1 of y" in rig.calls


def test_a_requeued_resync_comes_back_as_one(rig, add, widget):
    reconciler = add(rig, None, SOON)
    obj = widget("x")
    rig.informer.add(obj)
    rig.work()
    rig.informer.resync(obj)
    rig.work()
    assert rig.after(10) == ["r RESYNC 1 of x"]
    assert reconciler.requests[-1].old is None


def test_state_lasts_as_long_as_a_call_is_owed(make_rig, add, widget):
    seen = []

    def note(outcome):
        def act(request):
            seen.append(request.state.get("calls"))
            request.state["calls"] = request.state.get("calls", 0) + 1
            return outcome

        return act

    rig = make_rig(retry_policy=ConstantBackoff(1.0))
    add(rig, note(FAIL), note(SOON), note(None), note(None))
    one, two = widget("x", 1), widget("x", 2)
    rig.informer.add(one)
    rig.work()
    rig.after(1)
    rig.after(10)
    rig.informer.update(one, two)
    rig.work()
    assert seen == [None, 1, 2, None]


def test_two_reconcilers_have_their_own_requeues_and_state(rig, add, widget):
    def note(request):
        request.state["mine"] = request.action
        return SOON

    first = add(rig, note, name="first")
    second = add(rig, name="second")
    rig.informer.add(widget("x"))
    rig.work()
    assert rig.after(10) == ["first CREATE 1 of x"]
    assert first.requests[-1].state
    assert not second.requests[-1].state


def test_a_removed_reconciler_takes_what_it_is_owed_along(rig, add, widget):
    gone = add(rig, SOON, name="gone")
    add(rig, SOON, name="stays")
    rig.informer.add(widget("x"))
    rig.work()
    rig.controller.remove_reconciler(gone, WIDGET)
    rig.controller.remove_reconciler(gone, WIDGET)
    assert rig.after(10) == ["stays CREATE 1 of x"]


def test_removing_all_watchers_leaves_the_reconcilers_and_the_other_way_round(rig, add, widget):
    add(rig)
    rig.watcher()
    rig.controller.remove_all_watchers_for_resource(WIDGET)
    rig.informer.add(widget("x"))
    assert rig.work() == ["r CREATE 1 of x"]
    rig.watcher()
    rig.work()
    rig.controller.remove_all_reconcilers_for_resource(WIDGET)
    rig.informer.add(widget("y"))
    assert rig.work() == ["w CREATE 1 of y"]


def test_an_object_that_is_both_is_removed_in_the_role_that_was_named(rig, widget):
    class Both(Recorded):
        def add(self, *objects):
            self.calls.append("watcher")

        update = delete = add

    both = Both(rig.calls)
    rig.controller.add_watcher(both, WIDGET)
    rig.controller.add_reconciler(both, WIDGET)
    rig.controller.remove_watcher(both, WIDGET)
    rig.informer.add(widget("x"))
    assert rig.work() == ["r CREATE 1 of x"]


# Objects that follow each other under one name.


def test_a_new_object_waits_for_what_is_owed_for_the_deletion_of_the_one_before(rig, add, widget):
    add(rig, None, SOON)
    first, second = widget("x", 1, uid="one"), widget("x", 3, uid="two")
    rig.informer.add(first)
    rig.informer.delete(first)
    rig.informer.add(second)
    assert rig.work() == ["r CREATE 1 of x", "r DELETE 1 of x"]
    assert rig.after(10) == ["r DELETE 1 of x", "r CREATE 3 of x"]


def test_by_key_the_new_object_does_not_wait(rig, widget):
    seen = []
    plan = [None, SOON]

    class ByKey:
        def reconcile(self, request):
            seen.append(str(request))
            return plan.pop(0) if plan else None

    rig.controller.add_reconciler(KeyReconciler(ByKey()), WIDGET)
    first, second = widget("x", 1, uid="one"), widget("x", 3, uid="two")
    rig.informer.add(first)
    rig.informer.delete(first)
    rig.informer.add(second)
    rig.work()
    assert seen == ["default/x"] * 3
    rig.after(1e6)
    assert seen == ["default/x"] * 3, "the new object's event took the requeue's place"
    assert is_idle(rig)


def test_state_does_not_pass_from_one_object_to_the_next_of_its_name(rig, add, widget):
    def note(request):
        request.state["mine"] = 1
        return SOON

    reconciler = add(rig, None, note)
    first, second = widget("x", 1, uid="one"), widget("x", 3, uid="two")
    rig.informer.add(first)
    rig.informer.delete(first)
    rig.informer.add(second)
    rig.work()
    rig.after(10)
    assert reconciler.requests[-1].object is second
    assert not reconciler.requests[-1].state


# What serves as a reconciler.


def test_a_reconciler_may_be_async_and_ask_for_another_call(rig, widget):
    seen = []

    async def reconcile(request):
        await asyncio.sleep(0)
        seen.append(request.action)
        return SOON if len(seen) == 1 else None

    rig.controller.add_reconciler(SimpleReconciler(reconcile), WIDGET)
    rig.informer.add(widget("x"))
    rig.work()
    rig.after(10)
    assert seen == [CREATE, CREATE]
    assert is_idle(rig)


def test_one_function_of_a_request_serves_by_key(rig, widget):
    seen = []
    rig.controller.add_reconciler(KeyReconciler(seen.append), WIDGET)
    rig.informer.add(widget("x"))
    rig.work()
    assert seen == [widget("x").key]


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (object(), "no method reconcile"),
        (Recorded, r"is a class: add an instance, Recorded\("),
        (lambda request: None, "SimpleReconciler"),
    ],
)
def test_what_is_no_reconciler_is_refused(rig, wrong, text):
    with pytest.raises(TypeError, match=text):
        rig.controller.add_reconciler(wrong, WIDGET)


class ByKey:
    def reconcile(self, request: Request, /) -> None:
        del request


class ByUnknown:
    def reconcile(self, request: NotThere, /) -> None:  # noqa: F821 - as under TYPE_CHECKING
        del request


def test_a_reconciler_of_keys_is_sent_to_the_adapter(rig):
    def by_key(request: Request) -> None:
        del request

    with pytest.raises(TypeError, match=r"give KeyReconciler\(reconciler\)"):
        rig.controller.add_reconciler(ByKey(), WIDGET)
    with pytest.raises(TypeError, match=r"give KeyReconciler\(function\)"):
        SimpleReconciler(by_key)
    rig.controller.add_reconciler(KeyReconciler(ByKey()), WIDGET)
    rig.controller.add_reconciler(KeyReconciler(by_key), WIDGET)
    rig.controller.add_reconciler(ByUnknown(), WIDGET)


def test_a_kind_without_a_name_is_refused(rig):
    with pytest.raises(ValueError, match="name the kind"):
        rig.controller.add_reconciler(Recorded([]), "")


@pytest.mark.parametrize("wrong", [None, 3, lambda: None, lambda a, b: None])
def test_a_function_that_takes_no_request_is_refused(wrong):
    with pytest.raises(TypeError, match="function of a ReconcileRequest"):
        SimpleReconciler(wrong)


@pytest.mark.parametrize("wrong", [None, 3, object(), Recorded])
def test_what_is_no_controllers_reconciler_is_refused(wrong):
    with pytest.raises(TypeError, match="reconciler="):
        KeyReconciler(wrong)


def test_reconcilers_name_themselves():
    inner = Recorded([])
    assert "SimpleReconciler(" in repr(SimpleReconciler(print))
    assert repr(inner) in repr(KeyReconciler(inner))


def test_a_failing_concerns_delivers_the_event(rig, add, widget):
    reconciler = Recorded(rig.calls)
    reconciler.concerns = lambda old, new: 1 / 0
    rig.controller.add_reconciler(reconciler, WIDGET)
    one, two = widget("x", 1), widget("x", 2)
    rig.informer.add(one)
    rig.informer.update(one, two)
    assert rig.work() == ["r CREATE 1 of x", "r UPDATE 2 of x"]


# While it runs.


def test_a_requeue_and_an_event_never_run_at_once_for_an_object(make_rig, add, widget):
    rig = make_rig(clock=system_clock, workers=4)
    running, most, called = set(), [], threading.Semaphore(0)
    guard = threading.Lock()

    def act(request):
        me = request.object.name
        with guard:
            most.append(me in running)
            running.add(me)
        with guard:
            running.discard(me)
        called.release()
        return Result(requeue_after=0.001)

    add(rig, *[act] * 400)
    objects = [widget(name, 1) for name in "abcd"]
    rig.informer.add(*objects)
    rig.start()
    for version in range(2, 30):
        for number, old in enumerate(objects):
            objects[number] = widget(old.name, version)
            rig.informer.update(old, objects[number])
        assert called.acquire(timeout=10)
    for _ in range(250):
        assert called.acquire(timeout=10), "requeues go on by themselves"
    assert rig.stop() == []
    assert not any(most)


def test_a_stop_drops_what_was_asked_for(make_rig, add, widget):
    rig = make_rig(clock=system_clock)
    called = threading.Event()
    add(rig, lambda request: called.set() or Result(requeue_after=3600.0))
    rig.informer.add(widget("x"))
    rig.start()
    assert called.wait(10)
    assert rig.stop() == []


def test_the_calls_of_reconcilers_are_counted_apart_from_those_of_watchers(make_rig, add, widget):
    rig = make_rig(retry_policy=ConstantBackoff(1.0))
    add(rig, FAIL, SOON)
    rig.controller._publish()
    try:
        shown = samples(rig)
        assert shown["reconciler_errors_total", ("CREATE", str(WIDGET))] == 0
        assert shown["reconciler_requeues_total", ("UPDATE", str(WIDGET))] == 0
        rig.watcher("w", TerminalError("no"))
        rig.informer.add(widget("x"))
        rig.work()
        rig.after(1)
        shown = samples(rig)
        assert shown["reconciler_errors_total", ("CREATE", str(WIDGET))] == 1
        assert shown["reconciler_requeues_total", ("CREATE", str(WIDGET))] == 1
        assert shown["reconciler_given_up_total", ("CREATE", str(WIDGET))] == 0
        assert shown["watcher_given_up_total", ("CREATE", str(WIDGET))] == 1
        assert shown["retry_processor_executions_total", ("CREATE", str(WIDGET))] == 1
    finally:
        rig.controller._metrics.retire()


def samples(rig):
    return {
        (sample.family.name, sample.labels): sample.value
        for sample in rig.controller._metrics._samples()
    }
