"""Many parts of one call."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.app import App, each
from appsdk_operator.app._each import Parts
from appsdk_operator.resource import Object, field
from appsdk_operator.runtime import (
    ActivityLog,
    CallRecord,
    CallSlot,
    ManualClock,
    TimeLimitExceeded,
    current_stop,
)
from appsdk_operator.testing import World
from appsdk_operator.watchers import ConstantBackoff
from tests.app.test_app import BUCKET, BucketSpec


class Flaky:
    """A function of an item that fails for some."""

    def __init__(self, *failing: str) -> None:
        self.failing = set(failing)
        self.calls: list[str] = []

    def __call__(self, item: str) -> None:
        self.calls.append(item)
        if item in self.failing:
            raise ConnectionError(item)

    async def awaited(self, item: str) -> None:
        await asyncio.sleep(0)
        self(item)


def _no_record(slot: CallSlot) -> CallRecord:
    raise NotImplementedError


@contextlib.contextmanager
def within(parts: Parts) -> Iterator[None]:
    """One attempt of a call."""
    log = ActivityLog("test", clock=ManualClock(), describe=_no_record)
    with log.entered():
        log.slot(threading.get_ident()).memory = parts
        parts.begin()
        yield


def attempt(parts: Parts, flaky: Flaky, items: str = "abc", **options: Any) -> list[str]:
    """The items for which it failed in one attempt."""
    with within(parts):
        try:
            each(items, flaky, **options)
        except ExceptionGroup as group:
            return [str(error) for error in group.exceptions]
    return []


def test_all_are_called_although_one_fails_and_a_repetition_leaves_out_what_has_succeeded() -> None:
    flaky, parts = Flaky("b"), Parts()
    assert attempt(parts, flaky) == ["b"]
    assert flaky.calls == ["a", "b", "c"]
    flaky.failing.clear()
    assert attempt(parts, flaky) == []
    assert flaky.calls == ["a", "b", "c", "b"]


def test_new_parts_begin_anew() -> None:
    flaky = Flaky("b")
    attempt(Parts(), flaky)
    attempt(Parts(), flaky)
    assert flaky.calls == ["a", "b", "c"] * 2


def test_outside_of_an_app_all_are_called_each_time() -> None:
    flaky = Flaky("b", "c")

    def fail() -> tuple[Exception, ...]:
        with pytest.raises(ExceptionGroup, match=r"Flaky.*: 2 of the items failed") as caught:
            each("abc", flaky)
        return caught.value.exceptions

    fail()
    assert [error.__notes__ for error in fail()] == [["each: 'b'"], ["each: 'c'"]]
    assert flaky.calls == ["a", "b", "c"] * 2


def test_an_async_function_is_awaited_for_one_item_after_the_other() -> None:
    flaky, parts = Flaky("b"), Parts()

    async def run() -> None:
        await each("abc", flaky.awaited)

    with within(parts), pytest.raises(ExceptionGroup):
        asyncio.run(run())
    flaky.failing.clear()
    with within(parts):
        asyncio.run(run())
    assert flaky.calls == ["a", "b", "c", "b"]


def test_a_closure_is_the_same_function_in_each_attempt() -> None:
    flaky, parts = Flaky("b"), Parts()

    def handler(bucket: str) -> None:
        each("abc", lambda item: flaky(item.lower()), key=lambda item: item + bucket)

    for _ in range(2):
        with within(parts), pytest.raises(ExceptionGroup):
            handler("x")
    assert flaky.calls == ["a", "b", "c", "b"]


def test_items_of_different_functions_are_strangers() -> None:
    one, other, parts = Flaky("b"), Flaky("c"), Parts()

    def handler() -> None:
        each("abc", lambda item: one(item.lower()))
        each("abc", lambda item: other(item.lower()))

    with within(parts), pytest.raises(ExceptionGroup):
        handler()
    one.failing.clear()
    with within(parts), pytest.raises(ExceptionGroup):
        handler()
    assert one.calls == ["a", "b", "c", "b"]
    assert other.calls == ["a", "b", "c"]


def test_what_would_be_taken_for_done_by_another_call_is_refused() -> None:
    made: list[tuple[str, str]] = []

    def make(zone: str, region: str) -> None:
        made.append((zone, region))

    with within(Parts()):
        each("ab", functools.partial(make, "x"))
        with pytest.raises(ValueError, match="the key 'a' was used in this call already"):
            each("ab", functools.partial(make, "y"))
    with within(Parts()):
        for zone in "xy":
            each("ab", functools.partial(make, zone), key=lambda region: (zone, region))
    assert len(made) == 2 + 4


@pytest.mark.parametrize("items", [["a", "b", "a"], iter(["a", "a"])])
def test_two_items_of_one_key_are_refused_before_a_call(items: Any) -> None:
    flaky = Flaky()
    with pytest.raises(ValueError, match="two items have the key 'a'"):
        each(items, flaky)
    assert flaky.calls == []


def test_what_cannot_be_a_key_is_refused_before_a_call() -> None:
    unhashable: Any = lambda item: [item]  # noqa: E731 - of a type that checkers refuse
    seen: list[Any] = []
    with pytest.raises(TypeError, match="an item is a dict, which cannot be hashed: give key="):
        each(["a", {"name": "a"}], seen.append)
    with pytest.raises(TypeError, match="a key is a list"):
        each(["a"], seen.append, key=unhashable)
    function: Any = "make"
    with pytest.raises(TypeError, match="give a function of one item"):
        each(["a"], function)
    assert seen == []


def test_what_ends_a_program_is_not_held_back() -> None:
    def leave(item: str) -> None:
        raise SystemExit(item)

    with pytest.raises(SystemExit):
        each("ab", leave)


def test_a_flaky_async_object_is_awaited() -> None:
    seen = []

    class Maker:
        async def __call__(self, item: str) -> None:
            seen.append(item)

    async def run() -> None:
        await each("ab", functools.partial(Maker()))

    asyncio.run(run())
    assert seen == ["a", "b"]


# In an App.


@pytest.mark.parametrize("is_async", [False, True])
def test_an_app_that_calls_again_leaves_out_what_has_succeeded_for_this_state(
    is_async: bool,
) -> None:
    app, flaky = App("bucket-operator"), Flaky("b")

    if is_async:

        @app.on_add(BUCKET)
        async def make_async(obj: Object[BucketSpec]) -> None:
            await each("abc", flaky.awaited)
    else:

        @app.on_add(BUCKET)
        def make(obj: Object[BucketSpec]) -> None:
            each("abc", flaky)

    with World(app) as world:
        world.create("one", {"size": 1})
        world.run(18.0)  # the delays have jitter
        assert flaky.calls == ["a", "b", "c", "b", "b"]
        world.replace("one", {"size": 2})
        world.run(1.0)
        assert flaky.calls[5:] == ["a", "b", "c"]
        flaky.failing.clear()
        world.settle()
        assert flaky.calls[8:] == ["b"]


def test_each_call_of_a_timer_that_has_succeeded_begins_anew() -> None:
    app, flaky = App("bucket-operator"), Flaky()

    @app.every(100, BUCKET)
    def look(obj: Object[BucketSpec]) -> None:
        each("ab", flaky, key=lambda item: item + obj.name)

    with World(app) as world:
        world.create("one", {"size": 1})
        world.run(150.0)
        assert flaky.calls == ["a", "b"] * 2
        flaky.failing = {"b"}
        world.run(60.0)
        flaky.failing.clear()
        world.run(60.0)
    assert flaky.calls[4:6] == ["a", "b"]
    assert set(flaky.calls[6:]) == {"b"}


def test_a_timer_whose_item_fails_for_good_calls_the_others_at_its_interval() -> None:
    app, flaky = App("bucket-operator", retry_policy=ConstantBackoff(40.0)), Flaky("b")

    @app.every(100, BUCKET)
    def look(obj: Object[BucketSpec]) -> None:
        each("abc", flaky)

    with World(app) as world:
        world.create("one", {"size": 1})
        world.run(290.0)
    # At 0, 40 and 80; after the interval all are called again.
    assert "".join(flaky.calls) == "abcbb" * 2 + "abcb"


def test_a_change_for_which_a_function_is_called_begins_anew() -> None:
    app, flaky = App("bucket-operator"), Flaky("b")

    @app.on_update(BUCKET, when=field("status.phase").changed)
    def look(old: Object[BucketSpec], new: Object[BucketSpec]) -> None:
        each("abc", flaky)

    with World(app) as world:
        world.create("one", {"size": 1})
        for phase in ("new", "ready"):
            world.run(1.0)
            world.patch("one", {"status": {"phase": phase}}, subresource="status")
        world.run(1.0)
    assert flaky.calls == ["a", "b", "c"] * 2


@pytest.mark.parametrize("is_async", [False, True])
def test_a_call_whose_time_is_over_calls_no_further_item(is_async: bool) -> None:
    calls, errors = list[str](), list[Exception]()
    app = App(
        "bucket-operator",
        retry_policy=ConstantBackoff(1000.0),
        error_handler=lambda error, call: errors.append(error),
    )

    async def wait_async() -> None:
        await asyncio.Event().wait()

    def wait(item: str) -> object:
        calls.append(item)
        return wait_async() if is_async else current_stop().wait()

    @app.on_add(BUCKET, time_limit=20.0)
    def make(obj: Object[BucketSpec]) -> None:
        each("abc", wait)

    with World(app) as world:
        world.create("one", {"size": 1})
        world.run(100.0)
        assert calls == ["a"]
        assert [type(error) for error in errors] == [TimeLimitExceeded]
        world.run(1000.0)
    # One that returns at its stop has succeeded, and one that was cancelled has not.
    assert calls == (["a", "a"] if is_async else ["a", "b"])


def test_functions_and_objects_have_parts_of_their_own() -> None:
    app, one, other = App("bucket-operator"), Flaky("b"), Flaky("b")

    @app.on_add(BUCKET)
    def make(obj: Object[BucketSpec]) -> None:
        each("ab", lambda item: one(item.lower()))

    @app.on_add(BUCKET)
    def make_too(obj: Object[BucketSpec]) -> None:
        each("ab", lambda item: other(item.lower()))

    with World(app) as world:
        for name in ("x", "y"):
            world.create(name, {"size": 1})
        world.run(1.0)
        one.failing.clear()
        other.failing.clear()
        world.settle()
    assert sorted(one.calls) == sorted(other.calls) == ["a", "a", "b", "b", "b", "b"]
