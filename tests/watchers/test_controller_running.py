"""A controller that runs: its threads, informers, stop, numbers, and asynchronous callbacks."""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections import defaultdict

import pytest

from appsdk_operator.cache import Cache, ResourceAction
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, system_clock
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    KubernetesInformer,
    SimpleReconciler,
    SimpleWatcher,
    never_retry,
)
from tests.simulations import Others, no_client
from tests.watchers.conftest import RecordedWatcher, ScriptedInformer

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
GADGET = Kind(group="example.com", version="v1", kind="Gadget")


@pytest.fixture
def real_rig(make_rig):
    return make_rig(clock=system_clock, name="ctrl")


# Informers


def test_it_runs_its_informers_side_by_side_until_it_is_stopped(real_rig):
    other = real_rig.add_informer(GADGET)
    real_rig.start()
    for informer in (real_rig.informer, other):
        assert informer.is_running.wait(10)
    assert real_rig.stop() == []
    assert real_rig.informer.has_ended
    assert other.has_ended


def test_an_error_of_an_informer_ends_the_run_after_the_others_stopped(real_rig, widget):
    other = real_rig.add_informer(GADGET)
    real_rig.informer.outcome = error = ConnectionError("the informer failed")
    real_rig.informer.ends_by_itself = True
    real_rig.start()
    assert real_rig.join() == [error]
    assert other.has_ended


def test_errors_of_several_informers_come_together(real_rig):
    other = real_rig.add_informer(GADGET)
    real_rig.informer.outcome = ConnectionError("one")
    real_rig.informer.ends_by_itself = True
    other.outcome = ValueError("two")  # at the stop
    real_rig.start()
    (raised,) = real_rig.join()
    assert isinstance(raised, ExceptionGroup)
    assert sorted(map(str, raised.exceptions)) == ["one", "two"]
    assert "ctrl" in str(raised)


def test_an_informer_that_ends_by_itself_is_an_error(real_rig):
    real_rig.informer.ends_by_itself = True
    real_rig.start()
    (raised,) = real_rig.join()
    assert "ended although nobody stopped it" in str(raised)
    assert "widgets" in str(raised)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_an_informer_that_wants_to_end_the_process_ends_the_run(real_rig, error):
    real_rig.informer.ends_by_itself = True
    real_rig.informer.outcome = error
    real_rig.start()
    (raised,) = real_rig.join()
    assert isinstance(raised, RuntimeError)
    assert raised.__cause__ is error


def test_an_informer_added_while_it_runs_is_run(real_rig, widget):
    real_rig.watcher("g", kind=GADGET)
    real_rig.start()
    assert real_rig.informer.is_running.wait(10)
    late = real_rig.add_informer(GADGET)
    assert late.is_running.wait(10)
    late.add(widget("x", kind=GADGET))
    assert real_rig.controller.wait_idle(10)
    assert real_rig.calls == ["g CREATE 1 of x"]
    real_rig.stop()
    assert late.has_ended


def test_an_informer_removed_while_it_runs_is_stopped_and_is_no_error(real_rig, widget):
    other = real_rig.add_informer(GADGET)
    real_rig.watcher()
    real_rig.start()
    assert other.is_running.wait(10)
    real_rig.controller.remove_informer(other)
    real_rig.informer.add(widget("x"))
    assert real_rig.controller.wait_idle(10)
    assert real_rig.calls == ["w CREATE 1 of x"]
    assert real_rig.stop() == []
    assert other.has_ended


def test_an_informer_removed_before_its_turn_to_start_is_not_started(real_rig):
    other = real_rig.add_informer(GADGET)
    start = real_rig.controller._threads.start

    def start_and_remove(name, target):
        real_rig.controller.remove_informer(other)
        return start(name, target)

    real_rig.controller._threads.start = start_and_remove
    real_rig.start()
    assert real_rig.informer.is_running.wait(10)
    assert real_rig.stop() == []
    assert not other.is_running.is_set()


