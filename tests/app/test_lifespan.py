"""Lifespans of an App: around everything else, on every replica."""

from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from appsdk_operator.app import App
from appsdk_operator.app._lifespan import Lifespans
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.manager import HealthServerOptions, LeaderElection, RunnableGroup
from appsdk_operator.resource import Object
from appsdk_operator.runtime import LoopThread, ManualClock, Metrics, StopSignal, environment
from appsdk_operator.testing import World
from tests.app.test_app import BUCKET, BucketSpec, nothing
from tests.app.test_managers import (
    Calls,
    api,
    bucket,
    config,
    lead_elsewhere,
    made,
    running,
)
from tests.waiting import eventually

__all__ = ["api", "config"]


def test_it_begins_before_the_first_watch_and_ends_after_the_last_call(
    api: Client, config: ClientConfig
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.lifespan
    def around() -> Iterator[None]:
        calls.add(("begins", len(app.live_client.list_page(BUCKET).items)))
        [caches] = [
            group
            for name, group in manager.debug_snapshot()["groups"].items()
            if name == RunnableGroup.CACHES
        ]
        calls.add(caches["state"])
        yield
        calls.add("ends")

    @app.on_add(BUCKET)
    def make(obj: Object[BucketSpec]) -> None:
        calls.add("called")

    @app.task
    def task(stop: StopSignal) -> None:
        stop.wait()
        calls.add("the task ends")

    api.create(bucket("a"))
    manager = made(app, config)
    with running(manager):
        calls.wait_for("called")
    assert calls.all == [("begins", 1), "new", "called", "the task ends", "ends"]


def test_several_begin_in_order_and_end_in_reverse(config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.lifespan
    def one() -> Iterator[None]:
        calls.add("one")
        yield
        calls.add("no more one")

    @app.lifespan
    async def two() -> AsyncIterator[None]:
        calls.add("two")
        yield
        calls.add("no more two")

    with running(made(app, config)):
        pass
    assert calls.all == ["one", "two", "no more two", "no more one"]


def test_an_async_one_is_one_task_on_the_loop_of_async_checks(config: ClientConfig) -> None:
    app = App("bucket-operator", health_server=HealthServerOptions(address="127.0.0.1:0"))
    tasks: list[object] = []
    loops: list[object] = []

    @app.lifespan
    async def around() -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as group:  # refuses another task at its end
            group.create_task(asyncio.sleep(0))
            tasks.append(asyncio.current_task())
            loops.append(asyncio.get_running_loop())
            yield
        tasks.append(asyncio.current_task())

    @app.check
    async def same_loop() -> None:
        loops.append(asyncio.get_running_loop())

    with running(made(app, config)) as manager:
        assert probe(manager.addresses["health"], "/healthz/same-loop") == (200, "ok")
    assert tasks[0] is tasks[1] is not None
    assert loops[0] is loops[1]


def probe(address: str, path: str) -> tuple[int, str]:
    import http.client

    connection = http.client.HTTPConnection(address)
    with contextlib.closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_it_runs_on_a_replica_that_does_not_lead(api: Client, config: ClientConfig) -> None:
    lead_elsewhere(api)
    app = App(
        "bucket-operator",
        leader_election=LeaderElection(id="bucket-operator", namespace="default"),
    )
    app.on_add(BUCKET)(nothing)
    calls = Calls()

    @app.lifespan
    def around() -> Iterator[None]:
        calls.add("begins")
        yield
        calls.add("ends")

    manager, stop = made(app, config), StopSignal()
    thread = threading.Thread(target=manager.run, args=(stop,))
    thread.start()
    try:
        calls.wait_for("begins")
        assert not manager.elected.is_set()
    finally:
        stop.set()
        thread.join()
    assert calls.all == ["begins", "ends"]


def test_an_error_before_the_yield_ends_the_run_with_it_and_what_has_begun_ends(
    config: ClientConfig,
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.lifespan
    def one() -> Iterator[None]:
        yield
        calls.add("one ends")
        raise OSError("and that, too")

    @app.lifespan
    def two() -> Iterator[None]:
        raise ConnectionError("no database")
        yield

    @app.lifespan
    def three() -> Iterator[None]:
        calls.add("three")
        yield

    app.task(lambda stop: calls.add("task"))
    with pytest.raises(ConnectionError, match="no database") as caught:
        made(app, config).run(StopSignal())
    notes = "\n".join(caught.value.__notes__)
    assert "raised by the lifespan two before its yield" in notes
    assert "after that: OSError('and that, too')" in notes
    assert calls.all == ["one ends"]


def test_an_error_after_the_yield_is_raised_at_the_end_and_the_others_end(
    config: ClientConfig, caplog: pytest.LogCaptureFixture
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.lifespan
    def one() -> Iterator[None]:
        yield
        calls.add("one ends")

    @app.lifespan
    async def two() -> AsyncIterator[None]:
        yield
        raise OSError("cannot close")

    with pytest.raises(OSError, match="cannot close"), running(made(app, config)):
        pass
    assert calls.all == ["one ends"]
    assert re.search("bucket-operator/app failed while the manager stops: cannot", caplog.text)


def test_it_ends_when_a_task_fails(config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.lifespan
    def around() -> Iterator[None]:
        try:
            yield
        finally:
            calls.add("ends")

    @app.task
    def task(stop: StopSignal) -> None:
        raise ConnectionError("lost")

    with pytest.raises(ConnectionError, match="lost"):
        made(app, config).run(StopSignal())
    assert calls.all == ["ends"]


def test_a_stop_that_comes_before_the_yield_waits_for_the_rest(config: ClientConfig) -> None:
    app, calls, stop = App("bucket-operator"), Calls(), StopSignal()

    @app.lifespan
    def around() -> Iterator[None]:
        stop.set()
        yield
        calls.add("ends")

    app.task(lambda stop: calls.add("task"))
    made(app, config).run(stop)
    assert calls.all == ["ends"]


def no_yield() -> Iterator[None]:
    if False:
        yield


def two_yields() -> Iterator[None]:
    yield
    yield


def value() -> Iterator[Any]:
    yield {"password": "secret"}


async def async_two_yields() -> AsyncIterator[None]:
    yield
    yield


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_yield, "ended without a yield"),
        (value, "yields dict, which an App drops"),
    ],
)
def test_it_yields_and_yields_nothing(config: ClientConfig, function: Any, text: str) -> None:
    app = App("bucket-operator")
    app.lifespan(function)
    with pytest.raises((RuntimeError, TypeError), match=text) as caught:
        made(app, config).run(StopSignal())
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("function", [two_yields, async_two_yields])
def test_it_yields_once(config: ClientConfig, function: Any) -> None:
    app = App("bucket-operator")
    app.lifespan(function)
    with pytest.raises(RuntimeError, match="yields twice"), running(made(app, config)):
        pass


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (nothing, "write def or async def with one yield"),
        (contextlib.contextmanager(no_yield), "without contextlib's decorator"),
        (lambda obj: (yield), "without arguments"),
        (None, "not a generator function"),
    ],
)
def test_what_is_no_lifespan_is_refused(function: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        App("bucket-operator").lifespan(function)


def test_a_world_runs_it_with_each_process() -> None:
    app, calls = App("bucket-operator"), Calls()
    app.on_add(BUCKET)(nothing)

    @app.lifespan
    async def around() -> AsyncIterator[None]:
        calls.add(app.live_client.list_page(BUCKET).items == [])
        yield
        calls.add("ends")

    with World(app) as world:
        world.settle()
        world.restart()
        world.settle()
        assert calls.all == [True, "ends", True]


def test_a_manager_without_health_server_has_no_loop_and_no_further_thread(
    config: ClientConfig,
) -> None:
    app = App("bucket-operator")
    app.on_add(BUCKET)(nothing)
    with running(app.manager(config, metrics=Metrics())):
        eventually(lambda: any(t.name.endswith("/app") for t in threading.enumerate()))
        mine = [t.name for t in threading.enumerate() if "bucket-operator/app" in t.name]
    assert mine == ["manager/http-servers/bucket-operator/app"]


@pytest.mark.parametrize("part", ["come to its yield", "ended"])
def test_one_that_hangs_is_named_with_its_line(part: str, caplog: pytest.LogCaptureFixture) -> None:
    clock, hanging, may_go_on = ManualClock(), threading.Event(), threading.Event()

    def hangs() -> Iterator[None]:
        if part == "ended":
            yield
        hanging.set()
        may_go_on.wait()
        if part != "ended":
            yield

    def play() -> None:
        with environment(clock=clock):
            lifespans.begin()
            lifespans.end()

    loop = LoopThread("bucket-operator/app")
    with environment(clock=clock):
        lifespans = Lifespans([hangs], name="bucket-operator/app", loop=loop)
    thread = threading.Thread(target=play)
    thread.start()
    try:
        hanging.wait()
        clock.block_until_waiting(1)
        clock.advance(10.0)
        eventually(lambda: f"hangs has not {part} after 10 s, and is at " in caplog.text)
        assert "hangs (test_lifespan.py:" in caplog.text
    finally:
        may_go_on.set()
        thread.join()
        loop.close()
