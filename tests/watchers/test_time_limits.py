"""Time limits: a function that does not return delays its own object only."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Delivery
from appsdk_operator.resource import Object
from appsdk_operator.runtime import (
    StopSignal,
    TimeLimitExceeded,
    awaited_by,
    call_limited,
    current_stop,
)
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    ReconcileRequest,
    SimpleReconciler,
    SimpleWatcher,
)
from tests.hypothesis_profiles import scaled
from tests.waiting import eventually
from tests.watchers.conftest import WIDGET, Rig, make_widget

PATIENCE = 10.0
LIMIT = 10.0


class Hang:
    """A function that hangs for the objects of some names until the test releases it."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.held: list[str] = []
        self.done: list[str] = []
        self.stops: list[StopSignal] = []
        self.overlaps: list[str] = []
        self.gates = {name: threading.Event() for name in names}

    def release(self, *names: str) -> None:
        for name in names or self.gates:
            self.gates[name].set()

    def __call__(self, *objects: Object) -> None:
        obj = objects[-1]
        if obj.name in self.held:
            self.overlaps.append(obj.name)
        if obj.name in self.names:
            self.stops.append(current_stop())
            self.held.append(obj.name)
            assert self.gates[obj.name].wait(PATIENCE)
            self.held.remove(obj.name)
        self.done.append(f"{obj.name}{obj.resource_version}")

    def has_entered(self, count: int) -> None:
        eventually(lambda: len(self.held) == count)

    def has_done(self, *names: str) -> None:
        eventually(lambda: sorted(self.done) == sorted(names))


@pytest.fixture
def limited(make_rig: Callable[..., Rig]) -> Iterator[Callable[..., Rig]]:
    """Makes running controllers whose watcher is the given one."""
    hangs: list[Hang] = []

    def make(hang: Any, **options: Any) -> Rig:
        update = None
        if isinstance(hang, Hang):
            hangs.append(hang)
            update = hang
        options = {"time_limit": LIMIT, "retry_policy": ConstantBackoff(60.0), **options}
        rig = make_rig(**options)
        rig.controller.add_watcher(SimpleWatcher(add=hang, update=update), WIDGET)
        rig.start()
        eventually(rig.informer.is_running.is_set)
        return rig

    yield make
    for hang in hangs:
        hang.release()


def value(rig: Rig, name: str) -> float | None:
    found: float | None = rig.metrics.value(name, controller=rig.controller.name)
    return found


