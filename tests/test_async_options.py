"""Each function that a manager or controller takes, as ``async def``: refused, or awaited."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from appsdk_operator import (
    ClientConfig,
    InformerController,
    KubernetesInformer,
    Manager,
    MergePatch,
    MutableObject,
    OpinionatedWatcher,
    SimpleWatcher,
    StopSignal,
    kinds,
)
from appsdk_operator.controllers import (
    Controller,
    ControllerOptions,
    Predicate,
    until,
)
from appsdk_operator.manager import CacheSetup, Elector, LeaderElection, Operator, Shards
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer, running
from tests.waiting import eventually

ConfigMap = kinds.core.v1.ConfigMap
NOWHERE = ClientConfig(server="http://127.0.0.1:1")
ELECTION = LeaderElection(id="x", namespace="default", identity="me")


async def function(*_: Any) -> Any:
    raise AssertionError("nobody awaits this")


class Observer:
    """One whose methods are async."""

    call_began = call_ended = request_began = request_ended = function


class Source:
    """One that is async."""

    start = function


def shards() -> Shards:
    return Shards(None, ELECTION, 2, metrics=Metrics())  # type: ignore[arg-type]


REFUSED: dict[str, Callable[[], object]] = {
    "rate_limiter": lambda: ControllerOptions(rate_limiter=function),
    "source": lambda: Controller("a-1", print, metrics=Metrics()).watch(Source()),
    "predicate": lambda: Predicate(function),
    "until.matches": lambda: until.matches(function),
    "on_error": lambda: Operator(on_error=function),
    "new_client": lambda: Manager(NOWHERE, new_client=function),
    "new_cache": lambda: Manager(NOWHERE, new_cache=function),
    "new_elector": lambda: Manager(NOWHERE, leader_election=ELECTION, new_elector=function),
    "webhook_server": lambda: Manager(NOWHERE, webhook_server=function),
    "observers": lambda: Manager(NOWHERE, observers=[Observer()]),
    "observe_activity": lambda: Manager(NOWHERE, metrics=Metrics()).observe_activity(Observer()),
    "transform": lambda: Manager(NOWHERE, cache=CacheSetup(transform=function)),
    "on_new_leader": lambda: Elector(
        None,  # type: ignore[arg-type]
        ELECTION,
        metrics=Metrics(),
        on_new_leader=function,
    ),
    "on_event": lambda: Elector(
        None,  # type: ignore[arg-type]
        ELECTION,
        metrics=Metrics(),
        on_event=function,
    ),
    "key_of": lambda: shards().reconciler(print, key_of=function),
}


@pytest.mark.parametrize("give", REFUSED.values(), ids=REFUSED)
def test_what_is_used_at_once_is_refused_when_given(give: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match="async"):
        give()


@pytest.mark.parametrize("opinionated", [False, True])
@pytest.mark.parametrize(
    "option", ["error_handler", "retry_policy", "retry_dequeue_policy", "concerns"]
)
def test_a_lambda_around_an_async_function_is_refused_at_its_call(
    option: str, opinionated: bool, caplog: pytest.LogCaptureFixture
) -> None:
    client, called = MemoryServer().client(), []
    client.create(MutableObject.new(ConfigMap, "a", namespace="default"))

    def fail(*_: Any) -> None:
        called.append(1)
        if option != "concerns":
            raise ConnectionError

    class Selective(SimpleWatcher):
        """Asks the function."""

        concerns = staticmethod(lambda old, new: function())

    given: dict[str, Any] = {option: lambda *_: function()}
    watcher: Any = SimpleWatcher(add=fail, update=fail)
    if option == "concerns":
        watcher, given = Selective(add=fail, update=fail), {}
    if opinionated:
        watcher = OpinionatedWatcher.wrap(watcher, ConfigMap, client)
    controller = InformerController(metrics=Metrics(), **given)
    controller.add_informer(KubernetesInformer(ConfigMap, client), ConfigMap)
    controller.add_watcher(watcher, ConfigMap)
    with running(controller):
        eventually(lambda: bool(called))
        client.patch(ConfigMap, "a", MergePatch({"data": {"a": "b"}}), namespace="default")
        eventually(lambda: len(called) > 1)
    assert f"{option} returned coroutine: make it a plain function" in caplog.text


def test_callbacks_of_a_stop_signal_are_awaited() -> None:
    stop, called = StopSignal(), threading.Event()

    async def callback() -> None:
        called.set()

    stop.on_set(callback)  # type: ignore[arg-type]
    stop.set()
    assert called.is_set()


def test_a_controller_of_an_operator_is_awaited() -> None:
    class Part:
        has_run = False

        async def run(self, stop: StopSignal) -> None:
            self.has_run = True

    part, operator = Part(), Operator()
    operator.add_controller(part)
    operator.run()
    assert part.has_run


def test_the_health_of_a_runnable_is_awaited_and_may_fail() -> None:
    class Part:
        def __init__(self, error: BaseException | None) -> None:
            self.error = error

        def run(self, stop: StopSignal) -> None:
            stop.wait()

        async def health(self) -> Any:
            if self.error is not None:
                raise self.error

    mgr, stop = Manager(NOWHERE, metrics=Metrics()), StopSignal()
    for error in (None, ConnectionError("the database is gone"), SystemExit(3)):
        mgr.add(Part(error))
    thread = threading.Thread(target=mgr.run, args=(stop,))
    thread.start()
    # As a server does, not in the main thread, for which exits are meant.
    seen: list[str] = []

    def look() -> bool:
        asker = threading.Thread(target=lambda: seen.append(mgr.health().text))
        asker.start()
        asker.join()
        return "SystemExit: 3" in seen[-1]

    try:
        eventually(look)
    finally:
        stop.set()
        thread.join(30)
    assert "Part: its health failed: ConnectionError: the database is gone" in seen[-1]


@pytest.mark.parametrize("timeout", [None, -1, float("nan"), "30"])
@pytest.mark.parametrize("kind", ["shards", "operator"])
def test_a_stop_timeout_that_is_no_number_of_seconds_is_refused(kind: str, timeout: Any) -> None:
    make: Any = partial(Shards, None, ELECTION, 2) if kind == "shards" else Operator
    with pytest.raises((TypeError, ValueError), match="stop_timeout"):
        make(stop_timeout=timeout)
