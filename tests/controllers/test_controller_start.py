"""From run to the first reconcile: sources start, sync, and only then are there workers."""

from __future__ import annotations

import gc
import itertools
import threading
import weakref
from typing import Any

import pytest

from appsdk_operator.cache import Health
from appsdk_operator.controllers import Controller, RequestQueue
from appsdk_operator.controllers._sources import starts
from appsdk_operator.runtime import StopSignal, system_clock
from tests.controllers.controller_tools import PATIENCE, Gate, Rig, Script, SyncingTap, Tap
from tests.waiting import eventually


class FailingSource(Tap):
    def __str__(self) -> str:
        return "failing source"

    def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
        raise ConnectionError("no server")


class FailingSync(SyncingTap):
    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        raise ConnectionError("the list failed")


class NeverSynced(Tap):
    """A source that obeys its time-out, on the rig's clock."""

    def __init__(self, rig: Rig) -> None:
        super().__init__()
        self.never = StopSignal(clock=rig.clock)
        self.timeout: float | None = None

    def __str__(self) -> str:
        return "pods"

    def health(self) -> Health:
        return Health(False, "forbidden: the service account needs list")

    def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
        self.timeout = timeout
        forget = stop.on_set(self.never.set)
        try:
            self.never.wait(timeout)
            return False
        finally:
            forget()


class BlockingSource(Tap):
    """One whose start waits for the stop."""

    def __str__(self) -> str:
        return "blocking source"

    def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
        super().start(queue, stop)
        stop.wait()


# Failures.


@pytest.mark.parametrize("source", [FailingSource(), FailingSync()])
def test_a_source_that_fails_fails_the_run_and_stops_the_others(source: Tap) -> None:
    rig = Rig()
    other = SyncingTap("a")
    rig.controller.watch(other)
    rig.controller.watch(source)
    rig.start()
    (error,) = rig.join()
    assert isinstance(error, ConnectionError)
    assert other.starts == 0 or (other.stop is not None and other.stop.is_set())
    assert rig.script.calls == []
    health = rig.controller.health()
    assert not health.is_ready
    assert str(error) in health.text


def test_a_source_that_raises_what_is_no_exception_fails_the_run_too() -> None:
    class Exiting(Tap):
        def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
            raise SystemExit(3)

    rig = Rig()
    rig.controller.watch(Exiting())
    rig.start()
    (error,) = rig.join()
    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, SystemExit)


def test_a_source_that_does_not_sync_in_time_fails_the_run_and_is_named_with_its_reason() -> None:
    rig = Rig(cache_sync_timeout=5.0)
    source = NeverSynced(rig)
    rig.controller.watch(source)
    rig.start()
    rig.clock.block_until_waiting(2)  # the source itself and the run
    assert rig.controller.health() == Health(
        False,
        f"controller {rig.controller.name}: source pods is syncing "
        "(forbidden: the service account needs list)",
    )
    rig.clock.advance(4.9)
    assert not rig.raised
    rig.clock.advance(0.1)
    (error,) = rig.join()
    assert isinstance(error, TimeoutError)
    assert "source pods has not synced within 5 s" in str(error)
    assert "forbidden: the service account needs list" in str(error)
    assert source.timeout == 5.0


def test_a_source_that_ignores_its_time_out_is_not_waited_for_any_longer() -> None:
    rig = Rig(cache_sync_timeout=5.0)
    source = SyncingTap()
    rig.controller.watch(source)
    rig.start()
    assert source.is_waited_for.wait(PATIENCE)
    rig.clock.block_until_waiting(1)
    rig.clock.advance(5.0)
    (error,) = rig.join()
    assert "source syncing tap has not synced within 5 s" in str(error)


def test_a_time_out_that_is_long_enough_does_no_harm() -> None:
    rig = Rig(cache_sync_timeout=5.0)
    source = SyncingTap("a")
    rig.controller.watch(source)
    rig.start()
    assert source.is_waited_for.wait(PATIENCE)
    rig.clock.advance(4.9)
    source.sync()
    eventually(lambda: rig.script.calls == ["a"])
    rig.clock.advance(100.0)
    assert rig.stop() == []


