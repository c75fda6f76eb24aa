"""What users give an App may raise anything: that is a failure like any other, and ends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from appsdk_operator.app import App
from appsdk_operator.controllers import TerminalError
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import World


@attrs.frozen
class ThingSpec:
    a: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)


class NamelessError(Exception):
    """It cannot be shown."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Nameless(BaseException):
    """Nor can this one."""

    __repr__ = __str__ = NamelessError.__str__


ERRORS: list[Callable[[], BaseException]] = [
    NamelessError,
    Nameless,
    lambda: SystemExit(1),
    KeyboardInterrupt,
    GeneratorExit,
    asyncio.CancelledError,
    lambda: BaseExceptionGroup("several", [SystemExit(1), NamelessError()]),
]
IDS = ["nameless", "base", "exit", "interrupt", "generator", "cancelled", "group"]
CAUSES = ["add", "sync", "update", "delete", "every", "every of the app", "cron"]
OTHERS = ["where", "when", "paused", "handler", "load", "store"]


class Hostile:
    """What raises the given error three times, in one place."""

    def __init__(self, place: str, error: Callable[[], BaseException]) -> None:
        self.calls: list[str] = []
        self.left = 3
        self._place = place
        self._error = error
        self._texts: dict[str, str] = {}

    def may_fail(self, place: str) -> None:
        if place == self._place and self.left:
            self.left -= 1
            raise self._error()

    def called(self, cause: str) -> Callable[..., None]:
        def call(*_: Object) -> None:
            self.calls.append(cause)
            self.may_fail(cause)
            if self._place == "handler" and cause == "add" and self.calls.count("add") <= 3:
                raise ConnectionError("down")

        return call

    def passes(self, place: str, answer: bool) -> Callable[..., bool]:
        def passes(*objects: Object) -> bool:
            self.may_fail(place)
            return objects[0]["spec"] != objects[-1]["spec"] if place == "when" else answer

        return passes

    def load(self, obj: Object, /) -> str | None:
        self.may_fail("load")
        return self._texts.get(obj.uid)

    def store(self, obj: Object, state: str | None, /) -> None:
        self.may_fail("store" if state is not None else "gone")
        if state is None:
            self._texts.pop(obj.uid, None)
        else:
            self._texts[obj.uid] = state

    def app(self) -> App:
        app = App(
            "thing-operator",
            paused=self.passes("paused", answer=False),
            handled_states=self,
            remember=True,
            error_handler=lambda error, call: self.may_fail("handler"),
        )
        app.on_add(THING, where=self.passes("where", answer=True))(self.called("add"))
        app.on_sync(THING)(self.called("sync"))
        app.on_update(THING, when=self.passes("when", answer=True))(self.called("update"))
        app.on_delete(THING)(self.called("delete"))
        app.every(10, THING, name="every")(self.called("every"))
        app.every(10, name="app")(self.called("every of the app"))
        app.every(cron="* * * * *", name="cron")(self.called("cron"))
        return app


@pytest.mark.parametrize("error", ERRORS[:4], ids=IDS[:4])
@pytest.mark.parametrize("place", [*CAUSES, *OTHERS])
def test_whatever_is_raised_wherever_keeps_nothing_else_from_its_calls(
    place: str, error: Callable[[], BaseException]
) -> None:
    hostile = Hostile(place, error)
    with World(hostile.app()) as world:
        world.create("a", {"a": 1})
        world.run(100)
        world.replace("a", {"a": 2})
        world.run(100)
        world.restart()
        world.run(100)
        world.delete("a")
        world.run(100)
        assert not world.objects()
        assert world.replicas[0].process == 2
    assert not hostile.left
    counts = {cause: hostile.calls.count(cause) for cause in CAUSES}
    for cause in ("add", "sync", "update", "delete"):
        assert 1 <= counts[cause] <= 7
    assert 25 <= counts["every"] <= 40
    assert 35 <= counts["every of the app"] <= 50
    assert 4 <= counts["cron"] <= 10


@pytest.mark.parametrize("error", ERRORS, ids=IDS)
def test_a_place_of_records_that_raises_for_an_object_that_is_gone_ends_nothing(
    error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    hostile = Hostile("gone", error)
    app = hostile.app()

    @app.on_delete(THING)
    def remove(thing: Object) -> None:
        raise TerminalError("never")

    with World(app) as world:
        world.create("a", {"a": 1})
        world.run(100)
        world.delete("a")
        world.run(1)
        world.patch("a", {"metadata": {"finalizers": []}})
        world.run(100)
        assert world.replicas[0].process == 1
    assert hostile.left == 2
    assert "None) of handled_states= failed. The object is gone" in caplog.text


@pytest.mark.parametrize("error", ERRORS, ids=IDS)
@pytest.mark.parametrize("times", [{"interval": 10}, {"cron": "* * * * *"}], ids=["every", "cron"])
def test_a_timer_of_the_app_that_always_raises_is_called_at_its_times(
    times: Any, error: Callable[[], BaseException]
) -> None:
    app, calls = App("thing-operator"), list[float]()
    app.on_add(THING)(lambda thing: None)

    def look() -> None:
        calls.append(world.clock.monotonic())
        # A defect shows as a failed test, and not as one that does not end.
        if len(calls) < 100:
            raise error()

    app.every(**times)(look)
    with World(app) as world:
        world.run(200)
    assert 3 <= len(calls) <= 40
