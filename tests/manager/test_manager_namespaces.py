"""Namespaces that come and go while controllers work in them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.client import Client, ClientConfig, NotFound
from appsdk_operator.controllers import Request, controller_for, map_objects
from appsdk_operator.manager import CacheSetup, Manager
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.testing import APIServer
from tests.manager.manager_parts import CONFIG_MAP, client_of, managers, runs
from tests.runs import Run
from tests.waiting import eventually

SECRET = kinds.core.v1.Secret
NAMESPACE = kinds.core.v1.Namespace
COUNT = 20


@pytest.fixture
def config() -> Iterator[ClientConfig]:
    with APIServer() as server:
        yield ClientConfig(server=server.url)


client = pytest.fixture(client_of)
manager_of = pytest.fixture(managers)
start = pytest.fixture(runs)


def test_what_lies_in_a_namespace_that_is_followed_no_more_is_left_without_a_word(
    config: ClientConfig,
    client: Client,
    manager_of: Callable[..., Manager],
    start: Callable[[Manager], Run],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for namespace in ("a", "b"):
        client.create(MutableObject.new(NAMESPACE, namespace))
        client.create(MutableObject.new(SECRET, "shared", namespace=namespace))
        for number in range(COUNT):
            client.create(MutableObject.new(CONFIG_MAP, f"c{number}", namespace=namespace))
    manager: Manager = manager_of(cache=CacheSetup(namespaces=("a", "b")))
    lock = threading.Lock()
    seen: dict[str, int] = {"a": 0, "b": 0}

    def reconcile(request: Request) -> None:
        try:
            manager.client.get(CONFIG_MAP, request.name, namespace=request.namespace)
        except NotFound:
            return
        manager.client.get(SECRET, "shared", namespace=request.namespace)
        with lock:
            seen[request.namespace] += 1

    def users_of(secret: Object) -> list[Request]:
        found = manager.client.list(CONFIG_MAP, namespace=secret.namespace)
        return [obj.key for obj in found if secret.name == "shared"]

    builder = controller_for(manager).for_(CONFIG_MAP).watches(SECRET, map_objects(users_of))
    controller = builder.complete(reconcile)
    start(manager)
    eventually(lambda: seen["b"] >= COUNT and seen["a"] >= COUNT)
    controller.wait_idle(10.0)

    with caplog.at_level(logging.INFO, "appsdk_operator.controllers"):
        manager.cache.set_namespaces(["a"])
        eventually(lambda: _is_quiet(controller.debug_snapshot()))
        before = seen["b"]
        manager.cache.set_namespaces(["a", "b"])
        eventually(lambda: seen["b"] >= before + COUNT)
    eventually(lambda: _is_quiet(controller.debug_snapshot()))
    loud = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert not loud


def _is_quiet(snapshot: dict[str, Any]) -> bool:
    return not snapshot["planned"] and not snapshot["failing"] and not snapshot["running"]
