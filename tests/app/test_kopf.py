"""Objects that an operator with kopf has left: what counts as handled, and what is taken off."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator import annotation, kinds
from appsdk_operator.app import App, Kopf
from appsdk_operator.app._due import ObjectState
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.app._handled import HandledState
from appsdk_operator.app._kopf import KopfStates
from appsdk_operator.resource import Kind, Object, field, labels
from appsdk_operator.testing import World
from appsdk_operator.watchers import FinalizerLifecycle
from appsdk_operator.watchers._finalizers.transitions import Names, Write
from tests.app.places import Table
from tests.hypothesis_profiles import scaled


@attrs.frozen
class ThingSpec:
    a: int = 0
    b: int = 0
    text: str = ""


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
CONFIG_MAP = kinds.core.v1.ConfigMap
OWN = "example.com/thing-operator.v1.Thing"
RECORD = "thing-operator.appsdk-operator.io/handled"
PREFIX = "kopf.zalando.org"
MARKER = f"{PREFIX}/KopfFinalizerMarker"
HANDLED = f"{PREFIX}/last-handled-configuration"
PROGRESS = '{"started":"2026-01-01T00:00:00","purpose":"create","retries":1,"success":false}'


def of_kopf(
    handled: Any = None,
    *,
    finalizers: Sequence[str] = (MARKER,),
    progress: bool = False,
    prefix: str = PREFIX,
    **metadata: Any,
) -> dict[str, Any]:
    """The metadata of an object that kopf has handled in a state, with its annotations."""
    annotations = dict(metadata.pop("annotations", {}))
    essence: dict[str, Any] = {}
    if handled is not None:
        kept = {"annotations": dict(annotations), "labels": metadata.get("labels")}
        if kept := {key: value for key, value in kept.items() if value}:
            essence["metadata"] = kept
        essence.update(handled)
        if "spec" in handled:
            essence["spec"] = {"a": 0, "b": 0, "text": "", **handled["spec"]}  # as the server does
        annotations[f"{prefix}/last-handled-configuration"] = json.dumps(essence) + "\n"
    if progress:
        annotations[f"{prefix}/make"] = PROGRESS
        annotations[f"{prefix}/touch-dummy"] = "2026-01-01T00:00:00"
    return {"annotations": annotations, "finalizers": list(finalizers), **metadata}


class Calls(list[Any]):
    """What functions were called with."""

    def of(self, name: str) -> Callable[[Object], None]:
        def call(obj: Object) -> None:
            self.append((name, obj.spec.a))

        call.__name__ = name
        return call

    def update(self, name: str = "update") -> Callable[[Object, Object], None]:
        def call(old: Object, new: Object) -> None:
            self.append((name, old.spec.a, new.spec.a))

        call.__name__ = name
        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


def own(**options: Any) -> App:
    app = App("thing-operator", adopt=options.pop("adopt", Kopf()), **options)
    app.own(THING)
    return app


def whole(calls: Calls, **options: Any) -> App:
    app = own(**options)
    app.on_add(THING)(calls.of("add"))
    app.on_sync(THING)(calls.of("sync"))
    app.on_update(THING)(calls.update())
    app.on_delete(THING)(calls.of("delete"))
    return app


def the_only(world: World) -> Object:
    (obj,) = world.objects()
    return obj


def patches(world: World) -> list[str]:
    return [entry.text for entry in world.journal.of("write") if entry.text.startswith("patches")]


def left_by_kopf(obj: Object) -> list[str]:
    return [name for name in (*obj.annotations, *obj.finalizers) if name.startswith(PREFIX)]


REMEMBER = pytest.mark.parametrize("remember", [True, False], ids=["remembered", "not remembered"])


@REMEMBER
def test_an_object_that_kopf_has_handled_is_synced_and_swapped_in_one_patch(
    calls: Calls, remember: bool
) -> None:
    with World(THING, whole(calls, remember=remember)) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}, labels={"x": "y"}))
        world.settle()
        obj = the_only(world)
        assert calls == [("sync", 1)]
        assert obj.finalizers == (OWN,)
        assert not left_by_kopf(obj)
        assert (RECORD in obj.annotations) == remember
        assert len(patches(world)) == 1
        before = obj.resource_version
        world.restart()
        world.settle()
        assert calls == [("sync", 1)] * 2
        assert the_only(world).resource_version == before
        world.replace("a", {"a": 2})
        world.settle()
        world.delete("a")
        world.settle()
        assert calls[2:] == [("update", 1, 2), ("delete", 2)]
        assert not world.objects()


@REMEMBER
def test_a_change_while_neither_ran_is_an_update_from_the_state_that_kopf_has_handled(
    calls: Calls, remember: bool
) -> None:
    with World(THING, whole(calls, remember=remember)) as world:
        world.create("a", {"a": 2}, **of_kopf({"spec": {"a": 1}}))
        world.settle()
        assert calls == [("sync", 2), ("update", 1, 2)]
        assert the_only(world).finalizers == (OWN,)
        assert not left_by_kopf(the_only(world))


@REMEMBER
def test_what_kopf_has_not_handled_to_its_end_is_new(calls: Calls, remember: bool) -> None:
    with World(THING, whole(calls, remember=remember)) as world:
        world.create("a", {"a": 1}, **of_kopf(progress=True))
        world.settle()
        assert calls == [("add", 1)]
        assert the_only(world).finalizers == (OWN,)
        assert not left_by_kopf(the_only(world))
        assert len(patches(world)) == 2


def test_an_update_on_which_kopf_still_was_begins_with_what_it_had_handled_before(
    calls: Calls,
) -> None:
    with World(THING, whole(calls)) as world:
        world.create("a", {"a": 2}, **of_kopf({"spec": {"a": 1}}, progress=True))
        world.settle()
        assert calls == [("sync", 2), ("update", 1, 2)]
        assert not left_by_kopf(the_only(world))


def test_an_object_without_kopfs_finalizer_gets_ours_in_one_patch(calls: Calls) -> None:
    with World(THING, whole(calls, remember=False)) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}, finalizers=["x.org/other"]))
        world.settle()
        assert calls == [("sync", 1)]
        assert the_only(world).finalizers == ("x.org/other", OWN)
        assert not left_by_kopf(the_only(world))
        assert len(patches(world)) == 1


@REMEMBER
@pytest.mark.parametrize("handled", [{"spec": {"a": 1}}, None], ids=["handled", "in progress"])
def test_an_object_that_is_being_deleted_is_cleaned_up_and_released(
    calls: Calls, remember: bool, handled: Any
) -> None:
    with World(THING, whole(calls, remember=remember)) as world:
        world.create("a", {"a": 1}, **of_kopf(handled, progress=True))
        world.delete("a")
        world.settle()
        assert calls == [("delete", 1)]
        assert not world.objects()


def test_a_clean_up_that_fails_holds_the_object_with_kopfs_finalizer(calls: Calls) -> None:
    app, failing = own(), [True]

    @app.on_delete(THING)
    def remove(thing: Object[ThingSpec]) -> None:
        calls.append("remove")
        if failing:
            raise ConnectionError("down")

    with World(THING, app) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
        world.delete("a")
        world.run(60)
        assert the_only(world).finalizers == (MARKER,)
        failing.clear()
        world.settle()
        assert not world.objects()


def test_what_kopf_has_cleaned_up_is_not_cleaned_up_again(calls: Calls) -> None:
    with World(THING, whole(calls)) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}, finalizers=["x.org/other"]))
        world.delete("a")
        world.settle()
        assert not calls
        assert the_only(world).finalizers == ("x.org/other",)


@REMEMBER
@pytest.mark.parametrize("handled", [{"spec": {"a": 1}}, None], ids=["handled", "in progress"])
def test_where_nothing_cleans_up_kopfs_finalizer_is_taken_off(
    calls: Calls, remember: bool, handled: Any
) -> None:
    app = own(remember=remember)
    app.on_update(THING)(calls.update())
    app.every(60, THING)(lambda thing: None)
    with World(THING, app) as world:
        world.create("a", {"a": 1}, **of_kopf(handled, progress=True))
        world.create("b", {"a": 1}, **of_kopf(handled, progress=True))
        world.delete("b")
        world.settle()
        assert not calls
        assert not the_only(world).finalizers
        assert not left_by_kopf(the_only(world))
        world.replace("a", {"a": 2})
        world.settle()
        assert calls == [("update", 1, 2)]


def test_timers_alone_take_kopfs_finalizer_off_on_every_replica_as_well(calls: Calls) -> None:
    for everywhere in (False, True):
        app, where = own(), labels("timed")
        app.every(60, THING, where=where, name="one", every_replica=everywhere)(calls.of("one"))
        app.every(90, THING, where=where, name="two", every_replica=everywhere)(calls.of("two"))
        with World(THING, app) as world:
            world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
            world.create("b", {"a": 1}, **of_kopf())
            world.delete("b")
            world.run(120)
            assert not left_by_kopf(the_only(world))
            assert not calls


def test_a_function_outside_of_its_filter_leaves_the_finalizer_to_nobody(calls: Calls) -> None:
    app = own()
    app.on_delete(THING, where=labels("backup"))(calls.of("delete"))
    with World(THING, app) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
        world.create("b", {"a": 2}, **of_kopf({"spec": {"a": 2}}, labels={"backup": "yes"}))
        world.settle()
        a, b = world.objects()
        assert (a.finalizers, b.finalizers) == ((), (OWN,))
        assert not left_by_kopf(a) + left_by_kopf(b)


def test_an_object_that_left_the_filter_of_its_clean_up_meanwhile_gets_it(calls: Calls) -> None:
    app = own(remember=True)
    app.on_add(THING)(calls.of("add"))
    app.on_delete(THING, where=labels("backup"))(calls.of("delete"))
    with World(THING, app) as world:
        handled = {"spec": {"a": 1}, "metadata": {"labels": {"backup": "yes"}}}
        world.create("a", {"a": 1}, **of_kopf(handled))
        world.settle()
        world.delete("a")
        world.settle()
        assert calls == [("delete", 1)]
        assert not world.objects()


def test_an_add_is_called_for_what_begins_to_match_later_and_not_for_what_did(
    calls: Calls,
) -> None:
    app = own(remember=True)
    app.on_add(THING, where=labels("color=red"))(calls.of("red"))
    app.on_add(THING, where=labels("color=blue"))(calls.of("blue"))
    app.on_update(THING)(calls.update())
    with World(THING, app) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}, labels={"color": "red"}))
        world.settle()
        world.restart()
        world.settle()
        assert not calls
        world.patch("a", {"metadata": {"labels": {"color": "blue"}}})
        world.settle()
        assert calls == [("blue", 1)]


def test_old_has_the_labels_annotations_and_the_status_that_kopf_kept(calls: Calls) -> None:
    app = own()

    @app.on_update(THING, when=field("metadata.labels.x").changed)
    def labelled(old: Object, new: Object) -> None:
        calls.append(("labels", dict(old.labels), dict(new.labels)))

    @app.on_update(THING, when=annotation("example.com/x").changed)
    def annotated(old: Object, new: Object) -> None:
        calls.append(("annotations", dict(old.annotations)))

    @app.on_update(THING, when=field("status.phase").changed)
    def phase(old: Object, new: Object) -> None:
        calls.append(("status", old.status["phase"], new.status["phase"]))

    @app.on_update(THING, when=lambda old, new: old.labels != new.labels)
    def any_label(old: Object, new: Object) -> None:
        calls.append("labels, by a function")

    app.on_update(THING)(calls.update())
    with World(THING, app) as world:
        former = {
            "spec": {"a": 1},
            "metadata": {"labels": {"x": "1"}, "annotations": {"example.com/x": "1"}},
            "status": {"phase": "Old"},
        }
        made = of_kopf(former, labels={"x": "2"}, annotations={"example.com/x": "2"})
        world.create("a", {"a": 1}, **made)
        world.patch("a", {"status": {"phase": "New", "other": 1}}, subresource="status")
        world.settle()
    assert calls == [
        ("labels", {"x": "1"}, {"x": "2"}),
        ("annotations", {"example.com/x": "1"}),
        ("status", "Old", "New"),
        "labels, by a function",
    ]


@REMEMBER
def test_of_a_kind_without_generations_what_is_taken_off_is_no_change(remember: bool) -> None:
    calls: list[Any] = []
    app = App("thing-operator", adopt=Kopf(), remember=remember)
    app.on_add(CONFIG_MAP)(lambda config: calls.append("add"))
    app.on_update(CONFIG_MAP)(lambda old, new: calls.append((old["data"], new["data"])))
    app.on_update(CONFIG_MAP, when=lambda old, new: True)(lambda old, new: calls.append("any"))
    with World(CONFIG_MAP, app) as world:
        same = of_kopf({"data": {"a": "1"}}, annotations={APPLIED: "{}"})
        del same["annotations"][HANDLED]
        same["annotations"][HANDLED] = '{"data":{"a":"1"}}\n'
        world.create("a", {"data": {"a": "1"}}, **same)
        world.settle()
        assert not calls
        assert not left_by_kopf(the_only(world))
        assert the_only(world).annotations[APPLIED] == "{}"
        world.create("b", {"data": {"a": "2"}}, **of_kopf({"data": {"a": "1"}}))
        world.settle()
        assert calls == [({"a": "1"}, {"a": "2"}), "any"]


APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def test_other_prefixes_and_finalizers_and_what_others_have_there(calls: Calls) -> None:
    prefix, finalizer = "things.example.com", "things.example.com/cleanup"
    with World(THING, whole(calls, adopt=Kopf(prefix=prefix, finalizer=finalizer))) as world:
        made = of_kopf(
            {"spec": {"a": 1}}, prefix=prefix, finalizers=[MARKER, finalizer], progress=True
        )
        marked = {f"{prefix}/kopf-managed": "yes", f"{prefix}/size": "3", f"{prefix}/json": "{}"}
        made["annotations"] |= marked
        world.create("a", {"a": 1}, **made)
        world.settle()
        obj = the_only(world)
        assert calls == [("sync", 1)]
        assert obj.finalizers == (MARKER, OWN)
        assert {*obj.annotations} == {f"{prefix}/size", f"{prefix}/json", RECORD}


def test_a_paused_object_keeps_what_kopf_has_left(calls: Calls) -> None:
    with World(THING, whole(calls, paused=labels("paused"))) as world:
        made = of_kopf({"spec": {"a": 1}}, labels={"paused": "yes"})
        world.create("a", {"a": 2}, **made)
        world.settle()
        assert not calls
        assert left_by_kopf(the_only(world)) == [HANDLED, MARKER]
        world.patch("a", {"metadata": {"labels": {"paused": None}}})
        world.settle()
        assert calls == [("sync", 2), ("update", 1, 2)]
        assert not left_by_kopf(the_only(world))


def test_what_the_app_has_recorded_itself_is_newer_than_kopfs(calls: Calls) -> None:
    without = App("thing-operator")
    without.own(THING)
    without.on_add(THING)(calls.of("add"))
    without.on_update(THING)(calls.update())
    with World(THING, without) as world:
        world.create("a", {"a": 3}, **of_kopf({"spec": {"a": 1}}))
        world.settle()
        left = the_only(world).to_dict()["metadata"]
    assert calls == [("add", 3)]
    calls.clear()
    with World(THING, whole(calls)) as world:
        metadata = {key: left[key] for key in ("annotations", "finalizers")}
        text = metadata["annotations"][RECORD]
        obj = world.create("a", {"a": 3}, **metadata)
        # The record is one of this object.
        text = text.replace(left["uid"], obj.uid)
        world.patch("a", {"metadata": {"annotations": {RECORD: text}}})
        world.settle()
        assert calls == [("sync", 3)]
        assert the_only(world).finalizers == (OWN,)
        assert not left_by_kopf(the_only(world))


def test_what_is_no_state_of_kopf_is_not_handled(calls: Calls) -> None:
    with World(THING, whole(calls)) as world:
        world.create("a", {"a": 1}, annotations={HANDLED: "[1"}, finalizers=[MARKER])
        world.settle()
        assert calls == [("add", 1)]


@pytest.mark.parametrize(
    "text",
    [
        '{"metadata":"x","spec":{"a":1}}',
        '{"metadata":{"annotations":"x"},"spec":{"a":1}}',
        '{"metadata":{"labels":3},"spec":{"a":1}}',
        '{"spec":{"a":1},"metadata":' + '{"x":' * 980 + "1" + "}" * 981,
    ],
    ids=["metadata", "annotations", "labels", "deep"],
)
def test_a_state_of_kopf_that_is_none_of_an_object_keeps_no_function_from_its_calls(
    text: str, calls: Calls
) -> None:
    with World(THING, whole(calls)) as world:
        world.create("a", {"a": 1}, annotations={HANDLED: text}, finalizers=[MARKER])
        world.settle()
        world.replace("a", {"a": 2})
        world.settle()
        assert calls[0][0] in ("add", "sync")
        assert calls[-1] == ("update", 1, 2)
        assert not left_by_kopf(the_only(world))


def test_a_replica_set_has_its_own_key_beside_the_copy_from_its_deployment() -> None:
    states, replica_set = KopfStates(Kopf()), kinds.apps.v1.ReplicaSet
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "u"}
    annotations = {HANDLED: '{"spec":{"replicas":1}}', f"{HANDLED}-ofDRS": '{"spec":{}}'}
    metadata = {"name": "a", "annotations": annotations, "ownerReferences": [owner]}
    obj = Object.from_dict(replica_set, {"metadata": metadata, "spec": {"replicas": 2}})
    state = states.handled(obj)
    assert state is not None
    assert state.values is not None
    assert state.values["/spec"] == {}
    (removal,) = states.removals(obj, handled=True)
    assert removal["path"].endswith("-ofDRS")


# Crashes.

PLACES: dict[str, Callable[[], dict[str, Any]]] = {
    "remembered": lambda: {"remember": True},
    "elsewhere": lambda: {"remember": True, "handled_states": Table()},
    "not remembered": lambda: {"remember": False},
}
LEFT = st.fixed_dictionaries(
    {
        "handled": st.sampled_from([None, 1, 2]),
        "present": st.sampled_from([1, 2]),
        "finalizer": st.booleans(),
        "progress": st.booleans(),
        "deleted": st.booleans(),
    }
)
FAULTS = ("", "crash before", "crash after", "lost", "409", "500")
FUNCTIONS = ("add", "update", "delete")


class Elsewhere:
    """What the functions set elsewhere, from what kopf has set there."""

    def __init__(self, functions: Sequence[str], options: dict[str, Any]) -> None:
        self.functions, self.options = functions, options
        self.by_name: dict[str, int] = {}
        self.adds: list[str] = []
        self.deletes: list[str] = []

    def app(self) -> App:
        app = own(**self.options)

        def add(thing: Object[ThingSpec]) -> None:
            self.adds.append(thing.name)
            self.by_name[thing.name] = thing.spec.a

        def update(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
            assert self.by_name[new.name] in (old.spec.a, new.spec.a)
            self.by_name[new.name] = new.spec.a

        def delete(thing: Object[ThingSpec]) -> None:
            self.deletes.append(thing.name)

        for name, function in (("add", add), ("update", update), ("delete", delete)):
            if name in self.functions:
                decorator: Any = getattr(app, f"on_{name}")
                decorator(THING)(function)
        app.every(3600, THING)(lambda thing: None)
        return app


def play(
    left: dict[str, Any],
    functions: Sequence[str],
    options: dict[str, Any],
    faults: Sequence[str],
    failures: Sequence[str] = (),
) -> None:
    """Adopt an object with faults at the first writes and calls, and delete it."""
    elsewhere = Elsewhere(functions, options)
    handled, present = left["handled"], left["present"]
    has_finalizer = left["finalizer"] or left["deleted"]
    if handled is not None:
        elsewhere.by_name["a"] = handled
    with World(THING, elsewhere.app()) as world:
        metadata = of_kopf(
            None if handled is None else {"spec": {"a": handled}},
            finalizers=[MARKER] * has_finalizer,
            progress=left["progress"],
        )
        world.create("a", {"a": present}, **metadata)
        if left["deleted"]:
            world.delete("a")
        world.write_faults += faults
        world.failures["function"] += failures
        world.settle()
        world.restart()
        world.settle()
        if not left["deleted"]:
            obj = the_only(world)
            assert not left_by_kopf(obj)
            assert obj.finalizers == (OWN,) * ("delete" in functions)
            if handled is not None:
                assert not elsewhere.adds
            elif "add" in functions:
                assert elsewhere.adds
            if "update" in functions and "a" in elsewhere.by_name:
                assert elsewhere.by_name["a"] == present
            world.delete("a")
            world.settle()
        assert not world.objects()
        assert bool(elsewhere.deletes) == ("delete" in functions)


SETS = [FUNCTIONS, ("add", "update"), ("update",), ("update", "delete"), ("delete",), ()]


@pytest.mark.parametrize("place", PLACES)
@settings(max_examples=scaled(12), deadline=None)
@given(
    LEFT,
    st.sampled_from(SETS),
    st.lists(st.sampled_from(FAULTS), max_size=4),
    st.lists(st.sampled_from(["", "fails", "fails late"]), max_size=3),
)
def test_nothing_is_lost_to_a_crash_before_or_after_any_write(
    place: str,
    left: dict[str, Any],
    functions: Sequence[str],
    faults: list[str],
    failures: list[str],
) -> None:
    options = PLACES[place]()
    if not functions:  # a kind with timers alone has no records
        options = {"remember": False}
    play(left, functions, options, faults, failures)


def test_another_replica_that_takes_the_lead_goes_on_with_what_the_first_has_adopted() -> None:
    for fault in ("crash before", "crash after"):
        calls = Calls()
        app = whole(calls, remember=True, leader_election=True)
        with World(THING, app, replicas=2) as world:
            world.create("a", {"a": 2}, **of_kopf({"spec": {"a": 1}}))
            world.write_faults.append(fault)
            world.settle()
            assert set(calls) == {("sync", 2), ("update", 1, 2)}
            assert not left_by_kopf(the_only(world))
            world.delete("a")
            world.settle()
            assert not world.objects()


@REMEMBER
def test_background_functions_begin_behind_the_swap(remember: bool) -> None:
    app, seen = own(remember=remember), list[Any]()

    @app.background(THING)
    def run(live: Any, stop: Any) -> None:
        seen.append((live.object.name, live.object.finalizers))
        stop.wait()

    with World(THING, app) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
        world.create("b", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
        world.delete("b")
        world.settle()
        assert seen == [("a", (OWN,))]
        assert not left_by_kopf(the_only(world))
        world.delete("a")
        world.settle()
        assert not world.objects()


@REMEMBER
def test_no_function_waits_for_what_cannot_be_taken_off_and_that_is_repeated(
    calls: Calls, remember: bool
) -> None:
    app = own(remember=remember)
    app.on_update(THING)(calls.update())
    app.every(60, THING)(calls.of("timer"))
    with World(THING, app) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
        world.write_faults += ["500"] * 8
        world.run(20)
        world.replace("a", {"a": 2})
        world.run(1)
        assert calls == [("timer", 1), ("update", 1, 2)]
        assert MARKER in the_only(world).finalizers
        world.run(170)
        assert calls.count(("timer", 2)) in (2, 3)
        world.run(3600)
        assert not left_by_kopf(the_only(world))


def test_what_cannot_be_taken_off_is_repeated_for_an_object_at_rest_too(calls: Calls) -> None:
    app = own(remember=False)
    app.on_update(THING)(calls.update())
    with World(THING, app) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
        world.write_faults += ["500"] * 8
        world.run(1)
        assert MARKER in the_only(world).finalizers
        world.run(3600)
        assert not left_by_kopf(the_only(world))
        world.replace("a", {"a": 2})
        world.run(1)
        assert calls == [("update", 1, 2)]


@pytest.mark.parametrize(
    ("place", "faults", "failures"),
    [
        ("elsewhere", ["", "lost", "lost", "500"], ["", "fails late", "fails late"]),
        ("not remembered", ["crash after", "lost", "500", "crash before", "lost"], []),
    ],
)
def test_a_lost_answer_to_what_was_taken_off_leads_to_no_further_look(
    place: str, faults: list[str], failures: list[str]
) -> None:
    for present in (1, 2):
        for has_finalizer in (True, False):
            one = {**left(1, present), "finalizer": has_finalizer}
            play(one, FUNCTIONS, PLACES[place](), faults, failures)
            play(one, ("add", "update"), PLACES[place](), faults, failures)


def label_changed_meanwhile(faults: Sequence[str]) -> None:
    """What functions see of labels alone is there after a crash, too."""
    calls: list[Any] = []
    app = own(remember=True)
    app.on_add(THING)(lambda thing: calls.append("add"))
    app.on_delete(THING)(lambda thing: None)  # its finalizer comes before the update

    @app.on_update(THING, when=lambda old, new: old.labels != new.labels)
    def labelled(old: Object, new: Object) -> None:
        calls.append((dict(old.labels), dict(new.labels)))

    with World(THING, app) as world:
        former = {"spec": {"a": 1}, "metadata": {"labels": {"x": "1"}}}
        world.create("a", {"a": 1}, **of_kopf(former, labels={"x": "2"}))
        world.write_faults += faults
        world.settle()
        assert not left_by_kopf(the_only(world))
    assert {str(call) for call in calls} == {str(({"x": "1"}, {"x": "2"}))}


def left(handled: int | None, present: int, *, deleted: bool = False) -> dict[str, Any]:
    metadata = {"finalizer": True, "progress": True, "deleted": deleted}
    return {"handled": handled, "present": present, **metadata}


def check_histories() -> None:
    for place, fault in (("remembered", ""), ("not remembered", "crash after"), ("elsewhere", "")):
        for functions in (FUNCTIONS, ("update",)):
            for one in (left(1, 2), left(1, 1), left(None, 1), left(1, 1, deleted=True)):
                play(one, functions, PLACES[place](), [fault])
    label_changed_meanwhile(["crash after"])
    with World(THING, whole(Calls(), remember=False)) as world:
        world.create("a", {"a": 1}, **of_kopf({"spec": {"a": 1}}))
        world.settle()
        assert len(patches(world)) == 1


def test_the_histories_of_the_defects_hold_without_one() -> None:
    check_histories()


# Defects of it.


def nothing_is_handled(self: Any, obj: Any) -> Any:
    return None


def the_present_state(self: Any, obj: Any) -> Any:
    state: Any = _handled(self, obj)
    return state and msgspec.structs.replace(
        state, values={path: _at(obj, path) for path in state.values}, generation=obj.generation
    )


def _at(obj: Any, path: str) -> Any:
    data = obj.to_dict()
    for step in path.split("/")[1:]:
        data = (data or {}).get(step)
    return data


def without_kopfs(self: Any, obj: Any, record: Any) -> Any:
    return [name for name in _ours(self, obj, record) if name not in self.foreign]


def is_forgotten_at_once(self: Any, known: Any) -> bool:
    return True


def stays(self: Any, known: Any, adopted: Any) -> None:
    return None


def beside_kopfs(self: Any, write: Any, obj: Any, also: Any) -> Any:
    names = self._names
    if write is Write.PUT_BACK:
        self._names = msgspec.structs.replace(names, foreign=())
    try:
        return _write(self, write, obj, also)
    finally:
        self._names = names


def only_what_is_named(self: Any, paths: Any, obj: Any) -> bool:
    return False


def owes_nothing(self: Any) -> bool:
    return False


def no_annotations(self: Any, obj: Any, *, handled: bool) -> Any:
    return []


_handled = KopfStates.handled
_ours = Names.ours
_write = FinalizerLifecycle._write


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (KopfStates, "handled", nothing_is_handled),
        (KopfStates, "handled", the_present_state),
        (Names, "ours", without_kopfs),
        (KindFunctions, "_is_recorded", is_forgotten_at_once),
        (KindFunctions, "_release", stays),
        (FinalizerLifecycle, "_write", beside_kopfs),
        (HandledState, "covers", only_what_is_named),
        (ObjectState, "owes_update", property(owes_nothing)),
        (KopfStates, "removals", no_annotations),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_defect_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, broken: Any
) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises((AssertionError, KeyError)):
        check_histories()