# Run and stop


def test_it_runs_once(real_rig):
    stop = real_rig.start()
    real_rig.stop()
    with pytest.raises(RuntimeError, match="ctrl was run before"):
        real_rig.controller.run(StopSignal())
    assert stop.is_set()


def test_a_run_that_is_refused_leaves_nothing_at_the_signal(real_rig):
    real_rig.start()
    real_rig.stop()
    stop = StopSignal()
    with pytest.raises(RuntimeError):
        real_rig.controller.run(stop)
    assert not stop._callbacks


def test_a_run_that_is_over_leaves_nothing_at_the_signal(make_rig):
    parent = StopSignal()
    controller = InformerController(metrics=Metrics())
    informer = type(make_rig().informer)()
    informer.ends_by_itself = True
    controller.add_informer(informer, WIDGET)
    with pytest.raises(RuntimeError, match="ended"):
        controller.run(parent)
    assert not parent.is_set()
    assert not parent._callbacks


def test_a_stop_before_the_start_returns_at_once(make_rig, widget):
    stop = StopSignal()
    stop.set()
    InformerController(metrics=Metrics()).run(stop)


def test_what_waits_at_the_stop_is_dropped_and_what_runs_is_waited_for(real_rig, widget):
    is_in, go_on = threading.Event(), threading.Event()

    def wait(_):
        is_in.set()
        go_on.wait(10)

    real_rig.watcher().during = wait
    real_rig.informer.add(widget("x"), widget("y"))
    stop = real_rig.start()
    assert is_in.wait(10)
    stop.set()
    stop.set()
    go_on.set()
    assert real_rig.join() == []
    assert real_rig.calls == ["w CREATE 1 of x"]


def test_a_stop_is_prompt_although_retries_wait(make_rig, widget):
    rig = make_rig(clock=system_clock, retry_policy=ConstantBackoff(3600))
    rig.watcher("w", ValueError())
    rig.start()
    rig.informer.add(widget("x"))
    assert rig.controller.wait_idle(10)
    begun = system_clock.monotonic()
    assert rig.stop() == []
    assert system_clock.monotonic() - begun < 2


def test_a_watcher_that_does_not_return_is_named_after_the_stop_timeout(make_rig, widget):
    rig = make_rig(clock=system_clock, name="slow", stop_timeout=0.05)
    is_in, go_on = threading.Event(), threading.Event()

    def wait(_):
        is_in.set()
        go_on.wait(10)

    rig.watcher().during = wait
    rig.informer.add(widget("x"))
    rig.start()
    try:
        assert is_in.wait(10)
        (raised,) = rig.stop()
        assert isinstance(raised, TimeoutError)
        assert "slow: still running 0.05 s after the stop: slow/worker-0" in str(raised)
        assert "a watcher or reconciler of widgets.v1.example.com does not return" in str(raised)
    finally:
        go_on.set()


def test_a_watcher_may_stop_the_controller(real_rig, widget):
    stop = real_rig.start()
    real_rig.watcher().during = lambda _: stop.set()
    real_rig.informer.add(widget("x"), widget("y"))
    assert real_rig.join() == []
    assert real_rig.calls == ["w CREATE 1 of x"]


def test_after_the_stop_events_are_refused_without_a_word(real_rig, widget):
    real_rig.watcher()
    real_rig.start()
    real_rig.stop()
    real_rig.informer.add(widget("x"))
    assert real_rig.controller.pending_events == 0
    assert real_rig.calls == []


