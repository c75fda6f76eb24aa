"""Sources on a server: what is there, what happens, and a kind that does not exist yet."""

from __future__ import annotations

import copy
import random
import threading
from typing import Any

import pytest

from appsdk_operator.cache import Cache, CacheOptions
from appsdk_operator.controllers import KindSource, Request, generation_changed, map_objects
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Metrics, StopSignal
from tests.conformance.conftest import (
    CONFIG_MAP,
    CRD,
    TIMEOUT,
    WIDGET,
    WIDGET_CRD,
    World,
)
from tests.waiting import eventually


class Queue:
    def __init__(self) -> None:
        self.requests: list[Any] = []

    def add(self, request: Any, **_: Any) -> None:
        self.requests.append(request)

    def add_rate_limited(self, request: Any, **_: Any) -> float:
        self.requests.append(request)
        return 0.0


class Sources:
    """A cache that runs, and the sources that a test starts on it."""

    def __init__(self, world: World) -> None:
        self.cache = Cache(
            world.client,
            namespaces=[world.namespace],
            metrics=Metrics(),
            on_error=lambda error: None,
        )
        self.stop = StopSignal()
        self.sources: list[KindSource[Any]] = []
        self.thread = threading.Thread(target=self.cache.run, args=(self.stop,))
        self.thread.start()

    def start(self, kind: Kind, handler: Any, *predicates: Any) -> tuple[KindSource[Any], Queue]:
        source = KindSource(self.cache, kind, handler, predicates, metrics=Metrics())
        queue = Queue()
        source.start(queue, self.stop)
        self.sources.append(source)
        return source, queue

    def close(self) -> None:
        self.stop.set()
        for source in self.sources:
            assert source.join(TIMEOUT) == []
        self.thread.join(TIMEOUT)


@pytest.fixture
def sources(world: World) -> Any:
    sources = Sources(world)
    yield sources
    sources.close()


def test_a_map_function_is_shown_every_target_of_an_object(world: World, sources: Sources) -> None:
    """Each update is a state of its own: none is merged into the next."""

    def targets(obj: Object) -> list[Any]:
        return [obj["data"]["size"]] if "size" in obj.get("data", {}) else []

    world.create(CONFIG_MAP, "a", 1)
    source, queue = sources.start(CONFIG_MAP, map_objects(targets))
    assert source.wait_for_sync(sources.stop, TIMEOUT)
    for size in range(2, 20):
        world.resize(CONFIG_MAP, "a", size)
    assert eventually(lambda: "19" in queue.requests)
    assert list(dict.fromkeys(queue.requests)) == [str(size) for size in range(1, 20)]


def test_generation_changed_sees_spec_and_deletion_and_no_status(
    world: World, sources: Sources
) -> None:
    world.create(WIDGET, "a", 1, finalizers=["example.com/wait"])
    source, queue = sources.start(
        WIDGET, map_objects(lambda it: [(it.spec["size"], it.is_deleting)]), generation_changed
    )
    assert source.wait_for_sync(sources.stop, TIMEOUT)
    copy_ = world.get(WIDGET, "a").mutable_copy()
    copy_.metadata["labels"] = {"seen": "no"}
    world.client.update(copy_)
    world.resize(WIDGET, "a", 2)
    world.delete(WIDGET, "a")
    assert eventually(lambda: (2, True) in queue.requests)
    free = world.get(WIDGET, "a").mutable_copy()
    free.metadata["finalizers"] = []
    world.client.update(free)
    assert list(dict.fromkeys(queue.requests)) == [(1, False), (2, False), (2, True)]


def test_a_kind_that_is_installed_later_is_waited_for(world: World, sources: Sources) -> None:
    plural = f"laters{random.randrange(10**6)}"
    kind = Kind(group="example.com", version="v1", kind=plural.capitalize(), plural=plural)
    crd = copy.deepcopy(WIDGET_CRD)
    crd["metadata"]["name"] = f"{plural}.example.com"
    crd["spec"]["names"] = {"plural": plural, "singular": plural[:-1] + "x", "kind": kind.kind}
    sources.cache.add(kind, CacheOptions())
    source, _ = sources.start(kind, map_objects(lambda it: [Request(it.namespace, it.name)]))
    assert eventually(lambda: "CustomResourceDefinition" in source.health().text)
    world.client.create(MutableObject(CRD, crd))
    try:
        assert source.wait_for_sync(sources.stop, TIMEOUT)
        assert source.health().is_ready
    finally:
        world.client.delete(CRD, f"{plural}.example.com")
