"""What controllers promise of order, exclusion and retries, end to end with a real Operator."""

from __future__ import annotations

import asyncio
import threading

import pytest

from appsdk_operator.resource import Kind, Object
from appsdk_operator.watchers import ExponentialBackoff, SimpleWatcher
from tests.conformance.conftest import CLOCK, CONFIG_MAP, TIMEOUT, WIDGET, Recorder, World

BOTH_KINDS = pytest.mark.parametrize("kind", [WIDGET, CONFIG_MAP], ids=["widget", "configmap"])


@BOTH_KINDS
def test_with_one_worker_events_come_in_the_servers_order(world: World, kind: Kind) -> None:
    recorder = Recorder(one_worker=True)
    running = world.operate(kind, recorder)
    running.wait_for_sync()
    expected: list[tuple[str, str, int]] = []
    for number in range(40):
        name = f"o-{number % 5}"
        made = world.create(kind, name) if number < 5 else world.resize(kind, name, number)
        expected.append(("add" if number < 5 else "update", name, int(made.resource_version)))
    for number in range(5):
        world.delete(kind, f"o-{number}")
    assert recorder.wait(lambda r: len(r.succeeded("delete")) == 5)
    own = [call for call in recorder.calls if call.name != "kube-root-ca.crt"]
    assert [(call.action, call.name, call.version) for call in own[:40]] == expected
    assert [(call.action, call.name) for call in own[40:]] == [
        ("delete", f"o-{number}") for number in range(5)
    ]
    assert not recorder.wrong


def test_with_many_workers_objects_run_side_by_side_and_each_in_order(world: World) -> None:
    meeting = threading.Barrier(3, timeout=TIMEOUT)

    def meet(action: str, obj: Object) -> None:
        if action == "add":
            meeting.wait()  # only passed when three calls are under way at once

    recorder = Recorder(meet)
    world.operate(WIDGET, recorder, workers=4).wait_for_sync()
    for number in range(3):
        world.create(WIDGET, f"o-{number}")
    versions = {f"o-{number}": [] for number in range(3)}
    for size in range(2, 12):
        for name, own in versions.items():
            own.append(int(world.resize(WIDGET, name, size).resource_version))
    assert recorder.wait(lambda r: len(r.succeeded("update")) == 30)
    for name, own in versions.items():
        updates = [c.version for c in recorder.calls if c.name == name and c.action == "update"]
        assert updates == own
    assert not recorder.wrong


def test_watchers_run_one_after_another_in_add_order(world: World) -> None:
    order: list[str] = []
    last = Recorder()

    def note(text: str) -> SimpleWatcher:
        return SimpleWatcher(
            add=lambda obj: (
                order.append(f"{text} begins")
                or threading.Event().wait(0.01)
                or order.append(f"{text} ends")
            )
        )

    world.operate(WIDGET, note("first"), note("second"), last, workers=4)
    world.create(WIDGET, "one")
    assert last.wait(lambda r: r.calls)
    assert order == ["first begins", "first ends", "second begins", "second ends"]


def test_a_failing_watcher_is_retried_when_due_and_holds_nobody_up(world: World) -> None:
    delays = (0.2, 0.4, 0.8)
    failures = {"left": 3}

    def fail(action: str, obj: Object) -> None:
        if failures["left"]:
            failures["left"] -= 1
            raise RuntimeError("not yet")

    failing, after = Recorder(fail, one_worker=True), Recorder(one_worker=True)
    running = world.operate(
        WIDGET, failing, after, retry_policy=ExponentialBackoff(initial=delays[0])
    )
    running.wait_for_sync()
    world.create(WIDGET, "one")
    assert after.wait(lambda r: r.succeeded("add"))
    assert failing.wait(lambda r: r.succeeded("add"))
    assert failing.actions("one") == ["add!", "add!", "add!", "add"]
    assert after.actions("one") == ["add"]
    times = [call.started for call in failing.calls if call.name == "one"]
    for delay, before, now in zip(delays, times, times[1:], strict=False):
        # On an idle machine it is within 50 ms; a busy one is given more.
        assert delay <= now - before < delay + 5.0
    assert not failing.wrong


def test_an_event_and_a_retry_of_one_object_never_meet(world: World) -> None:
    tries = {"count": 0}

    def fail(action: str, obj: Object) -> None:
        tries["count"] += 1
        threading.Event().wait(0.005)
        if tries["count"] % 3:
            raise RuntimeError("sometimes")

    recorder = Recorder(fail)
    world.operate(WIDGET, recorder, workers=4).wait_for_sync()
    world.create(WIDGET, "one")
    for size in range(2, 42):
        last = world.resize(WIDGET, "one", size)
    assert recorder.wait(lambda r: r.knows(last))
    assert not recorder.wrong


def test_async_callbacks_keep_the_order(world: World) -> None:
    order: list[str] = []
    running: list[str] = []
    done = threading.Event()
    overlaps: list[str] = []

    class Watcher:
        async def add(self, obj: Object) -> None:
            await self._step(f"add {obj.name}")

        async def update(self, old: Object, new: Object) -> None:
            await self._step(f"update {new.spec['size']}")

        async def delete(self, obj: Object) -> None:
            await self._step("delete")
            done.set()

        async def _step(self, what: str) -> None:
            overlaps.extend(running)
            running.append(what)
            await asyncio.sleep(0.002)
            running.remove(what)
            order.append(what)

    world.operate(WIDGET, Watcher(), workers=3).wait_for_sync()
    world.create(WIDGET, "one")
    for size in range(2, 8):
        world.resize(WIDGET, "one", size)
    world.delete(WIDGET, "one")
    assert done.wait(TIMEOUT)
    assert order == ["add one", *(f"update {size}" for size in range(2, 8)), "delete"]
    assert not overlaps


def test_a_watcher_added_late_is_told_of_what_is_there_once(world: World) -> None:
    first, late = Recorder(), Recorder()
    for number in range(10):
        world.create(WIDGET, f"o-{number}")
    running = world.operate(WIDGET, first)
    running.wait_for_sync()
    running.controller.add_watcher(late, WIDGET)
    resized = world.resize(WIDGET, "o-3", 7)
    assert late.wait(lambda r: len(set(r.succeeded("add"))) == 10)
    assert first.wait(lambda r: r.succeeded("update"))
    assert running.controller.wait_idle(TIMEOUT)
    assert sorted(late.succeeded("add")) == [f"o-{number}" for number in range(10)]
    assert late.knows(resized)
    assert not late.wrong


def test_an_operator_stops_promptly_and_ends_the_call_under_way(world: World) -> None:
    inside, let_go = threading.Event(), threading.Event()

    def block(action: str, obj: Object) -> None:
        inside.set()
        let_go.wait(TIMEOUT)

    recorder = Recorder(block)
    running = world.operate(WIDGET, recorder)
    world.create(WIDGET, "one")
    assert inside.wait(TIMEOUT)
    running.stop.set()
    let_go.set()
    started = CLOCK.monotonic()
    running.end()
    assert CLOCK.monotonic() - started < 5
    assert recorder.succeeded("add") == ["one"]