@pytest.mark.parametrize("how", ["run", "close"])
def test_what_is_added_after_the_end_is_refused(real_rig, how):
    controller = real_rig.controller
    if how == "run":
        real_rig.start()
        real_rig.stop()
    else:
        controller.close()
    text = "controller ctrl has ended and takes no further {}: make a new one"
    with pytest.raises(RuntimeError, match=text.format("informers")):
        real_rig.add_informer(GADGET)
    with pytest.raises(RuntimeError, match=text.format("caches")):
        controller.add_cache(Cache(no_client(), metrics=Metrics()), WIDGET)
    with pytest.raises(RuntimeError, match=text.format("watchers and reconcilers")):
        controller.add_watcher(SimpleWatcher(), WIDGET)
    with pytest.raises(RuntimeError, match=text.format("watchers and reconcilers")):
        controller.add_reconciler(SimpleReconciler(lambda _: None), WIDGET)
    controller.remove_informer(real_rig.informer)
    assert not controller.health().is_ready
    assert controller.health().text == "controller ctrl has ended"


@pytest.mark.parametrize("stop", [None, threading.Event(), 5])
def test_what_is_no_stop_signal_is_refused_before_anything_starts(real_rig, stop):
    with pytest.raises(TypeError, match="is not a StopSignal: make one with"):
        real_rig.controller.run(stop)
    assert not real_rig.informer.is_running.is_set()
    real_rig.start()
    assert real_rig.informer.is_running.wait(10)


def test_an_informer_that_fails_while_it_ends_after_its_removal_ends_nothing_else(
    real_rig, caplog, widget
):
    other = real_rig.add_informer(GADGET)
    other.outcome = ConnectionError("at its end")
    real_rig.watcher()
    real_rig.start()
    assert other.is_running.wait(10)
    real_rig.controller.remove_informer(other)
    for thread in threading.enumerate():
        if thread.name == "ctrl/informer/gadgets.v1.example.com":
            thread.join(10)
    assert other.has_ended
    real_rig.informer.add(widget("x"))
    assert real_rig.controller.wait_idle(10)
    assert real_rig.calls == ["w CREATE 1 of x"]
    assert real_rig.stop() == []
    assert "the informer of gadgets.v1.example.com, which was removed, failed" in caplog.text


def test_what_ends_a_worker_ends_the_run_with_its_cause(real_rig, widget, monkeypatch):
    cause = ZeroDivisionError("a bug of the kit")

    def handle(source, event):
        raise cause

    monkeypatch.setattr(real_rig.controller._delivery, "_handle", lambda key, event: handle(0, 0))
    monkeypatch.setattr(real_rig.controller._delivery, "_handle_event", handle)
    real_rig.watcher()
    real_rig.start()
    assert real_rig.informer.is_running.wait(10)
    real_rig.informer.add(widget("x"))
    assert real_rig.join() == [cause]
    assert real_rig.informer.has_ended
    health = real_rig.controller.health()
    assert not health.is_ready
    assert health.text == "controller ctrl failed: a bug of the kit"


class BrokenFilter(logging.Filter):
    def filter(self, record):
        raise ZeroDivisionError("a bug of the program")


@pytest.fixture
def broken_logging():
    loggers = [logging.getLogger(f"appsdk_operator.{room}") for room in ("watchers", "cache")]
    broken = BrokenFilter()
    for logger in loggers:
        logger.addFilter(broken)
    yield
    for logger in loggers:
        logger.removeFilter(broken)


def test_logging_that_raises_costs_no_retry_and_no_worker(rig, widget, broken_logging):
    controller = InformerController(
        clock=rig.clock, metrics=Metrics(), retry_policy=ConstantBackoff(1)
    )
    informer = ScriptedInformer()
    controller.add_informer(informer, WIDGET)
    watcher = RecordedWatcher("w", rig.calls, [ConnectionError("one"), ConnectionError("two")])
    controller.add_watcher(watcher, WIDGET)
    stop = StopSignal()
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    try:
        assert informer.is_running.wait(10)
        informer.add(widget("x"))
        for _ in range(2):
            assert controller.wait_idle(10)
            assert controller.pending_retries == 1
            rig.clock.advance(1)
        assert controller.wait_idle(10)
        assert rig.calls == 3 * ["w CREATE 1 of x"]
        assert controller.pending_retries == 0
    finally:
        stop.set()
        thread.join()


