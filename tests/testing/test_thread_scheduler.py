"""The scheduler of the threads of a World, where one blocks in something that it does not know."""

from __future__ import annotations

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
