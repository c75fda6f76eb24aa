"""The scheduler of the threads of a World, where one blocks in something that it does not know."""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock
from typing import Any

import pytest

from appsdk_operator.runtime import ManualClock
from appsdk_operator.testing._world import scheduler
from appsdk_operator.testing._world.scheduler import StuckError, ThreadScheduler


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_LOOK", 0.01)
    monkeypatch.setattr(scheduler, "_MOST_COMPUTING", 0.05)
    monkeypatch.setattr(scheduler, "_MOST_IDLE", 0.05)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("comes_back", ["before the block ends", "as it ends", "after it"])
def test_a_thread_that_blocks_in_something_else_ends_with_its_next_wait(
    comes_back: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked, goes_on = allocate_lock(), []
    blocked.acquire()

    def block() -> None:
        with blocked:
            pass
        if comes_back != "after it":
            threading.Event().wait()
            goes_on.append("it waits, and the block is over")

    with ThreadScheduler(ManualClock()) as threads:
        other = threading.Thread(target=threading.Event().wait)
        thread = threading.Thread(target=block)
        other.start()
        thread.start()
        with pytest.raises(StuckError, match=r"it has blocked for 0\.05 s in a call that is not"):
            threads.run_ready()
        if comes_back == "before the block ends":
            blocked.release()
            assert threads._driver.gate.acquire(timeout=10.0)
            threads._driver.gate.release()
        elif comes_back == "as it ends":
            blocked.release()
            monkeypatch.setattr(scheduler, "_LOOK", 10.0)
    if comes_back == "after it":
        blocked.release()
    thread.join()
    other.join()
    assert not goes_on


@pytest.mark.usefixtures("short_patience")
def test_a_thread_that_computes_for_ever_is_told_with_its_place() -> None:
    is_over = False

    def compute() -> None:
        while not is_over:
            pass

    with ThreadScheduler(ManualClock()) as threads:
        thread = threading.Thread(target=compute, name="eager")
        thread.start()
        with pytest.raises(StuckError) as caught:
            threads.run_ready()
        is_over = True
    thread.join()
    assert "the thread eager has not come to a wait: it has computed for 0.05 s" in str(
        caught.value
    )
    assert "in compute" in str(caught.value)


@pytest.mark.usefixtures("short_patience")
def test_a_thread_that_waits_for_a_busy_processor_is_no_stuck_one() -> None:
    """It uses little, at long intervals: 2 ms of each 10 here, for many times the limits."""
    blocked, looks, ran = allocate_lock(), [], []
    blocked.acquire()

    def wait_for_a_processor() -> None:
        threads._running.processor_time = look
        with blocked:
            ran.append(1)

    def look() -> float:
        looks.append(1)
        if len(looks) == 20:
            blocked.release()
        return 0.002 * min(len(looks), 20)

    with ThreadScheduler(ManualClock()) as threads:
        threading.Thread(target=wait_for_a_processor).start()
        threads.run_ready()
    assert ran == [1]


def test_patience_goes_by_what_each_thread_has_used() -> None:
    fiber, other = (scheduler.Fiber(None, name, None) for name in "ab")  # type: ignore[arg-type]
    starved = scheduler.Patience()
    # A hundredth of a processor for half an hour.
    assert {starved.end(fiber, 0.011 * second) for second in range(1800)} == {""}
    blocked = scheduler.Patience()
    ends = [blocked.end(fiber, 7.0) for _ in range(60)]
    assert set(ends[:-1]) == {""}
    assert ends[-1] == "it has blocked for 60 s in a call that is not simulated"
    # Two threads that wake each other for ever.
    busy = scheduler.Patience()
    ends = [busy.end((fiber, other)[look % 2], 100.0 + look // 2) for look in range(41)]
    assert set(ends[:-1]) == {""}
    assert ends[-1] == "it has computed for 20 s"


LINUX = pytest.mark.skipif(
    not hasattr(os, "sched_setscheduler"), reason="other systems choose processors themselves"
)


def placement() -> tuple[set[int], int]:
    """The processors of this thread, and how it comes to run on them."""
    return os.sched_getaffinity(0), os.sched_getscheduler(0)


@LINUX
def test_its_threads_share_a_processor_and_those_after_the_block_have_all_of_them() -> None:
    before = placement()
    used: list[tuple[set[int], int]] = []
    with ThreadScheduler(ManualClock()) as threads:
        threading.Thread(target=lambda: used.append(placement())).start()
        threads.run_ready()
        used.append(placement())
    assert used[0] == used[1]
    processors, policy = used[0]
    assert len(processors) == 1
    assert processors <= before[0]
    assert policy == (os.SCHED_BATCH if before[1] == os.SCHED_OTHER else before[1])
    assert placement() == before


@LINUX
@pytest.mark.parametrize("call", ["sched_setaffinity", "sched_setscheduler"])
@pytest.mark.parametrize("allowed", [0, 1])
def test_a_system_that_refuses_to_place_threads_keeps_none_from_running(
    monkeypatch: pytest.MonkeyPatch, call: str, allowed: int
) -> None:
    before, ran = placement(), []
    real, calls = getattr(os, call), []

    def refuse(*arguments: object) -> None:
        calls.append(arguments)
        if len(calls) > allowed:
            raise PermissionError(1, "not permitted")
        real(*arguments)

    with monkeypatch.context() as patches:
        patches.setattr(os, call, refuse)
        with ThreadScheduler(ManualClock()) as threads:
            threading.Thread(target=lambda: ran.append(1)).start()
            threads.run_ready()
    assert ran == [1]
    assert len(calls) == allowed + 1
    # The other one of both is as before, even if this one was refused at the end.
    mine: dict[str, list[Any]] = {
        "sched_setaffinity": [before[0]],
        "sched_setscheduler": [before[1], os.sched_param(0)],
    }
    real(0, *mine[call])
    assert placement() == before


def test_a_system_without_processors_to_choose_keeps_no_thread_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    ran = []
    with ThreadScheduler(ManualClock()) as threads:
        threading.Thread(target=lambda: ran.append(1)).start()
        threads.run_ready()
    assert ran == [1]