def test_a_worker_whose_call_hangs_is_replaced_at_the_limit(
    limited: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    hang = Hang("a")
    rig = limited(hang)
    rig.informer.add(make_widget("a"), make_widget("b"))
    hang.has_entered(1)
    (stop,) = hang.stops
    rig.clock.advance(LIMIT - 0.1)
    assert not hang.done
    assert not stop.is_set()
    assert value(rig, "time_limits_exceeded_total") == value(rig, "calls_over_time_limit") == 0
    rig.clock.advance(0.1)
    hang.has_done("b1")
    assert stop.is_set()
    assert value(rig, "time_limits_exceeded_total") == value(rig, "calls_over_time_limit") == 1
    health = rig.controller.health()
    assert health.is_ready
    assert "over the time limit: Hang.__call__ (test_time_limits.py:" in health.text
    assert "for widgets default/a, begun 10 s ago" in health.note
    assert rig.controller.debug_snapshot()["over_time_limit"][0].startswith("Hang.__call__ (")
    text = caplog.text
    assert (
        "called for widgets default/a, has not returned within 10 s and ignores the stop sig"
        in text
    )
    assert "spare worker 1 of 1 takes over in controller informer-controller" in text


def test_the_object_of_a_call_that_hangs_is_closed_until_it_returns(
    limited: Callable[..., Rig],
) -> None:
    hang = Hang("a")
    rig = limited(hang)
    rig.informer.add(make_widget("a"))
    hang.has_entered(1)
    rig.clock.advance(LIMIT)
    rig.informer.update(make_widget("a"), make_widget("a", 2))
    rig.informer.add(make_widget("b"))
    hang.has_done("b1")
    hang.release()
    hang.has_done("a1", "a2", "b1")
    assert not hang.overlaps
    eventually(lambda: value(rig, "calls_over_time_limit") == 0)
    assert rig.controller.health().note == ""
    (error, call) = rig.errors[0]
    assert isinstance(error, TimeLimitExceeded)
    assert call.object.name == "a"
    assert "Hang.__call__" in str(error) or "Hang took 10 s, its time limit is 10 s" in str(error)


def test_a_call_that_was_too_late_is_retried(limited: Callable[..., Rig]) -> None:
    hang = Hang("a")
    rig = limited(hang)
    rig.informer.add(make_widget("a"))
    hang.has_entered(1)
    rig.clock.advance(LIMIT)
    hang.names.clear()
    hang.release()
    eventually(lambda: rig.controller.pending_retries == 1)
    rig.clock.advance(60.0)
    hang.has_done("a1", "a1")
    assert rig.controller.pending_retries == 0


def test_a_late_call_keeps_its_own_error(limited: Callable[..., Rig]) -> None:
    gate = threading.Event()

    def fail(_: Object) -> None:
        assert current_stop().wait(PATIENCE)
        gate.set()
        raise ConnectionError("the storage is away")

    rig = limited(fail)
    rig.informer.add(make_widget("a"))
    eventually(lambda: bool(rig.controller.activity.running_calls()))
    rig.clock.advance(LIMIT)
    assert gate.wait(PATIENCE)
    eventually(lambda: bool(rig.errors))
    assert isinstance(rig.errors[0][0], ConnectionError)
    assert value(rig, "time_limits_exceeded_total") == 1


def test_the_worker_that_was_replaced_ends(limited: Callable[..., Rig]) -> None:
    hang = Hang("a", "b")
    rig = limited(hang, workers=2, name="limited")

    def workers() -> list[str]:
        return sorted(t.name for t in threading.enumerate() if t.name.startswith("limited/worker"))

    assert workers() == ["limited/worker-0"], "the second one starts when the first has work"
    rig.informer.add(make_widget("a"), make_widget("b"))
    hang.has_entered(2)
    assert workers() == ["limited/worker-0", "limited/worker-1"]
    rig.clock.advance(LIMIT)
    eventually(lambda: len(workers()) == 4)
    rig.clock.advance(10 * LIMIT)
    assert len(workers()) == 4, "each is replaced once"
    hang.names.clear()
    hang.release()
    eventually(lambda: workers() == ["limited/worker-2", "limited/worker-3"])
    rig.informer.add(make_widget("c"))
    hang.has_done("a1", "b1", "c1")


def test_spare_workers_are_used_up_and_that_is_logged(
    limited: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    hang = Hang("a", "b")
    rig = limited(hang)
    rig.informer.add(make_widget("a"), make_widget("b"), make_widget("c"))
    hang.has_entered(1)
    rig.clock.advance(LIMIT)
    hang.has_entered(2)
    rig.clock.advance(LIMIT)
    assert "no spare worker of 1 is left in controller" in caplog.text
    assert value(rig, "calls_over_time_limit") == 2
    assert not hang.done
    hang.release("a")
    hang.has_done("a1")
    rig.clock.advance(30.0)
    hang.has_done("a1", "c1")
    assert value(rig, "calls_over_time_limit") == 1


def test_an_async_call_is_cancelled_at_the_limit_and_its_worker_stays(
    limited: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    entered, cleaned = threading.Event(), threading.Event()

    async def wait(_: Object) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    rig = limited(wait, name="async")
    rig.informer.add(make_widget("a"))
    assert entered.wait(PATIENCE)
    eventually(lambda: rig.controller.activity.running_calls()[0].limited is not None)
    rig.clock.advance(LIMIT)
    eventually(lambda: bool(rig.errors))
    assert cleaned.is_set(), "the call ends after its coroutine"
    assert isinstance(rig.errors[0][0], TimeLimitExceeded)
    assert "async/worker-1" not in [thread.name for thread in threading.enumerate()]
    assert "has not returned" not in caplog.text
    assert value(rig, "time_limits_exceeded_total") == 1


def test_what_a_call_awaits_only_after_its_limit_is_cancelled_at_the_next_look(
    limited: Callable[..., Rig],
) -> None:
    entered, go = threading.Event(), threading.Event()

    async def wait() -> None:
        await asyncio.Event().wait()

    def begin(_: Object) -> Any:
        entered.set()
        assert go.wait(PATIENCE)
        return wait()

    rig = limited(begin)
    rig.informer.add(make_widget("a"))
    assert entered.wait(PATIENCE)
    rig.clock.advance(LIMIT)
    go.set()
    thread = rig.controller.activity.running_calls()[0].thread
    eventually(lambda: awaited_by(thread) is not None)
    rig.clock.advance(30.0)
    eventually(lambda: bool(rig.errors))
    assert isinstance(rig.errors[0][0], TimeLimitExceeded)


def test_an_async_call_that_ignores_its_cancellation_hangs(
    limited: Callable[..., Rig], caplog: pytest.LogCaptureFixture
) -> None:
    entered, stay = threading.Event(), True

    async def ignore(obj: Object) -> None:
        if obj.name == "b":
            return
        entered.set()
        while stay:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                continue

    rig = limited(ignore)
    rig.informer.add(make_widget("a"), make_widget("b"))
    assert entered.wait(PATIENCE)
    rig.clock.advance(LIMIT)
    assert value(rig, "calls_over_time_limit") == 0
    rig.clock.advance(1.0)
    assert value(rig, "calls_over_time_limit") == 1
    assert "ignores the cancellation" in caplog.text
    assert rig.controller.wait_idle(0) is False
    stay = False
    eventually(lambda: bool(rig.errors))
    assert isinstance(rig.errors[0][0], TimeLimitExceeded)


def test_a_stop_cancels_as_before_and_is_no_time_out(limited: Callable[..., Rig]) -> None:
    entered = threading.Event()

    async def wait(_: Object) -> None:
        entered.set()
        await asyncio.Event().wait()

    rig = limited(wait)
    rig.informer.add(make_widget("a"))
    assert entered.wait(PATIENCE)
    assert rig.stop() == []
    assert not isinstance(rig.errors[0][0], TimeLimitExceeded)
    assert value(rig, "time_limits_exceeded_total") == 0


def test_the_stop_of_the_controller_sets_the_stop_of_a_call(limited: Callable[..., Rig]) -> None:
    entered = threading.Event()

    def wait(_: Object) -> None:
        entered.set()
        assert current_stop().wait(PATIENCE)

    rig = limited(wait, time_limit=None)
    rig.informer.add(make_widget("a"))
    assert entered.wait(PATIENCE)
    assert rig.stop() == []


def test_a_call_that_ends_in_time_has_no_limit_any_more(limited: Callable[..., Rig]) -> None:
    hang = Hang()
    rig = limited(hang)
    rig.informer.add(make_widget("a"))
    hang.has_done("a1")
    assert rig.controller.wait_idle(PATIENCE)
    rig.clock.advance(1.0)  # the run looks for kinds without informers
    assert rig.clock.next_deadline() is None
    rig.clock.advance(10 * LIMIT)
    assert value(rig, "time_limits_exceeded_total") == 0


class Parts:
    """A reconciler that calls two functions, each with a limit of its own."""

    has_time_limits = True

    def __init__(self, hang: Hang) -> None:
        self.hang = hang

    def reconcile(self, request: ReconcileRequest) -> None:
        call_limited(lambda: None, seconds=1.0)
        call_limited(self.hang, request.object, seconds=LIMIT, name="back_up")


def test_a_part_of_a_call_has_a_limit_of_its_own(make_rig: Callable[..., Rig]) -> None:
    hang = Hang("a")
    rig = make_rig(retry_policy=ConstantBackoff(60.0))
    rig.controller.add_reconciler(Parts(hang), WIDGET)
    rig.start()
    rig.informer.add(make_widget("a"), make_widget("b"))
    hang.has_entered(1)
    rig.clock.advance(LIMIT)
    hang.has_done("b1")
    hang.release()
    eventually(lambda: bool(rig.errors))
    assert str(rig.errors[0][0]).startswith(
        "back_up took 10 s, its time limit is 10 s: set a time-out"
    )


def test_each_look_at_the_calls_starts_a_worker_that_is_missing(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Delivery] = []

    def start_missing(delivery: Delivery) -> None:
        calls.append(delivery)

    monkeypatch.setattr(Delivery, "start_missing", start_missing)
    monitor = make_rig().controller.activity.monitor
    for count in (1, 2):
        monitor.look(0.0)
        assert len(calls) == count


def test_workers_may_be_replaced_before_an_event_finds_a_target_with_limits(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Limited(SimpleWatcher):
        has_time_limits = True

    controller = make_rig().controller
    targets: list[int] = []
    monkeypatch.setattr(
        Delivery,
        "allow_replacement",
        lambda _: targets.append(len(controller.debug_snapshot()["targets"])),
    )
    controller.add_watcher(Limited(add=lambda obj: None), WIDGET)
    assert targets == [0]


def test_the_limit_of_a_call_holds_after_and_within_that_of_a_part(
    make_rig: Callable[..., Rig],
) -> None:
    hang, inner = Hang("a"), Hang("b")

    def reconcile(request: ReconcileRequest) -> None:
        call_limited(lambda: None, seconds=1.0)
        hang(request.object)
        call_limited(inner, request.object, seconds=10 * LIMIT)

    rig = make_rig(workers=2, time_limit=LIMIT, retry_policy=ConstantBackoff(60.0))
    rig.controller.add_reconciler(SimpleReconciler(reconcile), WIDGET)
    rig.start()
    rig.informer.add(make_widget("a"), make_widget("b"))
    hang.has_entered(1)
    inner.has_entered(1)
    rig.clock.advance(LIMIT)
    assert value(rig, "calls_over_time_limit") == 2
    hang.release()
    inner.release()
    eventually(lambda: len(rig.errors) == 2)


def test_what_is_left_of_an_outer_limit_brings_no_closer_looks(
    limited: Callable[..., Rig],
) -> None:
    def add(obj: Object) -> None:
        rig.clock.advance(LIMIT - 0.01)
        call_limited(lambda: None, seconds=LIMIT / 2)

    rig = limited(add)
    rig.informer.add(make_widget("a"))
    assert rig.controller.wait_idle(PATIENCE)
    assert rig.controller.activity.monitor.shortest == LIMIT / 2
    assert not rig.errors


def test_outside_of_a_call_there_is_no_limit_and_a_stop_that_nothing_sets() -> None:
    assert call_limited(lambda: current_stop().is_set(), seconds=0.001) is False


async def _answer() -> int:
    return 7


def test_a_limited_function_may_be_async() -> None:
    assert call_limited(_answer, seconds=5.0) == 7
    assert call_limited(_answer, seconds=None) == 7


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (0, "time_limit=0: give more than 0 seconds, or None for no limit"),
        (-1.0, "time_limit=-1.0: give more than 0 seconds"),
        (float("inf"), "time_limit=inf: give more than 0 seconds"),
        ("5", "time_limit='5': give seconds as a number, for example time_limit=30.0"),
    ],
)
def test_what_is_no_limit_is_refused(limit: Any, text: str) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        InformerController(time_limit=limit)
    assert str(caught.value).startswith(text)


@given(
    workers=st.integers(1, 3),
    hanging=st.integers(0, 3),
    others=st.integers(1, 6),
    more_informers=st.integers(0, 2),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=scaled(25), deadline=None)
def test_calls_that_hang_delay_their_own_objects_only(
    workers: int, hanging: int, others: int, more_informers: int, order: Any
) -> None:
    hanging = min(hanging, workers)
    hang = Hang(*(f"h{number}" for number in range(hanging)))
    names = [*hang.gates, *(f"o{number}" for number in range(others))]
    order.shuffle(names)
    rig = Rig(workers=workers, time_limit=LIMIT, retry_policy=ConstantBackoff(60.0))
    rig.controller.add_reconciler(SimpleReconciler(lambda request: hang(request.object)), WIDGET)
    informers = [rig.informer, *(rig.add_informer() for _ in range(more_informers))]
    rig.start()
    for informer in informers:
        informer.add(*map(make_widget, names))
    try:
        hang.has_entered(hanging)
        rig.clock.advance(LIMIT)
        hang.has_done(*(f"o{number}1" for _ in informers for number in range(others)))
        rig.informer.add(make_widget("late"))
        eventually(lambda: "late1" in hang.done)
    finally:
        hang.release()
        rig.close()
    assert not hang.overlaps
    assert not rig.raised
