"""Groups of runnables: where a runnable belongs, and how a group starts and stops."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.cache import Cache, Health, Informer
from appsdk_operator.client import RequestStopped
from appsdk_operator.manager._groups import Group, Groups
from appsdk_operator.manager._runnable import (
    Placement,
    RunnableFunction,
    RunnableGroup,
    as_runnable,
    name_of,
    placements,
)
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import ManualClock, StopSignal

TIMEOUT = 10.0


@attrs.define(eq=False, slots=False)
class Scripted:
    """A runnable that does as it is told, and remembers what happened."""

    name: str = "scripted"
    error: BaseException | None = None
    fail_at: str = "stop"
    is_running: threading.Event = attrs.field(factory=threading.Event)
    may_end: threading.Event = attrs.field(factory=threading.Event)
    has_ended: bool = False
    runs: int = 0

    def __attrs_post_init__(self) -> None:
        self.may_end.set()

    def run(self, stop: StopSignal) -> None:
        self.runs += 1
        self.is_running.set()
        if self.error is not None and self.fail_at == "start":
            raise self.error
        stop.wait()
        assert self.may_end.wait(TIMEOUT)
        self.has_ended = True
        if self.error is not None:
            raise self.error


@attrs.define(eq=False, slots=False)
class Gated(Scripted):
    """One that is ready when the test says so."""

    gate: StopSignal = attrs.field(factory=StopSignal)
    is_asked: threading.Event = attrs.field(factory=threading.Event)

    def wait_until_ready(self, stop: StopSignal, timeout: float | None = None) -> bool:
        self.is_asked.set()
        either = stop.child()
        self.gate.on_set(either.set)
        either.wait(timeout)
        return self.gate.is_set()


@attrs.define
class Bench:
    """A group, what failed in it, and a way to start it aside."""

    group: Group
    halt: StopSignal
    failures: list[tuple[str, Exception]]
    threads: list[threading.Thread] = attrs.field(factory=list)

    def add(self, runnable: Any, **changes: Any) -> Any:
        placement = placements(runnable)[-1]
        self.group.add(runnable, attrs.evolve(placement, **changes))
        return runnable

    def start_aside(self) -> tuple[threading.Thread, list[bool]]:
        outcome: list[bool] = []
        thread = threading.Thread(target=lambda: outcome.append(self.group.start(self.halt)))
        thread.start()
        self.threads.append(thread)
        return thread, outcome

    def end(self) -> None:
        self.halt.set()
        self.group.stop()
        assert not self.group.wait_ended()
        for thread in self.threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = _bench()
    yield bench
    bench.end()


def _bench(**options: Any) -> Bench:
    failures: list[tuple[str, Exception]] = []
    halt = StopSignal()

    def fail(name: str, error: Exception) -> None:
        failures.append((name, error))
        halt.set()

    return Bench(
        Group(RunnableGroup.OTHERS, on_failure=fail, **options), halt=halt, failures=failures
    )


class TestClassification:
    """Where a runnable belongs."""

    @pytest.mark.parametrize(
        ("attributes", "groups"),
        [
            ({}, ["leader-election"]),
            ({"needs_leader_election": True}, ["leader-election"]),
            ({"needs_leader_election": False}, ["others"]),
            ({"only_serve_when_leader": True}, ["leader-election"]),
            ({"only_serve_when_leader": False}, ["http-servers"]),
            ({"only_serve_when_leader": False, "needs_leader_election": False}, ["http-servers"]),
            ({"runnable_group": RunnableGroup.WEBHOOKS}, ["webhooks"]),
            ({"runnable_group": "caches", "needs_leader_election": True}, ["caches"]),
            ({"warm_up": lambda _: None}, ["warm-up", "leader-election"]),
            (
                {"warm_up": lambda _: None, "needs_leader_election": True},
                ["warm-up", "leader-election"],
            ),
            ({"warm_up": lambda _: None, "needs_leader_election": False}, ["warm-up", "others"]),
        ],
    )
    def test_what_a_runnable_says_of_itself_decides_on_its_group(
        self, attributes: dict[str, Any], groups: list[str]
    ) -> None:
        runnable = type("R", (), {"run": lambda *_: None})()
        for name, value in attributes.items():
            setattr(runnable, name, value)
        assert [str(placement.group) for placement in placements(runnable)] == groups

    def test_caches_and_informers_are_waited_for_among_the_caches(self) -> None:
        client: Any = None
        cache = Cache(client)
        informer = Informer(kinds.core.v1.ConfigMap, client)
        for runnable in (cache, informer):
            [placement] = placements(runnable)
            assert placement.group is RunnableGroup.CACHES
            assert placement.wait_until_ready == runnable.wait_for_sync

    def test_a_synced_word_alone_makes_nobody_wait_outside_of_the_caches(self) -> None:
        runnable = type("R", (), {"run": lambda *_: None, "wait_for_sync": lambda *_: False})()
        [placement] = placements(runnable)
        assert placement.wait_until_ready is None

    def test_a_plain_function_runs_on_the_leader_and_has_its_own_name(self) -> None:
        def tidy_up(stop: StopSignal) -> None: ...

        runnable = as_runnable(tidy_up)
        [placement] = placements(runnable)
        assert placement.group is RunnableGroup.LEADER_ELECTION
        assert name_of(runnable).endswith("tidy_up")
        assert "tidy_up" in repr(runnable)

    def test_a_runnable_without_a_name_is_called_by_its_class(self) -> None:
        assert name_of(type("Sweeper", (), {})()) == "Sweeper"
        assert name_of(type("Sweeper", (), {"name": 7})()) == "Sweeper"

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (Scripted, "add an instance, Scripted"),
            ("text", "an object with run"),
            (lambda: None, "has to take the stop signal"),
        ],
    )
    def test_what_cannot_be_run_is_refused_with_the_remedy(self, value: Any, text: str) -> None:
        with pytest.raises(TypeError, match=text):
            as_runnable(value)

    def test_a_function_of_the_interpreter_that_hides_its_arguments_is_taken(self) -> None:
        assert isinstance(as_runnable(min), RunnableFunction)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("attributes", "text"),
        [
            ({"needs_leader_election": lambda: False}, "needs_leader_election of R is"),
            ({"only_serve_when_leader": None}, "only_serve_when_leader of R is None"),
            ({"runnable_group": "nowhere"}, "use a member of RunnableGroup"),
            ({"runnable_group": RunnableGroup.WARM_UP}, "write a method warm_up"),
        ],
    )
    def test_unclear_words_are_refused(self, attributes: dict[str, Any], text: str) -> None:
        runnable = type("R", (), {"run": lambda *_: None})()
        for name, value in attributes.items():
            setattr(runnable, name, value)
        with pytest.raises(TypeError, match=text):
            placements(runnable)


class TestStart:
    """What a start does, and what it waits for."""

    def test_what_was_added_before_starts_with_the_group(self, bench: Bench) -> None:
        runnable = bench.add(Scripted())
        assert not runnable.is_running.is_set()
        assert bench.group.start(bench.halt)
        assert runnable.is_running.wait(TIMEOUT)

    def test_what_is_added_after_the_start_starts_at_once(self, bench: Bench) -> None:
        assert bench.group.start(bench.halt)
        assert bench.add(Scripted()).is_running.wait(TIMEOUT)
        assert bench.add(Scripted()).is_running.wait(TIMEOUT)

    def test_a_start_waits_until_all_are_ready_whenever_that_is(self, bench: Bench) -> None:
        first, second = bench.add(Gated("first")), bench.add(Gated("second"))
        _, outcome = bench.start_aside()
        assert first.is_asked.wait(TIMEOUT)
        assert second.is_asked.wait(TIMEOUT)
        second.gate.set()
        assert not outcome
        first.gate.set()
        bench.threads[0].join(TIMEOUT)
        assert outcome == [True]

    def test_what_is_added_during_the_start_is_started_and_waited_for(self, bench: Bench) -> None:
        first = bench.add(Gated("first"))
        _, outcome = bench.start_aside()
        assert first.is_asked.wait(TIMEOUT)
        second = bench.add(Gated("second"))
        assert second.is_running.wait(TIMEOUT)
        first.gate.set()
        assert second.is_asked.wait(TIMEOUT)
        assert not outcome
        second.gate.set()
        bench.threads[0].join(TIMEOUT)
        assert outcome == [True]

    def test_a_check_that_says_no_is_asked_again_and_never_taken_for_ready(
        self, bench: Bench
    ) -> None:
        asked = threading.Semaphore(0)

        def never(_: StopSignal, __: float | None) -> bool:
            asked.release()
            return False

        bench.add(Scripted(), wait_until_ready=never)
        thread, outcome = bench.start_aside()
        for _ in range(3):
            assert asked.acquire(timeout=TIMEOUT)
        assert thread.is_alive()
        bench.halt.set()
        thread.join(TIMEOUT)
        assert outcome == [False]

    def test_a_stop_while_a_check_hangs_ends_the_start(self, bench: Bench) -> None:
        # The defect of controller-runtime: it spins until the caches have synced.
        release = threading.Event()

        def hang(_: StopSignal, __: float | None) -> bool:
            return release.wait(TIMEOUT)

        bench.add(Scripted(), wait_until_ready=hang)
        thread, outcome = bench.start_aside()
        bench.halt.set()
        thread.join(TIMEOUT)
        assert outcome == [False]
        release.set()

    def test_the_wait_for_readiness_sleeps(self) -> None:
        # The other half of that defect: one core is busy meanwhile.
        clock = ManualClock()
        waits = 0
        wait = clock.wait

        def counted(condition: threading.Condition, timeout: float | None = None) -> None:
            nonlocal waits
            waits += 1
            wait(condition, timeout)

        clock.wait = counted  # type: ignore[method-assign]
        bench = _bench(clock=clock)
        runnable = bench.add(Gated())
        thread, _ = bench.start_aside()
        assert runnable.is_asked.wait(TIMEOUT)
        clock.block_until_waiting(1)
        bench.halt.set()
        thread.join(TIMEOUT)
        bench.end()
        assert waits < 10

    def test_a_failure_during_the_start_ends_it(self, bench: Bench) -> None:
        bench.add(Gated("slow"))
        bench.add(Scripted("broken", OSError("no port"), fail_at="start"))
        assert not bench.group.start(bench.halt)
        [(name, error)] = bench.failures
        assert (name, str(error)) == ("broken", "no port")
        assert "raised by runnable broken (group others)" in error.__notes__

    def test_a_check_that_raises_is_a_failure_of_its_runnable(self, bench: Bench) -> None:
        def broken(_: StopSignal, __: float | None) -> bool:
            raise ValueError("cannot tell")

        bench.add(Scripted("unsure"), wait_until_ready=broken)
        assert not bench.group.start(bench.halt)
        assert [(name, str(error)) for name, error in bench.failures] == [("unsure", "cannot tell")]

    def test_a_warm_up_is_waited_for_until_it_returns(self, bench: Bench) -> None:
        warm = threading.Event()

        def warm_up(_: StopSignal) -> None:
            assert warm.wait(TIMEOUT)

        bench.group.add(
            Scripted(),
            Placement(group=RunnableGroup.WARM_UP, run=warm_up, is_ready_when_ended=True),
        )
        thread, outcome = bench.start_aside()
        assert thread.is_alive()
        warm.set()
        thread.join(TIMEOUT)
        assert outcome == [True]

    def test_who_is_waited_for_is_named_every_ten_seconds(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = ManualClock()
        bench = _bench(clock=clock)
        ended = Gated("ended")
        ended.run = lambda stop: ended.is_running.set()  # type: ignore[method-assign]
        bench.add(ended)
        cache = Gated("the cache")
        bench.add(cache, group=RunnableGroup.CACHES)
        cache.health = lambda: Health(False, "not synced")  # type: ignore[attr-defined]
        with caplog.at_level(logging.INFO, "appsdk_operator.manager"):
            thread, _ = bench.start_aside()
            with bench.group._changed:
                entry = bench.group._entries[0]
                assert bench.group._changed.wait_for(lambda: entry.step.value == "ended", TIMEOUT)
            for _ in range(2):
                clock.block_until_waiting(1)
                clock.advance(10.0)
            clock.block_until_waiting(1)
            bench.end()
            thread.join(TIMEOUT)
        texts = [r.getMessage() for r in caplog.records if "still waiting" in r.getMessage()]
        assert [text.rpartition(" after ")[2] for text in texts] == ["10 s", "20 s"]
        assert all("ended (its run has returned)" in text for text in texts)
        assert all("the cache (not synced)" in text for text in texts)

    def test_a_group_starts_once(self, bench: Bench) -> None:
        runnable = bench.add(Scripted())
        assert bench.group.start(bench.halt)
        assert not bench.group.start(bench.halt)
        bench.end()
        assert runnable.runs == 1

    def test_a_group_that_was_halted_before_its_start_starts_nothing(self, bench: Bench) -> None:
        runnable = bench.add(Scripted())
        bench.halt.set()
        assert not bench.group.start(bench.halt)
        bench.end()
        assert runnable.runs == 0

    def test_the_same_runnable_twice_is_refused(self, bench: Bench) -> None:
        runnable = bench.add(Scripted())
        with pytest.raises(ValueError, match="scripted was added already"):
            bench.add(runnable)

    def test_what_has_ended_is_forgotten(self, bench: Bench) -> None:
        assert bench.group.start(bench.halt)
        ended = threading.Event()
        for _ in range(20):
            ended.clear()
            bench.group.add(
                RunnableFunction(lambda _: ended.set()),
                Placement(group=RunnableGroup.OTHERS, run=lambda _: ended.set()),
            )
            assert ended.wait(TIMEOUT)
        bench.group.stop()
        assert not bench.group.wait_ended()
        assert bench.group.snapshot() == {"state": "stopped", "runnables": []}

    def test_an_async_runnable_is_awaited(self, bench: Bench) -> None:
        ran = threading.Event()

        async def run(stop: StopSignal) -> None:
            ran.set()

        bench.add(as_runnable(run))
        assert bench.group.start(bench.halt)
        assert ran.wait(TIMEOUT)


class TestStop:
    """What a stop does, and what it never does."""

    def test_a_stop_waits_for_all(self, bench: Bench) -> None:
        runnables = [bench.add(Scripted(f"r{n}")) for n in range(3)]
        assert bench.group.start(bench.halt)
        bench.group.stop()
        assert not bench.group.wait_ended()
        assert all(runnable.has_ended for runnable in runnables)

    def test_a_group_that_never_started_is_not_started_by_its_stop(self, bench: Bench) -> None:
        # The defect of controller-runtime: its stop begins with a start.
        runnable = bench.add(Scripted())
        bench.group.stop()
        assert not bench.group.wait_ended()
        assert not bench.group.start(StopSignal())
        assert runnable.runs == 0
        assert bench.group.snapshot() == {"state": "stopped", "runnables": []}

    def test_adding_once_the_stop_has_begun_is_an_error(self, bench: Bench) -> None:
        bench.group.stop()
        with pytest.raises(RuntimeError, match="stop procedure is already engaged"):
            bench.add(Scripted())

    def test_a_closed_group_takes_nothing_and_goes_on(self, bench: Bench) -> None:
        runnable = bench.add(Scripted())
        assert bench.group.start(bench.halt)
        bench.group.close()
        with pytest.raises(RuntimeError, match="stop procedure is already engaged"):
            bench.add(Scripted())
        assert not runnable.has_ended
        assert bench.group.runnables == [runnable]

    def test_a_wait_that_ends_too_early_names_who_still_runs(self) -> None:
        clock = ManualClock()
        bench = _bench(clock=clock)
        slow = bench.add(Scripted("slow"))
        bench.add(Scripted("fast"))
        slow.may_end.clear()
        assert bench.group.start(bench.halt)
        assert slow.is_running.wait(TIMEOUT)
        bench.group.stop()
        left: list[Any] = []
        thread = threading.Thread(target=lambda: left.append(bench.group.wait_ended(30.0)))
        thread.start()
        clock.block_until_waiting(1)
        clock.advance(30.0)
        thread.join(TIMEOUT)
        assert left == [["slow"]]
        slow.may_end.set()
        bench.end()

    def test_a_wait_can_be_hurried(self, bench: Bench) -> None:
        slow = bench.add(Scripted("slow"))
        slow.may_end.clear()
        assert bench.group.start(bench.halt)
        assert slow.is_running.wait(TIMEOUT)
        bench.group.stop()
        hurry = StopSignal()
        hurry.set()
        assert bench.group.wait_ended(None, hurry) == ["slow"]
        slow.may_end.set()

    def test_a_request_that_the_stop_cut_short_is_no_failure(self, bench: Bench) -> None:
        bench.add(Scripted(error=RequestStopped("stopped")))
        assert bench.group.start(bench.halt)
        bench.group.stop()
        assert not bench.group.wait_ended()
        assert not bench.failures

    def test_any_other_error_at_the_stop_is_a_failure(self, bench: Bench) -> None:
        bench.add(Scripted(error=OSError("disk full")))
        assert bench.group.start(bench.halt)
        bench.group.stop()
        assert not bench.group.wait_ended()
        assert [str(error) for _, error in bench.failures] == ["disk full"]

    def test_what_would_end_the_thread_without_a_word_is_a_failure(self, bench: Bench) -> None:
        bench.add(Scripted("quitter", SystemExit(3), fail_at="start"))
        bench.group.start(bench.halt)
        assert bench.halt.wait(TIMEOUT)
        [(_, error)] = bench.failures
        assert isinstance(error, RuntimeError)
        assert isinstance(error.__cause__, SystemExit)

    def test_the_base_stop_reaches_the_runnables_and_the_stop_does_not_reach_the_base(self) -> None:
        base = StopSignal()
        bench = _bench(base_stop=base)
        runnable = bench.add(Scripted())
        assert bench.group.start(bench.halt)
        assert runnable.is_running.wait(TIMEOUT)
        base.set()
        assert not bench.group.wait_ended()
        assert runnable.has_ended
        bench.end()
        other = StopSignal()
        bench = _bench(base_stop=other)
        bench.end()
        assert not other.is_set()


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
        runnable.warm_up = lambda _: None  # type: ignore[attr-defined]
        groups.add(runnable)
        with pytest.raises(ValueError, match="added already"):
            groups.add(runnable)
        assert len(groups[RunnableGroup.WARM_UP].snapshot()["runnables"]) == 1

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
