"""TerminalError of watchers and reconcilers: no retry until the object asks for something else."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from appsdk_operator.client import MergePatch
from appsdk_operator.controllers import Result, TerminalError
from appsdk_operator.resource import Kind, MutableObject, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer, Simulation, running
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    KubernetesInformer,
    OpinionatedReconciler,
    OpinionatedWatcher,
    SimpleReconciler,
    SimpleWatcher,
    keep_all_retries,
)
from tests.simulations import change, version_of
from tests.waiting import eventually

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CONFIG_MAP = kinds.core.v1.ConfigMap
HOPELESS = TerminalError("no such color")


class Plan:
    """What the callbacks were called with, and what the next ones raise."""

    def __init__(self, *failures: Exception | None) -> None:
        self.calls: list[str] = []
        self.failures = list(failures)

    def next(self, call: str) -> None:
        self.calls.append(call)
        failure = self.failures.pop(0) if self.failures else None
        if failure is not None:
            raise failure

    def callbacks(self) -> dict[str, Any]:
        return {
            "add": lambda obj: self.next(f"add {version_of(obj)}"),
            "update": lambda _, obj: self.next(f"update {version_of(obj)}"),
            "delete": lambda _: self.next("delete"),
        }

    def make(self, how: str, client: Any, kind: Kind = WIDGET) -> Any:
        reconciler = SimpleReconciler(lambda request: self.next(request.action.name))
        return {
            "watcher": lambda: SimpleWatcher(**self.callbacks()),
            "reconciler": lambda: reconciler,
            "opinionated watcher": lambda: OpinionatedWatcher(kind, client, **self.callbacks()),
            "opinionated reconciler": lambda: OpinionatedReconciler(reconciler, kind, client),
        }[how]()


ALL = ["watcher", "reconciler", "opinionated watcher", "opinionated reconciler"]


def simulate(plan: Plan, how: str = "watcher", **options: Any) -> Simulation:
    return Simulation(
        WIDGET, lambda process: [plan.make(how, process.client)], resync=30.0, **options
    )


def create_and_delete(simulation: Simulation) -> None:
    """The life of an object, each event handled before the next one."""
    simulation.create("a")
    follow(simulation)
    simulation.delete("a")
    follow(simulation)


def an_hour(simulation: Simulation) -> None:
    for _ in range(120):
        simulation.advance(30.0)
        simulation.poll()
        while simulation.handle():
            pass


def follow(simulation: Simulation) -> None:
    for _ in range(5):
        simulation.advance(2.0)
        simulation.poll()
        while simulation.handle():
            pass


@pytest.mark.parametrize("how", ALL)
def test_no_retry_and_no_resync_brings_it_back(how, caplog):
    caplog.set_level(logging.INFO, "appsdk_operator.watchers")
    plan = Plan(*200 * [HOPELESS])
    with simulate(plan, how) as simulation:
        simulation.create("a")
        an_hour(simulation)
        assert len(plan.calls) == 1
        health = simulation.controller.health()
        assert "1 call failed for good, until the object is changed" in health.text
        assert simulation.controller.given_up_calls == 0
    assert sum("until its generation, labels or annotations" in r.message for r in caplog.records)


@pytest.mark.parametrize("how", ALL)
@pytest.mark.parametrize(
    ("wanted", "is_news"),
    [
        ({"status": {"color": "none"}}, False),
        ({"finalizers": ["example.com/x"]}, False),
        ({"spec": {"n": 2}}, True),
        ({"labels": {"a": "b"}}, True),
        ({"annotations": {"a": "b"}}, True),
    ],
)
def test_what_the_object_asks_for_brings_it_back_and_nothing_else(how, wanted, is_news):
    plan = Plan(HOPELESS)
    with simulate(plan, how) as simulation:
        simulation.create("a", spec={"n": 1})
        follow(simulation)
        assert len(plan.calls) == 1
        change(simulation, "a", **wanted)
        follow(simulation)
        assert (len(plan.calls) > 1) == is_news
        if is_news:
            snapshot = simulation.controller.debug_snapshot()
            assert (snapshot["planned"], snapshot["given_up"]) == ([], [])


def test_kinds_without_generations_bring_it_back_by_any_change():
    plan = Plan(HOPELESS)
    with Simulation(
        CONFIG_MAP, lambda process: [plan.make("watcher", process.client)]
    ) as simulation:
        simulation.create("a")
        follow(simulation)
        simulation.replace("a", {"data": {"n": "1"}})
        follow(simulation)
        assert plan.calls == ["add 2", "update 3"]


@pytest.mark.parametrize("how", ["watcher", "reconciler"])
def test_a_deletion_is_told_and_what_is_made_anew_is_new(how):
    plan = Plan(HOPELESS)
    with simulate(plan, how) as simulation:
        create_and_delete(simulation)
        simulation.create("a")
        follow(simulation)
        assert [call.split()[0].lower() for call in plan.calls] in (
            ["add", "delete", "add"],
            ["create", "delete", "create"],
        )


@pytest.mark.parametrize("how", ["opinionated watcher", "opinionated reconciler"])
def test_an_object_on_its_way_out_is_cleaned_up(how):
    plan = Plan(HOPELESS)
    with simulate(plan, how) as simulation:
        create_and_delete(simulation)
        assert [call.split()[0].lower() for call in plan.calls][1:] == ["delete"]
        assert simulation.find("a") is None


def test_a_terminal_error_in_the_midst_ends_the_retries_that_were_kept():
    plan = Plan(ConnectionError("once"), HOPELESS)
    with simulate(
        plan, retry_policy=ConstantBackoff(1000.0), retry_dequeue_policy=keep_all_retries
    ) as simulation:
        simulation.create("a")
        follow(simulation)
        change(simulation, "a", spec={"n": 2})
        follow(simulation)
        assert plan.calls == ["add 2", "update 3"]
        an_hour(simulation)
        assert plan.calls == ["add 2", "update 3"]


def test_a_resync_that_fails_so_is_the_last_one():
    plan = Plan(None, HOPELESS)
    with simulate(plan) as simulation:
        simulation.create("a")
        an_hour(simulation)
        assert plan.calls == ["add 2", "update 2"]
        change(simulation, "a", spec={"n": 2})
        an_hour(simulation)
        assert plan.calls[2] == "update 3"
        assert len(plan.calls) > 50, "the resyncs are back"


def test_it_ends_a_call_that_was_asked_for_before(make_rig, widget):
    rig = make_rig(retry_policy=ConstantBackoff(10.0), retry_dequeue_policy=keep_all_retries)
    outcomes: list[Result | Exception] = [ConnectionError(), Result(requeue_after=60.0), HOPELESS]
    calls = []

    def reconcile(request):
        calls.append(request.action.name)
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    rig.controller.add_reconciler(SimpleReconciler(reconcile), WIDGET)
    rig.informer.add(widget("x", 1))
    rig.informer.update(widget("x", 1), widget("x", 2))
    rig.work()
    rig.after(10.0)
    rig.after(60.0)
    assert calls == ["CREATE", "UPDATE", "CREATE"]
    assert rig.controller.pending_requeues == 0


def test_it_ends_what_else_a_resync_would_repeat(make_rig, widget):
    rig = make_rig(
        retry_policy=lambda _, attempt: None if attempt else 1.0,
        retry_dequeue_policy=keep_all_retries,
    )
    rig.watcher("w", *4 * [ConnectionError()], HOPELESS)
    rig.informer.add(widget("x", 1, generation=1))
    rig.informer.update(widget("x", 1, generation=1), widget("x", 2, generation=2))
    rig.work()
    rig.after(1.0)
    assert rig.controller.given_up_calls == 2
    rig.informer.resync(widget("x", 2, generation=2))
    assert rig.work() == ["w CREATE 2 of x"]


def test_other_watchers_and_objects_do_not_notice():
    hopeless, fine = Plan(*200 * [HOPELESS]), Plan()
    with Simulation(
        WIDGET,
        lambda process: [
            hopeless.make("watcher", process.client),
            fine.make("watcher", process.client),
        ],
        resync=30.0,
    ) as simulation:
        simulation.create("a")
        simulation.create("b")
        an_hour(simulation)
    assert len(hopeless.calls) == 2
    assert len(fine.calls) > 100


@pytest.fixture
def failed(rig, widget):
    """An object whose addition has failed for good."""
    rig.watcher("w", HOPELESS)
    obj = widget("x", 1, generation=1)
    rig.informer.add(obj)
    rig.work()
    return obj


def test_the_mark_of_a_deletion_is_told_whatever_the_generation(rig, failed, widget):
    marked = widget("x", 2, generation=1, deletionTimestamp="2024-01-01T00:00:00Z")
    rig.informer.update(failed, marked)
    assert rig.work() == ["w UPDATE 1->2 of x"]


def test_another_object_of_the_name_is_told(rig, failed, widget):
    rig.informer.add(widget("x", 2, generation=1, uid="another"))
    assert rig.work() == ["w CREATE 2 of x"]


def test_a_history_that_goes_back_is_told(rig, failed, widget):
    newer = widget("x", 5, generation=1)
    rig.informer.update(failed, newer)
    assert rig.work() == []
    rig.informer.update(newer, widget("x", 3, generation=1))
    assert rig.work() == ["w UPDATE 5->3 of x"]


@pytest.mark.parametrize("how", ALL)
def test_for_kinds_without_generations_any_change_of_others_counts_and_none_of_ours(how):
    client = MemoryServer().client()
    plan = Plan(HOPELESS, HOPELESS)
    controller = InformerController(metrics=Metrics())
    informer = KubernetesInformer(CONFIG_MAP, client, metrics=Metrics(), resync=0)
    controller.add_informer(informer, CONFIG_MAP)
    target = plan.make(how, client, CONFIG_MAP)
    if hasattr(target, "reconcile"):
        controller.add_reconciler(target, CONFIG_MAP)
    else:
        controller.add_watcher(target, CONFIG_MAP)

    def has_caught_up(calls: int) -> bool:
        stored = informer.store.get("a", "default")
        there = client.get(CONFIG_MAP, "a", namespace="default")
        is_seen = stored is not None and stored.resource_version == there.resource_version
        return is_seen and len(plan.calls) >= calls and controller.wait_idle(1)

    with running(controller):
        client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default"))
        eventually(lambda: has_caught_up(1))
        assert len(plan.calls) == 1, "its own finalizer is no change"
        patch = MergePatch({"data": {"b": "c"}})
        client.patch(CONFIG_MAP, "a", patch, namespace="default")
        eventually(lambda: has_caught_up(2))
        assert len(plan.calls) == 2
