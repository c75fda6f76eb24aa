"""Groups of runnables: how they start and stop."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import attrs
import msgspec
import pytest

from appsdk_operator.cache import Health
from appsdk_operator.client import RequestStopped
from appsdk_operator.manager import RunnableGroup
from appsdk_operator.manager._core.groups import Group
from appsdk_operator.manager._core.runnable import (
    Placement,
    RunnableFunction,
    as_runnable,
    placements,
)
from appsdk_operator.runtime import ManualClock, StopSignal
from tests.manager.group_parts import TIMEOUT, Gated, Scripted


@attrs.define
class Bench:
    """A group, what failed in it, and a way to start it aside."""

    group: Group
    halt: StopSignal
    failures: list[tuple[str, Exception]]
    threads: list[threading.Thread] = attrs.field(factory=list)

    def add(self, runnable: Any, **changes: Any) -> Any:
        placement = placements(runnable)[-1]
        self.group.add(runnable, msgspec.structs.replace(placement, **changes))
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

    def test_a_check_of_what_has_failed_is_not_asked_again(self, bench: Bench) -> None:
        runnable = Gated(error=ValueError("broken"), fail_at="start")
        runnable.wait_until_ready = lambda *_: False  # type: ignore[method-assign]
        bench.add(runnable)
        assert not bench.group.start(bench.halt)
        with bench.group._changed:
            assert bench.group._changed.wait_for(lambda: not bench.group._members, TIMEOUT)

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

    def test_who_is_waited_for_is_named_after_ten_seconds_and_then_each_minute(
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
                entry = bench.group._members[0]
                assert bench.group._changed.wait_for(lambda: entry.state.value == "ended", TIMEOUT)
            for seconds in (10.0, 59.0, 1.0):
                clock.block_until_waiting(1)
                clock.advance(seconds)
            clock.block_until_waiting(1)
            bench.end()
            thread.join(TIMEOUT)
        texts = [r.getMessage() for r in caplog.records if "still waiting" in r.getMessage()]
        assert [text.rpartition(" after ")[2] for text in texts] == ["10 s", "70 s"]
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

    def test_a_closed_group_that_never_started_never_does(self, bench: Bench) -> None:
        runnable = bench.add(Scripted())
        assert bench.group.close() == [runnable]
        assert not bench.group.start(bench.halt)
        assert not bench.group.has_started
        assert not bench.group.close()

    def test_a_wait_that_ends_too_early_names_who_still_runs(self) -> None:
        clock = ManualClock()
        bench = _bench(clock=clock)
        slow = bench.add(Scripted("slow"))
        bench.add(Scripted("fast"))
        slow.may_end.clear()
        assert bench.group.start(bench.halt)
        assert slow.is_running.wait(TIMEOUT)
        bench.group.stop()
        with bench.group._changed:
            assert bench.group._changed.wait_for(lambda: len(bench.group._members) == 1, TIMEOUT)
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