def test_a_start_that_blocks_is_refused_with_the_remedy() -> None:
    rig = Rig(cache_sync_timeout=5.0)
    rig.controller.watch(BlockingSource())
    rig.start()
    rig.clock.block_until_waiting(1)
    rig.clock.advance(5.0)
    (error,) = rig.join()
    assert isinstance(error, TimeoutError)
    assert "source blocking source did not return from start within 5 s" in str(error)
    assert "Please ensure that its start is non-blocking" in str(error)


def test_a_start_that_never_returns_is_named_beside_the_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("appsdk_operator.controllers._engine.controller._HELPERS_END", 0.01)
    gate = Gate()

    class Stuck(Tap):
        def __str__(self) -> str:
            return "stuck"

        def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
            gate()

    rig = Rig(cache_sync_timeout=5.0, stop_timeout=0.0)
    rig.controller.watch(Stuck())
    rig.start()
    assert gate.entered.wait(PATIENCE)
    rig.clock.block_until_waiting(1)
    rig.clock.advance(5.0)
    (group,) = rig.join()
    gate.open.set()
    assert isinstance(group, ExceptionGroup)
    texts = [str(error) for error in group.exceptions]
    assert "non-blocking" in texts[0]
    assert f"{rig.controller.name}/source stuck" in texts[1]


def test_sources_start_side_by_side() -> None:
    meeting = threading.Barrier(3, timeout=PATIENCE)

    class Meeting(Tap):
        def start(self, queue: RequestQueue[Any], stop: StopSignal) -> None:
            meeting.wait()
            super().start(queue, stop)

    rig = Rig()
    for name in "abc":
        rig.controller.watch(Meeting(name))
    rig.start()
    eventually(lambda: sorted(rig.script.calls) == ["a", "b", "c"])
    assert rig.stop() == []


def test_a_stop_during_the_sync_is_no_error() -> None:
    rig = Rig()
    source = SyncingTap("a")
    rig.controller.watch(source)
    rig.start()
    assert source.is_waited_for.wait(PATIENCE)
    assert rig.stop() == []
    assert rig.script.calls == []


def test_a_stop_that_came_first_starts_nothing() -> None:
    rig = Rig()
    rig.controller.watch(rig.tap)
    rig.stop_signal.set()
    rig.start()
    assert rig.join() == []
    assert rig.tap.starts == 0
    assert rig.metrics.render() == ""


def test_without_sources_it_runs_until_the_stop() -> None:
    rig = Rig()
    rig.start()
    eventually(lambda: rig.controller.has_synced)
    assert rig.controller.health().is_ready
    assert rig.stop() == []


def test_a_controller_runs_once() -> None:
    rig = Rig()
    rig.start()
    assert rig.stop() == []
    with pytest.raises(RuntimeError, match="was run before: a controller runs once"):
        rig.controller.run(StopSignal())
    with pytest.raises(RuntimeError, match="has ended and starts no further sources"):
        rig.controller.watch(Tap())
    assert rig.controller.health() == Health(False, f"controller {rig.controller.name} has ended")


def test_a_closed_controller_does_not_run() -> None:
    rig = Rig()
    rig.controller.close()
    rig.controller.close()
    with pytest.raises(RuntimeError, match="was closed"):
        rig.controller.run(StopSignal())
    with pytest.raises(RuntimeError, match="has ended"):
        rig.controller.process_next()


# Nothing is reconciled before everything that was there is known.


