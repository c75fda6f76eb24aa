"""What goes wrong at awkward moments, and must not get lost or keep the rest from ending."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.client import RequestStopped
from appsdk_operator.controllers import Controller, ControllerOptions
from appsdk_operator.manager import LeadershipLost, Operator, RunnableGroup
from appsdk_operator.manager._core.runnable import RunnableFunction
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal, ThreadGroup
from appsdk_operator.testing import MemoryServer
from appsdk_operator.watchers import InformerController, KubernetesInformer, SimpleWatcher
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


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    """One that takes no notes."""

    text: str = "frozen"


class UnprintableError(Exception):
    """One that cannot be shown."""

    def __repr__(self) -> str:
        raise ValueError("no words")


class TestErrors:
    """Whatever is raised is raised by the run."""

    @pytest.mark.parametrize("error", [IndexError("out of range"), KeyError("x"), StopIteration()])
    def test_errors_that_python_uses_itself_are_raised(
        self, make: Callable[..., Run], error: Exception
    ) -> None:
        run = make()
        run.add("culprit", error=error, at_start=True)
        assert run.start().join() == [error]

    @pytest.mark.parametrize("error", [FrozenError(), UnprintableError()])
    def test_an_error_that_takes_no_note_or_has_no_words_ends_the_run_too(
        self, make: Callable[..., Run], error: Exception
    ) -> None:
        run = make()
        run.add("culprit", error=error, at_start=True)
        run.add("late", RunnableGroup.HTTP_SERVERS, error=UnprintableError())
        assert run.start().join() == [error]

    def test_what_is_not_raised_is_logged_with_its_traceback(
        self, make: Callable[..., Run], caplog: pytest.LogCaptureFixture
    ) -> None:
        run = make()
        run.add("late", RunnableGroup.OTHERS, error=OSError("disk full"))
        run.start()
        run.journal.wait_for("start late")
        run.add("culprit", error=ValueError("broken"), at_start=True)
        run.join()
        [record] = [r for r in caplog.records if "late" in r.getMessage()]
        assert record.exc_info is not None
        assert isinstance(record.exc_info[1], OSError)

    @pytest.mark.parametrize(
        "error",
        [
            RequestStopped("stopped"),
            asyncio.CancelledError(),
            ExceptionGroup("controllers failed", [RequestStopped("one"), RequestStopped("two")]),
        ],
    )
    def test_what_the_stop_cut_short_is_no_failure_in_whatever_form(
        self, make: Callable[..., Run], error: Any
    ) -> None:
        run = make()
        run.add("caller", error=error)
        run.start()
        run.journal.wait_for("start caller")
        assert not run.end()

    def test_a_group_with_a_real_failure_in_it_is_raised(self, make: Callable[..., Run]) -> None:
        run = make()
        error = ExceptionGroup("controllers failed", [RequestStopped("one"), OSError("disk")])
        run.add("caller", error=error)
        run.start()
        run.journal.wait_for("start caller")
        assert run.end() == [error]

    def test_a_cancellation_that_nobody_stopped_is_a_failure(
        self, make: Callable[..., Run]
    ) -> None:
        run = make()
        cancelled: Any = asyncio.CancelledError()
        run.add("caller", error=cancelled, at_start=True)
        [error] = run.start().join()
        assert error.__cause__ is cancelled

    def test_an_operator_whose_requests_the_stop_cut_short_has_not_failed(self) -> None:
        journal, stop = Journal(), StopSignal()
        operator = Operator()
        for name in ("one", "two"):
            operator.add_controller(Part(name, journal, error=RequestStopped(name)))
        raised: list[BaseException] = []

        def run() -> None:
            try:
                operator.run(stop)
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        journal.wait_for("start one")
        journal.wait_for("start two")
        stop.set()
        thread.join(TIMEOUT)
        assert not raised


class TestStart:
    """Awkward moments on the way up."""

    def test_an_async_check_is_awaited(self, make: Callable[..., Run]) -> None:
        run = make()
        gate = threading.Event()
        part = Part("webhooks", run.journal, RunnableGroup.WEBHOOKS)

        async def wait_until_ready(stop: StopSignal, limit: float | None = None) -> bool:
            run.journal.note("asked")
            return await asyncio.to_thread(gate.wait, TIMEOUT)

        part.wait_until_ready = wait_until_ready  # type: ignore[attr-defined]
        run.lifecycle.groups.add(part)
        run.start()
        run.journal.wait_for("asked")
        assert not run.lifecycle.elected.wait(0.05)
        gate.set()
        assert run.lifecycle.elected.wait(TIMEOUT)
        assert not run.end()

    @pytest.mark.parametrize("health", [lambda: 1 / 0, lambda: None, "well"])
    def test_a_cache_that_cannot_say_how_it_is_is_still_waited_for(
        self, make: Callable[..., Run], health: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        clock = ManualClock()
        run = make(clock=clock)
        gate = StopSignal()
        part = Part("cache", run.journal, RunnableGroup.CACHES)
        part.health = health  # type: ignore[attr-defined]
        ready_when(part, gate)
        run.lifecycle.groups.add(part)
        run.start()
        run.journal.wait_for("asked cache")
        clock.block_until_waiting(1)
        clock.advance(10.0)
        clock.block_until_waiting(1)
        assert "still waiting for cache" in caplog.text
        gate.set()
        assert run.lifecycle.elected.wait(TIMEOUT)
        assert not run.end()

    def test_a_lease_that_is_lost_while_the_leaders_group_starts_ends_the_start(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, elector=elector)
        worker = Part("worker", journal)
        ready_when(worker, StopSignal())
        run.lifecycle.groups.add(worker)
        run.start()
        journal.wait_for("asked worker")
        elector.lose.set()
        [error] = run.join()
        assert isinstance(error, LeadershipLost)
        assert not run.lifecycle.elected.is_set()
        journal.wait_for("end worker")

    def test_a_group_whose_base_has_stopped_starts_nothing(self) -> None:
        # Groups learn of the base's stop before the run does.
        from appsdk_operator.manager._core.groups import Group
        from appsdk_operator.manager._core.runnable import placements

        base, halt, journal = StopSignal(), StopSignal(), Journal()
        group = Group(RunnableGroup.OTHERS, on_failure=lambda *_: None, base_stop=base)
        part = Part("other", journal, RunnableGroup.OTHERS)
        group.add(part, placements(part)[0])
        base.set()
        assert not group.start(halt)
        assert not journal.entries

    @pytest.mark.parametrize("which", ["other", "other/ready"])
    def test_a_thread_that_cannot_be_started_ends_the_run_and_closes_what_never_ran(
        self, make: Callable[..., Run], monkeypatch: pytest.MonkeyPatch, which: str
    ) -> None:
        run = make()
        run.add("server", RunnableGroup.HTTP_SERVERS)
        for name in ("other", "never"):
            part = Part(name, run.journal, RunnableGroup.OTHERS)
            ready_when(part, StopSignal())
            part.close = lambda name=name: run.journal.note(f"close {name}")  # type: ignore[attr-defined]
            run.lifecycle.groups.add(part)
        start = ThreadGroup.start

        def refuse(self: ThreadGroup, name: str, target: Callable[[], None]) -> threading.Thread:
            if name == which:
                raise RuntimeError("can't start new thread")
            return start(self, name, target)

        monkeypatch.setattr(ThreadGroup, "start", refuse)
        [error] = run.start().join()
        assert "can't start new thread" in str(error)
        assert "end server" in run.journal
        assert "close never" in run.journal
        assert not run.lifecycle.groups.runnables

    def test_a_thread_that_cannot_start_hides_no_stuck_runnable(
        self, make: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = make(graceful_shutdown_timeout=0.01)
        go_on, start = threading.Event(), ThreadGroup.start
        stuck = RunnableFunction(lambda stop: go_on.wait(TIMEOUT))
        run.lifecycle.groups.add(stuck)
        run.add("late", RunnableGroup.LEADER_ELECTION)

        def refuse(self: ThreadGroup, name: str, target: Callable[[], None]) -> threading.Thread:
            if name == "late":
                raise RuntimeError("can't start new thread")
            return start(self, name, target)

        monkeypatch.setattr(ThreadGroup, "start", refuse)
        [raised] = run.start().join()
        go_on.set()
        assert isinstance(raised, ExceptionGroup)
        assert [type(error) for error in raised.exceptions] == [RuntimeError, TimeoutError]

    def test_what_cannot_be_started_late_is_refused_and_forgotten(
        self, make: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run = make()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        part = Part("late", run.journal)

        def refuse(self: ThreadGroup, name: str, target: Callable[[], None]) -> threading.Thread:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as patch:
            patch.setattr(ThreadGroup, "start", refuse)
            with pytest.raises(RuntimeError, match="can't start new thread"):
                run.lifecycle.groups.add(part)
        assert not run.lifecycle.groups.runnables
        run.lifecycle.groups.add(part)
        run.journal.wait_for("start late")
        assert not run.end()

    def test_a_name_that_asks_its_manager_does_not_lock_up(self, make: Callable[..., Run]) -> None:
        run = make()

        class Curious:
            runnable_group = RunnableGroup.OTHERS

            @property
            def name(self) -> str:
                asked = threading.Thread(target=run.lifecycle.groups.close)
                asked.start()
                asked.join(TIMEOUT)
                assert not asked.is_alive(), "a lock is held while it is asked"
                return "curious"

            def run(self, stop: StopSignal) -> None: ...

        with pytest.raises(RuntimeError, match="already engaged"):
            run.lifecycle.groups.add(Curious())


class TestStop:
    """Awkward moments on the way down."""

    def test_an_interrupt_of_the_stop_tells_everybody_and_waits_for_nobody(
        self, make: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, elector=elector)
        parts = [run.add(str(group), group) for group in ORDER]
        for part in parts:
            part.may_end.clear()
        run.start()
        assert run.lifecycle.elected.wait(TIMEOUT)
        for part in parts:
            journal.wait_for(f"start {part.name}")

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(run.lifecycle.groups[RunnableGroup.OTHERS], "wait_ended", interrupted)
        [raised] = run.end()
        assert isinstance(raised, KeyboardInterrupt)
        for part in parts:
            journal.wait_for(f"told {part.name}")
        journal.wait_for("end elector, keeping the lease")

    def test_a_close_that_would_end_the_thread_does_not_keep_the_election(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        run = make(journal, elector=FakeElector(journal))

        def close() -> None:
            raise SystemExit(1)

        worker = run.add("worker")
        worker.close = close  # type: ignore[attr-defined]
        run.start()
        journal.wait_for("start elector")
        assert not run.end()
        assert "end elector" in journal

    def test_what_never_started_is_closed_last_first_when_the_rest_has_ended(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        run = make(journal, elector=FakeElector(journal))
        other = run.add("other", RunnableGroup.OTHERS)
        other.may_end.clear()
        for name in ("first", "second"):
            part = run.add(name)
            part.close = lambda name=name: journal.note(f"close {name}")  # type: ignore[attr-defined]
        run.start()
        journal.wait_for("start elector")
        # From another thread, while it runs.
        run.lifecycle.close()
        journal.wait_for("told other")
        assert not journal.only("close")
        other.may_end.set()
        assert not run.join()
        assert journal.only("close") == ["second", "first"]

    @pytest.mark.parametrize("how", ["controller", "watchers", "operator", "operator that goes on"])
    @pytest.mark.parametrize("ends_meanwhile", [False, True])
    def test_the_lease_is_kept_exactly_while_a_call_that_was_left_behind_runs(
        self, make: Callable[..., Run], how: str, ends_meanwhile: bool
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.win.set()
        run = make(journal, elector=elector)
        leader = _Stuck(journal)
        run.lifecycle.groups.add(_runnable_of(leader, how))
        last = run.add("last", RunnableGroup.HTTP_SERVERS)
        last.may_end.clear()
        run.start()
        journal.wait_for("dropped" if "goes on" in how else "a call begins")
        run.stop.set()
        # The servers are told once the runnable has returned, and the election ends after them.
        journal.wait_for("told last")
        if ends_meanwhile:
            leader.may_end.set()
            journal.wait_for("a call ends")
            leader.join()
        last.may_end.set()
        raised = run.join()
        leader.may_end.set()
        leader.join()
        assert elector.keeps is not ends_meanwhile
        assert raised

    def test_a_standby_that_stops_ends_its_election_first_and_gives_the_lease_back(
        self, make: Callable[..., Run]
    ) -> None:
        journal = Journal()
        elector = FakeElector(journal)
        elector.give_back_lease = lambda: journal.note("give back")  # type: ignore[attr-defined]
        run = make(journal, elector=elector)
        other = run.add("other", RunnableGroup.OTHERS)
        other.may_end.clear()
        leader = run.add("leader")
        run.start()
        journal.wait_for("start elector")
        run.stop.set()
        journal.wait_for("end elector")
        assert journal.only("give") == ["back"]
        other.may_end.set()
        assert not run.join()
        assert f"start {leader.name}" not in journal


class _Stuck:
    """A callback that does not obey the stop, and the threads that run it."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.may_end = threading.Event()
        self.threads: list[threading.Thread] = []

    def __call__(self, *_: object) -> None:
        self.threads.append(threading.current_thread())
        self.journal.note("a call begins")
        self.may_end.wait(TIMEOUT)
        self.journal.note("a call ends")

    def join(self) -> None:
        for thread in self.threads:
            thread.join(TIMEOUT)
            assert not thread.is_alive()


