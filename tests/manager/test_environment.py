"""What a manager runs is on its clock, and publishes in its metrics unless it was given others."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Cache, Informer
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.controllers import (
    Controller,
    FunctionSource,
    InformerSource,
    PollingSource,
    Request,
    Result,
    TimerSource,
    for_object,
)
from appsdk_operator.manager import Cluster, LeaderElection, Manager, Operator, Shards
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import ManualClock, Metrics, default_metrics, environment
from appsdk_operator.testing import MemoryServer
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    KubernetesInformer,
    SimpleWatcher,
)
from tests.runs import Run
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
NOWHERE = ClientConfig(server="http://127.0.0.1:1")
TIMEOUT = 10.0


@pytest.fixture
def clock() -> ManualClock:
    # Far from the machine's in the one direction; the next test has the other.
    return ManualClock(start=1000.0)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def client() -> Iterator[Client]:
    with MemoryServer() as server, server.client(metrics=Metrics()) as made:
        obj = MutableObject.new(CONFIG_MAP, "one", namespace="default")
        made.create(obj)
        yield made


@pytest.fixture(autouse=True)
def on_the_clock(clock: ManualClock) -> Iterator[None]:
    with environment(clock=clock):
        yield


@pytest.fixture
def manager(metrics: Metrics) -> Iterator[Manager]:
    made = Manager(NOWHERE, metrics=metrics)
    yield made
    made.close()


@pytest.fixture
def run() -> Iterator[Any]:
    started: list[Run] = []

    def start(manager: Manager) -> Run:
        started.append(Run(manager).start())
        eventually(manager.elected.is_set)
        return started[-1]

    yield start
    for one in started:
        assert one.end() == []


class Calls:
    """A watcher that counts, fails as often as it is told, and can be waited for."""

    def __init__(self, failures: int = 0) -> None:
        self.count = 0
        self._failures = failures
        self._changed = threading.Condition()

    def __call__(self, *_: object) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()
            if self.count <= self._failures:
                raise ValueError("as planned")

    def wait(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, TIMEOUT), self.count


def informed(name: str, calls: Calls, informer: Any, **options: Any) -> InformerController:
    controller = InformerController(name=name, retry_policy=ConstantBackoff(600.0), **options)
    controller.add_informer(informer, CONFIG_MAP)
    controller.add_watcher(SimpleWatcher(add=calls, update=calls), CONFIG_MAP)
    return controller


def handed_out(metrics: Metrics, name: str) -> float | None:
    return metrics.value("workqueue_adds_total", name=name, controller=name)


def check_its_retry(
    controller: InformerController, calls: Calls, clock: ManualClock, metrics: Metrics
) -> None:
    """Its failed call is repeated by the clock, and counted in the metrics alone."""
    calls.wait(1)
    eventually(lambda: controller.pending_retries == 1)
    assert controller.next_retry_at == clock.monotonic() + 600.0
    clock.advance(600.0)
    calls.wait(2)
    handed = handed_out(metrics, controller.name)
    assert handed is not None
    assert handed >= 2
    assert handed_out(default_metrics(), controller.name) is None


def test_retries_of_an_added_controller_come_by_the_managers_clock(
    manager, clock, metrics, client, run
):
    calls = Calls(failures=1)
    controller = informed(
        "inherits-retries", calls, KubernetesInformer(CONFIG_MAP, client, resync=0)
    )
    manager.add(controller)
    run(manager)
    check_its_retry(controller, calls, clock, metrics)


def test_resyncs_of_an_added_controller_come_by_the_managers_clock(
    manager, clock, metrics, client, run
):
    calls = Calls()
    informer = KubernetesInformer(CONFIG_MAP, client, resync=30.0)
    controller = informed("resyncs", calls, informer)
    manager.add(controller)
    run(manager)
    calls.wait(1)
    for count in (2, 3):
        clock.advance(33.1)
        calls.wait(count)
    labels = {"kind": str(CONFIG_MAP), "namespace": ""}
    assert metrics.value("informer_objects", **labels) == 1
    assert metrics.value("informer_events_total", event_type="RESYNC", kind=str(CONFIG_MAP)) >= 2


def test_metrics_that_were_given_stay(manager, metrics, client, run):
    own, calls = Metrics(), Calls()
    informer = Informer(CONFIG_MAP, client)
    controller = informed("has-its-own", calls, informer, metrics=own)
    manager.add(controller)
    run(manager)
    calls.wait(1)
    assert handed_out(own, "has-its-own") >= 1
    assert handed_out(metrics, "has-its-own") is None
    labels = {"kind": str(CONFIG_MAP), "namespace": ""}
    assert own.value("informer_objects", **labels) == 1, "it publishes where its controller does"
    assert metrics.value("informer_objects", **labels) is None


def test_metrics_that_were_entered_where_a_part_is_made_stay(manager, metrics, client, run):
    own, calls = Metrics(), Calls()
    with environment(metrics=own):
        controller = informed("entered", calls, KubernetesInformer(CONFIG_MAP, client))
    manager.add(controller)
    run(manager)
    calls.wait(1)
    assert handed_out(own, "entered") >= 1
    assert handed_out(metrics, "entered") is None


@pytest.mark.parametrize("is_operated", [True, False])
def test_a_part_on_another_clock_is_refused(is_operated, manager):
    controller = InformerController(name="elsewhere", clock=ManualClock())
    operator = Operator()
    operator.add_controller(controller)
    with pytest.raises(ValueError, match=r"make it within 'with environment\(clock=…\)'"):
        manager.add(operator if is_operated else controller)
    controller.close()


def test_a_refused_part_can_be_added_once_it_is_made_again(manager, clock):
    with pytest.raises(ValueError, match="on another clock"):
        manager.add(InformerController(name="again", clock=ManualClock()))
    manager.add(InformerController(name="again", clock=clock))


def test_what_counts_before_it_runs_is_published_where_it_runs(manager, metrics, client, run):
    with MemoryServer() as server:
        cluster = Cluster(server.config)
        cluster.live_client.list_page(CONFIG_MAP)
        requests = "rest_client_requests_total"
        before = metrics.render().count(requests)
        manager.add(cluster)
        run(manager)
        eventually(lambda: metrics.render().count(requests) > before)


def test_a_controller_that_is_added_to_a_running_manager_inherits(
    manager, clock, metrics, client, run
):
    run(manager)
    calls = Calls(failures=1)
    controller = informed("late", calls, KubernetesInformer(CONFIG_MAP, client, resync=0))
    manager.add(controller)
    check_its_retry(controller, calls, clock, metrics)


def test_an_informer_that_is_added_to_a_running_controller_inherits(
    manager, clock, metrics, client, run
):
    controller = InformerController(name="gets-more")
    manager.add(controller)
    run(manager)
    informer = KubernetesInformer(CONFIG_MAP, client)
    controller.add_informer(informer, CONFIG_MAP)
    assert informer.clock.monotonic() == clock.monotonic()
    labels = {"kind": str(CONFIG_MAP), "namespace": ""}
    eventually(lambda: metrics.value("informer_objects", **labels) == 1)
    assert default_metrics().value("informer_objects", **labels) is None


@pytest.mark.parametrize("is_early", [True, False])
def test_an_operator_hands_down_what_its_manager_has(
    is_early, manager, clock, metrics, client, run
):
    calls = Calls(failures=1)
    informer = KubernetesInformer(CONFIG_MAP, client, resync=0)
    controller = informed("operated", calls, informer)
    operator = Operator()
    if is_early:
        operator.add_controller(controller)
    manager.add(operator)
    if not is_early:
        operator.add_controller(controller)
    run(manager)
    check_its_retry(controller, calls, clock, metrics)


def test_a_controller_and_its_sources_inherit(manager, clock, metrics, run):
    reconciled, ticks, polls = Calls(), Calls(), Calls()

    def reconcile(_: Request) -> Result:
        reconciled()
        return Result(requeue_after=600.0)

    def tick() -> list[Request]:
        ticks()
        return []

    def poll() -> dict[Request, int]:
        polls()
        return {}

    controller: Controller[Request] = Controller("by-hand", reconcile)
    controller.watch(FunctionSource(lambda queue, _: queue.add(Request("", "one"))))
    controller.watch(TimerSource(100.0, tick, name="inherits-ticks"))
    manager.add(controller)
    controller.watch(PollingSource(100.0, poll, name="inherits-polls"))
    run(manager)
    reconciled.wait(1)
    polls.wait(1)
    eventually(lambda: controller.next_due == clock.monotonic() + 600.0)
    controller.watch(TimerSource(100.0, functools.partial(tick), name="late-ticks"))
    clock.block_until_waiting(4)  # three sources, and the queue
    clock.advance(600.0)
    reconciled.wait(2)
    ticks.wait(2)
    polls.wait(2)
    labels = {"controller": "by-hand", "result": "requeue_after"}
    assert metrics.value("controller_runtime_reconcile_total", **labels) >= 1
    assert default_metrics().value("controller_runtime_reconcile_total", **labels) is None
    for name in ("inherits-ticks", "inherits-polls", "late-ticks"):
        assert metrics.value("source_errors_total", source=name) == 0
        assert default_metrics().value("source_errors_total", source=name) is None


def test_sources_of_events_inherit(manager, clock, metrics, client, run):
    informer = Informer(CONFIG_MAP, client)
    calls = Calls()
    controller: Controller[Request] = Controller("of-events", calls)
    controller.watch(InformerSource(informer, for_object()))
    manager.add(informer)
    manager.add(controller)
    run(manager)
    calls.wait(1)
    labels = {"kind": str(CONFIG_MAP), "namespace": ""}
    assert informer.clock.monotonic() == clock.monotonic()
    assert metrics.value("informer_objects", **labels) == 1
    # The handler of the source may have more to do than the queue's worker.
    eventually(lambda: metrics.value("source_pending_events", source=str(CONFIG_MAP)) == 0)
    assert default_metrics().value("source_pending_events", source=str(CONFIG_MAP)) is None


def test_a_cache_inherits(manager, clock, metrics, client, run):
    cache = Cache(client)
    cache.add(CONFIG_MAP)
    manager.add(cache)
    run(manager)
    (informer,) = cache.informers(CONFIG_MAP)
    assert informer.clock.monotonic() == clock.monotonic()
    labels = {"kind": str(CONFIG_MAP), "namespace": ""}
    assert metrics.value("informer_objects", **labels) == 1
    assert default_metrics().value("informer_objects", **labels) is None


def test_shards_inherit(manager, clock, metrics, client, run):
    shards = Shards(client, LeaderElection(id="inherits", namespace="default"), 1)
    manager.add(shards)
    run(manager)

    def holds() -> bool:
        clock.advance(0.2)  # requests have five seconds
        return shards.held == {0}

    eventually(holds)
    assert "inherits-shard-0" in metrics.render()
    assert "inherits-shard-0" not in default_metrics().render()
