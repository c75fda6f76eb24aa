"""Reconcilers of both halves on one manager's cache, on both servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.cache import ResourceAction
from appsdk_operator.controllers import Request, Result, controller_for
from appsdk_operator.manager import CacheSetup, Manager
from appsdk_operator.resource import MutableObject
from appsdk_operator.runtime import Metrics
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    OpinionatedReconciler,
    ReconcileRequest,
    SimpleReconciler,
)
from tests.conformance.conftest import CONFIG_MAP, TIMEOUT, WIDGET, World
from tests.runs import Run
from tests.waiting import eventually


class Running(Run):
    """A manager with what a test adds, running until the end."""

    patience = TIMEOUT

    def __init__(self, world: World) -> None:
        self.world = world
        setup = CacheSetup(namespaces=[world.namespace])
        self.manager = Manager(world.client, cache=setup, metrics=Metrics())
        super().__init__(self.manager)

    def end(self) -> list[BaseException]:
        raised = super().end()
        self.manager.close()
        assert not raised
        return raised


@pytest.fixture
def make_running(world: World) -> Iterator[Any]:
    made: list[Running] = []

    def make() -> Running:
        made.append(Running(world))
        return made[-1]

    yield make
    for running in made:
        running.end()


class Life:
    """A reconciler that needs two calls for a creation and two for a deletion."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def reconcile(self, request: ReconcileRequest) -> Result | None:
        self.told.append(request.action.value)
        is_slow = request.action in (ResourceAction.CREATE, ResourceAction.DELETE)
        if is_slow and "begun" not in request.state:
            request.state["begun"] = True
            return Result(requeue_after=0.05)
        return None


def opinionated(running: Running, life: Any) -> InformerController:
    controller = InformerController(retry_policy=ConstantBackoff(0.05), metrics=Metrics())
    controller.add_cache(running.manager.cache, WIDGET)
    controller.add_reconciler(OpinionatedReconciler(life, WIDGET, running.world.client), WIDGET)
    running.manager.add(controller)
    return controller


def is_held(world: World, name: str) -> bool:
    obj = world.find(WIDGET, name)
    return obj is not None and "example.com/operator.v1.Widget" in obj.finalizers


def test_an_object_goes_through_a_slow_creation_and_a_slow_deletion(
    world: World, make_running: Any
) -> None:
    running, life = make_running(), Life()
    opinionated(running, life)
    running.start()
    world.create(WIDGET, "one")
    assert eventually(lambda: is_held(world, "one"))
    assert life.told == ["CREATE", "CREATE"]
    world.resize(WIDGET, "one", 2)
    assert eventually(lambda: life.told[2:] == ["UPDATE"])
    world.delete(WIDGET, "one")
    assert eventually(lambda: world.find(WIDGET, "one") is None)
    assert life.told == ["CREATE", "CREATE", "UPDATE", "DELETE", "DELETE"]


def test_what_was_deleted_while_nobody_watched_is_cleaned_up(
    world: World, make_running: Any
) -> None:
    first = make_running()
    opinionated(first, Life())
    first.start()
    world.create(WIDGET, "one")
    world.create(WIDGET, "two")
    assert eventually(lambda: is_held(world, "one") and is_held(world, "two"))
    first.end()
    world.delete(WIDGET, "one")
    assert world.find(WIDGET, "one") is not None
    second, life = make_running(), Life()
    opinionated(second, life)
    second.start()
    assert eventually(lambda: world.find(WIDGET, "one") is None)
    assert eventually(lambda: sorted(life.told) == ["DELETE", "DELETE", "RESYNC"])


def test_both_halves_share_the_managers_informer_and_owners_are_requested(
    world: World, make_running: Any
) -> None:
    running = make_running()
    told: list[str] = []
    requested: list[Request] = []
    controller = InformerController(metrics=Metrics())
    controller.add_cache(running.manager.cache, CONFIG_MAP)
    controller.add_reconciler(
        SimpleReconciler(lambda request: told.append(request.object.name)), CONFIG_MAP
    )
    running.manager.add(controller)
    controller_for(running.manager).for_(WIDGET).owns(CONFIG_MAP).named("shared-informer").complete(
        requested.append
    )
    running.start()
    owner = world.create(WIDGET, "owner")
    assert eventually(lambda: owner.key in requested)
    assert eventually(running.manager.elected.is_set)
    requested.clear()
    draft = world.draft(CONFIG_MAP, "owned")
    reference = {
        "apiVersion": WIDGET.api_version,
        "kind": WIDGET.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
    }
    owned = MutableObject(CONFIG_MAP, draft.data)
    owned["metadata"]["ownerReferences"] = [reference]
    world.client.create(owned)
    assert eventually(lambda: owner.key in requested and "owned" in told)
    assert len(running.manager.cache.informers(CONFIG_MAP)) == 1
