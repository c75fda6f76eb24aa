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
    monkeypatch.setattr(scheduler, "_PATIENCE", 0.05)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.parametrize("comes_back", ["before the block ends", "as it ends", "after it"])
def test_a_thread_that_blocks_in_something_else_ends_with_its_next_wait(comes_back: str) -> None:
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
        with pytest.raises(StuckError, match="has not come to a wait"):
            threads.run_ready()
        if comes_back == "before the block ends":
            blocked.release()
            assert threads._driver.gate.acquire(timeout=10.0)
            threads._driver.gate.release()
        elif comes_back == "as it ends":
            blocked.release()
    if comes_back == "after it":
        blocked.release()
    thread.join()
    other.join()
    assert not goes_on


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
