"""A controller before it runs: what it refuses, what its name is for, and that it costs nothing."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import pytest

from appsdk_operator.controllers import Controller, ControllerOptions, controller_names
from appsdk_operator.runtime import Metrics, StopSignal, TokenBucket
from tests.controllers.controller_tools import PATIENCE, Rig, Script, SyncingTap, Tap
from tests.forking import in_child


def nothing(_: Any) -> None:
    """Reconcile nothing."""


@pytest.mark.parametrize("name", ["", None, 5])
def test_a_name_is_required(name: Any) -> None:
    with pytest.raises(ValueError, match="give the controller a name"):
        Controller(name, nothing)


@pytest.mark.parametrize(
    ("reconciler", "remedy"),
    [
        (None, "an object with reconcile"),
        (object(), "an object with reconcile"),
        (Script, "give an instance, Script"),
        (lambda: None, "cannot be called with only a request"),
        (lambda request, more: None, "cannot be called with only a request"),
    ],
)
def test_a_reconciler_is_required(reconciler: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        Controller("needs-reconciler", reconciler)
    Controller("needs-reconciler", nothing)  # the name was not taken


def test_a_source_that_is_none_is_refused() -> None:
    controller: Controller[Any] = Controller("sources", nothing)
    with pytest.raises(TypeError, match="needs start"):
        controller.watch(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="watch an instance, Tap"):
        controller.watch(Tap)  # type: ignore[arg-type]


def test_a_name_that_is_in_use_is_refused_with_the_remedy() -> None:
    first: Controller[Any] = Controller("twins", nothing)
    with pytest.raises(ValueError, match=r"'twins' is in use.*skip_name_validation"):
        Controller("twins", nothing)
    assert first.name == "twins"


@pytest.mark.parametrize("by_manager", [False, True])
def test_the_check_of_the_name_can_be_skipped(by_manager: bool) -> None:
    skip = ControllerOptions(skip_name_validation=True)
    options = ControllerOptions().over(skip) if by_manager else skip
    first: Controller[Any] = Controller("skipping", nothing)
    second: Controller[Any] = Controller("skipping", nothing, options=options)
    assert first.name == second.name


def test_two_of_one_name_add_up_and_the_end_of_one_leaves_the_other() -> None:
    metrics = Metrics()
    rigs = [Rig(name="sum", metrics=metrics, skip_name_validation=True) for _ in range(2)]
    for rig in rigs:
        rig.begin()
        rig.add()
        rig.work()
    labels = {"controller": "sum", "result": "success"}
    assert metrics.value("controller_runtime_reconcile_total", **labels) == 2
    for rig in rigs:
        rig.close()
    assert metrics.value("controller_runtime_reconcile_total", **labels) == 2


def test_a_name_is_free_again_when_its_controller_has_ended() -> None:
    for _ in range(2):
        rig = Rig(name="again")
        rig.start()
        assert rig.stop() == []
        kept = rig  # alive: it is the end that frees the name
    assert kept.controller.name == "again"


def test_a_name_is_free_again_when_its_controller_failed() -> None:
    class Broken:
        def start(self, queue: Any, stop: StopSignal) -> None:
            raise ConnectionError("no server")

    for _ in range(2):
        rig = Rig(name="failing")
        rig.controller.watch(Broken())
        rig.start()
        assert [type(error) for error in rig.join()] == [ConnectionError]


def test_a_name_is_free_again_when_its_controller_never_ran_and_is_garbage() -> None:
    controller: Controller[Any] | None = Controller("forgotten", nothing)
    gone = weakref.ref(controller)
    controller = None
    assert gone() is None, "a reference cycle keeps it until the next collection"
    Controller("forgotten", nothing)


def test_a_name_is_free_again_although_its_garbage_is_part_of_a_cycle() -> None:
    class Program:
        def __init__(self) -> None:
            self.controller: Controller[Any] = Controller("cycle", self.reconcile)

        def reconcile(self, request: Any) -> None:
            pass

    gc.disable()
    try:
        Program()
        Program()
    finally:
        gc.enable()


def test_a_controller_that_never_ran_has_no_threads_and_no_metrics() -> None:
    threads = set(threading.enumerate())
    limiters: list[TokenBucket] = []

    def make() -> TokenBucket:
        limiters.append(TokenBucket())
        return limiters[-1]

    rig = Rig(rate_limiter=make, max_concurrent_reconciles=4, reconcile_timeout=1.0)
    tap = SyncingTap()
    rig.controller.watch(tap)
    assert set(threading.enumerate()) <= threads
    assert rig.metrics.render() == ""
    assert (limiters, tap.starts) == ([], 0)
    assert not rig.controller.has_synced
    assert rig.controller.wait_idle(0)
    assert rig.controller.next_due is None
    assert rig.controller.debug_snapshot()["health"].endswith("is not started")


def test_each_controller_makes_a_limiter_of_its_own() -> None:
    shared = ControllerOptions(rate_limiter=lambda: TokenBucket(rate=1.0, burst=1))
    rigs = [Rig(rate_limiter=shared.rate_limiter).begin() for _ in range(2)]
    limiters = []
    for rig in rigs:
        assert rig.controller._run is not None
        limiters.append(rig.controller._run.queue.rate_limiter)
        rig.close()
    assert limiters[0] is not limiters[1]


def test_a_factory_that_makes_no_limiter_fails_the_run_with_the_remedy() -> None:
    rig = Rig(rate_limiter=lambda: 5)
    rig.start()
    (error,) = rig.join()
    assert "has no when and no forget and no failures" in str(error)


def test_a_factory_that_fails_is_not_asked_again() -> None:
    calls: list[int] = []

    def make() -> TokenBucket:
        calls.append(1)
        raise KeyError("no limits configured")

    rig = Rig(rate_limiter=make)
    with pytest.raises(KeyError):
        rig.controller.process_next()
    with pytest.raises(RuntimeError, match="could not begin: see its first error"):
        rig.controller.process_next()
    assert calls == [1]
    rig.close()


@pytest.mark.parametrize("needs", [True, False])
def test_whether_it_needs_leader_election_can_be_asked(needs: bool) -> None:
    options = ControllerOptions(needs_leader_election=needs)
    assert Controller(f"leader-{needs}", nothing, options=options).needs_leader_election is needs


def test_a_controller_without_metrics_publishes_with_all_others() -> None:
    from appsdk_operator.runtime import default_metrics

    controller: Controller[Any] = Controller("public", nothing)
    controller.process_next()
    assert controller._metrics is default_metrics()
    controller.close()


def test_a_child_makes_controllers_whoever_held_the_names() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with controller_names._lock:
            held.set()
            done.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(PATIENCE)
    made = in_child(lambda: Controller("a", lambda request: None).name, seconds=20)
    done.set()
    thread.join()
    assert made == "a"