def test_a_retry_runs_by_itself_when_its_time_comes(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(30))
    again = threading.Event()
    watcher = rig.watcher("w", ValueError())
    rig.start()
    rig.informer.add(widget("x"))
    assert rig.controller.wait_idle(10)
    watcher.during = lambda _: again.set()
    rig.clock.block_until_waiting(1)
    rig.clock.advance(29.5)
    assert not again.is_set()
    rig.clock.advance(0.5)
    assert again.wait(10)
    rig.stop()


# Syncing


def test_it_has_synced_when_every_first_object_was_handled_by_every_watcher(rig, widget):
    rig.watcher("a", ValueError("a failure is handled too"))
    rig.watcher("b")
    rig.informer.add(widget("x"), widget("y"), is_initial=True)
    assert not rig.controller.has_synced
    rig.informer.handler.on_initial_list_end()
    rig.controller.process_next()
    assert not rig.controller.has_synced
    rig.controller.process_next()
    assert rig.controller.has_synced


def test_a_wait_for_the_sync_ends_with_the_stop_or_in_time(rig):
    stop = StopSignal()
    assert not rig.controller.wait_for_sync(stop, timeout=0)
    stop.set()
    assert not rig.controller.wait_for_sync(stop)


def test_with_an_informer_on_a_server_it_syncs_follows_and_resyncs():
    clock, server, metrics = ManualClock(), Others(WIDGET), Metrics()
    server.create("a")
    informer = KubernetesInformer(
        WIDGET, server, clock=clock, metrics=metrics, rng=random.Random(1)
    )
    controller = InformerController(clock=clock, metrics=metrics)
    calls = []
    controller.add_informer(informer, WIDGET)
    controller.add_watcher(
        SimpleWatcher(
            add=lambda obj: calls.append(("add", obj.name)),
            update=lambda old, new: calls.append(("resync" if old is new else "update", new.name)),
            delete=lambda obj: calls.append(("delete", obj.name)),
        ),
        WIDGET,
    )
    stop = StopSignal(clock=clock)
    informer.step(stop)
    while controller.process_next():
        pass
    assert controller.has_synced
    assert controller.health().is_ready
    server.change("a", spec={"n": 1})
    informer.step(stop)
    while controller.process_next():
        pass
    clock.advance(33.1)  # 30 seconds, give or take a tenth
    while controller.process_next():
        pass
    server.delete("a")
    clock.advance(60)
    for _ in range(3):
        informer.step(stop)
    while controller.process_next():
        pass
    controller.close()
    assert calls[:3] == [("add", "a"), ("update", "a"), ("resync", "a")]
    assert calls[-1] == ("delete", "a")


# Asynchronous callbacks


def test_async_callbacks_run_on_one_loop_in_a_thread_of_its_own(make_rig, widget):
    rig = make_rig(clock=system_clock, name="ctrl", workers=4)
    seen = set()

    async def note(*_):
        seen.add((threading.current_thread().name, id(asyncio.get_running_loop())))

    for _ in range(2):
        rig.controller.add_watcher(SimpleWatcher(add=note, update=note), WIDGET)
    rig.start()
    for n in range(20):
        rig.informer.add(widget(f"x{n}"))
    assert rig.controller.wait_idle(10)
    rig.stop()
    assert not rig.errors
    assert [name for name, _ in seen] == ["ctrl/loop"]


