"""Warnings of callbacks that hold an event loop or the workers of a controller."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator

import pytest

from appsdk_operator.runtime import (
    CallMonitor,
    LimitedCall,
    LoopThread,
    ManualClock,
    RunningCall,
    StopSignal,
    callback_place,
    get_logger,
    system_clock,
)
from appsdk_operator.runtime._threading import limited_calls
from appsdk_operator.runtime._threading import threads as threads_module
from tests.waiting import eventually

PATIENCE = 10.0


def test_a_scrape_that_began_before_a_look_forgets_no_call_that_the_look_has_found() -> None:
    clock = ManualClock()
    first, second = (
        LimitedCall(started, 5.0, parent=StopSignal(), clock=clock) for started in (0.0, 1.0)
    )
    snapshots = [
        [RunningCall(1, 0.0, lambda: "widgets a", first)],
        [RunningCall(1, 1.0, lambda: "widgets b", second)],
    ]

    def calls() -> list[RunningCall]:
        found = snapshots[0]
        if len(snapshots) > 1:  # the worker begins its next call, and a look comes in between
            del snapshots[0]
            monitor.look(clock.monotonic())
        return found

    monitor = CallMonitor("shop", calls, clock=clock)
    clock.advance(6.0)
    assert monitor.over_limit() == []
    (text,) = monitor.over_limit()
    assert "for widgets b" in text


class NotedClock:
    """The machine's clock, which shows that somebody waits."""

    def __init__(self) -> None:
        self.waited = threading.Event()

    def monotonic(self) -> float:
        return system_clock.monotonic()

    def time(self) -> float:
        return system_clock.time()

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        self.waited.set()
        system_clock.wait(condition, timeout)


def test_a_limit_that_is_named_while_the_monitor_waits_is_looked_at_in_time() -> None:
    clock, stop, calls = NotedClock(), StopSignal(), list[RunningCall]()
    monitor = CallMonitor("shop", lambda: calls, clock=clock)
    thread = threading.Thread(target=monitor.watch, args=(stop,))
    thread.start()
    try:
        assert clock.waited.wait(PATIENCE)  # for half a minute, as there is no limit
        call = LimitedCall(clock.monotonic(), 0.05, parent=StopSignal(), clock=clock)
        calls.append(RunningCall(threading.get_ident(), call.started, lambda: "widgets a", call))
        monitor.name_limit(0.05)
        assert call.stop.wait(PATIENCE)
    finally:
        stop.set()
        thread.join(PATIENCE)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    monkeypatch.setattr(threads_module, "_HELD_FOR", 0.02)
    monkeypatch.setattr(threads_module, "_LOOK_EVERY", 0.02)
    made = LoopThread("shop")
    yield made
    assert made.close(PATIENCE) == []