def test_no_reconcile_before_every_source_has_handed_over_its_initial_objects() -> None:
    rig = Rig(max_concurrent_reconciles=4)
    sources = [SyncingTap("a", "b"), SyncingTap("c"), SyncingTap()]
    rig.controller.watch(Tap("early"))  # one that never waits, as a channel
    for source in sources:
        rig.controller.watch(source)
    rig.start()
    for number, source in enumerate(sources):
        assert source.is_waited_for.wait(PATIENCE)
        assert not rig.controller.has_synced
        assert len(rig.controller.debug_snapshot()["planned"]) >= number
        assert rig.script.calls == []
        assert not any("/worker/" in thread.name for thread in threading.enumerate())
        if source is not sources[-1]:
            source.sync()
    seen: list[int] = []
    rig.script.during = lambda _: seen.append(all(s.synced.is_set() for s in sources))
    sources[-1].sync()
    eventually(lambda: len(rig.script.calls) == 4)
    assert sorted(rig.script.calls) == ["a", "b", "c", "early"]
    assert all(seen)
    assert rig.controller.has_synced
    assert rig.stop() == []


def test_workers_also_wait_for_a_source_that_is_added_during_the_sync() -> None:
    rig = Rig()
    first, second = SyncingTap("a"), SyncingTap("b", text="second")
    rig.controller.watch(first)
    rig.start()
    assert first.is_waited_for.wait(PATIENCE)
    rig.controller.watch(second)
    assert second.is_waited_for.wait(PATIENCE)
    first.sync()
    eventually(lambda: "second is syncing" in rig.controller.health().text)
    assert rig.script.calls == []
    second.sync()
    eventually(lambda: sorted(rig.script.calls) == ["a", "b"])
    assert rig.stop() == []


# Sources that are added while it runs.


def running(*plan: Any, **options: Any) -> Rig:
    rig = Rig(*plan, **options)
    rig.start()
    eventually(lambda: rig.controller._works)
    return rig


def test_a_source_that_is_added_while_it_runs_is_started_at_once() -> None:
    rig = running()
    tap = Tap("late")
    rig.controller.watch(tap)
    assert tap.starts == 1
    eventually(lambda: rig.script.calls == ["late"])
    assert rig.stop() == []
    assert tap.stop is not None
    assert tap.stop.is_set()


def test_a_reconciler_may_add_a_source() -> None:
    rig = running()
    tap = Tap("second")
    rig.script.during = lambda request: request == "first" and rig.controller.watch(tap)
    rig.controller.watch(Tap("first"))
    eventually(lambda: rig.script.calls == ["first", "second"])
    assert rig.stop() == []


def test_what_the_start_of_a_late_source_raises_goes_to_the_caller_only() -> None:
    rig = running()
    with pytest.raises(ConnectionError):
        rig.controller.watch(FailingSource())
    assert rig.controller.health().is_ready
    assert rig.stop() == []


