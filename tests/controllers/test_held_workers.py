"""Warnings of a controller: a reconcile that holds its only worker, and no source at all."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.controllers import Controller
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, ThreadGroup
from tests.controllers.test_controller_races import PATIENCE, Gate, Rig
from tests.waiting import eventually


def test_a_reconcile_that_holds_the_only_worker_is_named_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig()
    gate = Gate()
    rig.script.during = gate
    rig.tap.requests = ("a",)
    rig.controller.watch(rig.tap)
    rig.start()
    assert gate.entered.wait(PATIENCE)
    held = rig.controller.activity.monitor
    (call,) = rig.controller.activity.running_calls()
    held.look(call.started + 29.0)
    assert not caplog.records
    held.look(call.started + 31.0)
    rig.stop_signal.set()
    gate.open.set()
    assert rig.join() == []
    (record,) = caplog.records
    whose = f"the only worker of controller {rig.controller.name}"
    assert f"{whose} for 31 s. It was called for a." in record.message
    assert ".py:" in record.message.partition(" has held ")[0]


def test_a_controller_without_a_source_says_so_after_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, stop = ManualClock(), StopSignal()
    controller = Controller("idle", lambda request: None, clock=clock, metrics=Metrics())
    threads = ThreadGroup("test")
    threads.start("run", lambda: controller.run(stop))
    clock.block_until_waiting(1)
    clock.advance(1.0)
    eventually(lambda: "controller idle has no source and reconciles nothing" in caplog.text)
    stop.set()
    assert threads.join(PATIENCE) == []


def test_a_worker_that_ends_while_the_start_of_another_one_fails_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig, gate = Rig(reconcile_timeout=10.0), Gate()
    rig.script.during = lambda request: gate() if request == "a" else None
    rig.tap.requests = ("a", "b")
    rig.controller.watch(rig.tap)
    rig.start()
    assert gate.entered.wait(PATIENCE)
    name = f"{rig.controller.name}/worker/0"
    (only,) = (each for each in threading.enumerate() if each.name == name)

    def no_thread(*_: object) -> None:
        gate.open.set()
        only.join(PATIENCE)
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        rig.clock.advance(10.0)
    assert not only.is_alive()
    assert "no worker takes over" in caplog.text
    rig.controller.activity.monitor.look(rig.clock.monotonic())
    eventually(lambda: rig.script.calls == ["a", "b"])
    assert rig.stop() == []


def test_a_reconcile_that_ignores_its_deadline_holds_up_its_own_request_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(reconcile_timeout=10.0)
    gate = Gate()
    rig.script.during = lambda request: gate(request) if request == "a" else None
    rig.tap.requests = ("a", "b")
    rig.controller.watch(rig.tap)
    rig.start()
    assert gate.entered.wait(PATIENCE)
    eventually(lambda: rig.script.calls == ["a"])
    rig.clock.advance(9.0)
    assert rig.script.calls == ["a"]
    rig.clock.advance(1.0)
    eventually(lambda: rig.script.calls == ["a", "b"])
    assert "spare worker 1 of 1 takes over in controller" in caplog.text
    for name in ("calls_over_time_limit", "time_limits_exceeded_total"):
        assert rig.metrics.value(name, controller=rig.controller.name) == 1
    health = rig.controller.health()
    assert health.is_ready
    assert "; over the time limit: Gate.__call__ (" in health.text
    assert health.note.startswith(f"{rig.controller.name}: over the time limit: ")
    assert len(rig.controller.debug_snapshot()["over_time_limit"]) == 1
    rig.add("a")
    gate.open.set()
    eventually(lambda: rig.script.calls == ["a", "b", "a"])
    eventually(lambda: rig.results() == {"success": 3})
    assert rig.value("reconcile_timeouts_total") == 1
    assert rig.stop() == []
