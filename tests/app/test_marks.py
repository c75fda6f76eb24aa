"""The mark "was added": a finalizer where something cleans up, a record where nothing does."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import strategies as st

from appsdk_operator import StopSignal, annotation, field, kinds, labels
from appsdk_operator.app import App, Kopf
from appsdk_operator.app._due import ObjectState
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.app._remember import Records
from appsdk_operator.manager import CacheSetup
from appsdk_operator.resource import Kind, Object
from appsdk_operator.testing import BrokenPromise, World, check_operator
from appsdk_operator.watchers import ConstantBackoff
from tests.app.places import Table
from tests.hypothesis_profiles import scaled


@attrs.frozen
class ThingSpec:
    a: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
SECRET = kinds.core.v1.Secret
KEY = "thing-operator.appsdk-operator.io/handled"
OURS = "example.com/thing-operator.v1.Thing"
IN_PROGRESS = "example.com/wip.thing-operator.v1.Thing"
HOLD = "x.example.org/hold"
RED = {"metadata": {"labels": {"color": "red"}}}
BLUE = {"metadata": {"labels": {"color": "blue"}}}
is_red = labels("color=red")


def nothing(*_: Any) -> None: ...


class Calls(list[Any]):
    """What functions were called with."""

    def of(self, name: str) -> Callable[..., None]:
        def call(*objects: Object) -> None:
            self.append((name, *(each.spec.a for each in objects)))

        call.__name__ = name
        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


def made(
    calls: Calls, *causes: str, name: str = "thing-operator", kind: Any = THING, **options: Any
) -> App:
    """An App with a function for each cause."""
    app = App(name, **options)
    for cause in causes:
        getattr(app, f"on_{cause}")(kind)(calls.of(cause))
    return app


def in_turn(*apps: App) -> Callable[[Any], Any]:
    """An operator whose processes have one App after another."""

    def operator(replica: Any) -> Any:
        options: Any = {"metrics_server": None, "health_server": None, "profile_server": None}
        app = apps[min(replica.process, len(apps)) - 1]
        return app.manager(replica.config, clock=replica.clock, metrics=replica.metrics, **options)

    return operator


def world_of(*apps: App) -> World:
    return World(THING, in_turn(*apps), crds=[crd.to_dict() for crd in apps[-1].crds()])


def the(world: World) -> Object:
    (obj,) = world.objects()
    return obj


def record(obj: Object) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(obj.annotations[KEY])
    return found


def writes(world: World) -> int:
    return len(world.journal.of("write"))


@pytest.mark.parametrize(
    ("causes", "first", "later"),
    [
        (["add"], [("add", 1)], []),
        (["add", "sync"], [("add", 1)], [("sync", 1)]),
        (["sync"], [], [("sync", 1)]),
        (["add", "update"], [("add", 1)], []),
        (["sync", "update"], [], [("sync", 1)]),
    ],
    ids=lambda value: "-".join(map(str, value)),
)
@pytest.mark.parametrize("remember", [None, True, False])
def test_without_clean_up_a_new_object_costs_one_patch_and_gets_no_finalizer(
    calls: Calls, causes: list[str], first: list[Any], later: list[Any], remember: bool | None
) -> None:
    app = made(calls, *causes, remember=remember)
    app.every(60, THING)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(200)
        assert calls == first
        assert writes(world) == 1
        assert not the(world).finalizers
        assert ("states" in record(the(world))) == (remember is True and "update" in causes)
        calls.clear()
        world.restart()
        world.run(200)
        assert calls == later
        assert writes(world) == 1
        calls.clear()
        world.down(600)
        world.create("b", {"a": 2})
        world.delete("a")
        assert [obj.name for obj in world.objects()] == ["b"]
        world.run(1200)
        assert calls == [("add", 2)] * ("add" in causes)
        world.delete("b")
        assert not world.objects()


def test_only_updates_and_timers_of_a_foreign_kind_write_nothing(calls: Calls) -> None:
    app = made(calls, "update")
    app.every(60, THING)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(100)
        world.replace("a", {"a": 2})
        world.run(100)
        assert writes(world) == 0
    assert calls == [("update", 1, 2)]


def test_objects_that_no_add_wants_are_not_written(calls: Calls) -> None:
    app = App("thing-operator")
    app.on_add(THING, where=is_red)(calls.of("red"))
    app.on_update(THING)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(100)
        assert writes(world) == 0
        world.patch("a", RED)
        world.run(100)
        assert writes(world) == 1
        world.patch("a", BLUE)
        world.run(100)
        world.restart()
        world.patch("a", RED)
        world.run(100)
        assert writes(world) == 1
    assert calls == [("red", 1)]


def test_an_object_that_begins_to_match_a_sync_alone_is_marked_at_once(calls: Calls) -> None:
    app = App("thing-operator")
    app.on_sync(THING, where=is_red)(calls.of("sync"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(65)  # between two resyncs
        assert writes(world) == 0
        world.patch("a", RED)
        world.run(1)
        assert KEY in the(world).annotations
        assert not calls
        world.restart()
        world.run(1)
    assert calls == [("sync", 1)]


def test_each_add_with_a_filter_of_its_own_is_called_once(calls: Calls) -> None:
    app = App("thing-operator")
    app.on_add(THING)(calls.of("add"))
    app.on_add(THING, where=is_red)(calls.of("red"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(10)
        world.down(60)
        world.patch("a", RED)
        world.run(100)
        world.restart()
        world.run(100)
        assert writes(world) == 2
    assert calls == [("add", 1), ("red", 1)]


def test_an_object_that_the_answer_to_a_record_shows_first_as_one_to_clean_up_is_protected(
    calls: Calls,
) -> None:
    app = App("thing-operator")
    app.own(THING)
    app.on_add(THING)(nothing)
    app.on_delete(THING, where=is_red)(calls.of("delete"))

    @app.on_update(THING)
    def change(_: Object, thing: Object) -> None:
        calls.append("update")
        world.patch("a", {"metadata": {"finalizers": [HOLD], **RED["metadata"]}})

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.replace("a", {"a": 2})
        world.run(1)
        assert the(world).finalizers == (HOLD, OURS)
        assert record(the(world))["held"] == ["delete"]
        world.delete("a")
        world.run(1)
        assert calls == ["update", ("delete", 2)]


def test_only_objects_with_a_clean_up_get_the_finalizer(calls: Calls) -> None:
    app = made(calls, "add")
    app.on_delete(THING, where=is_red)(calls.of("delete"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.create("b", {"a": 2}, labels={"color": "red"})
        world.run(100)
        assert [obj.finalizers for obj in world.objects()] == [(), (OURS,)]
        world.patch("a", RED)
        world.patch("b", BLUE)
        world.run(1)
        assert [obj.finalizers for obj in world.objects()] == [(OURS,), (OURS,)]
        world.down(60)
        world.patch("a", BLUE)
        world.run(100)
        world.create("c", {"a": 3})
        world.run(1)
        for name in "abc":
            world.delete(name)
        world.run(100)
        assert not world.objects()
    assert calls == [("add", 1), ("add", 2), ("add", 3), ("delete", 1), ("delete", 2)]


@pytest.mark.parametrize("causes", [["add", "sync"], ["sync"], ["update"]], ids="-".join)
@pytest.mark.parametrize("name", ["thing-operator", "old-operator"])
def test_a_finalizer_of_an_app_that_cleaned_up_comes_off_and_counts_as_the_mark(
    calls: Calls, causes: list[str], name: str
) -> None:
    before = made(calls, *{"add", *causes}, "delete", name=name)
    # Without a record of its own another name's finalizer is left to its owner.
    remember = True if causes == ["update"] and name != "thing-operator" else None
    app = made(calls, *causes, previous_names=["old-operator"], remember=remember)
    with world_of(before, app) as world:
        world.create("a", {"a": 1}, finalizers=[HOLD])
        world.run(10)
        assert len(the(world).finalizers) == 2
        calls.clear()
        count = writes(world)
        world.restart()
        world.run(100)
        assert the(world).finalizers == (HOLD,)
        assert writes(world) == count + 1
        assert calls == [("sync", 1)] * ("sync" in causes)
        assert list(the(world).annotations) == [KEY] * (causes != ["update"] or bool(remember))
        world.restart()
        world.run(100)
        assert writes(world) == count + 1
        assert calls == [("sync", 1)] * 2 * ("sync" in causes)


def test_with_updates_alone_and_no_record_a_finalizer_of_a_former_name_goes_with_the_object(
    calls: Calls,
) -> None:
    app = made(calls, "update", previous_names=["old-operator"])
    with World(THING, app) as world:
        world.create("a", {"a": 1}, finalizers=["example.com/old-operator.v1.Thing"])
        world.run(100)
        assert len(the(world).finalizers) == 1  # or another operator has the name by now
        world.delete("a")
        world.run(10)
        assert not world.objects()


@pytest.mark.parametrize("place", ["annotation", "elsewhere"])
@pytest.mark.parametrize(("cause", "remember"), [("add", False), ("add", True), ("update", True)])
@pytest.mark.parametrize("faults", [0, 2])
def test_a_finalizer_of_a_former_name_comes_off_once_and_is_another_operators_after_that(
    calls: Calls, place: str, cause: str, remember: bool, faults: int
) -> None:
    options: Any = {"handled_states": Table()} if place == "elsewhere" else {}
    former = "example.com/operator.v1.Thing"
    with World(THING, made(calls, cause, remember=remember, **options)) as world:
        world.create("a", {"a": 1}, finalizers=[HOLD, former])
        world.create("b", {"a": 2}, finalizers=[HOLD])
        world.write_faults += ["500"] * faults
        world.run(600)
        assert [obj.finalizers for obj in world.objects()] == [(HOLD,), (HOLD,)]
        for name in "ab":
            world.patch(name, {"metadata": {"finalizers": [HOLD, former]}})
        world.run(100)
        world.restart()
        world.run(100)
        assert [obj.finalizers for obj in world.objects()] == [(HOLD, former)] * 2


def test_an_addition_of_before_that_was_not_finished_is_called_again(calls: Calls) -> None:
    with World(THING, made(calls, "add")) as world:
        world.create("a", {"a": 1}, finalizers=[IN_PROGRESS])
        world.run(100)
        assert not the(world).finalizers
        assert writes(world) == 1
    assert calls == [("add", 1)]


def test_an_object_in_deletion_is_released_from_a_finalizer_of_before(calls: Calls) -> None:
    with World(THING, made(calls, "add", "sync")) as world:
        world.create("a", {"a": 1}, finalizers=[OURS])
        world.delete("a")
        world.run(100)
        assert not world.objects()
    assert not calls


def test_an_object_outside_of_the_filters_keeps_no_finalizer_of_before_but_its_mark(
    calls: Calls,
) -> None:
    app = App("thing-operator")
    app.on_add(THING, where=is_red)(calls.of("red"))
    with World(THING, app) as world:
        world.create("a", {"a": 1}, finalizers=[OURS])
        world.run(100)
        assert not the(world).finalizers
        assert writes(world) == 1
        world.restart()
        world.run(100)
        assert writes(world) == 1


@pytest.mark.parametrize("remember", [None, True, False])
def test_with_a_clean_up_of_later_the_record_counts_and_the_finalizer_comes(
    calls: Calls, remember: bool | None
) -> None:
    apps = [
        made(calls, "add", "sync", "update", *more, remember=remember) for more in ([], ["delete"])
    ]
    with world_of(*apps) as world:
        world.create("a", {"a": 1})
        world.run(10)
        count = writes(world)
        world.restart()
        world.run(100)
        assert the(world).finalizers == (OURS,)
        assert writes(world) == count + 1
        assert calls == [("add", 1), ("sync", 1)]
        world.delete("a")
        world.run(100)
        assert not world.objects()
    assert calls[2:] == [("delete", 1)]


def test_a_finalizer_that_cannot_be_taken_off_keeps_no_function_and_is_tried_again(
    calls: Calls,
) -> None:
    with World(THING, made(calls, "update")) as world:
        world.write_faults += ["500"] * 3
        world.create("a", {"a": 1}, finalizers=[OURS])
        world.run(1)
        world.replace("a", {"a": 2})
        world.run(1)
        assert calls == [("update", 1, 2)]
        assert the(world).finalizers == (OURS,)
        world.run(600)
        assert not the(world).finalizers


@pytest.mark.parametrize("remember", [False, True])
def test_the_finalizer_goes_with_the_record_although_an_add_fails(
    calls: Calls, remember: bool
) -> None:
    before = made(calls, "add", "delete", remember=remember)
    after = made(calls, "add", "sync", remember=remember, retry_policy=ConstantBackoff(10))

    @before.on_add(THING, where=is_red)
    @after.on_add(THING, where=is_red)
    def fails(thing: Object) -> None:
        raise ConnectionError

    with world_of(before, after) as world:
        world.create("a", {"a": 1})
        world.run(10)
        world.patch("a", RED)
        world.restart()
        for _ in range(2):
            world.run(100)
            assert not the(world).finalizers
            assert record(the(world))["done"] == ["add"]
            world.restart()
        world.run(1)
    assert calls == [("add", 1), *[("sync", 1)] * 3]


@pytest.mark.parametrize("remember", [False, True])
@pytest.mark.parametrize("where", [is_red, labels("color"), None], ids=str)
def test_an_add_of_a_later_release_is_for_new_objects_and_those_that_come_to_match(
    calls: Calls, remember: bool, where: Any
) -> None:
    before = made(calls, "add", remember=remember)
    after = made(calls, "add", remember=remember)
    after.on_add(THING, where=where)(calls.of("later"))
    with world_of(before, after) as world:
        world.create("a", {"a": 1}, labels={"color": "red"})
        world.create("b", {"a": 2})
        world.run(10)
        world.restart()
        world.run(100)
        assert calls == [("add", 1), ("add", 2)]
        calls.clear()
        world.patch("b", RED)
        world.create("c", {"a": 3}, labels={"color": "red"})
        world.restart()
        world.run(100)
        came = [] if where is None else [("later", 2)]
        assert sorted(calls) == [("add", 3), *came, ("later", 3)]
        world.restart()
        world.run(100)
    assert len(calls) == 2 + len(came)


def test_an_add_with_a_filter_is_not_repeated_under_another_name(calls: Calls) -> None:
    before, after = App("thing-operator"), App("thing-operator")
    for app, name in ((before, "red"), (after, "large")):
        app.on_add(THING)(calls.of("add"))
        app.on_add(THING, where=is_red)(calls.of(name))
    with world_of(before, after) as world:
        world.create("a", {"a": 1}, labels={"color": "red"})
        world.run(10)
        world.restart()
        world.run(100)
    assert calls == [("add", 1), ("red", 1)]


def test_a_mark_that_is_removed_comes_back_and_without_an_operator_it_is_a_new_object(
    calls: Calls,
) -> None:
    nobody: Any = {"metadata": {"annotations": {KEY: None}}}
    with World(THING, made(calls, "add", "update")) as world:
        world.create("a", {"a": 1})
        world.run(65)
        world.patch("a", nobody)
        world.run(1)
        assert KEY in the(world).annotations
        world.restart()
        world.run(100)
        assert calls == [("add", 1)]
        world.down(60)
        world.patch("a", nobody)
        world.run(100)
        assert KEY in the(world).annotations
    assert calls == [("add", 1)] * 2


@pytest.mark.parametrize("remember", [False, True])
@pytest.mark.parametrize("causes", [["add"], ["add", "update"], ["add", "update", "delete"]])
def test_a_mark_that_is_removed_at_once_comes_back(
    calls: Calls, causes: list[str], remember: bool
) -> None:
    app = made(calls, *causes[:2], remember=remember)
    if "delete" in causes:
        app.on_delete(THING, where=is_red)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.patch("a", {"metadata": {"annotations": {KEY: None}}})
        world.run(1)
        assert KEY in the(world).annotations
        assert writes(world) == 2
        world.restart()
        world.run(100)
    assert calls == [("add", 1)]


def test_a_copy_has_no_mark(calls: Calls) -> None:
    with World(THING, made(calls, "add")) as world:
        world.create("a", {"a": 1})
        world.run(10)
        text = the(world).annotations[KEY]
        world.create("b", {"a": 2}, annotations={KEY: text})
        world.run(10)
    assert calls == [("add", 1), ("add", 2)]


def test_a_copy_of_an_object_with_its_finalizer_and_record_is_new(calls: Calls) -> None:
    with World(THING, made(calls, "add", "update", "delete", remember=True)) as world:
        world.create("a", {"a": 1})
        world.run(10)
        text = the(world).annotations[KEY]
        world.create("b", {"a": 2}, annotations={KEY: text}, finalizers=[OURS, HOLD])
        world.run(10)
        assert set(world.get("b").finalizers) == {OURS, HOLD}
        assert record(world.get("b"))["uid"] == world.get("b").uid
        world.restart()
        world.run(100)
    assert calls == [("add", 1), ("add", 2)]


def test_where_metadata_cannot_be_written_the_add_is_called_once_and_updates_wait(
    calls: Calls,
) -> None:
    app = made(calls, "add", "update")
    app.every(100, THING)(calls.of("timer"))
    with World(THING, app) as world:
        world.write_faults += ["403"] * 20
        world.create("a", {"a": 1})
        world.run(250)
        world.replace("a", {"a": 2})
        world.run(100)
        assert calls == [("add", 1), ("timer", 1), ("timer", 1), ("timer", 1), ("timer", 2)]
        assert 5 <= 20 - len(world.write_faults) <= 8
        world.write_faults.clear()
        world.run(300)
        assert [each for each in calls if each[0] != "timer"] == [("add", 1), ("update", 1, 2)]
        assert KEY in the(world).annotations


def check_that_no_update_comes_before_the_mark() -> None:
    calls = Calls()
    app = made(calls, "add", "update", retry_policy=ConstantBackoff(1000.0))
    with World(THING, app) as world:
        world.write_faults += ["500", "500", "500"]
        world.create("a", {"a": 1})
        world.run(1)
        world.replace("a", {"a": 2})
        world.run(1)
        world.crash()
        world.run(100)
    # Otherwise the add would follow the update, which is no last success any more.
    assert calls == [("add", 1), ("add", 2)]


def test_no_update_comes_before_the_mark() -> None:
    check_that_no_update_comes_before_the_mark()


@pytest.mark.parametrize("fault", ["500", "503"])
def test_a_mark_that_was_refused_is_left_out_while_no_add_wants_the_object(
    calls: Calls, fault: str
) -> None:
    app = App("thing-operator")
    app.on_add(THING, where=field("spec.a") == 1)(calls.of("add"))
    with World(THING, app) as world:
        world.write_faults.append(fault)
        world.create("a", {"a": 1})
        world.run(0.5)
        world.replace("a", {"a": 2})
        world.run(60)  # StuckError, if it looks again and again
        assert KEY not in the(world).annotations
        world.replace("a", {"a": 1})
        world.run(1)
        assert record(the(world))["done"] == ["add"]
        assert calls == [("add", 1)]


def test_a_paused_object_is_not_marked(calls: Calls) -> None:
    app = made(calls, "add", paused=annotation("stop"))
    with World(THING, app) as world:
        world.create("a", {"a": 1}, annotations={"stop": "1"}, finalizers=[OURS])
        world.create("b", {"a": 2}, annotations={"stop": "1"})
        world.run(100)
        assert writes(world) == 0
        for name in "ab":
            world.patch(name, {"metadata": {"annotations": {"stop": None}}})
        world.run(100)
        assert [obj.finalizers for obj in world.objects()] == [(), ()]
        assert writes(world) == 2
    assert calls == [("add", 2)]


@pytest.mark.parametrize("causes", [["add", "update"], ["add", "update", "delete"]])
def test_after_a_pause_that_a_restart_was_in_what_has_changed_since_then_is_one_update(
    calls: Calls, causes: list[str]
) -> None:
    app = made(calls, *causes, paused=annotation("stop"), remember=False)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.patch("a", {"metadata": {"annotations": {"stop": "1"}}})
        world.restart()
        world.run(1)
        world.replace("a", {"a": 2})
        world.run(1)
        world.replace("a", {"a": 3})
        world.run(1)
        world.patch("a", {"metadata": {"annotations": {"stop": None}}})
        world.run(1)
    assert calls == [("add", 1), ("update", 1, 3)]


def test_what_changes_before_the_mark_can_be_read_is_not_lost(calls: Calls) -> None:
    table = Table()
    app = made(calls, "add", "update", handled_states=table, remember=False)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        table.failures = 1
        world.restart()
        world.run(0.5)
        world.replace("a", {"a": 2})
        world.run(10)
    assert calls == [("add", 1), ("update", 1, 2)]


def test_what_an_object_needs_cleaned_up_is_recorded_although_an_update_fails_for_it(
    calls: Calls,
) -> None:
    app = App("thing-operator", resync=0)
    app.on_delete(THING, where=is_red)(calls.of("red"))
    app.on_delete(THING, where=labels("color=blue"))(calls.of("blue"))

    @app.on_update(THING)
    def fail(*_: Object) -> None:
        raise ConnectionError("down")

    with World(THING, app) as world:
        world.create("a", {"a": 1}, labels={"color": "blue"})
        world.run(1)
        world.patch("a", {"spec": {"a": 2}, **RED})
        world.run(1)
        world.crash()
        world.patch("a", BLUE)
        world.run(20)
        world.delete("a")
        world.run(20)
    assert calls == [("red", 2), ("blue", 2)]


def test_of_secrets_the_mark_has_no_value() -> None:
    app = App("thing-operator", remember=False)
    app.on_add(SECRET)(nothing)
    app.on_update(SECRET)(nothing)
    with World(SECRET, app) as world:
        world.create("a", {"data": {"token": "c2VjcmV0"}})
        world.run(10)
        world.replace("a", {"data": {"token": "b3RoZXI="}})
        world.run(10)
        assert record(the(world)).keys() == {"v", "uid", "api", "done"}
        assert writes(world) == 1


def test_two_apps_have_a_mark_each(calls: Calls) -> None:
    apps = [made(calls, "add", name=name) for name in ("thing-operator", "other-operator")]

    def operator(replica: Any) -> Any:
        options: Any = {"metrics_server": None, "health_server": None, "profile_server": None}
        app = apps[replica.name.endswith("-2")]
        return app.manager(replica.config, clock=replica.clock, metrics=replica.metrics, **options)

    crds = [crd.to_dict() for crd in apps[0].crds()]
    with World(THING, operator, crds=crds, replicas=2) as world:
        world.create("a", {"a": 1})
        world.run(100)
        assert set(the(world).annotations) == {KEY, KEY.replace("thing", "other")}
        count = writes(world)
        for number in (0, 1):
            world.restart(number)
        world.run(100)
        assert writes(world) == count
    assert calls == [("add", 1)] * 2


def test_the_mark_may_be_in_a_place_of_the_programs(calls: Calls) -> None:
    table = Table()
    with World(THING, made(calls, "add", "sync", handled_states=table)) as world:
        world.create("a", {"a": 1}, finalizers=[HOLD, OURS])
        world.create("b", {"a": 2})
        world.run(10)
        assert writes(world) == 1
        assert [obj.finalizers for obj in world.objects()] == [(HOLD,), ()]
        assert not any(obj.annotations for obj in world.objects())
        world.restart()
        world.run(10)
        assert sorted(calls) == [("add", 2), ("sync", 1), ("sync", 1), ("sync", 2)]
        world.delete("b")
        world.run(10)
        assert len(table.texts) == 1


def test_a_place_of_the_programs_keeps_no_record_of_an_object_that_was_paused_at_its_end(
    calls: Calls,
) -> None:
    table = Table()
    app = made(calls, "add", handled_states=table, paused=annotation("stop"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(10)
        assert len(table.texts) == 1
        world.patch("a", {"metadata": {"annotations": {"stop": "1"}}})
        world.run(10)
        world.delete("a")
        world.run(10)
    assert not table.texts


@pytest.mark.parametrize("place", ["annotation", "elsewhere"])
@pytest.mark.parametrize("remember", [False, True])
@pytest.mark.parametrize("cleanup", [[], ["delete"]])
def test_an_object_that_leaves_the_selector_of_the_cache_for_a_while_stays_handled(
    calls: Calls, place: str, remember: bool, cleanup: list[str]
) -> None:
    table = Table()
    options: Any = {"handled_states": table} if place == "elsewhere" else {}
    app = made(
        calls,
        *("add", "sync", "update", *cleanup),
        remember=remember,
        cache=CacheSetup(label_selector=labels("color=red")),
        **options,
    )
    with World(THING, app) as world:
        world.create("a", {"a": 1}, labels={"color": "red"})
        world.run(10)
        world.patch("a", BLUE)
        world.run(10)
        world.replace("a", {"a": 2})
        world.run(10)
        world.patch("a", RED)
        world.run(10)
        # Without states it is handled as after a restart: what has changed meanwhile is not known.
        updates = [("update", 1, 2)] * remember
        assert calls == [("add", 1), ("sync", 2), *updates]
        world.delete("a")
        world.run(10)
        assert not world.objects()
        assert not table.texts


def test_of_an_object_that_cannot_be_read_at_its_end_the_record_stays(
    calls: Calls, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise ConnectionError("no answer")

    table = Table()
    with World(THING, made(calls, "add", handled_states=table)) as world:
        world.create("a", {"a": 1})
        world.run(10)
        monkeypatch.setattr(Records, "_present", refuse)
        world.delete("a")
        world.run(10)
        assert len(table.texts) == 1
    assert "could not find out whether" in caplog.text


@pytest.mark.parametrize("place", ["annotation", "elsewhere"])
def test_a_timer_of_every_replica_waits_for_the_mark(calls: Calls, place: str) -> None:
    options: Any = {"handled_states": Table()} if place == "elsewhere" else {}
    app, failing = App("thing-operator", retry_policy=ConstantBackoff(50), **options), [1, 1]
    app.every(10, THING, every_replica=True)(calls.of("timer"))

    @app.on_add(THING)
    def add(thing: Object) -> None:
        calls.append(("add", 1))
        if failing:
            raise ConnectionError(failing.pop())

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(135)
    assert calls[:3] == [("add", 1)] * 3
    assert ("timer", 1) in calls[3:]


@pytest.mark.parametrize("causes", [["delete"], ["add"], ["add", "delete"]], ids="-".join)
def test_a_timer_of_every_replica_is_called_for_objects_that_need_no_mark(
    calls: Calls, causes: list[str]
) -> None:
    app = App("thing-operator")
    for cause in causes:
        getattr(app, f"on_{cause}")(THING, where=is_red)(calls.of(cause))
    app.every(10, THING, every_replica=True)(calls.of("timer"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.create("b", {"a": 2}, labels={"color": "red"})
        world.run(25)
    assert calls.count(("timer", 1)) == 3
    assert calls.count(("timer", 2)) == 3


@pytest.mark.parametrize("causes", [["add"], ["add", "update"]], ids="-".join)
def test_what_kopf_has_left_is_replaced_by_the_mark_in_one_patch(
    calls: Calls, causes: list[str]
) -> None:
    options = Kopf(peering=None)
    state = json.dumps({"spec": {"a": 1}})
    with World(THING, made(calls, *causes, adopt=options)) as world:
        key = f"{options.prefix}/{options.key}"
        world.create("a", {"a": 1}, annotations={key: state}, finalizers=[options.finalizer, HOLD])
        world.run(100)
        assert the(world).finalizers == (HOLD,)
        assert list(the(world).annotations) == [KEY]
        assert writes(world) == 1
    assert not calls


def test_an_object_at_rest_is_settled_and_its_updates_write_nothing(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady = list[Any]()
    whole = KindFunctions.steady

    def noted(self: KindFunctions, event: Any, /) -> Any:
        steady.append(whole(self, event))
        return steady[-1]

    monkeypatch.setattr(KindFunctions, "steady", noted)
    with World(THING, made(calls, "add", "update")) as world:
        world.create("a", {"a": 1})
        world.run(10)
        steady.clear()
        for size in (2, 3, 4):
            world.replace("a", {"a": size})
            world.run(1)
        assert len([call for call in steady if call]) == 3
        assert writes(world) == 1
    assert calls == [("add", 1), ("update", 1, 2), ("update", 2, 3), ("update", 3, 4)]


# Histories.

SPECS = st.fixed_dictionaries({"a": st.integers(1, 3)})
FAULTS = ("ok", "crash before", "crash after", "lost", "409", "500")


class Elsewhere:
    """What the functions set elsewhere, by uid; new in each history."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.adds: list[str] = []
        self.updated: set[str] = set()
        self._world: World | None = None

    def app(self, causes: Sequence[str], **options: Any) -> App:
        app = App("thing-operator", **options)

        def add(thing: Object[ThingSpec]) -> None:
            assert thing.uid not in self.updated, "an add after an update"
            self.adds.append(thing.uid)
            self.sizes[thing.uid] = thing.spec.a

        def sync(thing: Object[ThingSpec]) -> None:
            assert "add" not in causes or thing.uid in self.sizes, "a sync before the add"
            self.sizes[thing.uid] = thing.spec.a

        def update(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
            self.updated.add(new.uid)
            self.sizes[new.uid] = new.spec.a

        for name, function in (("add", add), ("sync", sync), ("update", update)):
            if name in causes:
                getattr(app, f"on_{name}")(THING)(function)
        app.every(40, THING)(nothing)
        return app

    def always(self, world: World) -> None:
        if world is not self._world:
            self._world = world
            self.sizes.clear()
            self.adds.clear()
            self.updated.clear()
        for thing in world.objects():
            own = [name for name in thing.finalizers if "thing-operator" in name]
            assert not own, f"{thing.name} has {own}"

    def check(self, world: World) -> None:
        self.always(world)
        for thing in world.objects():
            assert thing.is_deleting or self.sizes[thing.uid] == thing.spec.a
            assert thing.is_deleting or KEY in thing.annotations


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("remember", [True, False])
def test_no_add_is_lost_and_no_object_is_held_whatever_fails_when(
    remember: bool, replicas: int
) -> None:
    elsewhere = Elsewhere()
    app = elsewhere.app(["add", "sync", "update"], remember=remember)
    elsewhere.updated = _Nothing()  # a leader that has lost the lead may have the last word
    check_operator(
        app,
        specs=SPECS,
        replicas=replicas,
        leader_election=replicas > 1,
        always=elsewhere.always,
        at_rest=elsewhere.check,
        max_examples=scaled(12),
    )


class _Nothing(set[str]):
    def add(self, item: str, /) -> None:
        del item


def history(place: int, fault: str, *, is_down: bool) -> list[str]:
    """A creation, a change, a restart and a deletion, with a fault at the write of this number."""
    faults = [*["write ok"] * place, f"write {fault}"]
    between = ["down 60", "wait 90"] if is_down else ["wait 30"]
    steps = ['create a {"a": 1}', *between, 'spec a {"a": 2}', *between, "crash", "wait 30"]
    return [*faults, *steps, 'create b {"a": 3}', "wait 30", "crash", "delete a", "wait 30"]


def added_in(place: int, fault: str, *, remember: bool, is_down: bool) -> set[str]:
    """Play that history; returns the objects that were added, one of them perhaps twice."""
    elsewhere = Elsewhere()
    check_operator(
        elsewhere.app(["add", "update"], remember=remember),
        always=elsewhere.always,
        at_rest=elsewhere.check,
        replay=history(place, fault, is_down=is_down),
    )
    added = set(elsewhere.adds)
    assert len(elsewhere.adds) - len(added) <= (fault == "crash before")
    return added


@pytest.mark.parametrize("is_down", [False, True], ids=["running", "down"])
@pytest.mark.parametrize("remember", [True, False], ids=["remembered", "not remembered"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_crash_before_and_after_each_write_repeats_at_most_one_add(
    fault: str, remember: bool, is_down: bool
) -> None:
    for place in range(4):
        assert len(added_in(place, fault, remember=remember, is_down=is_down)) == 2


# Defects.


def check_histories() -> None:
    for place, fault in ((0, "ok"), (0, "crash before"), (1, "crash after")):
        added_in(place, fault, remember=False, is_down=False)
    crashes, added = [1], list[str]()
    app = App("thing-operator")

    @app.on_add(THING)
    def add(thing: Object) -> None:
        if crashes.pop() if crashes else False:
            world.crash()
        else:
            added.append(thing.name)

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(100)
        world.restart()
        world.run(100)
    assert added == ["a"]
    check_that_no_update_comes_before_the_mark()
    calls = Calls()
    before = made(calls, "add", "delete")
    with world_of(before, made(calls, "add")) as world:
        world.create("a", {"a": 1})
        world.run(10)
        world.restart()
        world.run(100)
        assert not the(world).finalizers
        assert writes(world) == 3
        world.restart()
        world.run(100)
    assert calls == [("add", 1)]


def test_the_histories_of_the_defects_hold_without_one() -> None:
    check_histories()


def never_written(self: Any, known: Any) -> None:
    known.is_marked = True
    known.state.saved()


def written_before_the_call(self: Any, known: Any, recording: Any, step: Any) -> None:
    function = self._functions[step.number]
    if function.cause == "add":
        known.state.progress[step.number].is_done = True
        record = msgspec.structs.replace(known.state.record(), is_new=False)
        self._save(known, recording, record)
        known.state.progress[step.number].is_done = False
    _before_call(self, known, recording, step)


def stays(self: Any, known: Any, obj: Any) -> Any:
    return ()


def put_on_everywhere(self: Any, obj: Any) -> bool:
    return True


def counts_for_nothing(self: Any, obj: Any) -> bool:
    return False


def updates_do_not_wait(self: Any) -> None:
    return None


_before_call = KindFunctions._before_call


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (KindFunctions, "_mark_by_record", never_written),
        (KindFunctions, "_before_call", written_before_the_call),
        (KindFunctions, "_own_leftovers", stays),
        (KindFunctions, "_is_known", counts_for_nothing),
        (ObjectState, "is_protected_by", put_on_everywhere),
        (ObjectState, "_save_before_updates", updates_do_not_wait),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any
) -> None:
    if broken is put_on_everywhere:
        whole = KindFunctions.__init__

        def protecting(self: Any, *args: Any, **options: Any) -> None:
            whole(self, *args, **options)
            self._protects, self._takes_off = True, False

        monkeypatch.setattr(KindFunctions, "__init__", protecting)
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((BrokenPromise, AssertionError, KeyError)):
        check_histories()


@pytest.mark.parametrize("remember", [False, True])
def test_a_clean_up_with_a_filter_of_its_own_is_made_after_a_restart_beside_a_background(
    remember: bool,
) -> None:
    app, calls = App("thing-operator", remember=remember), list[str]()

    @app.background(THING)
    def stay(_: Any, stop: StopSignal) -> None:
        stop.wait()

    app.on_add(THING)(lambda obj: calls.append("add"))
    app.on_delete(THING, where=field("spec.a") == 9)(lambda obj: calls.append("delete"))
    with World(THING, app) as world:
        for name, a in (("left", 9), ("never", 1)):
            world.create(name, {"a": a})
        world.run(5)
        world.replace("left", {"a": 1})
        world.run(5)
        world.restart()
        world.run(40)
        world.delete("never")
        world.run(40)
        assert calls.count("delete") == 0
        world.delete("left")
        world.run(40)
        assert not world.objects()
    assert sorted(calls) == ["add", "add", "delete"]
