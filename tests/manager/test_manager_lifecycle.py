"""The order in which a manager's groups start and stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from appsdk_operator.manager import RunnableGroup
from appsdk_operator.runtime import StopSignal
from tests.manager.lifecycle_parts import (
    ORDER,
    TIMEOUT,
    FakeElector,
    Journal,
    Part,
    Run,
    lifecycles,
    ready_when,
)

make = pytest.fixture(lifecycles)


class TestStart:
    """The way up."""

    def test_groups_start_one_after_another_each_when_the_one_before_is_ready(
        self, make: Callable[..., Run]
    ) -> None:
        run = make()
        gates = {}
        for group in reversed(ORDER):
            part = Part(str(group), run.journal, group)
            gates[group] = StopSignal()
            ready_when(part, gates[group])
            run.lifecycle.groups.add(part)
        run.start()
        for place, group in enumerate(ORDER):
            run.journal.wait_for(f"asked {group}")
            run.journal.wait_for(f"start {group}")
            assert set(run.journal.only("start")) == set(map(str, ORDER[: place + 1]))
            assert not run.lifecycle.elected.is_set()
            gates[group].set()
        assert run.lifecycle.elected.wait(TIMEOUT)
        assert not run.end()

    def test_without_an_election_the_process_leads_once_everything_has_started(
        self, make: Callable[..., Run]
    ) -> None:
        run = make()
        run.add("worker")
        called = threading.Event()
        run.lifecycle.elected.on_set(called.set)
        assert not run.lifecycle.elected.wait(0.0)
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        assert called.wait(TIMEOUT)
        assert not run.end()

    def test_others_run_and_warm_up_is_over_before_the_election_begins(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        run = make(journal, elector=FakeElector(journal))
        worker = Part("worker", journal)
        warm = threading.Event()

        def warm_up(_: StopSignal) -> None:
            journal.note("warming")
            assert warm.wait(TIMEOUT)

        worker.warm_up = warm_up  # type: ignore[attr-defined]
        run.lifecycle.groups.add(worker)
        run.add("other", RunnableGroup.OTHERS)
        run.start()
        journal.wait_for("warming")
        journal.wait_for("start other")
        assert journal.only("start") == ["other"]
        warm.set()
        journal.wait_for("start elector")
        assert not run.end()
        assert "start worker" not in journal

    def test_what_is_for_the_leader_starts_when_the_election_is_won(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        run = make(journal, elector=elector)
        run.add("worker")
        run.start()
        journal.wait_for("start elector")
        assert "start worker" not in journal
        assert not run.lifecycle.elected.is_set()
        elector.win.set()
        journal.wait_for("start worker")
        assert run.lifecycle.elected.wait(TIMEOUT)
        assert not run.end()

    def test_a_warm_up_that_fails_ends_the_run(self, make: Callable[..., Run]) -> None:
        run = make()
        failure = ValueError("cold")
        worker = Part("worker", run.journal)

        def warm_up(_: StopSignal) -> None:
            raise failure

        worker.warm_up = warm_up  # type: ignore[attr-defined]
        run.lifecycle.groups.add(worker)
        run.start()
        assert run.join() == [failure]
        assert "start worker" not in run.journal

    @pytest.mark.parametrize("has_others", [False, True])
    def test_what_is_added_to_a_manager_that_runs_starts_at_once(
        self, make: Callable[..., Run], *, has_others: bool
    ) -> None:
        run = make()
        if has_others:
            run.add("early")
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        for group in ORDER:
            run.add(f"late {group}", group)
            run.journal.wait_for(f"start late {group}")
        assert not run.end()

    def test_a_failing_webhook_server_is_reported_while_caches_wait_for_it(
        self, make: Callable[..., Run]
    ) -> None:
        # The defect of controller-runtime: errors are looked at after the last group has started,
        # which here would be never.
        run = make()
        webhooks = Part("webhooks", run.journal, RunnableGroup.WEBHOOKS)
        fail = threading.Event()

        def bind_later(stop: StopSignal) -> None:
            assert fail.wait(TIMEOUT)
            raise OSError("address in use")

        webhooks.run = bind_later  # type: ignore[method-assign]
        run.lifecycle.groups.add(webhooks)
        cache = Part("cache", run.journal, RunnableGroup.CACHES)
        ready_when(cache, StopSignal())
        run.lifecycle.groups.add(cache)
        run.add("worker")
        run.start()
        run.journal.wait_for("asked cache")
        fail.set()
        [error] = run.join()
        assert isinstance(error, OSError)
        assert "end cache" in run.journal
        assert "start worker" not in run.journal

    @pytest.mark.parametrize("group", ORDER)
    def test_a_failure_in_any_group_ends_the_rest_and_is_raised(
        self, make: Callable[..., Run], group: RunnableGroup
    ) -> None:
        run = make()
        for one in ORDER:
            run.add(str(one), one)
        failure = ValueError("broken")
        run.add("culprit", group, error=failure, at_start=True)
        run.start()
        assert run.join() == [failure]
        assert f"raised by runnable culprit (group {group})" in failure.__notes__
        started = run.journal.only("start")
        started.remove("culprit")
        assert sorted(run.journal.only("end")) == sorted(started)

    def test_a_stop_while_caches_are_syncing_ends_the_start(self, make: Callable[..., Run]) -> None:
        run = make()
        cache = Part("cache", run.journal, RunnableGroup.CACHES)
        ready_when(cache, StopSignal())
        run.lifecycle.groups.add(cache)
        run.add("worker")
        run.start()
        run.journal.wait_for("asked cache")
        assert not run.end()
        assert run.journal.only("start") == ["cache"]
        assert run.journal.only("end") == ["cache"]

    def test_a_stop_before_the_start_starts_nothing(self, make: Callable[..., Run]) -> None:
        run = make()
        for group in ORDER:
            run.add(str(group), group)
        run.stop.set()
        run.start()
        assert not run.join()
        assert not run.journal.entries


class TestStop:
    """The way down."""

    def test_groups_stop_in_the_reverse_order_each_when_the_one_before_has_ended(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, elector=elector)
        parts = {}
        for group in ORDER:
            parts[group] = run.add(str(group), group)
            parts[group].may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        journal.wait_for(f"start {ORDER[-1]}")
        run.stop.set()
        way_down = [
            RunnableGroup.OTHERS,
            RunnableGroup.LEADER_ELECTION,
            RunnableGroup.CACHES,
            RunnableGroup.WEBHOOKS,
            RunnableGroup.HTTP_SERVERS,
        ]
        for place, group in enumerate(way_down):
            journal.wait_for(f"told {group}")
            # The trap: the stop of the run must reach nobody before his turn has come.
            assert journal.only("told") == list(map(str, way_down[: place + 1]))
            assert "end elector" not in journal
            parts[group].may_end.set()
        assert not run.join()
        assert journal.entries[-1] == "end elector"

    def test_warm_up_and_others_stop_side_by_side(self, make: Callable[..., Run]) -> None:
        run = make()
        barrier = threading.Barrier(2)
        run.add("other", RunnableGroup.OTHERS, at_stop=lambda: barrier.wait(TIMEOUT))
        warm = Part("warm", run.journal)

        def warm_up(stop: StopSignal) -> None:
            stop.on_set(lambda: run.journal.note("told warm-up"))

        warm.warm_up = warm_up  # type: ignore[attr-defined]
        run.lifecycle.groups.add(warm)
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        run.journal.wait_for("start other")
        run.stop.set()
        run.journal.wait_for("told other")
        run.journal.wait_for("told warm-up")
        assert "told warm" not in run.journal.only("told")
        barrier.wait(TIMEOUT)
        assert not run.join()

    def test_adding_while_it_stops_is_an_error(self, make: Callable[..., Run]) -> None:
        run = make()
        slow = run.add("slow", RunnableGroup.OTHERS)
        slow.may_end.clear()
        run.start()
        run.journal.wait_for("start slow")
        run.stop.set()
        run.journal.wait_for("told slow")
        for group in ORDER:
            with pytest.raises(RuntimeError, match="stop procedure is already engaged"):
                run.lifecycle.groups.add(Part("late", run.journal, group))
        slow.may_end.set()
        assert not run.join()
        assert "start late" not in run.journal

    def test_a_standby_that_stops_never_starts_what_is_for_the_leader(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        run = make(journal, elector=FakeElector(journal))
        run.add("worker")
        run.start()
        journal.wait_for("start elector")
        assert not run.end()
        assert "start worker" not in journal
        assert not run.lifecycle.elected.is_set()

    def test_an_election_that_is_won_during_the_stop_starts_nothing(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        run = make(journal, elector=elector)
        other = run.add("other", RunnableGroup.OTHERS)
        other.may_end.clear()
        run.add("worker")
        run.start()
        journal.wait_for("start elector")
        run.stop.set()
        journal.wait_for("told other")
        elector.win.set()
        other.may_end.set()
        assert not run.join()
        assert "start worker" not in journal

    def test_the_base_stop_ends_everything_at_once(self, make: Callable[..., Run]) -> None:
        base = StopSignal()
        run = make(base_stop=base)
        parts = [run.add(str(group), group) for group in ORDER]
        for part in parts:
            part.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        for part in parts:
            run.journal.wait_for(f"start {part.name}")
        base.set()
        for part in parts:
            run.journal.wait_for(f"told {part.name}")
        for part in parts:
            part.may_end.set()
        assert not run.join()

    def test_a_runnable_that_returns_by_itself_changes_nothing(
        self,
        make: Callable[..., Run],
        caplog: pytest.LogCaptureFixture,
        eventually: Callable[..., None],
    ) -> None:
        run = make()
        part = Part("short", run.journal)
        part.run = lambda stop: run.journal.note("end short")  # type: ignore[method-assign]
        run.lifecycle.groups.add(part)
        with caplog.at_level(logging.INFO, "appsdk_operator.manager"):
            run.start()
            run.journal.wait_for("end short")
            assert run.lifecycle.elected.wait(TIMEOUT)
            # It is forgotten once that was said; a stop before would be a reason for its end.
            eventually(lambda: not run.lifecycle.groups.members)
            assert run.thread.is_alive()
            assert not run.end()
        assert "runnable short ended, although nobody stopped it" in caplog.text