def test_a_late_source_that_does_not_sync_makes_it_unready_until_it_does(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Slow(SyncingTap):
        waits = 0

        def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
            self.waits += 1
            return super().wait_for_sync(stop, None) if timeout is None else False

    rig = running()
    source = Slow(text="slow")
    rig.controller.watch(source)
    eventually(lambda: source.waits == 2)
    health = rig.controller.health()
    assert not health.is_ready
    assert "source slow has not synced within 120 s" in health.text
    assert "source slow, added while it runs, failed" in caplog.text
    source.sync()
    eventually(lambda: rig.controller.health().is_ready)
    assert rig.stop() == []


def test_a_late_source_whose_sync_fails_does_not_end_the_controller() -> None:
    rig = running()
    rig.controller.watch(FailingSync(text="broken"))
    eventually(lambda: "the list failed" in rig.controller.health().text)
    assert rig.stop() == []


# Warm-up.


def test_without_the_option_warming_up_does_nothing() -> None:
    rig = Rig()
    rig.controller.watch(rig.tap)
    rig.controller.warm_up(rig.stop_signal)
    assert rig.tap.starts == 0
    assert not rig.controller.has_synced


def test_warming_up_syncs_and_reconciles_nothing_until_it_runs() -> None:
    rig = Rig(warm_up=True)
    source = SyncingTap("a")
    rig.controller.watch(source)
    rig.start(rig.controller.warm_up)
    assert source.is_waited_for.wait(PATIENCE)
    source.sync()
    assert rig.join() == []
    assert rig.controller.has_synced
    assert rig.value("max_concurrent_reconciles") == 1
    assert rig.script.calls == []
    late = Tap("b")
    rig.controller.watch(late)
    eventually(lambda: late.starts == 1)
    rig.start()
    eventually(lambda: sorted(rig.script.calls) == ["a", "b"])
    assert source.starts == late.starts == 1
    assert rig.stop() == []


@pytest.mark.parametrize("round_", range(20))
def test_warm_up_and_run_together_start_every_source_once(round_: int) -> None:
    rig = Rig(warm_up=True)
    taps = [Tap(number) for number in range(5)]
    for tap in taps:
        rig.controller.watch(tap)
    together = threading.Barrier(2, timeout=PATIENCE)

    def meet(call: Any) -> Any:
        def run(stop: StopSignal) -> None:
            together.wait()
            call(stop)

        return run

    rig.start(meet(rig.controller.warm_up))
    rig.start(meet(rig.controller.run))
    eventually(lambda: sorted(rig.script.calls) == [0, 1, 2, 3, 4])
    assert [tap.starts for tap in taps] == [1] * 5
    assert rig.stop() == []


def test_a_warm_up_that_fails_raises_and_stops_what_it_started() -> None:
    rig = Rig(warm_up=True)
    tap = Tap()

    class FailingLater(FailingSync):
        def wait_for_sync(self, stop: StopSignal, timeout: float | None = None) -> bool:
            # What has not started by the failure is not started any more.
            eventually(lambda: tap.stop)
            return super().wait_for_sync(stop, timeout)

    rig.controller.watch(tap)
    rig.controller.watch(FailingLater())
    with pytest.raises(ConnectionError):
        rig.controller.warm_up(rig.stop_signal)
    eventually(lambda: tap.stop is not None and tap.stop.is_set())
    rig.controller.close()


@pytest.mark.parametrize("begun_by", ["warm_up", "process_next"])
def test_warming_up_again_starts_nothing_twice_and_the_stop_waits_for_nothing(
    begun_by: str, caplog: pytest.LogCaptureFixture
) -> None:
    # With the time-out that a stop would wait, were there something to wait for.
    rig = Rig(name="warmed", warm_up=True, stop_timeout=PATIENCE)
    source = JoinedTap()
    rig.controller.watch(source)
    if begun_by == "process_next":
        rig.controller.process_next()
    for _ in range(3):
        rig.controller.warm_up(rig.stop_signal)
    assert source.starts == 1
    began = system_clock.monotonic()
    rig.stop_signal.set()
    eventually(lambda: not any(rig.controller.name in t.name for t in threading.enumerate()))
    assert source.joins == 1
    assert system_clock.monotonic() - began < PATIENCE / 2
    assert "still running" not in caplog.text


def test_a_controller_that_runs_may_be_warmed_up() -> None:
    rig = Rig(warm_up=True, stop_timeout=PATIENCE)
    rig.controller.watch(rig.tap)
    rig.start()
    eventually(lambda: rig.controller.has_synced)
    for _ in range(2):
        rig.controller.warm_up(rig.stop_signal)
    began = system_clock.monotonic()
    assert rig.stop() == []
    assert system_clock.monotonic() - began < PATIENCE / 2


def stood_by(rig: Rig, source: Tap) -> None:
    """Warm up, and stop before the controller was run."""
    rig.controller.watch(source)
    rig.controller.warm_up(rig.stop_signal)
    rig.stop_signal.set()
    eventually(lambda: rig.controller.health().text.endswith("has ended"))


def test_a_stand_by_that_is_stopped_and_never_ran_cleans_up_by_itself() -> None:
    rig = Rig(name="stand-by", warm_up=True)
    source = JoinedTap()
    stood_by(rig, source)
    eventually(lambda: source.joins == 1)
    eventually(lambda: rig.value("max_concurrent_reconciles") is None)
    eventually(lambda: not any("stand-by" in t.name for t in threading.enumerate()))
    Rig(name="stand-by")
    rig.controller.close()


def test_a_stand_by_that_is_told_to_run_after_the_stop_returns() -> None:
    rig = Rig(warm_up=True)
    stood_by(rig, Tap("a"))
    rig.controller.run(rig.stop_signal)
    assert rig.script.calls == []


def test_threads_of_a_stand_by_that_do_not_end_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rig = Rig(warm_up=True, stop_timeout=0.0)
    stood_by(rig, JoinedTap(left=["pods/feeder"]))
    eventually(lambda: "pods/feeder" in caplog.text)


def test_a_stand_by_can_be_closed() -> None:
    rig = Rig(warm_up=True)
    source = JoinedTap()
    rig.controller.watch(source)
    rig.controller.warm_up(rig.stop_signal)
    rig.controller.close()
    assert source.joins == 1
    with pytest.raises(RuntimeError, match="was closed"):
        rig.controller.run(rig.stop_signal)


def test_warming_up_after_the_stop_starts_nothing() -> None:
    rig = Rig(warm_up=True)
    rig.controller.watch(rig.tap)
    rig.stop_signal.set()
    rig.controller.warm_up(rig.stop_signal)
    assert rig.tap.starts == 0


# What is kept of the sources.


class JoinedTap(Tap):
    def __init__(self, name: str = "", left: list[str] | None = None) -> None:
        super().__init__()
        self.joins = 0
        self.left = left or []

    def join(self, timeout: float | None = None) -> list[str]:
        self.joins += 1
        assert self.stop is not None
        assert self.stop.is_set()
        return self.left


def test_sources_are_released_once_they_have_started() -> None:
    rig = Rig()
    tap, syncing = Tap("a"), SyncingTap("b")
    gone = [weakref.ref(tap), weakref.ref(syncing)]
    rig.controller.watch(tap)
    rig.controller.watch(syncing)
    rig.start()
    assert syncing.is_waited_for.wait(PATIENCE)
    syncing.sync()
    del tap, syncing
    eventually(lambda: sorted(rig.script.calls) == ["a", "b"])

    def are_gone() -> bool:
        gc.collect()
        return all(ref() is None for ref in gone)

    eventually(are_gone)
    assert rig.stop() == []


def test_sources_with_threads_are_joined_at_the_stop_and_those_that_remain_are_named() -> None:
    rig = Rig()
    good, bad = JoinedTap(), JoinedTap(left=["pods/feeder"])
    rig.controller.watch(good)
    rig.controller.watch(bad)
    rig.start()
    eventually(lambda: rig.controller._works)
    (error,) = rig.stop()
    assert isinstance(error, TimeoutError)
    assert "pods/feeder" in str(error)
    assert (good.joins, bad.joins) == (1, 1)


def test_a_join_that_fails_keeps_no_other_source_from_being_joined(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(JoinedTap):
        def join(self, timeout: float | None = None) -> list[str]:
            raise OSError("no such thread")

    rig = Rig()
    good = JoinedTap()
    rig.controller.watch(Broken())
    rig.controller.watch(good)
    rig.start()
    eventually(lambda: rig.controller._works)
    assert rig.stop() == []
    assert good.joins == 1
    assert "join() of a source failed at the stop" in caplog.text


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Health(True, "ok"), ""),
        (Health(False, "its thread has ended"), "source tap: its thread has ended"),
        (OSError("no"), "source tap: its health failed: OSError('no')"),
    ],
)
def test_a_source_with_threads_is_asked_how_it_stands_while_it_runs(
    outcome: Any, text: str
) -> None:
    class Telling(JoinedTap):
        def health(self) -> Health:
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

    rig = Rig()
    rig.controller.watch(Telling())
    rig.start()
    eventually(lambda: rig.controller._works)
    health = rig.controller.health()
    assert health.is_ready == (not text)
    assert health.text.endswith(text or "ok")
    assert rig.stop() == []