def test_async_callbacks_keep_order_and_exclusion(make_rig, widget):
    rig = make_rig(clock=system_clock, workers=4, retry_policy=ConstantBackoff(0, max_attempts=0))
    busy, seen, overlaps = defaultdict(int), defaultdict(list), []

    def watcher(number):
        async def call(*objects):
            obj = objects[-1]
            busy[obj.name] += 1
            if busy[obj.name] > 1:
                overlaps.append(obj.name)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            busy[obj.name] -= 1
            seen[obj.name].append((int(obj.resource_version), number))
            if number == 0 and int(obj.resource_version) % 5 == 0:
                raise ValueError("planned")

        return SimpleWatcher(add=call, update=call)

    for number in range(2):
        rig.controller.add_watcher(watcher(number), WIDGET)
    rig.start()
    for version in range(1, 30):
        for name in "abcdef":
            rig.informer.update(widget(name, version - 1), widget(name, version))
    assert rig.controller.wait_idle(20)
    rig.stop()
    assert not overlaps
    for name in "abcdef":
        firsts = list(dict.fromkeys(seen[name]))
        assert firsts == [(version, number) for version in range(1, 30) for number in range(2)]


def test_different_objects_are_awaited_side_by_side(make_rig, widget):
    rig = make_rig(clock=system_clock, workers=2)
    both = asyncio.Barrier(2)

    async def add(_):
        await asyncio.wait_for(both.wait(), 10)

    rig.controller.add_watcher(SimpleWatcher(add=add), WIDGET)
    rig.informer.add(widget("x"), widget("y"))
    rig.start()
    assert rig.controller.wait_idle(10)
    rig.stop()
    assert not rig.errors


def test_an_async_callback_that_fails_is_retried(rig, widget):
    failures = [ConnectionError("planned")]

    async def add(obj):
        await asyncio.sleep(0)
        if failures:
            raise failures.pop()
        rig.calls.append(obj.name)

    rig.controller.add_watcher(SimpleWatcher(add=add), WIDGET)
    rig.informer.add(widget("x"))
    assert rig.work() == []
    assert rig.after(5) == ["x"]


def test_a_cancelled_async_callback_is_a_failure(rig, widget):
    async def add(_):
        raise asyncio.CancelledError

    rig.controller.add_watcher(SimpleWatcher(add=add), WIDGET)
    rig.watcher("next")
    rig.informer.add(widget("x"))
    assert rig.work() == ["next CREATE 1 of x"]
    assert len(rig.errors) == 1


def test_an_async_callback_that_never_ends_does_not_hold_up_the_stop(make_rig, widget):
    rig = make_rig(clock=system_clock, stop_timeout=0.05, retry_policy=never_retry)
    is_in = threading.Event()

    async def add(_):
        is_in.set()
        await asyncio.Event().wait()

    rig.controller.add_watcher(SimpleWatcher(add=add), WIDGET)
    rig.informer.add(widget("x"))
    rig.start()
    assert is_in.wait(10)
    rig.stop()
    assert len(rig.errors) == 1, "it was cancelled"


# Numbers

ACTIONS = tuple(a for a in ResourceAction if a is not ResourceAction.GENERIC)
COUNTERS = (
    "watcher_errors_total",
    "watcher_given_up_total",
    "retry_processor_enqueued_total",
    "retry_processor_executions_total",
    "watcher_process_duration_seconds_count",
    "retry_processor_queue_wait_duration_seconds_count",
    "informer_events_total",
    "informer_reconcile_duration_seconds_count",
    "ongoing_reconcile_processes",
    "ongoing_reconcile_events",
)


def test_every_series_is_there_at_0_from_the_start(real_rig):
    real_rig.watcher()
    real_rig.start()
    assert real_rig.informer.is_running.wait(10)
    for name in COUNTERS:
        for action in ACTIONS:
            value = real_rig.metrics.value(name, event_type=action.value, kind=str(WIDGET))
            assert value == 0, name
    assert real_rig.metrics.value("cleanups_given_up_total", kind=str(WIDGET)) == 0
    assert real_rig.metrics.value("retry_processor_pending_total") == 0
    real_rig.stop()


