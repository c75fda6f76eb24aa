"""Starts and stops that meet: nothing is left behind, and nobody else is disturbed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from appsdk_operator.cache import Health
from appsdk_operator.controllers import (
    ChannelSource,
    Controller,
    FunctionSource,
    RequestQueue,
    for_object,
)
from appsdk_operator.runtime import Metrics, StopSignal
from tests.cache.conftest import thing
from tests.controllers.controller_tools import PATIENCE, Gate, Rig, Tap
from tests.waiting import eventually


class ThreadedTap(Tap):
    """A source that has a thread from its start to its join, and can be held in either."""

    def __init__(self) -> None:
        super().__init__()
        self.start_gate = Gate()
        self.join_gate = Gate()
        self.start_gate.open.set()
        self.join_gate.open.set()
        self.joins_of_started = 0
        self.has_started = False

    def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
        super().start(queue, stop)
        self.start_gate()
        self.has_started = True

    def join(self, timeout: float | None = None) -> list[str]:
        self.join_gate()
        self.joins_of_started += self.has_started
        return []


@pytest.mark.parametrize("way", ["run", "late"])
def test_a_source_that_is_starting_at_the_stop_is_joined_once_it_has_started(way: str) -> None:
    rig = Rig()
    source = ThreadedTap()
    source.start_gate.open.clear()
    if way == "run":
        rig.controller.watch(source)
        rig.start()
    else:
        rig.start()
        eventually(lambda: rig.controller._works)
        rig.start(lambda _: rig.controller.watch(source))
    assert source.start_gate.entered.wait(PATIENCE)
    rig.stop_signal.set()
    assert not source.join_gate.entered.wait(0.3), "it has no threads yet"
    source.start_gate.open.set()
    assert rig.join() == []
    assert source.joins_of_started == 1


def test_a_source_that_comes_while_the_others_are_joined_is_refused() -> None:
    rig = Rig()
    ending, late = ThreadedTap(), ThreadedTap()
    ending.join_gate.open.clear()
    rig.controller.watch(ending)
    rig.start()
    eventually(lambda: rig.controller._works)
    rig.stop_signal.set()
    assert ending.join_gate.entered.wait(PATIENCE)
    with pytest.raises(RuntimeError, match="has ended and starts no further sources"):
        rig.controller.watch(late)
    assert late.starts == 0
    ending.join_gate.open.set()
    assert rig.join() == []


def test_a_controller_that_is_given_another_one_s_source_leaves_it_alone() -> None:
    metrics = Metrics()
    source: ChannelSource[Any] = ChannelSource(for_object(), metrics=metrics)
    first, second = Rig(name="first"), Rig(name="second", stop_timeout=PATIENCE / 2)
    first.controller.watch(source)
    first.start()
    eventually(lambda: first.controller._works)
    second.controller.watch(source)
    second.start()
    (error,) = second.join()
    assert "belongs to one controller" in str(error)
    assert source.push(thing("a"))
    eventually(lambda: [str(call) for call in first.script.calls] == ["x/a"])
    assert metrics.value("source_events_total", source="channel") == 1
    assert first.stop() == []
    assert not source.health().is_ready


def test_a_late_source_of_another_controller_is_left_alone_too() -> None:
    calls = threading.Event()

    def feed(queue: RequestQueue[Any], stop: StopSignal) -> None:
        calls.set()
        stop.wait()

    source: FunctionSource[Any] = FunctionSource(feed)
    first, second = Rig(), Rig()
    first.controller.watch(source)
    first.start()
    assert calls.wait(PATIENCE)
    second.start()
    eventually(lambda: second.controller._works)
    with pytest.raises(RuntimeError, match="belongs to one controller"):
        second.controller.watch(source)
    assert second.stop() == []
    assert source.health().is_ready
    assert first.stop() == []


def test_close_waits_for_the_stand_by_that_is_ending_already() -> None:
    rig = Rig(warm_up=True)
    source = ThreadedTap()
    source.join_gate.open.clear()
    rig.controller.watch(source)
    rig.controller.warm_up(rig.stop_signal)
    rig.stop_signal.set()
    assert source.join_gate.entered.wait(PATIENCE)
    rig.start(lambda _: rig.controller.close())
    # Longer than what coroutines get to be cancelled in.
    rig.runs[-1].thread.join(1.5)
    assert rig.runs[-1].thread.is_alive()
    source.join_gate.open.set()
    assert rig.join() == []
    assert source.joins_of_started == 1


def test_a_stand_by_that_is_told_to_run_while_it_ends_returns_once_it_has_ended() -> None:
    rig = Rig(warm_up=True)
    source = ThreadedTap()
    source.join_gate.open.clear()
    rig.controller.watch(source)
    rig.controller.warm_up(rig.stop_signal)
    rig.stop_signal.set()
    assert source.join_gate.entered.wait(PATIENCE)
    rig.start()
    rig.runs[-1].thread.join(0.3)
    assert rig.runs[-1].thread.is_alive()
    source.join_gate.open.set()
    assert rig.join() == []
    assert rig.script.calls == []


def test_a_failure_after_the_stop_is_not_said_to_be_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(OSError("interrupted"))
    gate = Gate()
    rig.script.during = gate
    rig.tap.requests = ("a",)
    rig.controller.watch(rig.tap)
    rig.start()
    assert gate.entered.wait(PATIENCE)
    rig.stop_signal.set()
    gate.open.set()
    assert rig.join() == []
    assert "interrupted; not tried again, for the controller stops" in caplog.text
    assert rig.script.calls == ["a"]


def test_the_text_of_a_failure_is_made_without_a_lock() -> None:
    controller: Controller[Any] = Controller("curious", lambda _: None, metrics=Metrics())
    texts: list[str] = []

    class Locked(Exception):  # noqa: N818 - it is what it looks for
        def __str__(self) -> str:
            held = controller._lock.locked()
            texts.append(f"held: {held}")
            return "no"

    class Failing(Tap):
        def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
            raise Locked

    controller.watch(Failing())
    with pytest.raises(Locked):
        controller.run(StopSignal())
    assert not controller.health().is_ready
    assert set(texts) == {"held: False"}


class Telling(ThreadedTap):
    def __init__(self, health: Any) -> None:
        super().__init__()
        self.says = health

    def health(self) -> Any:
        return self.says


def test_what_a_source_that_is_ready_has_to_say_is_part_of_the_health() -> None:
    rig = Rig()
    rig.controller.watch(Telling(Health(True, "source pods: its handler f fails")))
    rig.start()
    eventually(lambda: rig.controller._works)
    health = rig.controller.health()
    assert health.is_ready
    assert health.text == (
        f"controller {rig.controller.name} ok; source tap: source pods: its handler f fails"
    )
    assert rig.stop() == []


def test_a_source_whose_health_is_none_breaks_no_other_s() -> None:
    rig = Rig()
    rig.controller.watch(Telling("fine"))
    rig.start()
    eventually(lambda: rig.controller._works)
    assert "its health failed" in rig.controller.health().text
    assert rig.stop() == []
