"""The good ending: what has failed for an object is logged once it works again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator import App, Kind, SimpleWatcher, kinds
from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Object
from appsdk_operator.testing import Simulation, World
from appsdk_operator.watchers import never_retry
from tests.watchers.conftest import WIDGET, Rig

CONFIG_MAP = kinds.core.v1.ConfigMap


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """The lines about what works again."""
    caplog.set_level(logging.INFO, "appsdk_operator.watchers")
    return lambda: [text for text in caplog.messages if " works again " in text]


def failing(times: int, called: list[str]) -> Callable[..., None]:
    """A function that fails so often, and then succeeds."""
    left: Iterator[None] = iter([None] * times)

    def flaky(*states: Any) -> None:
        called.append(states[-1].name)
        for _ in left:
            raise ConnectionError("away")

    return flaky


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_watcher_that_succeeds_after_failures_is_logged_once(
    lines: Callable[[], list[str]], is_changed: bool
) -> None:
    flaky = failing(2, [])
    with Simulation(
        CONFIG_MAP, lambda process: [SimpleWatcher(add=flaky, update=flaky)], error_handler=None
    ) as simulation:
        simulation.create("a")
        simulation.poll()
        simulation.handle()
        if is_changed:
            simulation.replace("a", {"size": "2"})  # its event replaces the retry
        simulation.settle()
        simulation.replace("a", {"size": "3"})
        simulation.settle()
    (line,) = lines()
    assert line.startswith("failing.flaky works again for ConfigMap default/a, after 2 ")


def test_what_is_deleted_while_it_fails_does_not_work_again(
    lines: Callable[[], list[str]],
) -> None:
    with Simulation(
        CONFIG_MAP, lambda process: [SimpleWatcher(add=failing(1, []))], error_handler=None
    ) as simulation:
        simulation.create("a")
        simulation.poll()
        simulation.handle()
        simulation.delete("a")
        simulation.settle()
        assert not lines()
        simulation.create("a")
        simulation.settle()
        assert not lines()


@pytest.mark.parametrize("is_unfollowed", [False, True])
def test_what_is_gone_or_followed_no_more_does_not_count_as_failing(
    make_rig: Callable[..., Rig],
    widget: Callable[..., Object],
    caplog: pytest.LogCaptureFixture,
    is_unfollowed: bool,
) -> None:
    rig = make_rig(retry_policy=never_retry, error_handler=None)
    rig.watcher("w", *[ConnectionError("away")] * (3 if is_unfollowed else 5))
    objects = [widget("a"), widget("b")]
    rig.informer.add(*objects)
    rig.work()
    for obj in objects:
        rig.informer.tell(
            Event(ResourceAction.DELETE, obj, None, False, is_unfollowed, is_unfollowed)
        )
    rig.work()
    caplog.clear()
    rig.clock.advance(3600.0)
    rig.informer.add(widget("c"))
    assert rig.work() == ["w CREATE 1 of c"]
    assert len(caplog.messages) == 1, "of one object that fails there is no summary"


@pytest.mark.parametrize("is_added_twice", [False, True])
def test_what_is_removed_does_not_count_as_failing(
    make_rig: Callable[..., Rig],
    widget: Callable[..., Object],
    caplog: pytest.LogCaptureFixture,
    is_added_twice: bool,
) -> None:
    rig = make_rig(retry_policy=never_retry, error_handler=None)
    removed = rig.watcher("w", *[ConnectionError("away")] * 4)
    if is_added_twice:
        rig.controller.add_watcher(removed, WIDGET)
    rig.informer.add(widget("a"), widget("b"))
    rig.work()
    rig.controller.remove_watcher(removed, WIDGET)
    caplog.clear()
    rig.clock.advance(3600.0)
    rig.watcher("x", ConnectionError("away"))
    rig.informer.add(widget("c"))
    rig.work()
    summaries = [text for text in caplog.messages if "objects fail" in text]
    assert len(summaries) == is_added_twice


def test_a_function_of_an_app_is_named(lines: Callable[[], list[str]]) -> None:
    greeting = Kind(group="example.com", version="v1", kind="Greeting")
    app = App("greeter")
    called: list[str] = []
    flaky = failing(3, called)

    @app.on_add(greeting)
    def greet(obj: Any) -> None:
        flaky(obj)

    @app.on_add(greeting)
    def count(obj: Any) -> None:
        """Another function of the object, which never fails."""

    with World(app) as world:
        world.create("a")
        assert world.settle()
    assert called == ["a"] * 4
    (line,) = lines()
    assert "greet works again for Greeting default/a, after 3 failures in " in line
