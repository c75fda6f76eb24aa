"""Async reconciles in a row on the event loop: what a worker that wakes for each would do."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.controllers import Result, reconcile_context
from appsdk_operator.controllers._engine import chain
from appsdk_operator.resource import Kind, ObjectKey
from appsdk_operator.runtime import (
    CallRecord,
    ItemExponential,
    LoopThread,
    RequestRecord,
    WorkQueue,
    awaited_by,
)
from tests.controllers.controller_tools import PATIENCE, Gate, Rig, Tap, plain_limiter
from tests.hypothesis_profiles import scaled
from tests.waiting import eventually

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
_left_behind: contextvars.ContextVar[str] = contextvars.ContextVar("left_behind", default="")


class Observer:
    """One that looks at the begin and the end of calls; the latter it tells the test."""

    def __init__(self, ended: Callable[[CallRecord], object]) -> None:
        self.ended = ended
        self.began: list[CallRecord] = []

    def call_began(self, call: CallRecord) -> None:
        self.began.append(call)

    def call_ended(self, call: CallRecord) -> None:
        assert call in self.began
        self.ended(call)

    def request_began(self, request: RequestRecord) -> None: ...

    def request_ended(self, request: RequestRecord) -> None: ...


def waits_of(rig: Rig) -> list[str]:
    """A list to which each wait of a worker on the loop is added."""
    waits: list[str] = []
    loop = rig.controller._loop
    run = loop.run

    def counted(coroutine: Any, **how: Any) -> Any:
        waits.append(threading.current_thread().name)
        return run(coroutine, **how)

    loop.run = counted  # type: ignore[assignment, method-assign]
    return waits


def started(rig: Rig, *requests: Any) -> Rig:
    rig.tap.requests = requests
    rig.controller.watch(rig.tap)
    return rig.start()


# What one reconcile may do; the second call for a request does nothing.
_DEEDS = st.sampled_from(
    [
        *["nothing", "step", "steps"],
        *["fail", "exit", "requeue", "wrong", "cancel itself", "add itself", "variable", "task"],
    ]
)


@settings(max_examples=scaled(25), deadline=None)
@given(
    deeds=st.lists(_DEEDS, min_size=1, max_size=30),
    workers=st.integers(1, 3),
    most=st.integers(1, 5),
    is_observed=st.booleans(),
    has_limit=st.booleans(),
)
def test_reconciles_in_a_row_are_as_single_ones(
    deeds: list[str], workers: int, most: int, is_observed: bool, has_limit: bool
) -> None:
    calls: Counter[int] = Counter()
    running: list[int] = []
    ids: set[str] = set()
    wrong: list[str] = []
    ended = Counter[str]()

    async def act(request: int, deed: str) -> Any:
        if deed == "step":
            await asyncio.sleep(0)
        elif deed == "steps":
            for _ in range(5):
                await asyncio.sleep(0)
        elif deed == "fail":
            raise ValueError(request)
        elif deed == "exit":
            raise SystemExit(request)
        elif deed == "requeue":
            return Result(requeue_after=0.5)
        elif deed == "wrong":
            return 5
        elif deed == "cancel itself":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
        elif deed == "add itself":
            rig.add(request)
            await asyncio.sleep(0)
        elif deed == "variable":
            _left_behind.set("yes")
        else:
            asyncio.get_running_loop().call_soon(lambda: None)
        return None

    async def reconcile(request: int) -> Any:
        context = reconcile_context()
        if request in running or len(running) >= workers:
            wrong.append(f"{request} while {running} run")
        if context is None or context.request != request or context.stop.is_set():
            wrong.append(f"{request} has {context}")
        else:
            ids.add(context.id)
        if _left_behind.get():
            wrong.append(f"{request} sees a variable of another one")
        running.append(request)
        calls[request] += 1
        try:
            return await act(request, deeds[request] if calls[request] == 1 else "nothing")
        finally:
            running.remove(request)
            if reconcile_context() is not context:
                wrong.append(f"{request} has lost its context")

    rig = Rig(
        reconciler=reconcile,
        max_concurrent_reconciles=workers,
        reconcile_timeout=5.0 if has_limit else 0.0,
    )
    if is_observed:
        rig.controller.observe_activity(Observer(lambda call: ended.update([call.name])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chain, "MOST", most)
        started(rig, *range(len(deeds)))
        failing = {"fail", "exit", "wrong", "cancel itself"}
        failures = sum(deed in failing for deed in deeds)
        requeued = deeds.count("requeue")
        again = deeds.count("add itself")

        def settled(count: int) -> Callable[[], bool]:
            return lambda: sum(v or 0 for v in rig.results().values()) == count

        eventually(settled(len(deeds) + again))
        rig.clock.advance(1.5)
        eventually(settled(len(deeds) + again + failures + requeued))
        assert rig.stop() == []
    assert wrong == []
    expected = {
        "success": len(deeds) + again,
        "error": failures,
        "requeue_after": requeued,
    }
    assert rig.results() == {name: count for name, count in expected.items() if count}
    assert len(ids) == sum(calls.values()) == len(deeds) + again + failures + requeued
    assert all(
        calls[n] == 1 + (deed in failing | {"requeue", "add itself"})
        for n, deed in enumerate(deeds)
    )
    if is_observed:
        assert sum(ended.values()) == sum(calls.values())
    assert rig.controller.running_reconciles() == []


def test_a_worker_waits_once_for_many_reconciles_and_not_for_ever() -> None:
    done: list[int] = []

    async def reconcile(request: int) -> None:
        done.append(request)

    rig = Rig(reconciler=reconcile)
    waits = waits_of(rig)
    started(rig, *range(250))
    eventually(lambda: rig.results() == {"success": 250})
    assert rig.stop() == []
    assert done == list(range(250))
    assert len(waits) == 3
    times = "controller_runtime_reconcile_time_seconds"
    assert rig.metrics.value(f"{times}_count", controller=rig.controller.name) == 250


def test_after_ten_milliseconds_others_have_their_turn() -> None:
    async def reconcile(request: int) -> None:
        rig.clock.advance(0.004)

    rig = Rig(reconciler=reconcile)
    waits = waits_of(rig)
    started(rig, *range(9))
    eventually(lambda: rig.results() == {"success": 9})
    assert rig.stop() == []
    assert len(waits) == 3


@pytest.mark.parametrize("way", ["stop", "hold"])
def test_nothing_more_begins_after_a_stop_or_while_it_is_held(way: str) -> None:
    done: list[int] = []

    async def reconcile(request: int) -> None:
        done.append(request)
        if request == 3:
            rig.stop_signal.set() if way == "stop" else rig.controller.hold()

    rig = Rig(reconciler=reconcile)
    started(rig, *range(10))
    eventually(lambda: sum(v or 0 for v in rig.results().values()) == 4)
    if way == "hold":
        eventually(lambda: rig.controller._run.queue.has_sleepers)  # type: ignore[union-attr]
        assert done == [0, 1, 2, 3]
        rig.controller.let_go()
        eventually(lambda: len(done) == 10)
    assert rig.stop() == []
    assert done == list(range(4 if way == "stop" else 10))


def test_a_stop_cancels_the_reconcile_that_runs_as_a_later_one_in_a_row() -> None:
    waiting, cancelled = threading.Event(), []

    async def reconcile(request: int) -> None:
        if request == 2:
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.append(request)

    rig = Rig(reconciler=reconcile, stop_timeout=100 * PATIENCE)
    waits = waits_of(rig)
    started(rig, *range(5))
    assert waiting.wait(PATIENCE)
    assert len(waits) == 1
    assert rig.stop() == []
    assert cancelled == [2]


def test_only_the_reconcile_that_is_late_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    waiting, done = threading.Event(), []

    async def reconcile(request: int) -> None:
        if request == 2 and not waiting.is_set():
            waiting.set()
            await asyncio.Event().wait()
        done.append(request)

    rig = Rig(reconciler=reconcile, reconcile_timeout=10.0)
    waits = waits_of(rig)
    started(rig, *range(6))
    assert waiting.wait(PATIENCE)
    assert len(waits) == 1
    rig.clock.advance(9.0)
    assert done == [0, 1]
    rig.clock.advance(1.0)
    eventually(lambda: done == [0, 1, 3, 4, 5])
    eventually(lambda: rig.results() == {"success": 5, "error": 1})
    assert rig.value("reconcile_timeouts_total") == 1
    assert "its time limit is 10 s" in caplog.text
    rig.clock.advance(1.0)
    eventually(lambda: done == [0, 1, 3, 4, 5, 2])
    assert rig.stop() == []


def test_a_worker_that_was_replaced_ends_after_the_reconcile_that_hung() -> None:
    gate, done = Gate(), []
    entered, free = gate.entered, threading.Event()

    async def reconcile(request: int) -> None:
        if request == 2:
            entered.set()
            while not free.is_set():
                try:
                    await asyncio.to_thread(free.wait, PATIENCE)
                except asyncio.CancelledError:
                    continue
        done.append(threading.current_thread().name)

    rig = Rig(reconciler=reconcile, reconcile_timeout=10.0)
    waits = waits_of(rig)
    started(rig, *range(3))
    assert entered.wait(PATIENCE)
    rig.clock.advance(10.0)
    rig.clock.advance(1.5)
    name = rig.controller.name

    def workers() -> list[str]:
        return [t.name for t in threading.enumerate() if t.name.startswith(f"{name}/worker/")]

    eventually(lambda: workers() == [f"{name}/worker/0", f"{name}/worker/1"])
    rig.controller.hold()
    for request in range(10, 20):
        rig.add(request)
    rig.controller._run.queue.let_go()  # type: ignore[union-attr]
    free.set()
    eventually(lambda: len(done) == 13)
    eventually(lambda: workers() == [f"{name}/worker/1"])
    assert waits.count(f"{name}/worker/0") == 1
    assert rig.stop() == []


def test_a_worker_that_hangs_ends_no_row_of_the_others() -> None:
    entered, free, done = threading.Event(), threading.Event(), []

    async def reconcile(request: int) -> None:
        while request == 0 and not free.is_set():
            entered.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.to_thread(free.wait, PATIENCE)
        done.append(request)

    rig = Rig(reconciler=reconcile, reconcile_timeout=10.0)
    waits = waits_of(rig)
    started(rig, 0)
    assert entered.wait(PATIENCE)
    rig.clock.advance(10.0)
    rig.clock.advance(1.5)
    name = rig.controller.name
    eventually(lambda: any(t.name == f"{name}/worker/1" for t in threading.enumerate()))
    rig.controller.hold()
    for request in range(1, 101):
        rig.add(request)
    rig.controller.let_go()
    eventually(lambda: len(done) == 100)
    free.set()
    eventually(lambda: len(done) == 101)
    assert rig.stop() == []
    assert waits == [f"{name}/worker/0", f"{name}/worker/1"]


def test_code_that_may_block_does_not_run_on_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    threads: list[str] = []

    class Limiter:
        def __init__(self) -> None:
            self.inner = plain_limiter()

        def when(self, item: Any) -> float:
            return self.inner.when(item)

        def forget(self, item: Any) -> None:
            threads.append(threading.current_thread().name)

        def failures(self, item: Any) -> int:
            return 0

    async def nothing(request: int) -> None:
        """Nothing."""

    def makes(request: int) -> Any:
        threads.append(threading.current_thread().name)
        return nothing(request)

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            threads.append(threading.current_thread().name)

    logger, handler = logging.getLogger("appsdk_operator.controllers"), Handler()
    for reconciler, limiter, is_observed, level in [
        (nothing, Limiter, False, logging.INFO),
        (makes, ItemExponential, False, logging.INFO),
        (nothing, ItemExponential, True, logging.INFO),
        (nothing, ItemExponential, False, logging.DEBUG),
    ]:
        rig = Rig(reconciler=reconciler, rate_limiter=limiter)
        if is_observed:
            rig.controller.observe_activity(
                Observer(lambda _: threads.append(threading.current_thread().name))
            )
        logger.addHandler(handler)
        with caplog.at_level(level, logger=logger.name):
            started(rig, *range(5))
            eventually(lambda rig=rig: rig.results() == {"success": 5})
            assert rig.stop() == []
        logger.removeHandler(handler)
        assert len(threads) >= 5
        assert set(threads) <= {f"{rig.controller.name}/worker/0"}
        threads.clear()


def test_one_that_fails_ends_no_row_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    failing, done = [True], []

    async def reconcile(request: int) -> None:
        if request == 0 and failing:
            raise ValueError(request)
        done.append(request)

    rig = Rig(reconciler=reconcile)
    waits = waits_of(rig)
    started(rig, *range(101))
    eventually(lambda: rig.results() == {"success": 100, "error": 1})
    assert len(waits) == 2
    failing.clear()
    with caplog.at_level(logging.INFO, "appsdk_operator.controllers"):
        rig.clock.advance(1.0)
        eventually(lambda: rig.results() == {"success": 101, "error": 1})
        assert rig.stop() == []
    assert done == [*range(1, 101), 0]
    assert "works again for 0, after 1 failure" in caplog.text


def test_of_one_that_has_failed_the_state_is_not_looked_up_on_the_loop() -> None:
    threads: list[str] = []
    keys = [ObjectKey(name, "default") for name in "ab"]

    async def reconcile(request: ObjectKey) -> None:
        if request == keys[0]:
            raise ValueError(request)

    class Store(Tap):
        kind = WIDGET

        def find(self, name: str, namespace: str) -> None:
            threads.append(threading.current_thread().name)

    rig = Rig(reconciler=reconcile, kind=WIDGET)
    rig.tap = Store()
    started(rig, keys[0])
    eventually(lambda: rig.results() == {"error": 1})
    rig.controller.hold()
    for key in reversed(keys):
        rig.add(key)
    threads.clear()
    rig.controller.let_go()
    eventually(lambda: rig.results() == {"success": 1, "error": 2})
    assert rig.stop() == []
    assert set(threads) == {f"{rig.controller.name}/worker/0"}


# The pieces.


def test_a_late_cancellation_of_one_coroutine_spares_the_one_that_follows() -> None:
    loop, me = LoopThread("demo"), threading.get_ident()
    seen: list[Any] = []

    async def first() -> str:
        seen.append(awaited_by(me))
        return "first"

    async def second() -> str:
        seen.append(awaited_by(me))
        seen[0].cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return "second"

    def following(outcome: Any) -> Any:
        seen.append(awaited_by(me))
        return (contextvars.copy_context(), second()) if outcome == "first" else None

    try:
        assert loop.run(first(), following=following) == "second"
    finally:
        loop.close()
    one, between, other, after = seen
    assert between is after is None, "who sees the next call by now would cancel the one before"
    assert one is not other
    assert awaited_by(me) is None


def test_the_one_that_follows_is_cancelled_by_its_own_link_and_nothing_follows_then() -> None:
    loop, me = LoopThread("demo"), threading.get_ident()
    asked: list[Any] = []

    async def first() -> None:
        """Nothing."""

    async def stubborn() -> str:
        found = awaited_by(me)
        assert found is not None
        found.cancel()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "ignored"
        return "never"

    def following(outcome: Any) -> Any:
        asked.append(outcome)
        return contextvars.copy_context(), stubborn()

    try:
        assert loop.run(first(), following=following) == "ignored"
    finally:
        loop.close()
    assert asked == [None]


def test_an_error_between_two_coroutines_reaches_who_waits() -> None:
    loop = LoopThread("demo")

    async def first() -> None:
        """Nothing."""

    def following(_: Any) -> Any:
        raise LookupError("between")

    try:
        with pytest.raises(LookupError, match="between"):
            loop.run(first(), following=following)
    finally:
        loop.close()


def test_nothing_follows_on_a_loop_that_is_being_closed() -> None:
    loop, asked = LoopThread("demo"), []
    closer = threading.Thread(target=loop.close)

    async def first() -> str:
        closer.start()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "closed"
        return "never"

    def following(outcome: Any) -> None:
        asked.append(outcome)

    assert loop.run(first(), following=following) == "closed"
    closer.join()
    assert asked == []


def test_an_exchange_gives_the_next_key_or_changes_nothing() -> None:
    queue: WorkQueue[str] = WorkQueue("demo")
    queue.add("a")
    assert queue.try_get() is not None
    assert queue.exchange("a") is None
    queue.add("x")
    assert queue.exchange("a", unless={"x"}) is None
    item = queue.exchange("a", unless={"a"})
    assert item is not None
    assert item.key == "x"
    queue.add("a")
    assert queue.exchange("x") is not None
    queue.add("a")  # while it is processed: its holder gets it with done_and_get()
    assert queue.exchange("a") is None
    queue.add("b", priority=-1)
    item = queue.exchange("a")
    assert item is not None
    assert item.key == "a", "it came first"
    item = queue.exchange("a")
    assert item is not None
    assert item.key == "b"
    queue.add("c")
    queue.hold()
    assert queue.exchange("b") is None
    queue.let_go()
    queue.shut_down(drain=True)
    assert queue.exchange("b") is None
    last = queue.done_and_get("b")
    assert last is not None
    queue.done("c")
    assert queue.get() is None