def test_ctrl_c_in_the_health_of_a_source_reaches_the_main_thread() -> None:
    class Interrupted(JoinedTap):
        def health(self) -> Health:
            raise KeyboardInterrupt

    rig = Rig()
    rig.controller.watch(Interrupted())
    rig.start()
    eventually(lambda: rig.controller._works)
    with pytest.raises(KeyboardInterrupt):
        rig.controller.health()
    assert rig.stop() == []


def test_a_source_whose_text_fails_is_named_by_its_type() -> None:
    class Unnamed(FailingSync):
        def __str__(self) -> str:
            raise ValueError("no name")

    rig = Rig()
    rig.controller.watch(Unnamed())
    rig.start()
    rig.join()
    assert rig.controller.debug_snapshot()["sources"] == [
        {"source": "source <Unnamed whose text failed: ValueError>", "state": "failed"}
    ]


# With the real clock, as users run it.


def test_it_runs_on_the_real_clock() -> None:
    script = Script(ValueError("once"))
    controller: Controller[Any] = Controller("real", script, clock=system_clock)
    controller.watch(Tap("a"))
    stop = StopSignal()
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    eventually(lambda: script.calls == ["a", "a"])
    assert controller.wait_idle(PATIENCE)
    stop.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


@pytest.mark.parametrize("bad", list(itertools.product([False, True], repeat=3)))
def test_by_hand_a_source_that_fails_keeps_no_other_from_its_start(bad: tuple[bool, ...]) -> None:
    rig = Rig()
    sources = [FailingSource() if fails else Tap(number) for number, fails in enumerate(bad)]
    for source in sources:
        rig.controller.watch(source)
    if any(bad):
        with pytest.raises(ConnectionError):
            rig.controller.process_next()
    while rig.controller.process_next():
        pass
    assert set(rig.script.calls) == {number for number, fails in enumerate(bad) if not fails}
    assert rig.controller.has_synced is not any(bad)
    health = rig.controller.health()
    assert health.is_ready is not any(bad)
    assert health.text.count("failing source failed: no server") == sum(bad)
    rig.controller.close()


