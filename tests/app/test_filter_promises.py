"""A filter never loses a clean-up, whatever becomes of the labels and fields of an object."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator import App, Kind, Object, annotation, field, labels
from appsdk_operator.resource import filter_of
from appsdk_operator.testing import World
from tests.hypothesis_profiles import scaled


@attrs.frozen
class ThingSpec:
    a: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
RED: Any = labels("color=red")


def red_and_small(thing: Object[ThingSpec]) -> bool:
    return thing.spec.a < 2


def broken(thing: Object[ThingSpec]) -> bool:
    raise LookupError(thing.name)


WHERES: list[Any] = [
    RED,
    ~RED,
    RED & red_and_small,
    RED & ~annotation("example.com/paused"),
    (field("spec.a") == 1) | RED,
    red_and_small,
    ~(RED & field("spec.a").exists),
    broken,
]
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("color"), st.sampled_from(["red", "blue", None])),
        st.tuples(st.just("paused"), st.sampled_from(["yes", None])),
        st.tuples(st.just("size"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 60.0])),
        st.tuples(st.just("down"), st.just(30.0)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("write"), st.sampled_from(["500", "lost", "409"])),
    ),
    max_size=8,
)


def operator(
    *wheres: Any, has_background: bool = False, has_clean_up: bool = True, resync: float = 30.0
) -> App:
    """Makes something outside of the cluster for each object that it is told of."""
    app = App("thing-operator", resync=resync)
    if has_background:
        app.background(THING)(lambda live, stop: stop.wait())
    for number, where in enumerate(wheres):
        declare(app, number, where, has_clean_up=has_clean_up)
    return app


def declare(app: App, number: int, where: Any, *, has_clean_up: bool) -> None:
    def make(thing: Object[ThingSpec]) -> None:
        if where is not broken and where is not None and not filter_of(where)(thing):
            STRANGERS.append(thing)
        app_world().elsewhere[f"{number} of {thing.uid}"] = True

    def remove(thing: Object[ThingSpec]) -> None:
        app_world().elsewhere.pop(f"{number} of {thing.uid}", None)

    app.on_add(THING, where=where)(make)
    app.on_update(THING, where=where)(lambda old, new: None)
    if has_clean_up:
        app.on_delete(THING, where=where)(remove)


WORLD: list[World] = []
STRANGERS: list[Object[ThingSpec]] = []
"""Objects that a function was called for although they do not match."""


def app_world() -> World:
    return WORLD[-1]


def move(world: World, what: str, value: Any) -> None:
    match what:
        case "color":
            world.patch("a", {"metadata": {"labels": {"color": value}}})
        case "paused":
            world.patch("a", {"metadata": {"annotations": {"example.com/paused": value}}})
        case "size":
            world.patch("a", {"spec": {"a": value}})
        case "wait":
            world.run(value)
        case "down":
            world.down(value)
        case "restart":
            world.restart()
        case "write":
            world.write_faults.append(value)


def left_after(
    wheres: Sequence[Any], moves: list[tuple[str, Any]], *, has_background: bool = False
) -> list[str]:
    """What is left outside when an object with such a life is gone."""
    with World(THING, operator(*wheres, has_background=has_background)) as world:
        WORLD[:] = [world]
        STRANGERS.clear()
        world.create("a", {"a": 1})
        for what, value in moves:
            move(world, what, value)
        if broken in wheres:
            world.run(120)
            assert world.elsewhere, "a filter that raises lets pass"
        world.write_faults.clear()
        world.delete("a")
        world.run(1800)
        assert not world.objects(), "the object is held"
        assert not STRANGERS
        return sorted(world.elsewhere)


LEAVES: list[tuple[str, Any]] = [("color", "red"), ("wait", 1.0), ("color", "blue")]


@settings(max_examples=scaled(60))
@given(st.sampled_from(WHERES), MOVES, st.booleans())
@example(RED, [*LEAVES, ("restart", 0)], False)
@example(RED, [*LEAVES, ("restart", 0)], True)
@example(RED, [*LEAVES, ("wait", 1.0), ("down", 30.0), ("size", 3)], False)
def test_what_was_made_for_an_object_is_removed_with_it(
    where: Any, moves: list[tuple[str, Any]], has_background: bool
) -> None:
    assert left_after([where], moves, has_background=has_background) == []


@settings(max_examples=scaled(30))
@given(st.lists(st.sampled_from(WHERES), min_size=2, max_size=3, unique_by=id), MOVES)
@example([RED, ~RED], [*LEAVES, ("wait", 1.0)])
@example([RED, ~RED], [*LEAVES, ("wait", 1.0), ("restart", 0)])
def test_several_filters_lose_nothing(wheres: list[Any], moves: list[tuple[str, Any]]) -> None:
    assert left_after(wheres, moves) == []


@settings(max_examples=scaled(60))
@given(
    st.lists(st.sampled_from([*WHERES[:-1], None]), min_size=1, max_size=3, unique_by=id),
    st.booleans(),
    st.booleans(),
    MOVES,
)
@example([RED, None], False, True, [("wait", 1.0), ("down", 30.0), ("color", "red")])
@example([RED], True, True, [("wait", 1.0), ("down", 30.0), ("color", "red")])
@example([~RED], False, False, [("write", "500"), ("wait", 1.0), ("color", "red")])
def test_each_function_is_called_for_an_object_that_it_is_for_also_across_restarts(
    wheres: list[Any], has_background: bool, has_clean_up: bool, moves: list[tuple[str, Any]]
) -> None:
    # No resync corrects what an event should have led to.
    app = operator(*wheres, has_background=has_background, has_clean_up=has_clean_up, resync=0)
    with World(THING, app) as world:
        WORLD[:] = [world]
        thing = world.create("a", {"a": 1})
        for what, value in moves:
            move(world, what, value)
        world.write_faults.clear()
        world.run(1800)
        [present] = world.objects()
        for number, where in enumerate(wheres):
            is_wanted = where is None or filter_of(where)(present)
            assert not is_wanted or f"{number} of {thing.uid}" in world.elsewhere


def test_a_finalizer_for_a_background_function_says_nothing_of_a_filtered_one() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.background(THING)(lambda live, stop: stop.wait())
    app.on_delete(THING, where=RED)(lambda thing: calls.append(thing.name))
    with World(THING, app) as world:
        for name in ("a", "b"):
            world.create(name, {"a": 1}, labels={"color": "red" if name == "b" else "blue"})
        world.run(1)
        world.restart()
        world.run(1)
        for name in ("a", "b"):
            world.delete(name)
        world.run(60)
        assert not world.objects()
    assert calls == ["b"]


@pytest.mark.parametrize("fault", [("restart", 0), ("down", 30.0)])
def test_after_a_restart_an_object_that_no_filter_matches_is_cleaned_up(
    fault: tuple[str, Any],
) -> None:
    wheres = [RED, RED & red_and_small]
    assert left_after(wheres, [*LEAVES, ("wait", 1.0), fault]) == []


def test_an_object_that_matches_for_a_while_between_two_calls_is_cleaned_up() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_add(THING)(lambda thing: calls.append("add"))
    app.on_update(THING)(lambda old, new: calls.append("update"))
    app.on_delete(THING, where=RED)(lambda thing: calls.append("delete"))
    with World(THING, app) as world:
        world.create("a", {"a": 1}, labels={"color": "blue"})
        world.run(1)
        world.patch("a", {"spec": {"a": 2}})
        world.run(1)
        # The finalizer is there, and neither change makes a call due.
        for color in ("red", "blue"):
            world.patch("a", {"metadata": {"labels": {"color": color}}})
            world.run(1)
        world.delete("a")
        world.run(60)
        assert not world.objects()
    assert calls == ["add", "update", "delete"]
