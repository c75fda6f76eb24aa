"""Whatever becomes of an object, each ``on_delete`` gets its call, and the next one of its name is
handled like any other."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator import App, Kind, Object, labels
from appsdk_operator.app import _assembly
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.client import NotFound
from appsdk_operator.controllers import TerminalError
from appsdk_operator.testing import World
from appsdk_operator.watchers import ConstantBackoff
from tests.hypothesis_profiles import scaled


@attrs.frozen
class ThingSpec:
    a: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
RED: Any = labels("color=red")
FAILURES = {"fails": ConnectionError, "gives up": TerminalError}
HOLD = "x.example.org/hold"

MADE: list[KindFunctions] = []
"""The reconcilers of the functions, newest last."""


@pytest.fixture(autouse=True, scope="module")
def record_reconcilers() -> Iterator[None]:
    class Recorded:
        def __new__(cls, *args: Any, **options: Any) -> Any:
            MADE.append(KindFunctions(*args, **options))
            return MADE[-1]

    patch = pytest.MonkeyPatch()
    patch.setattr(_assembly, "KindFunctions", Recorded)
    yield
    patch.undo()


class Calls:
    """The calls of an App's functions, which fail as they are told."""

    def __init__(self) -> None:
        self.made: list[tuple[str, str]] = []
        """The functions and the uids."""
        self.outcomes: list[str] = []

    def note(self, what: str, thing: Object) -> None:
        self.made.append((what, thing.uid))
        failure = FAILURES.get(self.outcomes.pop(0)) if self.outcomes else None
        if failure is not None:
            raise failure(what)

    def of(self, uid: str) -> set[str]:
        return {what for what, of in self.made if of == uid}


def operator(calls: Calls) -> App:
    app = App("thing-operator", retry_policy=ConstantBackoff(20))
    app.on_add(THING)(lambda thing: calls.note("add", thing))
    app.on_delete(THING)(lambda thing: calls.note("first", thing))
    app.on_delete(THING)(lambda thing: calls.note("second", thing))
    return app


def nothing_is_remembered() -> None:
    functions = MADE[-1]
    assert not functions._known
    lifecycle = functions.finalizer_lifecycle
    assert lifecycle is not None
    assert not lifecycle._records


def strip(world: World) -> None:
    """Another client takes all finalizers off."""
    with contextlib.suppress(NotFound):
        world.patch("a", {"metadata": {"finalizers": []}})


def successor_is_handled(world: World, calls: Calls) -> None:
    """The object has gone, and another one of its name is made and deleted."""
    calls.outcomes.clear()
    thing = world.create("a", {"a": 1})
    world.run(60)
    assert calls.of(thing.uid) == {"add"}
    world.delete("a")
    world.run(60)
    assert calls.of(thing.uid) == {"add", "first", "second"}
    assert not world.objects()
    nothing_is_remembered()


def test_a_deletion_that_was_given_up_ends_with_the_finalizer_that_is_taken_off_by_hand() -> None:
    calls = Calls()
    with World(THING, operator(calls)) as world:
        world.create("a", {"a": 1})
        world.run(1)
        calls.outcomes[:] = ["gives up", "gives up"]
        world.delete("a")
        world.run(600)
        assert len(world.objects()) == 1
        strip(world)
        world.run(600)
        nothing_is_remembered()
        successor_is_handled(world, calls)


@pytest.mark.parametrize("is_held", [False, True])
@pytest.mark.parametrize("outcomes", [["gives up", "ok"], ["gives up"] * 2, ["fails", "gives up"]])
def test_a_deletion_that_is_given_up_when_the_object_has_gone_keeps_no_other_from_its_call(
    outcomes: list[str], is_held: bool
) -> None:
    calls = Calls()
    with World(THING, operator(calls)) as world:
        thing = world.create("a", {"a": 1})
        world.run(1)
        if is_held:
            calls.outcomes[:] = ["fails"] * 2
            world.delete("a")
            world.run(1)
        calls.outcomes[:] = outcomes
        strip(world)
        if not is_held:
            world.delete("a")
        world.run(600)
        assert calls.of(thing.uid) == {"add", "first", "second"}
        assert not world.objects()
        nothing_is_remembered()
        successor_is_handled(world, calls)


MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("outcomes"), st.lists(st.sampled_from(["ok", *FAILURES]), max_size=4)),
        st.tuples(st.just("size"), st.integers(0, 3)),
        st.tuples(st.just("color"), st.sampled_from(["red", None])),
        st.tuples(st.just("wait"), st.sampled_from([0.0, 1.0, 60.0])),
        st.tuples(st.just("strip"), st.just(0)),
        st.tuples(st.just("refuse"), st.sampled_from(["write", "read"])),
        st.tuples(st.just("hold"), st.just(0)),
        st.tuples(st.just("delete"), st.just(0)),
        st.tuples(st.just("recreate"), st.just(0)),
    ),
    max_size=10,
)


def move(world: World, calls: Calls, what: str, value: Any) -> None:
    present = world.find("a")
    match what:
        case "outcomes":
            calls.outcomes[:] = value
        case "wait":
            world.run(value)
        case "refuse" if value == "write":
            world.write_faults += ["500"] * 3
        case "refuse":
            world.failures["read"] += ["500"] * 3
        case "recreate" if present is None:
            world.create("a", {"a": 1})
        case _ if present is None:
            pass
        case "size":
            world.patch("a", {"spec": {"a": value}})
        case "color":
            world.patch("a", {"metadata": {"labels": {"color": value}}})
        case "strip":
            strip(world)
        case "hold" if not present.is_deleting:
            world.patch("a", {"metadata": {"finalizers": [HOLD, *present.finalizers]}})
        case "delete" if not present.is_deleting:
            world.delete("a")


@settings(max_examples=scaled(60))
@given(MOVES)
@example([("outcomes", ["ok", "gives up", "gives up"]), ("wait", 1.0), ("delete", 0)])
def test_each_deletion_is_shown_and_the_next_object_of_the_name_is_handled(
    moves: list[tuple[str, Any]],
) -> None:
    calls = Calls()
    with World(THING, operator(calls)) as world:
        world.create("a", {"a": 1})
        for what, value in moves:
            move(world, calls, what, value)
        if world.find("a") is not None:
            move(world, calls, "delete", 0)
            world.run(60)
            strip(world)
        world.write_faults.clear()
        world.failures["read"].clear()
        world.run(600)
        assert not world.objects()
        for uid in {uid for _, uid in calls.made}:
            assert {"first", "second"} <= calls.of(uid)
        nothing_is_remembered()
        successor_is_handled(world, calls)
