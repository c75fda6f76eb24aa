"""Something that runs beside a test: started, waited for, stopped and joined, however it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.cache import Cache, Health
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.controllers import Controller
from appsdk_operator.manager import CacheSetup, LeaderElection, Manager
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer, running
from appsdk_operator.watchers import InformerController, KubernetesInformer


class Worker:
    """Runs until its stop, and can be told when it is ready."""

    name = "worker"

    def __init__(self, *, ready: bool = True) -> None:
        self.has_synced = ready
        self.has_ended = False

    def run(self, stop: StopSignal) -> None:
        stop.wait()
        self.has_ended = True


def test_it_runs_while_the_block_lasts_and_has_ended_after_it() -> None:
    worker = Worker()
    with running(worker) as stop:
        assert not worker.has_ended
        assert not stop.is_set()
    assert worker.has_ended


def test_a_block_that_fails_ends_it_too() -> None:
    worker = Worker()
    with pytest.raises(AssertionError, match="wrong"), running(worker):
        raise AssertionError("wrong")
    assert worker.has_ended


def test_the_block_may_stop_it_before_its_end() -> None:
    ended = threading.Event()

    def work(stop: StopSignal) -> None:
        stop.wait()
        ended.set()

    with running(work) as stop:
        stop.set()
        assert ended.wait(10)


def test_an_asynchronous_one_runs_too() -> None:
    begun = threading.Event()

    async def work(stop: StopSignal) -> None:
        begun.set()

    with running(work):
        assert begun.wait(10)


def test_its_error_is_raised_at_the_end_of_the_block() -> None:
    def fail(stop: StopSignal) -> None:
        stop.wait()
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError, match="lost"), running(fail):
        pass


def test_where_both_fail_the_error_of_the_block_comes_through_and_notes_the_other() -> None:
    def fail(stop: StopSignal) -> None:
        stop.wait()
        raise ConnectionError("lost")

    with pytest.raises(AssertionError) as caught, running(fail):
        raise AssertionError("wrong")
    (note,) = caught.value.__notes__
    assert "fail" in note
    assert "ConnectionError('lost')" in note


def test_the_block_begins_when_it_has_synced() -> None:
    class Slow(Worker):
        def run(self, stop: StopSignal) -> None:
            self.has_synced = True
            super().run(stop)

    worker = Slow(ready=False)
    with running(worker):
        assert worker.has_synced


def test_one_that_says_when_it_is_ready_is_asked_until_it_is() -> None:
    class Asked:
        asked = 0

        async def wait_until_ready(self, stop: StopSignal, _: float) -> bool:
            self.asked += 1
            return self.asked == 2

        def run(self, stop: StopSignal) -> None:
            stop.wait()

    asked = Asked()
    with running(asked):
        assert asked.asked == 2


def test_one_that_does_not_get_ready_in_time_is_stopped_and_named() -> None:
    worker = Worker(ready=False)
    with (
        pytest.raises(TimeoutError, match=r"worker was not ready after 0 s.*wait=False"),
        running(worker, timeout=0.0),
    ):
        raise AssertionError("the block was not to begin")
    stopped = Worker(ready=False)
    with running(stopped, wait=False):
        pass
    assert stopped.has_ended


@pytest.mark.parametrize("make", ["controller", "cache", "manager"])
def test_one_that_is_not_ready_because_its_kind_is_missing_says_so(make: str) -> None:
    widget = Kind(group="example.com", version="v1", kind="Widget")
    with APIServer() as server:
        config = ClientConfig(server=server.url)
        with Client(config, metrics=Metrics()) as client:
            runnable: Any = Cache(client, metrics=Metrics())
            runnable.add(widget)
            if make == "controller":
                runnable = InformerController(metrics=Metrics())
                runnable.add_informer(KubernetesInformer(widget, client), widget)
            elif make == "manager":
                setup = CacheSetup(kinds=[widget])
                runnable = Manager(config, cache=setup, metrics=Metrics())
            with pytest.raises(TimeoutError) as raised, running(runnable, timeout=0.2):
                raise AssertionError("the block was not to begin")
    told = str(raised.value)
    assert "was not ready after 0.2 s: " in told
    assert "widgets.example.com: not synced yet" in told
    assert "wait=False" not in told


def test_one_that_says_what_keeps_it_is_quoted() -> None:
    class Ill(Worker):
        def health(self) -> Health:
            return Health(False, "its CRD is missing")

    with (
        pytest.raises(TimeoutError, match=r"^worker was not ready after 0 s: its CRD is missing"),
        running(Ill(ready=False), timeout=0.0),
    ):
        raise AssertionError("the block was not to begin")


def test_what_it_says_of_its_health_counts_only_if_it_is_a_health() -> None:
    class Odd(Worker):
        def health(self) -> str:
            return "fine"

    class Well(Worker):
        def health(self) -> Health:
            return Health(True, "fine")

    for worker in (Odd(ready=False), Well(ready=False)):
        with (
            pytest.raises(
                TimeoutError,
                match=r"worker was not ready after 0 s; for a replica on standby.*wait=False",
            ),
            running(worker, timeout=0.0),
        ):
            raise AssertionError("the block was not to begin")


def test_one_that_fails_before_it_is_ready_says_why() -> None:
    class Failing(Worker):
        def run(self, stop: StopSignal) -> None:
            raise ConnectionError("no server")

    with pytest.raises(ConnectionError, match="no server"), running(Failing(ready=False)):
        raise AssertionError("the block was not to begin")


def test_one_that_returns_before_it_is_ready_is_an_error() -> None:
    class Returning(Worker):
        def run(self, stop: StopSignal) -> None:
            return

    with pytest.raises(RuntimeError, match="worker ended before it was ready"):  # noqa: SIM117
        with running(Returning(ready=False)):
            raise AssertionError("the block was not to begin")


def test_one_that_does_not_end_is_named_instead_of_waited_for() -> None:
    release = threading.Event()
    with pytest.raises(TimeoutError, match=r"stubborn.* has not ended 0 s after its stop"):  # noqa: SIM117
        with running(stubborn_until(release), timeout=0.0):
            pass
    with pytest.raises(AssertionError) as caught, running(stubborn_until(release), timeout=0.0):
        raise AssertionError("wrong")
    release.set()
    assert "still runs" in caught.value.__notes__[0]


def stubborn_until(release: threading.Event) -> Callable[[StopSignal], None]:
    def stubborn(stop: StopSignal) -> None:
        release.wait()

    return stubborn


def test_what_cannot_be_run_is_refused() -> None:
    with pytest.raises(TypeError, match="cannot be run"), running(42):  # type: ignore[arg-type]
        pass


def test_a_controller_has_synced_when_the_block_begins() -> None:
    controller = Controller("empty", lambda request: None, metrics=Metrics())
    with running(controller):
        assert controller.has_synced


def test_a_manager_leads_when_the_block_begins_and_a_standby_need_not() -> None:
    with APIServer() as server:
        config = ClientConfig(server=server.url)
        election = LeaderElection(id="one", namespace="default")
        first = Manager(config, leader_election=election, metrics=Metrics())
        second = Manager(config, leader_election=election, metrics=Metrics())
        with running(first), running(second, wait=False):
            assert first.elected.is_set()
            assert not second.elected.is_set()
