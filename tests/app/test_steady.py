"""Updates of objects for which nothing else can become due: the usual case, which is short."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.app import App, each
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Kind, Object, field, labels
from appsdk_operator.runtime import (
    CallRecord,
    Clock,
    LimitedCall,
    ManualClock,
    Metrics,
    TimeLimitExceeded,
    callback_name,
    current_stop,
)
from appsdk_operator.testing import World
from appsdk_operator.watchers import ConstantBackoff, ErrorHandler, InformerController
from tests.app.test_functions import THING, ThingSpec, functions_of_thing, thing


class Rig:
    """The functions of an App in a controller whose events are handled by hand."""

    def __init__(
        self,
        app: App,
        error_handler: ErrorHandler | None = None,
        paused: Callable[[Object], bool] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.clock, self.metrics = ManualClock(), Metrics()
        self.controller = InformerController(
            name="things",
            clock=clock or self.clock,
            metrics=self.metrics,
            error_handler=error_handler,
            retry_policy=ConstantBackoff(60.0),
        )
        self.functions = functions_of_thing(app, clock or self.clock, paused=paused)
        self.controller.add_reconciler(self.functions, THING)
        self.source = self.controller._delivery.source(str(THING))
        self.version = 1
        self.object = thing(1, 1)
        self.handle(Event(ResourceAction.CREATE, self.object))
        self.update(2)  # the first change settles it

    def handle(self, event: Event) -> float | None:
        with self.controller._worker_context():
            return self.controller._dispatcher.handle_event(self.source, event)

    def look(self) -> float | None:
        """Handle what is due."""
        with self.controller._worker_context():
            return self.controller._dispatcher.handle(self.source.key_of(self.object), None)

    def event(self, size: int, **more: Any) -> Event:
        self.version += 1
        old, self.object = self.object, thing(self.version, size, **more)
        return Event(ResourceAction.UPDATE, self.object, old)

    def update(self, size: int, **more: Any) -> float | None:
        return self.handle(self.event(size, **more))

    def asks_steadily(self) -> bool:
        """Whether the object is in the state in which the short way is taken."""
        return self.functions.steady(self.event(self.object.generation)) is False


@pytest.fixture
def app() -> App:
    return App("thing-operator")


def test_each_change_leads_to_one_call_from_the_state_that_was_handled(app: App) -> None:
    calls = list[tuple[int, int]]()
    app.on_update(THING)(lambda old, new: calls.append((old.generation, new.generation)))
    rig = Rig(app)
    assert rig.asks_steadily()
    for size in (3, 3, 4):
        rig.update(size)
    assert calls == [(1, 2), (2, 3), (3, 4)]
    assert rig.asks_steadily()


def test_of_several_functions_those_are_called_whose_change_it_is_in_order(app: App) -> None:
    calls = list[str]()

    @app.on_update(THING, when=field("spec.a").became(5))
    def five(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append("five")

    @app.on_update(THING)
    def each_one(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append("each")

    @app.on_update(THING, where=labels("color=red"))
    def red(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append("red")

    rig = Rig(app)
    calls.clear()
    assert rig.asks_steadily()
    delays = [rig.update(5), rig.update(6), rig.update(7, labels={"color": "red"})]
    while delays[-1] is not None:  # a pass makes one call
        delays.append(rig.look())
    assert calls == ["five", "each", "each", "each", "red"]
    assert rig.asks_steadily()


def test_a_failed_call_is_repeated_from_the_same_state_and_then_all_is_steady_again(
    app: App,
) -> None:
    calls = list[tuple[int, int]]()

    @app.on_update(THING)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append((old.generation, new.generation))
        if new.generation == 3:
            raise ConnectionError("down")

    rig = Rig(app, error_handler=lambda error, call: None)
    assert rig.update(3) == 60.0
    assert not rig.asks_steadily()
    rig.update(4)
    assert calls == [(1, 2), (2, 3), (2, 4)]
    assert rig.asks_steadily()


def test_what_each_has_done_is_not_repeated_after_a_failed_update(app: App) -> None:
    calls, failing = list[str](), {"b"}

    def do(item: str) -> None:
        calls.append(item)
        if item in failing:
            raise ConnectionError(item)

    @app.on_update(THING)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        if new.generation == 3:
            each("abc", do)

    rig = Rig(app, error_handler=lambda error, call: None)
    rig.update(3)
    failing.clear()
    rig.clock.advance(60.0)
    rig.look()
    assert calls == ["a", "b", "c", "b"]
    each("abc", do)  # outside of a call
    assert calls[4:] == ["a", "b", "c"]


@pytest.mark.parametrize("asks", [False, True])
def test_a_call_that_took_longer_than_its_limit_has_failed(app: App, asks: bool) -> None:
    errors, stops = list[Exception](), list[Any]()

    @app.on_update(THING, time_limit=20.0)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        if asks:
            stops.append(current_stop())
            assert not stops[-1].is_set()
        if new.generation == 3:
            rig.clock.advance(20.0)

    rig = Rig(app, error_handler=lambda error, call: errors.append(error))
    rig.update(4)
    assert errors == []
    assert rig.update(3) == 60.0
    assert [type(error) for error in errors] == [TimeLimitExceeded]
    assert "change took 20 s, its time limit is 20 s" in str(errors[0])
    assert all(stop.is_set() for stop in stops), "also at the end of a call"
    assert rig.controller.activity.monitor._exceeded == 1


class HandClock:
    """A clock without alarms, as the machine's: nobody looks at the calls meanwhile."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    time = monotonic

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        raise AssertionError("nobody waits")


