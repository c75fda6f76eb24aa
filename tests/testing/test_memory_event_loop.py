"""The event loop of the server in memory, which asyncio's tasks, futures and timeouts run on."""

from __future__ import annotations

import asyncio
import contextvars
from typing import Any

import pytest

from appsdk_operator.runtime import ManualClock
from appsdk_operator.testing._memory.event_loop import ManualEventLoop


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def loop(clock: ManualClock) -> ManualEventLoop:
    return ManualEventLoop(clock)


def test_callbacks_run_in_order_and_timers_when_they_are_due(
    loop: ManualEventLoop, clock: ManualClock
) -> None:
    ran: list[Any] = []
    later = loop.call_later(5.0, ran.append, "later")
    loop.call_soon(ran.append, "first")
    loop.call_soon(ran.append, "second")
    assert later.when() == loop.next_deadline == clock.monotonic() + 5.0
    loop.run_due()
    assert ran == ["first", "second"]
    clock.advance(5.0)
    loop.run_due()
    assert ran == ["first", "second", "later"]


def test_what_is_cancelled_is_not_called_even_by_what_is_due_with_it(
    loop: ManualEventLoop, clock: ManualClock
) -> None:
    ran: list[str] = []

    def cancel_second() -> None:
        second.cancel()

    soon = loop.call_soon(ran.append, "soon")
    first = loop.call_later(1.0, cancel_second)
    second = loop.call_later(1.0, ran.append, "timer")
    early = loop.call_later(0.5, ran.append, "early")
    soon.cancel()
    early.cancel()
    assert soon.cancelled()
    assert not first.cancelled()
    assert loop.next_deadline == clock.monotonic() + 1.0
    clock.advance(1.0)
    loop.run_due()
    assert second.cancelled()
    assert ran == []


def test_an_error_of_a_callback_is_that_of_who_runs_the_loop(loop: ManualEventLoop) -> None:
    loop.call_soon(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        loop.run_due()


def test_each_callback_runs_in_the_context_in_which_it_was_scheduled(
    loop: ManualEventLoop,
) -> None:
    value = contextvars.ContextVar("value", default="outside")
    seen: list[str] = []
    value.set("scheduled")
    loop.call_soon(lambda: seen.append(value.get()))
    given = contextvars.Context()
    given.run(value.set, "given")
    loop.call_soon(lambda: seen.append(value.get()), context=given)
    value.set("running")
    loop.run_due()
    assert seen == ["scheduled", "given"]


def test_a_timeout_ends_a_task_and_close_those_that_are_left(
    loop: ManualEventLoop, clock: ManualClock
) -> None:
    ended: list[str] = []

    async def wait(name: str, seconds: float | None) -> None:
        try:
            async with asyncio.timeout(seconds):
                await loop.create_future()
        except TimeoutError:
            ended.append(f"{name} in time")
        except asyncio.CancelledError:
            ended.append(f"{name} at the end")
            raise

    tasks = [loop.create_task(wait("a", 3.0)), loop.create_task(wait("b", None))]
    loop.run_due()
    clock.advance(3.0)
    loop.run_due()
    assert ended == ["a in time"]
    loop.close()
    assert ended == ["a in time", "b at the end"]
    assert tasks[0].done()
    assert tasks[1].cancelled()
