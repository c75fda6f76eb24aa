"""Mistakes that newcomers make, and what they are told."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import NotCachedError, NotFollowedError, NotSyncedError
from appsdk_operator.client import ClientConfig
from appsdk_operator.controllers import BuilderError, Request, controller_for
from appsdk_operator.manager import (
    CacheSetup,
    ClientSetup,
    HealthServerOptions,
    Manager,
    MetricsServerOptions,
    Operator,
)
from appsdk_operator.resource import Kind, kinds
from appsdk_operator.runtime import Metrics, StopSignal

NOWHERE = ClientConfig(server="http://127.0.0.1:1")
CONFIG_MAP, POD = kinds.core.v1.ConfigMap, kinds.core.v1.Pod


@pytest.fixture
def make() -> Iterator[Callable[..., Manager]]:
    managers: list[Manager] = []

    def make(**options: Any) -> Manager:
        managers.append(Manager(NOWHERE, metrics=Metrics(), **options))
        return managers[-1]

    yield make
    for manager in managers:
        manager.close()


@pytest.mark.parametrize("options", [HealthServerOptions, MetricsServerOptions])
@pytest.mark.parametrize(
    ("address", "example"), [(8081, ":8081"), (None, "127.0.0.1:8080"), (("", 80), "127.0.0.1")]
)
def test_an_address_that_is_no_text_is_refused(options: Any, address: Any, example: str) -> None:
    with pytest.raises(TypeError, match=f'address=.*: give host:port .* example "{example}'):
        options(address=address)


def test_a_single_kind_is_no_list() -> None:
    with pytest.raises(TypeError, match=r"kinds=configmaps\.v1: give a list .*kinds=\[kind\]"):
        CacheSetup(kinds=CONFIG_MAP)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"uncached=configmaps\.v1: give a list of kinds"):
        ClientSetup(uncached=CONFIG_MAP)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"by_kind=.*: give options by kind, \{kind: Cache"):
        CacheSetup(by_kind=[CONFIG_MAP])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("namespace", "kind", "error", "text"),
    [
        ("a", POD, NotCachedError, "cache=CacheSetup(kinds=[kind]), or CacheSetup(lazy=True)"),
        ("b", CONFIG_MAP, NotFollowedError, "add it to cache=CacheSetup(namespaces=…), or "),
        ("a", CONFIG_MAP, NotSyncedError, "read it in a runnable of the manager"),
    ],
)
def test_reads_that_the_cache_does_not_answer_name_the_managers_own_remedies(
    make: Callable[..., Manager], namespace: str, kind: Kind, error: type, text: str
) -> None:
    manager = make(cache=CacheSetup(namespaces=["a"], kinds=[CONFIG_MAP]))
    with pytest.raises(error) as caught:
        manager.client.get(kind, "x", namespace=namespace)
    assert type(caught.value) is error
    told = str(caught.value)
    assert text in told
    assert "manager.live_client, or always, with client=ClientSetup(uncached=[kind])" in told
    assert "cache.add(kind)" not in told


def stopped() -> StopSignal:
    stop = StopSignal()
    stop.set()
    return stop


def nothing(request: object) -> None:
    """Reconciles nothing."""


def test_a_controller_that_is_not_built_is_told_of_at_the_start(
    make: Callable[..., Manager], caplog: pytest.LogCaptureFixture
) -> None:
    manager = make()
    controller_for(manager).for_(POD).named("lost")
    controller_for(manager).for_(CONFIG_MAP).named("completed").complete(nothing)
    controller_for(manager).for_(CONFIG_MAP).named("built").build(nothing)
    with pytest.raises(BuilderError):
        controller_for(manager).named("refused").complete(nothing)
    assert not caplog.records
    manager.run(stopped())
    [record] = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "controller_for(…).for_(pods.v1).named('lost')" in record.getMessage()
    assert "end it with .complete(reconciler)" in record.getMessage()


def test_controllers_that_are_begun_hold_nothing(make: Callable[..., Manager]) -> None:
    manager = make()
    gc.disable()
    try:
        seen = weakref.ref(controller_for(manager).for_(POD))
        assert seen() is None
        for number in range(5):
            controller_for(manager).for_(POD).named(f"n{number}").build(nothing).close()
        assert len(manager._drafts) == 2
    finally:
        gc.enable()


class StopsAtAWarning(logging.Handler):
    """Sets the signal when something was logged, and keeps its text."""

    def __init__(self, stop: StopSignal) -> None:
        super().__init__(logging.WARNING)
        self.stop = stop
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
        self.stop.set()


def test_an_operator_without_controllers_says_that_it_only_waits() -> None:
    handler = StopsAtAWarning(StopSignal())
    log = logging.getLogger("appsdk_operator.manager")
    log.addHandler(handler)
    try:
        Operator().run(stopped())
        assert not handler.texts
        Operator().run(handler.stop)
    finally:
        log.removeHandler(handler)
    [text] = handler.texts
    assert "no controllers and only waits for its stop: add them with add_controller" in text


def test_a_reconcile_that_outlives_the_managers_grace_is_named() -> None:
    entered, go_on = threading.Event(), threading.Event()

    class Once:
        def start(self, queue: Any, stop: StopSignal) -> None:
            del stop
            queue.add(Request("default", "a"))

    def reconcile(request: Request) -> None:
        del request
        entered.set()
        go_on.wait(10)

    stop = StopSignal()
    raised: list[BaseException] = []
    with Manager(NOWHERE, metrics=Metrics(), graceful_shutdown_timeout=0.05) as manager:
        builder = controller_for(manager).named("slow").watches_raw_source(Once())
        builder.complete(reconcile)

        def run() -> None:
            try:
                manager.run(stop)
            except TimeoutError as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            assert entered.wait(10)
            stop.set()
            thread.join(10)
        finally:
            go_on.set()
    [error] = raised
    assert "slow (group leader-election) still running" in str(error)
    assert "reconciles that do not return: slow: default/a, begun" in str(error)
    assert "look at reconcile_context().stop" in str(error)
    wait_for_ends("slow")


def wait_for_ends(name: str) -> None:
    """Nobody waits for what has outlived its manager."""
    for thread in threading.enumerate():
        if name in thread.name:
            thread.join(10)