def test_a_call_at_which_nobody_looks_has_its_limit_too(app: App) -> None:
    errors, clock = list[Exception](), HandClock()

    @app.on_update(THING, time_limit=20.0)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        clock.now += new.generation

    rig = Rig(app, error_handler=lambda error, call: errors.append(error), clock=clock)
    rig.update(19)
    assert errors == []
    rig.update(20)
    assert [type(error) for error in errors] == [TimeLimitExceeded]
    assert rig.controller.activity.monitor._exceeded == 1


def test_the_limit_ends_what_is_awaited_and_what_waits_on_its_stop() -> None:
    app = App("thing-operator", retry_policy=ConstantBackoff(1000.0))
    ended = list[tuple[str, float]]()

    @app.on_update(THING, time_limit=20.0)
    async def wait(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        if new.spec.a >= 3:
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(("awaited", world.clock.monotonic()))

    @app.on_update(THING, time_limit=30.0)
    def stop(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        if new.spec.a >= 3:
            current_stop().wait()
            ended.append(("stopped", world.clock.monotonic()))

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.settle()
        world.replace("a", {"a": 2})
        world.run(1.0)
        world.replace("a", {"a": 3})
        began = world.clock.monotonic()
        world.run(100.0)
    assert ended == [("awaited", began + 20), ("stopped", began + 50)]


def test_a_call_that_hangs_is_told_of_after_half_a_minute_and_replaced_at_its_limit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, gate = App("thing-operator", workers=1), threading.Event()
    calls = list[str]()

    @app.on_update(THING)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append(new.name)
        if new.name == "hangs" and new.spec.a == 3:
            gate.wait()

    with World(THING, app) as world, contextlib.ExitStack() as stack:
        for name in ("hangs", "other"):
            world.create(name, {"a": 1})
        world.settle()
        for size in (2, 3):
            stack.callback(gate.set)
            world.replace("hangs", {"a": size})
            world.run(1.0)
        calls.clear()
        world.run(31.0)
        assert "has held the only worker of controller" in caplog.text
        assert "test_steady.py" in caplog.text
        world.replace("other", {"a": 2})
        world.run(300.0)
        assert calls == ["other"]
        assert "spare worker 1 of 1 takes over" in caplog.text
        gate.set()
        world.run(1.0)


def test_a_call_is_shown_while_it_runs_and_recorded_and_counted(app: App) -> None:
    seen = list[CallRecord]()

    @app.on_update(THING)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        if new.generation == 3:
            seen.extend(rig.controller.activity.running())
            assert len(rig.controller._dispatcher.running_calls()) == 1

    rig = Rig(app)
    rig.update(3)
    name = callback_name(change)
    assert [(call.callback, call.action, call.name) for call in seen] == [(name, "UPDATE", "a")]
    latest = rig.controller.activity.timeline("", "a")
    assert [(call.callback, call.action, call.outcome) for call in latest[:2]] == [
        (name, "UPDATE", "done")
    ] * 2
    assert rig.controller.activity.running() == []
    assert rig.controller._metrics.calls() == 3


def test_observers_see_its_beginning_and_its_end(app: App) -> None:
    seen = list[tuple[str, str]]()

    class Observer:
        def call_began(self, call: CallRecord) -> None:
            seen.append(("began", call.callback))

        def call_ended(self, call: CallRecord) -> None:
            seen.append((call.outcome, call.callback))

        def request_began(self, request: object) -> None: ...

        def request_ended(self, request: object) -> None: ...

    @app.on_update(THING)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        assert seen[-1][0] == "began"

    seen.append(("began", ""))
    rig = Rig(app)
    rig.controller.activity.observers.add(Observer())
    rig.update(3)
    name = callback_name(change)
    assert seen[1:] == [("began", name), ("done", name)]


def test_updates_beside_a_timer_are_steady_until_it_is_due(app: App) -> None:
    calls = list[str]()
    app.on_update(THING)(lambda old, new: calls.append(f"{old.generation}-{new.generation}"))
    app.every(100, THING)(lambda obj: calls.append(f"timer {obj.generation}"))
    rig = Rig(app)
    rig.look()
    assert calls == ["1-2", "timer 2"] or calls == ["timer 1", "1-2"]
    calls.clear()
    rig.clock.advance(30.0)
    assert rig.asks_steadily()
    assert rig.update(3) == 70.0
    assert rig.update(3) == 70.0, "nothing is due, and the timer all the same"
    assert calls == ["2-3"]
    rig.clock.advance(70.0)
    assert rig.functions.steady(rig.event(4)) is None
    assert rig.update(5) == 100.0
    assert sorted(calls[1:]) == ["3-5", "timer 5"]
    assert rig.asks_steadily()


def test_a_timer_gets_the_state_that_a_steady_update_has_handled(app: App) -> None:
    seen = list[int]()
    app.on_update(THING)(lambda old, new: None)
    app.every(100, THING)(lambda obj: seen.append(obj.generation))
    rig = Rig(app)
    rig.look()
    seen.clear()
    for size in (3, 4):
        rig.update(size)
    rig.clock.advance(100.0)
    assert rig.look() == 100.0
    assert seen == [4]


def test_a_failed_update_does_not_delay_a_timer(app: App) -> None:
    calls = list[str]()

    @app.on_update(THING)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append(f"{old.generation}-{new.generation}")
        if new.generation == 3:
            raise ConnectionError("down")

    app.every(40, THING)(lambda obj: calls.append("timer"))
    rig = Rig(app, error_handler=lambda error, call: None)
    rig.look()
    calls.clear()
    assert rig.update(3) == 40.0
    rig.clock.advance(40.0)
    assert rig.look() == 20.0
    rig.update(4)
    assert calls == ["2-3", "timer", "2-4"]
    assert rig.asks_steadily()


def test_steady_updates_put_an_idle_timer_off(app: App) -> None:
    calls = list[str]()
    app.on_update(THING)(lambda old, new: calls.append("update"))
    app.every(1, THING, idle=60)(lambda obj: calls.append("idle"))
    rig = Rig(app)
    calls.clear()
    rig.clock.advance(50.0)
    assert rig.asks_steadily()
    assert rig.update(3) is not None
    for _ in range(2):
        rig.clock.advance(20.0)
        rig.look()
    assert calls == ["update"], "it was due at 60"
    rig.clock.advance(20.0)
    rig.look()
    assert calls == ["update", "idle"]


def test_a_paused_object_is_not_steady_and_what_changed_comes_afterwards(app: App) -> None:
    calls = list[tuple[int, int]]()
    app.on_update(THING)(lambda old, new: calls.append((old.generation, new.generation)))
    rig = Rig(app, paused=lambda obj: "paused" in obj.labels)
    rig.update(3)
    assert rig.asks_steadily()
    for size in (4, 5):
        rig.update(size, labels={"paused": ""})
        assert rig.functions.paused_objects() == [rig.object.key]
    assert calls == [(1, 2), (2, 3)]
    rig.update(5)
    assert calls == [(1, 2), (2, 3), (3, 5)]
    assert rig.functions.paused_objects() == []
    assert rig.asks_steadily()


def test_a_hot_loop_is_told_of(app: App, caplog: pytest.LogCaptureFixture) -> None:
    app.on_update(THING)(lambda old, new: None)
    rig = Rig(app)
    for size in range(3, 210):
        rig.update(size)
        rig.clock.advance(0.011)  # 90 in a second
    assert "was reconciled 100 times in a second" not in caplog.text
    for size in range(210, 420):
        rig.update(size)
    assert caplog.text.count("was reconciled 100 times in a second") == 1


@pytest.mark.parametrize("functions", [2, 3])
def test_the_calls_of_several_functions_are_one_count(
    app: App, caplog: pytest.LogCaptureFixture, functions: int
) -> None:
    calls = list[int]()
    for number in range(functions):

        def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
            calls.append(new.generation)

        change.__name__ = f"change_{number}"
        app.on_update(THING)(change)
    rig = Rig(app)

    def run(count: int, pause: float) -> None:
        for size in range(rig.version + 1, rig.version + count):
            delay = rig.update(size)
            while delay is not None:
                delay = rig.look()
            rig.clock.advance(pause)

    run(200, 0.011 * functions)  # 90 calls in a second
    assert "was reconciled 100 times in a second" not in caplog.text
    run(200, 0.0062 * functions)  # 160
    assert caplog.text.count("was reconciled 100 times in a second") == 1
    assert len(calls) > 390 * functions


@pytest.mark.parametrize("reason", ["deletion", "older", "much older", "finalizer", "kind"])
def test_what_is_not_usual_is_looked_at(app: App, reason: str) -> None:
    app.on_update(THING)(lambda old, new: None)
    app.on_delete(THING)(lambda obj: None)
    functions = functions_of_thing(app, ManualClock())
    lifecycle = functions.finalizer_lifecycle
    assert lifecycle is not None
    first = 100 if reason == "much older" else 5
    obj = thing(first, 1, finalizers=[lifecycle.finalizer])
    more: dict[str, Any] = {"finalizers": list(obj.finalizers)}
    functions.reconcile(Event(ResourceAction.CREATE, obj))
    functions.waiting(obj)
    version = first + 1
    if reason == "deletion":
        more["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    elif reason == "older":
        version = 4
    elif reason == "much older":
        version = 50
    elif reason == "finalizer":
        more["finalizers"] = []
    usual = Event(ResourceAction.UPDATE, thing(first + 1, 1, finalizers=list(obj.finalizers)), obj)
    assert functions.steady(usual) is False
    new = thing(version, 2, **more)
    if reason == "kind":
        new = Object.from_dict(
            Kind(group=THING.group, version=THING.version, kind=THING.kind), new.to_dict()
        )
    assert functions.steady(Event(ResourceAction.UPDATE, new, obj)) is None


def test_objects_with_the_finalizer_of_an_app_are_steady(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.on_add(THING)(lambda obj: None)
    app.on_update(THING)(lambda old, new: None)
    found = list[Any]()
    steady = KindFunctions.steady

    def noted(functions: KindFunctions, event: Event) -> Any:
        found.append(steady(functions, event))
        return found[-1]

    monkeypatch.setattr(KindFunctions, "steady", noted)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        found.clear()
        for value in (2, 3, 4):
            world.replace("a", {"a": value})
            world.run(1)
    assert len(found) == 3
    assert all(found[1:]), "the first one settles it"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_value_that_a_function_returns_is_an_error_in_the_short_way_too(
    app: App, is_async: bool
) -> None:
    errors = list[Exception]()

    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> int | None:
        return 1 if new.generation == 3 else None

    async def change_later(old: Object[ThingSpec], new: Object[ThingSpec]) -> int | None:
        return change(old, new)

    app.on_update(THING)(change_later if is_async else change)
    rig = Rig(app, error_handler=lambda error, _: errors.append(error))
    rig.update(4)
    assert errors == []
    rig.update(3)
    assert [type(error) for error in errors] == [TypeError]
    assert "change" in str(errors[0])
    rig.controller._loop.close(10.0)


def test_who_looks_at_the_end_of_a_call_leaves_no_limit_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("t")
    began, ended = threading.Event(), threading.Event()

    class Slow(LimitedCall):
        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            if threading.current_thread() is looker:
                began.set()
                ended.wait(0.2)

    @app.on_update(THING, time_limit=5.0)
    def change(old: Object, new: Object) -> None:
        if new.spec.a == 3:
            looker.start()
            assert began.wait(10)

    errors: list[Exception] = []
    rig = Rig(app, error_handler=lambda error, _: errors.append(error))
    dispatcher = rig.controller._dispatcher
    looker = threading.Thread(target=dispatcher.activity.running_calls)
    monkeypatch.setattr("appsdk_operator.runtime._activity.LimitedCall", Slow)
    with rig.controller._worker_context():
        dispatcher.handle_event(rig.source, rig.event(3))
        ended.set()
        looker.join()
        rig.clock.advance(60.0)
        dispatcher.handle_event(rig.source, rig.event(4))
    assert not errors


def test_each_in_a_thread_that_outlives_its_call_remembers_nothing_for_another_object(
    app: App,
) -> None:
    made = list[tuple[str, str]]()
    tried = list[str]()
    has_ended, may_end = threading.Event(), threading.Event()

    @app.on_update(THING)
    async def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        def make(item: str) -> None:
            if new.name not in tried:
                tried.append(new.name)
                if new.name == "slow":
                    assert may_end.wait(10)
                else:
                    may_end.set()
                    assert has_ended.wait(10)
                    raise ConnectionError(new.name)
            made.append((new.name, item))

        def call() -> None:
            each(["x"], make)
            if new.name == "slow":
                has_ended.set()

        if new.name in ("slow", "other"):
            async with asyncio.timeout(0.05 if new.name == "slow" and not tried else None):
                await asyncio.to_thread(call)

    rig = Rig(app)
    dispatcher = rig.controller._dispatcher
    with rig.controller._worker_context():
        for number, name in enumerate(("slow", "other")):
            first, second = (
                thing(100 + number, 1, name=name, uid=name),
                thing(200 + number, 2, name=name, uid=name),
            )
            dispatcher.handle_event(rig.source, Event(ResourceAction.CREATE, first))
            dispatcher.handle_event(rig.source, Event(ResourceAction.UPDATE, second, first))
        rig.clock.advance(61.0)
        dispatcher.handle(rig.source.key_of(second), None)
    rig.controller._loop.close(10.0)
    assert ("other", "x") in made


def test_a_call_whose_time_stands_still_between_two_looks_at_its_deadline_breaks_nothing() -> None:
    class Suspended(LimitedCall):
        """Suspended by another thread as soon as somebody has read its deadline."""

        __slots__ = ("reads",)

        @property
        def deadline(self) -> float | None:
            self.reads += 1
            return 5.0 if self.reads == 1 else None

        @deadline.setter
        def deadline(self, value: float | None) -> None:
            self.reads = 0

    clock, activity = ManualClock(), Rig(App("t")).controller.activity
    call = Suspended(0.0, 5.0, activity.stop, clock)
    assert call.remaining() == 5.0
    call.deadline = 5.0
    assert call.has_reached(6.0)
    for read in (activity.monitor.look, lambda now: activity.monitor._alarm()):
        call.deadline = 5.0
        slot = activity.slot(1)
        slot.trigger, slot.limited = object(), call
        read(1.0)


def test_an_object_that_cannot_be_read_is_looked_at_also_after_a_call_of_another_function(
    app: App,
) -> None:
    app.on_update(THING)(lambda old, new: None)
    app.on_update(THING, when=lambda old, new: True)(lambda old, new: None)
    rig = Rig(app)
    while rig.look() is not None:
        pass
    event = rig.event(3, annotations={"a": 1})
    call = rig.functions.steady(event)
    assert call, "the first function needs nothing of it but its generation"
    assert rig.functions.made(call, event.object, 0.0) == "more"
    assert not rig.asks_steadily()
    assert rig.functions.steady(event) is None


class Curious(HandClock):
    """A clock that looks at the running calls whenever it is asked for the time."""

    def __init__(self) -> None:
        self.look: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        look, self.look = self.look, lambda: None  # which reads the clock itself
        look()
        self.look = look
        return self.now


@pytest.mark.parametrize("is_steady", [True, False])
def test_a_call_that_begins_is_not_taken_for_one_that_began_when_the_last_one_did(
    app: App, is_steady: bool
) -> None:
    app.on_update(THING, time_limit=20.0)(lambda old, new: None)
    clock, started = Curious(), list[float]()
    rig = Rig(app, clock=clock)
    activity = rig.controller.activity
    clock.look = lambda: started.extend(call.started for call in activity.running_calls())
    clock.now = 100.0
    if is_steady:
        rig.update(3)
    else:
        rig.handle(Event(ResourceAction.RESYNC, rig.object))
    assert set(started) == {100.0}


@pytest.mark.parametrize("trigger", ["first", "second"], ids=["of one event", "of another"])
def test_a_call_that_ends_while_somebody_looks_gives_its_start_to_no_other(
    app: App, trigger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    activity = Rig(app).controller.activity
    slot = activity.slot(1)
    slot.started, slot.trigger = 0.0, "first"
    limited_call = type(activity).limited_call

    def end_and_begin(log: Any, slot: Any) -> LimitedCall | None:
        found = limited_call(log, slot)
        slot.trigger = None
        slot.started, slot.trigger = 100.0, trigger
        return found

    with monkeypatch.context() as patch:
        patch.setattr(type(activity), "limited_call", end_and_begin)
        assert activity.running_calls() == []
    assert [call.started for call in activity.running_calls()] == [100.0]


def test_all_who_look_at_a_call_at_once_see_one_call_which_its_end_ends(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2)

    class Met(LimitedCall):
        """Made by two threads, neither of which has it before the other one."""

        __slots__ = ()

        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            both.wait(10)

    @app.on_update(THING, time_limit=5.0)
    def change(old: Object, new: Object) -> None:
        if new.spec.a == 3:
            monkeypatch.setattr("appsdk_operator.runtime._activity.LimitedCall", Met)
            threads = [threading.Thread(target=look) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

    def look() -> None:
        found.extend(call.limited for call in rig.controller.activity.running_calls())

    found: list[LimitedCall | None] = []
    rig = Rig(app)
    rig.update(3)
    first, second = found
    assert first is second
    assert first is not None
    assert first.is_over


def test_what_observes_a_function_is_called_in_the_short_way_too(app: App) -> None:
    seen = list[str]()
    app.on_update(THING)(lambda old, new: seen.append("function"))
    functions = functions_of_thing(
        app, ManualClock(), observe=lambda function: lambda *args: seen.append("observer")
    )
    obj = thing(1, 1)
    functions.reconcile(Event(ResourceAction.CREATE, obj))
    functions.reconcile(Event(ResourceAction.UPDATE, thing(2, 2), obj))
    functions.waiting(obj)
    call = functions.steady(Event(ResourceAction.UPDATE, thing(3, 3), thing(2, 2)))
    assert call
    call[0].function(call[1], thing(3, 3))
    assert set(seen) == {"observer"}
