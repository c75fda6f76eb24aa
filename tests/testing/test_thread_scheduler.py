"""The scheduler of the threads of a World, where one blocks in something that it does not know."""

from __future__ import annotations

import os
import threading
from _thread import allocate_lock

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


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux says")
def test_its_threads_share_a_processor_and_those_after_the_block_have_all_of_them() -> None:
    before = os.sched_getaffinity(0)
    used: list[set[int]] = []
    with ThreadScheduler(ManualClock()) as threads:
        thread = threading.Thread(target=lambda: used.append(os.sched_getaffinity(0)))
        thread.start()
        threads.run_ready()
        used.append(os.sched_getaffinity(0))
    assert used[0] == used[1] <= before
    assert len(used[0]) == 1
    assert os.sched_getaffinity(0) == before


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux has it")
@pytest.mark.parametrize("refused", ["at the start", "at the end"])
def test_a_system_that_keeps_processors_to_itself_keeps_no_thread_from_running(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    before, ran = os.sched_getaffinity(0), []

    def refuse(_pid: int, _processors: set[int]) -> None:
        raise PermissionError(1, "not permitted")

    with monkeypatch.context() as patches:
        if refused == "at the start":
            patches.setattr(os, "sched_setaffinity", refuse)
        with ThreadScheduler(ManualClock()) as threads:
            threading.Thread(target=lambda: ran.append(1)).start()
            threads.run_ready()
            patches.setattr(os, "sched_setaffinity", refuse)
    os.sched_setaffinity(0, before)
    assert ran == [1]


def test_a_system_without_processors_to_choose_keeps_no_thread_from_running(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    ran = []
    with ThreadScheduler(ManualClock()) as threads:
        threading.Thread(target=lambda: ran.append(1)).start()
        threads.run_ready()
    assert ran == [1]
