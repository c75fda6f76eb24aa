"""Warnings of a controller: a reconcile that holds its only worker, and no source at all."""

from __future__ import annotations

import pytest

from appsdk_operator.controllers import Controller
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, ThreadGroup
from tests.cache.conftest import eventually
from tests.controllers.test_controller_races import PATIENCE, Gate, Rig


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
    assert f"the only worker of controller {rig.controller.name} for 31 s, for a" in record.message
    assert ".py:" in record.message.partition(" holds ")[0]


def test_a_controller_without_a_source_says_so_after_a_second(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, stop = ManualClock(), StopSignal()
    controller = Controller("idle", lambda request: None, clock=clock, metrics=Metrics())
    threads = ThreadGroup("test")
    threads.start("run", lambda: controller.run(stop))
    clock.block_until_waiting(1)
    clock.advance(1.0)
    eventually(lambda: "controller idle has no source, so that it" in caplog.text)
    stop.set()
    assert threads.join(PATIENCE) == []
