"""How long a manager's stop may take, and what comes of failures."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from appsdk_operator.client import RequestStopped
from appsdk_operator.manager import LeadershipLost, RunnableGroup
from appsdk_operator.runtime import ManualClock, RealClock
from tests.manager.lifecycle_parts import (
    ORDER,
    TIMEOUT,
    FakeElector,
    Journal,
    Part,
    Run,
    lifecycles,
)

make = pytest.fixture(lifecycles)


class TestGrace:
    """How long a stop may take."""

    def test_after_the_grace_the_late_ones_are_named(self, make: Callable[..., Run]) -> None:
        clock = ManualClock()
        run = make(clock=clock)
        slow = run.add("slow one", RunnableGroup.OTHERS)
        slow.may_end.clear()
        run.add("quick one", RunnableGroup.OTHERS)
        run.add("worker")
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        run.journal.wait_for("start worker")
        run.stop.set()
        run.journal.wait_for("end quick one")
        clock.block_until_waiting(1)
        clock.advance(29.0)
        assert "told worker" not in run.journal
        clock.advance(1.0)
        [error] = run.join()
        assert isinstance(error, TimeoutError)
        assert str(error) == (
            "failed waiting for all runnables to end within grace period of 30s: "
            "slow one (group others) still running"
        )
        # Everything is told even so.
        run.journal.wait_for("told worker")

    def test_the_deadline_is_one_for_all_groups(self, make: Callable[..., Run]) -> None:
        clock = ManualClock()
        run = make(clock=clock, graceful_shutdown_timeout=10.0)
        other = run.add("other", RunnableGroup.OTHERS)
        worker = run.add("worker")
        other.may_end.clear()
        worker.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        run.journal.wait_for("start worker")
        run.journal.wait_for("start other")
        run.stop.set()
        clock.block_until_waiting(1)
        clock.advance(6.0)
        other.may_end.set()
        run.journal.wait_for("told worker")
        clock.block_until_waiting(1)
        clock.advance(4.0)
        [error] = run.join()
        assert "worker (group leader-election)" in str(error)

    def test_a_failure_and_the_late_ones_are_both_raised(self, make: Callable[..., Run]) -> None:
        clock = ManualClock()
        run = make(clock=clock)
        slow = run.add("slow", RunnableGroup.OTHERS)
        slow.may_end.clear()
        run.start()
        run.journal.wait_for("start slow")
        failure = ValueError("broken")
        run.add("culprit", error=failure, at_start=True)
        run.journal.wait_for("told slow")
        clock.block_until_waiting(1)
        clock.advance(30.0)
        [error] = run.join()
        assert isinstance(error, ExceptionGroup)
        matched: list[Exception] = []
        try:
            raise error
        except* ValueError as group:
            matched += group.exceptions
        except* TimeoutError as group:
            matched += group.exceptions
        assert matched[0] is failure
        assert isinstance(matched[1], TimeoutError)

    def test_with_no_grace_all_are_told_and_nobody_is_waited_for(
        self, make: Callable[..., Run]
    ) -> None:
        run = make(graceful_shutdown_timeout=0)
        parts = [run.add(str(group), group) for group in ORDER]
        for part in parts:
            part.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        for part in parts:
            run.journal.wait_for(f"start {part.name}")
        assert not run.end()
        for part in parts:
            run.journal.wait_for(f"told {part.name}")
            assert f"end {part.name}" not in run.journal

    @pytest.mark.parametrize("grace", [None, -1])
    def test_without_a_limit_a_stop_waits_as_long_as_it_takes(
        self, make: Callable[..., Run], grace: float | None
    ) -> None:
        clock = ManualClock()
        run = make(clock=clock, graceful_shutdown_timeout=grace)
        slow = run.add("slow")
        slow.may_end.clear()
        run.start()
        run.journal.wait_for("start slow")
        run.stop.set()
        run.journal.wait_for("told slow")
        clock.advance(1_000_000.0)
        assert run.thread.is_alive()
        slow.may_end.set()
        assert not run.join()

    def test_a_lease_is_not_given_up_while_what_it_protects_still_runs(
        self, make: Callable[..., Run], caplog: pytest.LogCaptureFixture
    ) -> None:
        clock, journal = ManualClock(), Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, clock=clock, elector=elector)
        worker = run.add("worker")
        worker.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        journal.wait_for("start worker")
        run.stop.set()
        journal.wait_for("told worker")
        clock.block_until_waiting(1)
        clock.advance(30.0)
        [error] = run.join()
        assert isinstance(error, TimeoutError)
        assert "end elector, keeping the lease" in journal
        assert "worker still runs, so the manager does not release the lease" in caplog.text


class TestFailures:
    """What is raised, and what is only told."""

    def test_what_fails_later_is_a_note_of_what_failed_first(
        self, make: Callable[..., Run], caplog: pytest.LogCaptureFixture
    ) -> None:
        run = make()
        run.add("late", RunnableGroup.OTHERS, error=OSError("disk full"))
        run.start()
        run.journal.wait_for("start late")
        first = ValueError("broken")
        run.add("culprit", error=first, at_start=True)
        assert run.join() == [first]
        assert "after that, runnable late failed too: OSError('disk full')" in first.__notes__
        assert "runnable late failed while the manager stops: disk full" in caplog.text

    def test_a_failure_at_a_plain_stop_is_raised(self, make: Callable[..., Run]) -> None:
        run = make()
        failure = OSError("disk full")
        run.add("late", error=failure)
        run.start()
        run.journal.wait_for("start late")
        assert run.end() == [failure]

    def test_requests_that_the_stop_cut_short_are_not_raised(
        self, make: Callable[..., Run]
    ) -> None:
        run = make()
        run.add("caller", error=RequestStopped("stopped"))
        run.start()
        run.journal.wait_for("start caller")
        assert not run.end()

    def test_what_is_late_and_fails_leaves_no_thread(self, make: Callable[..., Run]) -> None:
        clock = ManualClock()
        run = make(clock=clock, graceful_shutdown_timeout=1.0)
        late = run.add("late", error=OSError("disk full"))
        late.may_end.clear()
        run.start()
        run.journal.wait_for("start late")
        run.stop.set()
        run.journal.wait_for("told late")
        clock.block_until_waiting(1)
        clock.advance(1.0)
        [error] = run.join()
        assert isinstance(error, TimeoutError)
        late.may_end.set()
        run.journal.wait_for("end late")

    def test_a_lost_lease_stops_all_at_once_waits_for_nobody_and_is_raised(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, elector=elector)
        parts = [run.add(str(group), group) for group in ORDER[1:]]
        for part in parts:
            part.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        for part in parts:
            journal.wait_for(f"start {part.name}")
        elector.lose.set()
        run.thread.join(TIMEOUT)
        [error] = run.raised
        assert isinstance(error, LeadershipLost)
        assert "leader election lost" in str(error)
        for part in parts:
            journal.wait_for(f"told {part.name}")
            assert f"end {part.name}" not in journal

    def test_a_lease_that_is_lost_during_a_stop_ends_the_grace(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, elector=elector)
        worker = run.add("worker")
        worker.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        journal.wait_for("start worker")
        run.stop.set()
        journal.wait_for("told worker")
        elector.lose.set()
        [error] = run.join()
        assert isinstance(error, LeadershipLost)

    def test_a_lease_that_is_lost_after_a_failure_is_a_note_of_it_and_ends_the_grace(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, elector=elector)
        slow = run.add("slow", RunnableGroup.OTHERS)
        slow.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        failure = ValueError("broken")
        run.add("culprit", error=failure, at_start=True)
        journal.wait_for("told slow")
        elector.lose.set()
        assert run.join() == [failure]
        [note] = [note for note in failure.__notes__ if "after that" in note]
        assert "runnable leader election failed too: LeadershipLost" in note

    @pytest.mark.parametrize("error", [OSError("no route"), SystemExit(1)])
    def test_an_election_that_breaks_is_like_a_lost_lease(
        self, make: Callable[..., Run], error: BaseException
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal, error=error)
        run = make(journal, elector=elector)
        run.start()
        journal.wait_for("start elector")
        elector.lose.set()
        [raised] = run.join()
        assert raised is error or str(error) in str(raised)

    def test_an_election_that_ends_by_itself_is_a_failure(self, make: Callable[..., Run]) -> None:
        journal = Journal()
        elector = FakeElector(journal, ends_by_itself=True)
        run = make(journal, elector=elector)
        run.start()
        journal.wait_for("start elector")
        elector.lose.set()
        [raised] = run.join()
        assert "the leader election ended although nobody stopped it" in str(raised)

    def test_an_interrupt_stops_everything_before_it_goes_on(
        self, make: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = make()
        run.add("worker")
        halt = run.lifecycle._halt

        def interrupted(timeout: float | None = None) -> bool:
            run.journal.wait_for("start worker")
            raise KeyboardInterrupt

        monkeypatch.setattr(halt, "wait", interrupted)
        run.start()
        [raised] = run.join()
        assert isinstance(raised, KeyboardInterrupt)
        assert "end worker" in run.journal


@pytest.mark.stress
def test_a_stop_under_load_ends_within_the_grace(make: Callable[..., Run]) -> None:
    run = make(graceful_shutdown_timeout=10.0)
    for group in ORDER:
        for number in range(20):
            run.add(f"{group}-{number}", group)
    adding = threading.Event()
    added: list[int] = []

    def keep_adding() -> None:
        number = 0
        while not adding.is_set():
            try:
                run.lifecycle.groups.add(Part(f"late-{number}", run.journal))
            except RuntimeError:
                return
            added.append(number)
            number += 1

    run.start()
    assert run.lifecycle.elected.wait(TIMEOUT)
    threads = [threading.Thread(target=keep_adding) for _ in range(2)]
    for thread in threads:
        thread.start()
    run.journal.wait_for("start late-50")
    began = RealClock().monotonic()
    assert not run.end()
    assert RealClock().monotonic() - began < 10.0
    adding.set()
    for thread in threads:
        thread.join(TIMEOUT)
    assert sorted(run.journal.only("start")) == sorted(run.journal.only("end"))