class Releasing(logging.Handler):
    """Lets callbacks go that wait, once something is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.go.set()

    async def hold(self) -> str:
        """Block the loop, as blocking code in a coroutine does."""
        assert self.go.wait(PATIENCE)
        return "held"

    def is_held(self) -> bool:
        """Whether a coroutine has come to its blocking line."""
        return bool(self.go._cond._waiters)  # type: ignore[attr-defined]


@pytest.fixture
def releasing() -> Iterator[Releasing]:
    made = Releasing()
    logger = logging.getLogger("appsdk_operator.runtime")
    logger.addHandler(made)
    yield made
    logger.removeHandler(made)


def test_an_async_callback_that_holds_the_loop_is_named_with_its_line(
    loop: LoopThread,
    releasing: Releasing,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    look = loop._look_at

    def look_at_line(running: asyncio.AbstractEventLoop) -> None:
        # Not while it begins or ends, which on a busy machine takes as long as it is held for.
        if releasing.is_held():
            look(running)

    monkeypatch.setattr(loop, "_look_at", look_at_line)
    assert loop.run(releasing.hold()) == "held"
    (record,) = caplog.records
    assert record.message.startswith("Releasing.hold (test_held.py:")
    assert "has blocked the event loop of shop for more than a second" in record.message
    assert "asyncio.to_thread" in record.message
    releasing.go.clear()
    letting_go = threading.Timer(0.2, releasing.go.set)
    letting_go.start()
    assert loop.run(releasing.hold()) == "held"
    letting_go.join()
    assert len(caplog.records) == 1, "once for a place"


def test_a_coroutine_that_awaits_for_long_holds_nobody_up(
    loop: LoopThread, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    look = loop._look_at

    def counted(running: asyncio.AbstractEventLoop) -> None:
        # A busy machine may let a loop that nobody holds wait.
        monkeypatch.setattr(threads_module, "_HELD_FOR", PATIENCE)
        look(running)
        looks.append(running)

    monkeypatch.setattr(loop, "_look_at", counted)

    async def waits() -> str:
        while len(looks) < 3:  # noqa: ASYNC110 - it must give way to the looks
            await asyncio.sleep(0)
        return "done"

    assert loop.run(waits()) == "done"
    assert not caplog.records


def test_a_time_out_of_the_coroutine_itself_is_raised(loop: LoopThread) -> None:
    async def late() -> None:
        raise TimeoutError("the storage is late")

    with pytest.raises(TimeoutError, match="the storage is late"):
        loop.run(late())


def held_by(log_name: str, workers: int, calls: list[RunningCall]) -> CallMonitor:
    monitor = CallMonitor("shop/buckets", lambda: calls, clock=ManualClock())
    monitor.equip(
        workers=workers,
        log=get_logger(log_name),
        remedy="workers=",
        replace=lambda thread: False,
    )
    return monitor


def test_a_callback_that_holds_the_only_worker_for_half_a_minute_is_named_once(
    releasing: Releasing, caplog: pytest.LogCaptureFixture
) -> None:
    thread = threading.Thread(target=lambda: asyncio.run(releasing.hold()))
    thread.start()
    assert thread.ident is not None
    eventually(releasing.is_held)
    calls = [RunningCall(thread.ident, 100.0, lambda: "Bucket default/a")]
    held = held_by("appsdk_operator.test", 1, calls)
    held.look(129.0)
    assert not caplog.records
    held.look(130.0)
    held.look(1000.0)
    releasing.go.set()
    thread.join()
    (record,) = caplog.records
    assert record.message.startswith("Releasing.hold (test_held.py:")
    assert "has held the only worker of controller shop/buckets for 30 s" in record.message
    assert (
        "for 30 s. It was called for Bucket default/a. The kit handles nothing else"
        in record.message
    )
    assert record.message.endswith("or give the controller more workers with workers=")


class Latch:
    """Where a coroutine waits until the test lets it go on."""

    def __init__(self) -> None:
        self.is_entered = threading.Event()
        self.event = asyncio.Event()

    async def wait_for_storage(self) -> None:
        self.is_entered.set()
        await asyncio.wait_for(self.event.wait(), None)

    async def back_up(self) -> None:
        await self.wait_for_storage()


def test_an_async_callback_is_named_with_the_line_at_which_it_awaits(
    caplog: pytest.LogCaptureFixture,
) -> None:
    loop, latch = LoopThread("shop"), Latch()
    thread = threading.Thread(target=lambda: loop.run(latch.back_up()))
    thread.start()
    assert thread.ident is not None
    assert latch.is_entered.wait(PATIENCE)
    calls = [RunningCall(thread.ident, 100.0, lambda: "Bucket default/a")]
    place = callback_place(thread.ident)
    held_by("appsdk_operator.test", 8, calls).look(131.0)
    assert loop._loop is not None
    loop._loop.call_soon_threadsafe(latch.event.set)
    thread.join()
    assert callback_place(thread.ident) == ""
    assert loop.close(PATIENCE) == []
    (record,) = caplog.records
    assert place.startswith("Latch.wait_for_storage (test_held.py:")
    assert record.message.startswith(f"{place} has held one of 8 workers")


def test_while_others_are_free_what_waits_is_the_object(caplog: pytest.LogCaptureFixture) -> None:
    calls = [RunningCall(-1, 0.0, lambda: "Bucket default/a")]
    held = held_by("appsdk_operator.test", 2, calls)
    held.look(29.0)
    assert not caplog.records
    held.look(30.0)
    assert "one of 2 workers" in caplog.text
    assert "The kit handles no other event of that object meanwhile" in caplog.text
    assert "more workers" not in caplog.text
    caplog.clear()
    calls.append(RunningCall(-2, 950.0, lambda: "Bucket default/b"))
    held.look(970.0)
    assert not caplog.records
    held.look(980.0)
    held.look(2000.0)
    assert caplog.text.count("the last of 2 workers") == 1
    assert "The kit handles nothing else meanwhile" in caplog.text


def test_the_next_look_is_when_a_call_has_run_for_half_a_minute() -> None:
    calls: list[RunningCall] = []
    held = held_by("appsdk_operator.test", 8, calls)
    assert held.look(100.0) == 30.0
    calls += [RunningCall(-1, 99.0, lambda: "b"), RunningCall(-2, 80.0, lambda: "a")]
    assert held.look(100.0) == 10.0
    assert held.look(110.0) == 19.0
    assert held.look(129.0) == 30.0
    calls.append(RunningCall(-3, 99.01, lambda: "c"))
    assert held.look(129.0) == 0.1


def test_a_call_ends_under_the_lock_of_signals_although_it_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise one that is made at the same time may not see that the call is over."""
    acquired, lock = list[bool](), threading.Lock()

    class Lock:
        def __enter__(self) -> None:
            lock.acquire()
            acquired.append(call.is_over)

        def __exit__(self, *_: object) -> None:
            acquired.append(call.is_over)
            lock.release()

    monkeypatch.setattr(limited_calls, "_stop_lock", Lock())
    call = LimitedCall(0.0, 5.0, parent=StopSignal(), clock=ManualClock())
    call.end()
    assert acquired == [False, True]
    assert call.stop.is_set()
