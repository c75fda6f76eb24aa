"""The order in which a manager's groups start and stop, and what comes of failures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import pytest

from appsdk_operator.cache import Health
from appsdk_operator.client import RequestStopped
from appsdk_operator.manager import LeadershipLost, RunnableGroup
from appsdk_operator.manager._lifecycle import Lifecycle
from appsdk_operator.runtime import ManualClock, RealClock, StopSignal

TIMEOUT = 10.0
ORDER = [
    RunnableGroup.HTTP_SERVERS,
    RunnableGroup.WEBHOOKS,
    RunnableGroup.CACHES,
    RunnableGroup.OTHERS,
    RunnableGroup.LEADER_ELECTION,
]


@attrs.define
class Journal:
    """What happened, in order."""

    entries: list[str] = attrs.field(factory=list)
    changed: threading.Condition = attrs.field(factory=threading.Condition)

    def note(self, entry: str) -> None:
        with self.changed:
            self.entries.append(entry)
            self.changed.notify_all()

    def wait_for(self, entry: str) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: entry in self.entries, TIMEOUT), self.entries

    def __contains__(self, entry: str) -> bool:
        with self.changed:
            return entry in self.entries

    def only(self, word: str) -> list[str]:
        with self.changed:
            return [e.removeprefix(f"{word} ") for e in self.entries if e.startswith(f"{word} ")]


@attrs.define(eq=False, slots=False)
class Part:
    """A runnable that writes down when it starts, is told to stop, and ends."""

    name: str
    journal: Journal
    runnable_group: RunnableGroup | None = None
    error: Exception | None = None
    at_start: bool = False
    """Whether the error comes at the start, not at the stop."""
    may_end: threading.Event = attrs.field(factory=threading.Event)
    at_stop: Callable[[], object] = lambda: None

    def __attrs_post_init__(self) -> None:
        self.may_end.set()

    def run(self, stop: StopSignal) -> None:
        self.journal.note(f"start {self.name}")
        if self.error is not None and self.at_start:
            raise self.error
        stop.wait()
        self.journal.note(f"told {self.name}")
        self.at_stop()
        assert self.may_end.wait(TIMEOUT)
        self.journal.note(f"end {self.name}")
        if self.error is not None:
            raise self.error


@attrs.define(eq=False, slots=False)
class FakeElector:
    """An election that the test decides."""

    journal: Journal
    win: StopSignal = attrs.field(factory=StopSignal)
    lose: StopSignal = attrs.field(factory=StopSignal)
    error: BaseException = attrs.field(factory=lambda: LeadershipLost("leader election lost"))
    ends_by_itself: bool = False
    identity: str = "me"
    leader: str = ""
    is_leader: bool = False
    keeps: bool = False

    def check_write(self) -> None: ...

    def health(self) -> Health:
        return Health(True, "")

    def keep_lease(self) -> None:
        self.keeps = True

    def run(self, stop: StopSignal, on_started: Callable[[], None]) -> None:
        self.journal.note("start elector")
        forget = [signal.on_set(self.win.set) for signal in (stop, self.lose)]
        self.win.wait()
        if not stop.is_set() and not self.lose.is_set():
            self.is_leader = True
            on_started()
            forget.append(stop.on_set(self.lose.set))
            self.lose.wait()
        for one in forget:
            one()
        self.journal.note("end elector" if not self.keeps else "end elector, keeping the lease")
        if not stop.is_set() and not self.ends_by_itself:
            raise self.error


@attrs.define(slots=False)
class Run:
    """A lifecycle that runs aside."""

    journal: Journal
    lifecycle: Lifecycle
    stop: StopSignal = attrs.field(factory=StopSignal)
    raised: list[BaseException] = attrs.field(factory=list)
    parts: list[Part] = attrs.field(factory=list)
    thread: threading.Thread = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.thread = threading.Thread(target=self._run, name="lifecycle under test")

    def _run(self) -> None:
        try:
            self.lifecycle.run(self.stop)
        except BaseException as error:
            self.raised.append(error)

    def add(self, name: str, group: RunnableGroup | None = None, **options: Any) -> Part:
        part = Part(name, self.journal, group, **options)
        self.parts.append(part)
        self.lifecycle.groups.add(part)
        return part

    def start(self) -> Run:
        self.thread.start()
        return self

    def end(self) -> Sequence[BaseException]:
        self.stop.set()
        return self.join()

    def join(self) -> Sequence[BaseException]:
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive(), self.journal.entries
        return self.raised


@pytest.fixture
def make() -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def make(journal: Journal | None = None, **options: Any) -> Run:
        run = Run(journal or Journal(), Lifecycle(**options))
        runs.append(run)
        return run

    yield make
    for run in runs:
        for part in run.parts:
            part.may_end.set()
        run.stop.set()
        run.lifecycle.close()
        if run.thread.ident is not None:
            run.thread.join(TIMEOUT)


def _ready_when(part: Part, gate: StopSignal) -> None:
    def wait_until_ready(stop: StopSignal, timeout: float | None = None) -> bool:
        part.journal.note(f"asked {part.name}")
        either = stop.child()
        gate.on_set(either.set)
        either.wait(timeout)
        return gate.is_set()

    part.wait_until_ready = wait_until_ready  # type: ignore[attr-defined]


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
            _ready_when(part, gates[group])
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
        _ready_when(cache, StopSignal())
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
        _ready_when(cache, StopSignal())
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
        self, make: Callable[..., Run], caplog: pytest.LogCaptureFixture
    ) -> None:
        run = make()
        part = Part("short", run.journal)
        part.run = lambda stop: run.journal.note("end short")  # type: ignore[method-assign]
        run.lifecycle.groups.add(part)
        with caplog.at_level(logging.INFO, "appsdk_operator.manager"):
            run.start()
            run.journal.wait_for("end short")
            assert run.lifecycle.elected.wait(TIMEOUT)
            assert run.thread.is_alive()
            assert not run.end()
        assert "runnable short ended, although nobody stopped it" in caplog.text


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
        assert "the lease is left to run out: worker still runs" in caplog.text


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
