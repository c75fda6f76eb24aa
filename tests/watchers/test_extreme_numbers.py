"""Seconds that users' functions give end no controller, however small or great they are."""

from __future__ import annotations

import sys

import pytest

from appsdk_operator import (
    InformerController,
    KubernetesInformer,
    Manager,
    MutableObject,
    Result,
    RetryAfter,
    SimpleWatcher,
    controller_for,
    kinds,
)
from appsdk_operator.manager import ManagerOptions
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer, running
from appsdk_operator.watchers import SimpleReconciler
from tests.waiting import eventually

ConfigMap = kinds.core.v1.ConfigMap
NUMBERS = (
    *(0, -0.0, 5e-324, 1e-9, 1e9, 1e15, sys.float_info.max, sys.maxsize, 10**300),
    *(2**1023, 2**1024, 10**5000, -1, float("inf"), float("nan"), True, "1", None),
)
FORMS = ("result", "retry after", "policy")


@pytest.fixture
def client():
    client = MemoryServer().client()
    for number in range(len(NUMBERS)):
        client.create(MutableObject.new(ConfigMap, f"n{number}", namespace="default"))
    return client


class Asking:
    """Gives the number of an object's name, the first time."""

    def __init__(self, form: str) -> None:
        self.form = form
        self.called: set[str] = set()

    def __call__(self, name: str) -> Result | None:
        if not name.startswith("n") or name in self.called:
            self.called.add(name)
            return None
        self.called.add(name)
        seconds = NUMBERS[int(name[1:])]
        if self.form == "policy":
            raise ConnectionError(name)
        if self.form == "retry after":
            raise RetryAfter(seconds)
        return Result(requeue_after=seconds)

    def has_been_told_of_all(self, client) -> bool:
        return self.called == {obj.name for obj in client.list(ConfigMap)}


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("form", FORMS)
def test_an_informer_controller_goes_on(form, workers, client):
    asking = Asking(form)
    controller = InformerController(
        workers=workers,
        metrics=Metrics(),
        retry_policy=lambda error, _: NUMBERS[int(str(error)[1:])] if form == "policy" else None,
    )
    controller.add_informer(KubernetesInformer(ConfigMap, client), ConfigMap)
    controller.add_watcher(SimpleWatcher(), ConfigMap)
    controller.add_reconciler(SimpleReconciler(lambda r: asking(r.object.name)), ConfigMap)
    with running(controller):
        eventually(lambda: asking.has_been_told_of_all(client))
        client.create(MutableObject.new(ConfigMap, "later", namespace="default"))
        eventually(lambda: asking.has_been_told_of_all(client))
        assert controller.health().is_ready


@pytest.mark.parametrize("form", FORMS[:2])
def test_a_controller_goes_on(form, client):
    asking = Asking(form)
    mgr = Manager(client, options=ManagerOptions(metrics=Metrics()))
    controller_for(mgr).for_(ConfigMap).complete(lambda request: asking(request.name))
    with running(mgr):
        eventually(lambda: asking.has_been_told_of_all(client))
        client.create(MutableObject.new(ConfigMap, "later", namespace="default"))
        eventually(lambda: asking.has_been_told_of_all(client))
