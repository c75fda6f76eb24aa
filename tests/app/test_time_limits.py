"""Limits of an App's functions: of the time of a call, and of the number of failures."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import TerminalError, current_stop, kinds
from appsdk_operator.app import App
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import World
from appsdk_operator.watchers import ConstantBackoff
from tests.hypothesis_profiles import scaled

THING = Kind(group="example.com", version="v1", kind="Thing")
HOURS = 2 * 3600.0


def _never(error: Exception, attempt: int) -> None:
    return None


def _terminal(error: Exception, attempt: int) -> None:
    raise AssertionError("nobody asks after a TerminalError")


class Log:
    """The calls of functions with the time of each, and what they hang in."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.calls: list[tuple[int, str]] = []
        self.gate = threading.Event()

    def note(self, what: str) -> None:
        assert self.world is not None
        self.calls.append((round(self.world.clock.monotonic()), what))

    def at(self, what: str) -> list[int]:
        return [when for when, noted in self.calls if noted == what]

    def run(self, app: App, seconds: float, *names: str) -> Iterator[World]:
        with World(THING, app) as world:
            self.world = world
            for name in names:
                world.create(name, {"a": 1})
            try:
                world.run(seconds)
                yield world
            finally:
                self.gate.set()
                world.run(1.0)


@pytest.mark.parametrize("workers", [1, 3])
def test_functions_that_hang_for_ever_delay_their_own_objects_only(workers: int) -> None:
    log, app = Log(), App("thing-operator", workers=workers)
    hanging = [f"h{number}" for number in range(workers)]

    @app.on_add(THING)
    def make(thing: Object) -> None:
        log.note(thing.name)
        if thing.name in hanging:
            log.gate.wait()

    for _ in log.run(app, 3600.0, *hanging, "x", "y"):
        (began,) = log.at("h0")
        assert [when - began for when in log.at("x") + log.at("y")] == [300, 300]
        assert all(len(log.at(name)) == 1 for name in hanging)


def test_a_function_of_its_own_limit_and_one_that_looks_at_its_stop() -> None:
    log, app = Log(), App("thing-operator", retry_policy=ConstantBackoff(1000.0))

    @app.on_add(THING, time_limit=20.0)
    def make(thing: Object) -> None:
        log.note("make")
        current_stop().wait()
        log.note("stopped")

    @app.on_add(THING)
    def other(thing: Object) -> None:
        log.note("other")

    for _ in log.run(app, 1500.0, "a"):
        first, second = log.at("make")
        assert log.at("stopped") == [first + 20, second + 20]
        assert second == first + 1020
        assert log.at("other") == [first + 20], "the same pass of the object goes on"


def test_an_async_function_is_cancelled_and_a_timer_has_a_limit_too() -> None:
    log, app = Log(), App("thing-operator", time_limit=40.0, retry_policy=ConstantBackoff(5.0))

    @app.every(600.0, THING)
    async def look(thing: Object) -> None:
        log.note("look")
        try:
            await asyncio.Event().wait()
        finally:
            log.note("cancelled")

    @app.every(600.0)
    def tick() -> None:
        log.note("tick")
        current_stop().wait()

    for _ in log.run(app, 100.0, "a"):
        assert log.at("cancelled") == [when + 40 for when in log.at("look")[:2]]
        assert log.at("look")[1] == log.at("look")[0] + 45
        assert log.at("tick")[1] == log.at("tick")[0] + 45


def test_without_a_limit_a_function_may_take_for_ever() -> None:
    log, app = Log(), App("thing-operator", time_limit=None, workers=1)

    @app.on_add(THING)
    def make(thing: Object) -> None:
        log.note(thing.name)
        log.gate.wait()

    for _ in log.run(app, HOURS, "a", "b"):
        assert [name for _, name in log.calls] == ["a"]


@given(
    retries=st.integers(0, 4),
    delay=st.sampled_from([1.0, 29.0, 300.0]),
    resync=st.sampled_from([20.0, 600.0]),
    way=st.sampled_from(["raises", "hangs", "awaits"]),
    cause=st.sampled_from(["add", "update"]),
)
@settings(max_examples=scaled(10), deadline=None)
def test_a_limit_limits_the_failed_calls_for_an_unchanged_state(
    retries: int, delay: float, resync: float, way: str, cause: str
) -> None:
    log = Log()
    app = App("thing-operator", time_limit=50.0, resync=resync)
    policy = ConstantBackoff(delay, max_attempts=retries - 1) if retries else _never

    def fail(*things: Object) -> Any:
        log.note("call")
        if way == "raises":
            raise ConnectionError("down")
        if way == "awaits":
            return asyncio.Event().wait()
        current_stop().wait()
        return None

    if cause == "add":
        app.on_add(THING, retry=policy)(fail)
    else:
        app.on_update(THING, retry=policy)(fail)
    for world in log.run(app, 60.0, "a"):
        if cause == "update":
            world.replace("a", {"a": 2})
        world.run(HOURS)
        calls = log.at("call")
        assert len(calls) == retries + 1
        took = 0 if way == "raises" else 50
        gaps = {after - before for before, after in itertools.pairwise(calls)}
        assert gaps <= {delay + took}
        world.replace("a", {"a": 3})
        world.run(HOURS)
        assert len(log.at("call")) == 2 * (retries + 1), "a new state begins anew"


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), "5"])
def test_what_is_no_limit_is_refused_where_it_is_given(limit: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="time_limit="):
        App("thing-operator", time_limit=limit)
    with pytest.raises((TypeError, ValueError), match="time_limit="):
        App("thing-operator").on_add(THING, time_limit=limit)


# Asked to try again.

NOW = {"metadata": {"annotations": {"appsdk-operator.io/retry-at": "now"}}}
LATER = {"metadata": {"annotations": {"appsdk-operator.io/retry-at": "later"}}}
CONFIG_MAP = kinds.core.v1.ConfigMap


@pytest.mark.parametrize("kind", [THING, CONFIG_MAP])
@pytest.mark.parametrize("policy", [_never, ConstantBackoff(5000.0), _terminal])
def test_what_failed_is_called_again_when_somebody_asks_and_nothing_else_is(
    kind: Kind, policy: Any
) -> None:
    log, app = Log(), App("thing-operator")
    is_terminal = policy is _terminal

    @app.on_add(kind)
    def make(thing: Object) -> None:
        log.note("make")

    @app.on_add(kind, retry=policy)
    def fail(thing: Object) -> None:
        log.note("fail")
        if len(log.at("fail")) < 4:
            raise TerminalError("no") if is_terminal else ConnectionError("down")

    app.on_update(kind)(lambda old, new: log.note("update"))
    with World(kind, app) as world:
        log.world = world
        world.create("a")
        for patch in (NOW, LATER, NOW, LATER):
            world.run(60.0)
            world.patch("a", patch)
        world.run(60.0)
    assert [what for _, what in log.calls] == ["make", "fail", "fail", "fail", "fail"]