def test_the_numbers_are_right_after_work(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(10, max_attempts=0))
    rig.watcher("a", ValueError(), ValueError())
    rig.watcher("b")
    rig.start()
    assert rig.informer.is_running.wait(10)

    def value(name, action=ResourceAction.CREATE):
        return rig.metrics.value(name, event_type=action.value, kind=str(WIDGET))

    rig.informer.add(widget("x"))
    assert rig.controller.wait_idle(10)
    assert value("watcher_errors_total") == 1
    assert value("retry_processor_enqueued_total") == 1
    assert value("watcher_process_duration_seconds_count") == 2
    assert rig.metrics.value("retry_processor_pending_total") == 1
    rig.clock.block_until_waiting(1)
    rig.clock.advance(10)
    while len(rig.errors) < 2:
        threading.Event().wait(0.001)
    assert rig.controller.wait_idle(10)
    assert value("retry_processor_executions_total") == 1
    assert value("retry_processor_queue_wait_duration_seconds_count") == 1
    assert value("watcher_given_up_total") == 1
    assert value("watcher_errors_total") == 2
    assert rig.metrics.value("retry_processor_pending_total") == 0
    rig.informer.update(widget("x", 1), widget("x", 2))
    assert rig.controller.wait_idle(10)
    assert value("watcher_process_duration_seconds_count", ResourceAction.UPDATE) == 2
    assert value("informer_events_total", ResourceAction.UPDATE) == 1
    assert value("informer_reconcile_duration_seconds_count") == 1, "retries are no events"
    assert value("informer_reconcile_duration_seconds_count", ResourceAction.UPDATE) == 1
    rig.stop()
    assert value("watcher_errors_total") == 2, "totals survive the controller"
    assert rig.metrics.value("retry_processor_pending_total") is None, "gauges do not"


def test_an_event_takes_as_long_as_all_its_calls_together(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(1))
    rig.watcher("a").during = lambda _: rig.clock.advance(2)
    rig.watcher("b").during = lambda _: rig.clock.advance(3)
    other = rig.add_informer(GADGET)
    rig.watcher("c", RuntimeError(), kind=GADGET).during = lambda _: rig.clock.advance(4)
    rig.controller._publish()
    rig.informer.add(widget("x"))
    other.add(widget("y", kind=GADGET))
    rig.work()
    rig.after(1)  # the retry of "c"

    def value(name, kind):
        return rig.metrics.value(name, event_type="CREATE", kind=str(kind))

    assert value("informer_reconcile_duration_seconds_sum", WIDGET) == 5
    assert value("informer_reconcile_duration_seconds_count", WIDGET) == 1
    assert value("watcher_process_duration_seconds_count", WIDGET) == 2
    assert value("informer_reconcile_duration_seconds_sum", GADGET) == 4
    assert value("informer_reconcile_duration_seconds_count", GADGET) == 1
    assert value("watcher_process_duration_seconds_sum", GADGET) == 8, "with the retry"


def test_an_event_of_an_object_whose_retry_waits_is_measured_too(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(100))
    rig.watcher("w", RuntimeError()).during = lambda _: rig.clock.advance(2)
    rig.controller._publish()
    rig.informer.add(widget("x"))
    rig.work()
    rig.informer.update(widget("x"), widget("x", 2))
    rig.work()
    labels = {"event_type": "UPDATE", "kind": str(WIDGET)}
    assert rig.metrics.value("informer_reconcile_duration_seconds_count", **labels) == 1
    assert rig.metrics.value("informer_reconcile_duration_seconds_sum", **labels) == 2