def _runnable_of(callback: _Stuck, how: str) -> Any:
    """A runnable of the kit that calls ``callback``, and does not wait for it at the stop."""
    if how == "watchers":
        controller: Any = InformerController(stop_timeout=0.0, metrics=Metrics())
        server = MemoryServer()
        client = server.client()
        client.create(MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="default"))
        informer = KubernetesInformer(kinds.core.v1.ConfigMap, client)
        controller.add_informer(informer, kinds.core.v1.ConfigMap)
        controller.add_watcher(SimpleWatcher(add=callback), kinds.core.v1.ConfigMap)
        return controller
    controller = Controller(
        f"stuck {how}",
        callback,
        options=ControllerOptions(stop_timeout=0.0, skip_name_validation=True),
        metrics=Metrics(),
    )

    class Once:
        def start(self, queue: Any, stop: StopSignal) -> None:
            queue.add("a")

    controller.watch(Once())
    if how == "controller":
        return controller
    goes_on = "goes on" in how

    def on_error(*_: object) -> bool:
        callback.journal.note("dropped")
        return True

    operator = Operator(on_error=on_error if goes_on else None)
    if goes_on:
        operator.add_controller(Part("other", callback.journal))
        controller.watch(_Failing(callback))
    operator.add_controller(controller)
    return operator


class _Failing:
    """A source whose thread fails once a reconcile runs, which ends its controller."""

    def __init__(self, callback: _Stuck) -> None:
        self.callback = callback
        self.thread: threading.Thread | None = None

    def start(self, queue: Any, stop: StopSignal) -> None:
        def run() -> None:
            self.callback.journal.wait_for("a call begins")
            queue.fail(ConnectionError("the feed is gone"))

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def join(self, timeout: float | None = None) -> list[str]:
        assert self.thread is not None
        self.thread.join(timeout)
        return []
