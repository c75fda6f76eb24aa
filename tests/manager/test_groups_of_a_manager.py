"""All groups of a manager: what is in two of them, and what is added by many."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from appsdk_operator.manager import RunnableGroup
from appsdk_operator.manager._core.groups import Groups
from appsdk_operator.runtime import StopSignal
from tests.manager.group_parts import TIMEOUT, Scripted


class TestGroups:
    """All groups together."""

    def test_a_snapshot_names_groups_runnables_and_what_they_tell(self) -> None:
        groups = Groups(on_failure=lambda *_: None)
        runnable = Scripted("one")
        runnable.needs_leader_election = False  # type: ignore[attr-defined]
        runnable.debug_snapshot = lambda: {"depth": 3}  # type: ignore[attr-defined]
        groups.add(runnable)
        groups.add(Scripted("two"))
        assert groups[RunnableGroup.OTHERS].start(StopSignal())
        snapshot = groups.snapshot()
        groups.close()
        for name in RunnableGroup:
            groups[name].stop()
            assert not groups[name].wait_ended()
        assert list(snapshot) == [str(name) for name in RunnableGroup]
        assert snapshot["others"] == {
            "state": "started",
            "runnables": [
                {"name": "one", "state": "running", "ready": True, "details": {"depth": 3}}
            ],
        }
        assert snapshot["leader-election"]["runnables"] == [
            {"name": "two", "state": "queued", "ready": False}
        ]

    def test_what_warms_up_and_was_added_twice_warms_up_once(self) -> None:
        groups = Groups(on_failure=lambda *_: None)
        runnable = Scripted()
        warmed: list[int] = []
        runnable.warm_up = lambda _: warmed.append(1)  # type: ignore[attr-defined]
        groups.add(runnable)
        group = groups[RunnableGroup.WARM_UP]
        assert group.start(StopSignal())
        with group._changed:
            # The warm-up is over, and forgotten.
            assert group._changed.wait_for(lambda: not group._members, TIMEOUT)
        with pytest.raises(ValueError, match="added already"):
            groups.add(runnable)
        group.stop()
        assert not group.wait_ended()
        assert warmed == [1]

    def test_what_has_ended_is_refused_as_well_and_yet_not_kept_alive(self) -> None:
        groups = Groups(on_failure=lambda *_: None)
        leaders = groups[RunnableGroup.LEADER_ELECTION]
        assert leaders.start(StopSignal())
        runnable = Scripted()
        runnable.run = lambda stop: None  # type: ignore[method-assign]
        groups.add(runnable)
        with leaders._changed:
            assert leaders._changed.wait_for(lambda: not leaders._members, TIMEOUT)
        with pytest.raises(ValueError, match="added already: a runnable runs once"):
            groups.add(runnable)
        leaders.stop()
        assert not leaders.wait_ended()
        gone = weakref.ref(runnable)
        del runnable
        gc.collect()
        assert gone() is None

    def test_what_still_warms_up_is_not_run_again(self) -> None:
        failures: list[Any] = []
        groups = Groups(on_failure=lambda *failure: failures.append(failure))
        runnable = Scripted()
        runnable.warm_up = lambda stop: stop.wait()  # type: ignore[attr-defined]
        runnable.run = lambda stop: runnable.is_running.set()  # type: ignore[method-assign]
        halt = StopSignal()
        leaders = groups[RunnableGroup.LEADER_ELECTION]
        warming = groups[RunnableGroup.WARM_UP]
        assert leaders.start(halt)
        assert warming.start(halt)
        groups.add(runnable)
        with leaders._changed:
            assert leaders._changed.wait_for(lambda: not leaders._members, TIMEOUT)
        runnable.is_running.clear()
        with pytest.raises(ValueError, match="added already"):
            groups.add(runnable)
        assert not leaders.running
        assert not runnable.is_running.is_set()
        for group in (leaders, warming):
            group.stop()
            assert not group.wait_ended()

    def test_a_runnable_that_is_added_from_many_threads_at_once_is_run_once(self) -> None:
        groups = Groups(on_failure=lambda *_: None)
        group = groups[RunnableGroup.LEADER_ELECTION]
        runnables = [Scripted(f"r{n}") for n in range(40)]
        barrier = threading.Barrier(9)

        def add(mine: list[Scripted]) -> None:
            barrier.wait(TIMEOUT)
            for runnable in mine:
                groups.add(runnable)

        threads = [threading.Thread(target=add, args=(runnables[n::8],)) for n in range(8)]
        for thread in threads:
            thread.start()
        barrier.wait(TIMEOUT)
        assert group.start(StopSignal())
        for thread in threads:
            thread.join(TIMEOUT)
        for runnable in runnables:
            assert runnable.is_running.wait(TIMEOUT)
        group.stop()
        assert not group.wait_ended()
        assert [runnable.runs for runnable in runnables] == [1] * 40