def test_clean_ups_that_were_given_up_are_counted(make_rig, widget):
    rig = make_rig(retry_policy=never_retry)
    rig.watcher("w", ValueError(), ValueError(), ValueError())
    rig.controller._publish()

    def value():
        rig.work()
        return rig.metrics.value("cleanups_given_up_total", kind=str(WIDGET))

    going = widget("x", 2, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"])
    rig.informer.add(widget("x"))
    assert value() == 0
    rig.informer.update(widget("x"), going)
    assert value() == 1
    rig.informer.delete(going)
    assert value() == 2
    assert len(rig.errors) == 3


def test_calls_that_run_now_are_counted(real_rig, widget):
    is_in, go_on = threading.Event(), threading.Event()

    def wait(_):
        is_in.set()
        go_on.wait(10)

    real_rig.watcher().during = wait
    real_rig.start()
    real_rig.informer.add(widget("x"))
    assert is_in.wait(10)
    labels = {"event_type": "CREATE", "kind": str(WIDGET)}
    assert real_rig.metrics.value("ongoing_reconcile_processes", **labels) == 1
    assert real_rig.metrics.value("ongoing_reconcile_events", **labels) == 1
    go_on.set()
    assert real_rig.controller.wait_idle(10)
    assert real_rig.metrics.value("ongoing_reconcile_processes", **labels) == 0
    assert real_rig.metrics.value("ongoing_reconcile_events", **labels) == 0


def test_a_failed_resync_is_planned_and_retried_under_the_same_label(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(1))
    rig.watcher("w", ValueError())
    rig.controller._publish()
    rig.informer.resync(widget("x"))
    rig.work()
    rig.after(1)
    for name in ("retry_processor_enqueued_total", "retry_processor_executions_total"):
        assert rig.metrics.value(name, event_type="UPDATE", kind=str(WIDGET)) == 1
        assert rig.metrics.value(name, event_type="RESYNC", kind=str(WIDGET)) == 0


def test_a_watchers_kind_has_its_series_before_there_is_an_informer(real_rig):
    real_rig.watcher(kind="early")
    real_rig.controller._publish()
    assert real_rig.metrics.value("watcher_errors_total", event_type="DELETE", kind="early") == 0


@pytest.mark.parametrize(
    ("watched", "followed", "text"),
    [
        (
            ["widgits"],
            ["widgets"],
            (
                "there are watchers of widgits, but no informer, and informers of widgets, but no "
                "watcher: are they the same kind?"
            ),
        ),
        (
            ["widgets", "gadgets"],
            ["widgets"],
            "there are watchers of gadgets, but no informer: the",
        ),
        (
            ["widgets"],
            ["widgets", "gadgets"],
            "there are informers of gadgets, but no watcher: the",
        ),
        ([], ["widgets"], "there are informers of widgets, but no watcher: the"),
        (["widgets"], ["widgets"], ""),
        ([], [], ""),
    ],
)
def test_watchers_and_informers_that_do_not_find_each_other_are_named(
    make_rig, caplog, watched, followed, text
):
    """A kind is any string, so a misspelt one is no error, but it must not be silent."""
    rig = make_rig()
    rig.controller.remove_informer(rig.informer)
    for kind in watched:
        rig.watcher("w", kind=kind)
    for kind in followed:
        rig.add_informer(kind)
    looked, look = threading.Event(), rig.controller._warn_of_unmatched_kinds

    def look_and_tell():
        look()
        looked.set()

    rig.controller._warn_of_unmatched_kinds = look_and_tell
    rig.start()
    rig.clock.block_until_waiting(1)
    rig.clock.advance(0.9)
    assert not looked.is_set()
    rig.clock.advance(0.2)
    assert looked.wait(10)
    assert rig.stop() == []
    said = [record for record in caplog.records if record.levelname == "WARNING"]
    assert [record.getMessage()[: len(text) + 30] for record in said] == [
        f"controller informer-controller: {text}"[: len(text) + 30]
    ] * bool(text)


def test_an_informer_that_waits_for_its_first_watcher_is_nothing_to_warn_of(rig, caplog):
    rig.start()
    assert rig.stop() == []
    assert caplog.text == ""


def test_a_foreign_informer_has_synced_once_it_runs_and_its_first_events_are_handled(rig, widget):
    rig.watcher("w")
    rig.informer.add(widget("x"), is_initial=True)
    rig.start()
    try:
        assert rig.controller.wait_for_sync(StopSignal(), 10)
        assert rig.calls == ["w CREATE 1 of x"]
    finally:
        rig.stop()