def test_workers_start_when_there_is_work_for_them() -> None:
    open_all, entered = threading.Event(), threading.Semaphore(0)
    rig = Rig(max_concurrent_reconciles=4)
    name = f"{rig.controller.name}/worker/"

    def during(_: Any) -> None:
        entered.release()
        assert open_all.wait(PATIENCE)

    def workers() -> set[str]:
        return {each.name for each in threading.enumerate() if each.name.startswith(name)}

    rig.script.during = during
    rig.controller.watch(rig.tap)
    rig.start()
    eventually(lambda: workers() == {f"{name}0"})
    for number in range(4):
        rig.add(number)
        assert entered.acquire(timeout=PATIENCE)
        # One more than there is work for waits for the next request.
        eventually(lambda: len(workers()) == min(number + 2, 4))  # noqa: B023 - now
    rig.add(5)
    open_all.set()
    eventually(lambda: len(rig.script.calls) == 5)
    assert workers() == {f"{name}{number}" for number in range(4)}
    assert rig.stop() == []


def test_a_worker_that_could_not_start_starts_with_a_later_look(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig, gate = Rig(max_concurrent_reconciles=2), Gate()
    # A long reconcile lasts until a short one runs beside it.
    rig.script.during = lambda request: gate() if request == "long" else gate.open.set()
    rig.controller.watch(rig.tap)
    rig.start()
    eventually(lambda: rig.tap.queue is not None)
    start = threading.Thread.start

    def fail_first(thread: threading.Thread) -> None:
        if thread.name == f"{rig.controller.name}/worker/1":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", fail_first)
    rig.add("long")
    assert gate.entered.wait(PATIENCE)
    assert "cannot start a thread for another worker" in caplog.text
    look = rig.controller.activity.monitor.look
    look(0.0)  # there is no work for it
    rig.add("short")
    look(0.0)
    eventually(lambda: rig.results() == {"success": 2})
    assert rig.stop() == []


def test_a_signal_handler_may_stop_the_controller_in_the_thread_that_waits_for_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig(clock=system_clock)
    rig.controller.watch(SyncingTap())
    min_of = min

    def interrupted(*arguments: Any, **named: Any) -> Any:
        rig.stop_signal.set()
        return min_of(*arguments, **named)

    monkeypatch.setattr(starts, "min", interrupted, raising=False)
    rig.start()
    assert rig.join() == []
