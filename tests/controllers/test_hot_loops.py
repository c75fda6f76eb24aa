"""Objects that are reconciled again and again by what their reconciler writes."""

from __future__ import annotations

import logging

import pytest

from appsdk_operator.client import MergePatch
from appsdk_operator.controllers._engine.hot_loops import HotLoops
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import get_logger
from appsdk_operator.testing import Simulation, World
from appsdk_operator.watchers import SimpleReconciler

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
LOG = get_logger("test.hot")
TEXT = "reconciled 100 times in a second"


@pytest.fixture
def loops():
    return HotLoops(LOG, "c", "widgets", filter_hint="a filter")


def warnings(caplog):
    return [record for record in caplog.records if TEXT in record.message]


def test_a_hundred_times_in_a_second_is_too_often(loops, caplog):
    for number in range(99):
        loops.note("a", number / 100)
    assert not warnings(caplog)
    loops.note("a", 0.995)
    (record,) = warnings(caplog)
    assert record.levelno == logging.WARNING
    assert "controller c: widgets a was" in record.message
    assert "Write only changed fields" in record.message
    assert record.message.endswith("with a filter")


def test_a_request_without_a_text_is_warned_of_too(loops, caplog):
    class Key(str):
        __slots__ = ()
        __str__ = property()

    for _ in range(100):
        loops.note(Key("a"), 0.0)
    (record,) = warnings(caplog)
    assert "widgets <Key whose text failed: " in record.message


def test_a_request_of_several_parts_may_have_others_than_texts(loops, caplog):
    for _ in range(100):
        loops.note(("", "a", 0, None), 0.0)
    (record,) = warnings(caplog)
    assert "widgets a/0/None was" in record.message


def test_a_hundred_times_in_a_longer_time_is_not(loops, caplog):
    for number in range(1000):
        loops.note("a", number / 90)
    assert not warnings(caplog)


def test_many_objects_once_each_are_not(loops, caplog):
    for number in range(1000):
        loops.note(number, 0.0)
    assert not warnings(caplog)


def test_a_backlog_of_many_objects_is_not_counted_whole_and_hides_no_loop(loops, caplog):
    loops.note("hot", 0.0)
    for number in range(10_000):
        loops.note(number, 0.1)
    assert len(loops._window[1]) == 256
    for _ in range(99):
        loops.note("hot", 0.5)
    assert len(warnings(caplog)) == 1


def test_it_is_said_once_a_minute_for_a_controller(loops, caplog):
    for second in range(130):
        for number in range(200):
            loops.note(number % 2, second + number / 200)
    assert len(warnings(caplog)) == 3


def test_nothing_is_remembered_of_the_seconds_before(loops):
    for number in range(1000):
        loops.note(number, float(number))
    assert len(loops._window[1]) == 1


@pytest.mark.parametrize("writes", [150, 50])
def test_a_controller_whose_reconciler_writes_each_time_warns(caplog, writes):
    def make(replica):
        count = iter(range(writes))

        def reconcile(request):
            number = next(count, None)
            if number is not None:
                patch = MergePatch({"metadata": {"annotations": {"n": str(number)}}})
                replica.client.patch(WIDGET, request.name, patch, namespace=request.namespace)

        return reconcile

    with World(WIDGET, make) as world:
        world.most_calls = 1000
        world.create("a")
        world.run(5.0)
    assert len(warnings(caplog)) == (1 if writes > 100 else 0)


def test_a_reconciler_among_watchers_warns_too(caplog):
    def make(process):
        def act(request):
            n = int(request.object.annotations.get("n", "0"))
            if n < 150:
                patch = MergePatch({"metadata": {"annotations": {"n": str(n + 1)}}})
                process.client.patch(WIDGET, request.object.name, patch, namespace="default")

        return [SimpleReconciler(act)]

    with Simulation(WIDGET, make, resync=0.0) as simulation:
        simulation.create("a")
        for _ in range(300):
            simulation.poll()
            simulation.handle()
    (record,) = warnings(caplog)
    assert "concerns(old, new)" in record.message
