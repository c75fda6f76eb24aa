"""What functions have handled outlives the process: records, their costs, and who sees them."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from appsdk_operator import annotation, kinds
from appsdk_operator.app import App, functions_of, remembers, timers_of
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.app._handled import Handled, HandledState
from appsdk_operator.app._remember import AnnotationRecords, Records
from appsdk_operator.cache import ResourceAction
from appsdk_operator.client import Client, ClientConfig, ClientLike, MergePatch
from appsdk_operator.controllers import TerminalError
from appsdk_operator.resource import Kind, MutableObject, Object, field, labels
from appsdk_operator.runtime import ManualClock
from appsdk_operator.testing import APIServer, World, install_crds
from appsdk_operator.watchers import JoinedFinalizer, ReconcileRequest, SimpleWatcher
from tests.app.places import Table
from tests.simulations import no_client


@attrs.frozen
class ThingSpec:
    a: int = 0
    b: int = 0
    text: str = ""


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
SECRET = kinds.core.v1.Secret
CONFIG_MAP = kinds.core.v1.ConfigMap
KEY = "thing-operator.appsdk-operator.io/handled"
RED = {"metadata": {"labels": {"color": "red"}}}
BLUE = {"metadata": {"labels": {"color": "blue"}}}
is_red = labels("color=red")


def nothing(*_: Any) -> None: ...


def writes(world: World) -> int:
    return len(world.journal.of("write"))


def record(world: World) -> dict[str, Any]:
    (obj,) = world.objects()
    found: dict[str, Any] = json.loads(obj.annotations[KEY])
    return found


class Calls(list[Any]):
    """What functions were called with."""

    def update(self, name: str = "update") -> Callable[[Object, Object], None]:
        def call(old: Object, new: Object) -> None:
            self.append((name, (old.spec.a, old.spec.b), (new.spec.a, new.spec.b)))

        call.__name__ = name
        return call

    def of(self, name: str) -> Callable[[Object], None]:
        def call(obj: Object) -> None:
            self.append((name, obj.spec.a))

        call.__name__ = name
        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


def own(name: str = "thing-operator", **options: Any) -> App:
    app = App(name, **options)
    app.own(THING)
    return app


def with_add_and_update(calls: Calls) -> App:
    app = own()
    app.on_add(THING)(calls.of("add"))
    app.on_update(THING)(calls.update())
    return app


def test_a_change_while_the_operator_was_down_is_an_update_from_what_was_handled(
    calls: Calls,
) -> None:
    app = with_add_and_update(calls)
    with World(THING, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.settle()
        world.down(60)
        world.replace("a", {"a": 2, "b": 1})
        world.replace("a", {"a": 3, "b": 1})
        world.settle()
        world.restart()
        world.settle()
    assert calls == [("add", 1), ("update", (1, 1), (3, 1))]


@pytest.mark.parametrize(
    "state", [{"at": {"/metadata": "x"}}, {"at": {"": 1}}, {"all": {"metadata": "x"}}], ids=repr
)
def test_a_record_that_somebody_has_edited_ends_no_operator(state: Any, calls: Calls) -> None:
    app = with_add_and_update(calls)
    with World(THING, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.settle()
        text = json.dumps({**record(world), "states": [state], "of": {"update": 0}})
        world.down(60)
        world.patch("a", {"metadata": {"annotations": {KEY: text}}})
        world.run(100)
        world.replace("a", {"a": 2, "b": 1})
        world.settle()
        assert [replica.process for replica in world.replicas] == [2]
    assert calls[0] == ("add", 1)
    assert calls[-1] == ("update", (1, 1), (2, 1))


def test_each_function_begins_with_its_own_state_and_the_fields_that_it_names(
    calls: Calls,
) -> None:
    app, failing = own(), [True]
    app.on_update(THING, when=field("spec.a").changed)(calls.update("a"))

    @app.on_update(THING, when=field("spec.b").changed)
    def b(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append(("b", (old.spec.a, old.spec.b), (new.spec.a, new.spec.b)))
        if failing:
            raise TerminalError("not now")

    with World(THING, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.settle()
        world.replace("a", {"a": 2, "b": 2})
        world.settle()
        assert record(world)["states"] == [{"at": {"/spec/a": 2}}, {"at": {"/spec/b": 1}}]
        calls.clear()
        failing.clear()
        world.down(60)
        world.replace("a", {"a": 3, "b": 3})
        world.settle()
    # What is not kept is as it is now.
    assert calls == [("a", (2, 3), (3, 3)), ("b", (3, 1), (3, 3))]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_record_costs_one_patch_for_a_handled_change_however_many_functions_there_are(
    count: int,
) -> None:
    app = own()
    for _ in range(count):
        app.on_add(THING)(nothing)
        app.on_update(THING)(nothing)
        app.on_update(THING, when=field("spec.a").changed)(nothing)
        app.on_delete(THING)(nothing)
        app.every(60, THING, name=f"timer-{_}")(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(600)
        assert writes(world) == 2  # those of the finalizer
        world.replace("a", {"a": 2})
        world.run(600)
        assert writes(world) == 3
        world.patch("a", RED)
        world.patch("a", {"status": {"x": 1}})
        world.restart()
        world.run(600)
        assert writes(world) == 3
        world.delete("a")
        world.run(60)
        assert writes(world) == 4
        assert not world.objects()


def test_without_finalizer_the_first_state_costs_one_patch_and_off_costs_none() -> None:
    for remember, costs in ((None, [1, 2, 2]), (False, [0, 0, 0])):
        app = own(remember=remember)
        app.on_update(THING, when=field("spec.a").changed)(nothing)
        with World(THING, app) as world:
            world.create("a", {"a": 1})
            world.run(60)
            found = [writes(world)]
            world.replace("a", {"a": 2})
            world.run(60)
            found.append(writes(world))
            world.replace("a", {"a": 2, "b": 2})
            world.run(60)
            found.append(writes(world))
            assert found == costs


def test_the_record_is_no_news_to_any_function(calls: Calls) -> None:
    app = own()
    app.on_update(THING, when=lambda old, new: True)(calls.update("any"))
    app.on_update(THING, when=field("metadata.annotations").changed)(calls.update("annotations"))
    app.on_update(THING, when=field("spec").changed)(calls.update("spec"))
    other = App("other", remember=True)
    other.own(THING)
    seen: list[str] = []
    other.on_update(THING, when=lambda old, new: True)(lambda old, new: seen.append("any"))
    other.on_add(THING)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        assert not calls
        world.replace("a", {"a": 2})
        world.run(60)
        assert [name for name, *_ in calls] == ["any", "spec"]
        calls.clear()
        world.patch("a", {"status": {"x": 1}}, subresource="status")
        world.run(60)
        assert [name for name, *_ in calls] in (["any"], [])
        calls.clear()
        world.patch("a", {"metadata": {"annotations": {"x": "y"}}})
        world.run(60)
        assert sorted(name for name, *_ in calls) == ["annotations", "any"]


def test_a_record_does_not_end_the_rest_of_a_function_that_gave_up(calls: Calls) -> None:
    app = own()

    @app.on_update(THING, when=field("spec.b").changed)
    def fails(old: Object, new: Object) -> None:
        calls.append("fails")
        raise TerminalError("never")

    app.on_update(THING, when=field("spec.a").changed)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.run(60)
        world.replace("a", {"a": 2, "b": 2})
        world.run(600)
        assert calls == ["fails"]


def test_what_one_function_has_done_is_recorded_although_another_one_fails_for_long() -> None:
    app = own()
    app.on_update(THING, when=field("spec.a").changed)(nothing)

    @app.on_update(THING, when=field("spec.b").changed)
    def fails(old: Object, new: Object) -> None:
        raise ConnectionError("down")

    with World(THING, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.run(60)
        world.replace("a", {"a": 2, "b": 2})
        world.run(1)
        assert record(world)["states"] == [{"at": {"/spec/b": 1}}, {"at": {"/spec/a": 2}}]
        world.run(3600)
        assert writes(world) == 2


@pytest.mark.parametrize("has_add", [True, False], ids=["with a finalizer", "without one"])
def test_a_write_of_a_record_is_repeated_at_its_times_and_no_call_with_it(
    calls: Calls, caplog: pytest.LogCaptureFixture, has_add: bool
) -> None:
    app = own()
    if has_add:
        app.on_add(THING)(nothing)
    app.on_update(THING)(calls.update())
    app.on_update(THING, when=field("spec.b").changed)(calls.update("b"))

    def handled(world: World) -> Any:
        found = record(world)
        return found["states"][found["of"]["update"]]["all"]["spec"]["a"]

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(70)  # between two resyncs
        world.write_faults += ["500"] * 5
        world.replace("a", {"a": 2})
        world.run(3)
        assert len(world.write_faults) == 4
        assert handled(world) == 1
        world.run(600)
        assert handled(world) == 2
    assert "could not be stored: the App retries the write, not the call" in caplog.text
    assert calls == [("update", (1, 0), (2, 0))]


@pytest.mark.parametrize("is_stripped", [False, True])
def test_a_record_that_cannot_be_written_keeps_nothing_from_its_call_but_its_next_update(
    calls: Calls, is_stripped: bool
) -> None:
    app, looks = own(), list[float]()
    world: World
    app.on_add(THING)(nothing)
    app.on_delete(THING)(nothing)
    app.on_update(THING, when=field("spec.a").changed)(calls.update("a"))
    app.on_update(THING, when=field("spec.b").changed)(calls.update("b"))
    app.every(10, THING)(lambda thing: looks.append(world.clock.monotonic()))
    with World(THING, app) as world:
        world.create("a", {"a": 1, "b": 1})
        world.run(1)
        world.write_faults += ["500"] * 100
        if is_stripped:
            world.patch("a", {"metadata": {"finalizers": []}})
        world.replace("a", {"a": 2, "b": 1})
        world.run(1)
        world.replace("a", {"a": 3, "b": 2})
        world.run(1)
        assert calls == [("a", (1, 1), (2, 1)), ("b", (1, 1), (3, 2))]
        left = len(world.write_faults)
        world.run(3600)
        # Each write at most every 300 seconds in the end, whatever else is called.
        assert 10 <= left - len(world.write_faults) <= 20 * (1 + is_stripped)
        world.write_faults.clear()
        assert world.settle()
        assert record(world)["states"] == [{"at": {"/spec/a": 3}}, {"at": {"/spec/b": 2}}]
        assert calls[2:] == [("a", (2, 1), (3, 2))]
        assert {round(after - before) for before, after in itertools.pairwise(looks)} == {10}
        assert len(world.objects()[0].finalizers) == 1


@pytest.mark.parametrize("is_stripped", [False, True])
def test_a_record_that_could_not_be_written_is_tried_no_more_for_an_object_that_is_deleted(
    calls: Calls, is_stripped: bool
) -> None:
    app, failing = own(), [True]
    app.on_add(THING)(nothing)
    app.on_update(THING)(calls.update())

    @app.on_delete(THING)
    def remove(thing: Object) -> None:
        calls.append("delete")
        if failing[0]:
            raise ConnectionError("down")

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.write_faults += ["500"]
        world.replace("a", {"a": 2})
        world.run(1)
        if is_stripped:
            world.write_faults += ["500"] * 4
            world.patch("a", {"metadata": {"finalizers": []}})
        world.delete("a")
        world.run(600)
        # After 5, 10, 20, … seconds, and nothing in between.
        assert 3 <= calls.count("delete") <= 10
        assert len(world.journal.of("call")) <= 50
        failing[0] = False
        world.run(600)
        assert not world.objects()


def test_a_clean_up_is_remembered_of_an_object_that_left_its_filter(calls: Calls) -> None:
    app = own()
    app.on_add(THING)(nothing)
    app.on_update(THING)(nothing)
    app.on_delete(THING, where=is_red)(calls.of("red"))
    app.on_delete(THING, where=labels("color=green"))(calls.of("green"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        world.patch("a", RED)
        world.run(60)
        assert writes(world) == 2  # the finalizer comes with the color
        world.patch("a", BLUE)
        world.run(60)
        world.restart()
        world.run(60)
        world.down(60)
        world.delete("a")
        world.run(600)
        assert not world.objects()
    assert calls == [("red", 1)]


def test_an_add_whose_label_came_while_the_operator_was_down_is_called(calls: Calls) -> None:
    app = own()
    app.on_add(THING)(calls.of("add"))
    app.on_add(THING, where=is_red)(calls.of("paint"))
    app.on_update(THING)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        world.down(60)
        world.patch("a", RED)
        world.run(600)
        world.restart()
        world.run(600)
    assert calls == [("add", 1), ("paint", 1)]


def test_sync_comes_first_and_says_whether_the_object_was_changed() -> None:
    app, calls = own(), list[Any]()

    @app.on_sync(THING)
    def sync(thing: Object[ThingSpec]) -> None:
        calls.append(("sync", thing.spec.a, app.changed_meanwhile(thing)))

    app.on_update(THING)(lambda old, new: calls.append(("update", old.spec.a, new.spec.a)))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        world.restart()
        world.run(60)
        world.down(60)
        world.replace("a", {"a": 2})
        world.run(600)
    assert calls == [("sync", 1, False), ("sync", 2, True), ("update", 1, 2)]


@pytest.mark.parametrize("has_sync", [True, False])
def test_what_is_too_large_is_a_digest_and_a_change_of_it_is_a_sync_or_else_an_update(
    calls: Calls, has_sync: bool
) -> None:
    app, large = own(), "x" * 20_000
    app.on_add(THING)(nothing)
    if has_sync:
        app.on_sync(THING)(calls.of("sync"))
    app.on_update(THING)(calls.update())
    app.on_update(THING, when=field("spec.b").changed)(calls.update("small"))
    with World(THING, app) as world:
        world.create("a", {"a": 1, "text": large})
        world.run(60)
        first = record(world)
        assert len(json.dumps(first)) < 400
        assert first["of"].keys() == {"update", "small"}
        world.restart()
        world.run(60)
        assert [name for name, *_ in calls] == ["sync"] * has_sync
        calls.clear()
        world.down(60)
        world.replace("a", {"a": 2, "b": 1, "text": large})
        world.run(600)
        small = ("small", (2, 0), (2, 1))
        assert calls == ([("sync", 2)] if has_sync else [("update", (2, 1), (2, 1))]) + [small]
        assert record(world)["states"] != first["states"]


def test_of_secrets_no_value_is_kept() -> None:
    app, calls = App("thing-operator", remember=[SECRET]), list[Any]()
    app.on_add(SECRET)(nothing)
    app.on_update(SECRET, when=field("data.token").changed)(
        lambda old, new: calls.append(new["data"]["token"])
    )
    with World(SECRET, app) as world:
        world.create("a", {"data": {"token": "c2VjcmV0"}})
        world.create("b", {"data": {"token": "c2VjcmV0"}})
        world.run(60)
        texts = [obj.annotations[KEY] for obj in world.objects()]
        assert not any("c2VjcmV0" in text for text in texts)
        digests = {json.loads(text)["states"][0]["digest"] for text in texts}
        assert len(digests) == 2  # nor shows it which are equal
        world.down(60)
        world.replace("a", {"data": {"token": "b3RoZXI="}})
        world.run(600)
    assert calls == ["b3RoZXI="]


def test_a_copy_of_an_object_is_not_taken_for_it(calls: Calls) -> None:
    app = with_add_and_update(calls)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        text = world.objects()[0].annotations[KEY]
        world.down(600)
        world.create("b", {"a": 5})
        world.patch("b", {"metadata": {"annotations": {KEY: text}}})
        world.run(1200)
    assert calls == [("add", 1), ("add", 5)]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"v":9}', '{"v":1,"uid":"u"}', "[" * 9999]
)
@pytest.mark.parametrize("has_finalizer", [True, False])
def test_a_record_that_somebody_has_spoilt_is_none(
    calls: Calls, text: str, has_finalizer: bool
) -> None:
    app = with_add_and_update(calls)
    if has_finalizer:
        app.on_delete(THING)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        world.down(60)
        world.patch("a", {"metadata": {"annotations": {KEY: text}}})
        world.run(600)
        assert record(world)["v"] == 1
        world.replace("a", {"a": 2})
        world.run(60)
    # Without a finalizer the object is new then; with the record of another one it is a copy.
    is_new = not has_finalizer or "uid" in text
    assert calls == [*[("add", 1)] * (1 + is_new), ("update", (1, 0), (2, 0))]


def test_a_record_that_somebody_has_removed_is_written_again(calls: Calls) -> None:
    app = own()
    app.on_update(THING)(calls.update())
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        before = world.objects()[0].annotations[KEY]
        world.patch("a", {"metadata": {"annotations": {KEY: None}}})
        world.run(60)
        assert world.objects()[0].annotations[KEY] == before
    assert not calls


def functions_of_things(
    app: App, client: ClientLike, records: Records, **options: Any
) -> KindFunctions:
    return KindFunctions(
        THING,
        client,
        [*functions_of(app), *timers_of(app)],
        function_of=lambda declared: declared.function,
        clock=ManualClock(),
        finalizer=JoinedFinalizer(),
        records=records,
        **options,
    )


def look_at(functions: KindFunctions, obj: Object, times: int = 3) -> None:
    for _ in range(times):
        functions.reconcile(ReconcileRequest(action=ResourceAction.UPDATE, object=obj))


@pytest.mark.parametrize("has_delete", [False, True])
def test_a_record_that_is_removed_before_an_event_shows_it_is_written_again(
    calls: Calls, has_delete: bool
) -> None:
    app = own()
    app.on_add(THING)(calls.of("add"))
    app.on_update(THING)(calls.update())
    if has_delete:
        app.on_delete(THING)(calls.of("delete"))
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, app.crds())
        records = AnnotationRecords(THING, client, "thing-operator", (), has_others=False)
        functions = functions_of_things(app, client, records)
        old = client.create(MutableObject.new(THING, "a", namespace="default", spec={"a": 1}))
        look_at(functions, old)
        written = client.get(THING, "a", namespace="default").annotations[KEY]
        removal = MergePatch({"metadata": {"annotations": {KEY: None}}})
        new = client.patch(THING, "a", removal, namespace="default")
        # As after a relist: no event has shown the object with it.
        assert functions.concerns(old, new)
        look_at(functions, new, times=1)
        present = client.get(THING, "a", namespace="default")
        assert present.annotations[KEY] == written
        # The events in between do not make it due once more.
        assert not functions.concerns(old, new)
        assert not functions.concerns(new, present)
    assert calls == [("add", 1)]


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_failed_call_leads_to_another_look_only_where_a_record_is_due(is_recorded: bool) -> None:
    app, error = own(), ConnectionError("away")

    def fail(_: Object) -> None:
        raise error

    app.every(3.0, THING, first_after=0.0)(fail)
    if is_recorded:
        app.on_update(THING)(nothing)
    else:
        app.on_add(THING, where=is_red)(nothing)
    records = AnnotationRecords(
        THING, no_client(), "thing-operator", (), has_others=False, keeps_states=is_recorded
    )
    functions = functions_of_things(app, no_client(), records)
    metadata = {"name": "a", "uid": "u", "resourceVersion": "1"} | BLUE["metadata"]
    thing = Object.from_dict(THING, {"metadata": metadata})
    with pytest.raises(ConnectionError):
        look_at(functions, thing, times=1)
    functions.failed(thing, error, 3.0, 1)
    waiting = functions.waiting(thing)
    assert [each.error for each in waiting] == ([error, None] if is_recorded else [error])


def test_the_names_of_annotations_are_remembered(calls: Calls) -> None:
    app = own()
    app.on_update(THING, when=annotation("example.com/x.y").changed)(
        lambda old, new: calls.append(
            tuple(each.annotations.get("example.com/x.y") for each in (old, new))
        )
    )
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        for value in ("1", "2", None):
            world.down(60)
            world.patch("a", {"metadata": {"annotations": {"example.com/x.y": value}}})
            world.run(600)
    assert calls == [(None, "1"), ("1", "2"), ("2", None)]


def test_an_earlier_name_of_the_app_has_written_records_too(calls: Calls) -> None:
    def made(name: str, **options: Any) -> App:
        app = own(name, **options)
        app.on_add(THING)(calls.of("add"))
        app.on_update(THING)(calls.update())
        return app

    apps = [made("old-operator"), made("thing-operator", previous_names=["old-operator"])]

    def operator(replica: Any) -> Any:
        options: Any = {"metrics_server": None, "health_server": None, "profile_server": None}
        return apps[min(replica.process, 2) - 1].manager(
            replica.config, clock=replica.clock, metrics=replica.metrics, **options
        )

    with World(THING, operator) as world:
        world.create("a", {"a": 1})
        world.run(60)
        world.down(60)
        world.replace("a", {"a": 2})
        world.run(600)
        assert list(world.objects()[0].annotations) == [KEY]
    assert calls == [("add", 1), ("update", (1, 0), (2, 0))]


def test_a_state_that_the_cache_shows_too_late_is_read_from_the_server_first(
    calls: Calls,
) -> None:
    app = own()
    app.on_update(THING)(calls.update())

    def process(client: Client) -> KindFunctions:
        records = AnnotationRecords(THING, client, "thing-operator", (), has_others=True)
        return functions_of_things(app, client, records)

    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, app.crds())
        states = [client.create(MutableObject.new(THING, "a", namespace="default", spec={"a": 1}))]
        leader = process(client)
        look_at(leader, states[0])
        states[0] = client.get(THING, "a", namespace="default")
        for size in (2, 3):
            change = MergePatch({"spec": {"a": size}})
            states.append(client.patch(THING, "a", change, namespace="default"))
            look_at(leader, states[-1])
        assert [new for _, _, (new, _) in calls] == [2, 3]
        follower = process(client)
        for late in states:
            look_at(follower, late)
        assert len(calls) == 2
        change = MergePatch({"spec": {"a": 4}})
        look_at(follower, client.patch(THING, "a", change, namespace="default"))
        assert calls[2:] == [("update", (3, 0), (4, 0))]


def test_an_object_that_another_process_has_added_before_a_pause_ends_is_not_new() -> None:
    app, called = App("thing-operator"), list[str]()
    app.on_add(THING)(lambda _: called.append("add"))
    app.on_delete(THING)(lambda _: called.append("delete"))
    records = AnnotationRecords(
        THING, no_client(), "thing-operator", (), has_others=True, keeps_states=False
    )
    functions = functions_of_things(
        app, no_client(), records, paused=lambda thing: "stop" in thing.labels
    )
    ours = functions.finalizer_lifecycle
    assert ours is not None
    for version, more in (
        ("1", {"labels": {"stop": "yes"}}),
        ("2", {"labels": {"stop": "yes"}, "finalizers": [ours.finalizer]}),
        ("3", {"finalizers": [ours.finalizer]}),
    ):
        metadata = {"name": "a", "uid": "u", "resourceVersion": version, **more}
        thing = Object.from_dict(THING, {"metadata": metadata, "spec": {"a": 1}})
        look_at(functions, thing, times=1)
    assert not called


class Second(Table):
    """A table that another process writes to after the first call, and whose third one fails."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__()
        self.loads = iter([first, second, None, second, second])

    def load(self, obj: Object, /) -> str | None:
        found = next(self.loads)
        if found is None:
            raise ConnectionError("the table is away")
        return found


def test_a_sync_is_not_repeated_when_what_another_process_has_stored_cannot_be_read() -> None:
    app, called = own(), list[str]()
    app.on_sync(THING)(lambda _: called.append("sync"))

    @app.on_update(THING)
    def change(old: Object, new: Object) -> None:
        called.append("update")

    metadata = {"name": "a", "uid": "u", "resourceVersion": "2", "generation": 2}
    old, new = (
        Object.from_dict(THING, {"metadata": metadata | {"generation": a}, "spec": {"a": a}})
        for a in (1, 2)
    )
    texts = [
        Handled(states={"change": HandledState.of(each, None)}).to_text(new) for each in (old, new)
    ]
    records = Records(THING, no_client(), Second(*texts), has_others=True)
    functions = functions_of_things(app, no_client(), records)
    request = ReconcileRequest(action=ResourceAction.CREATE, object=new)
    functions.reconcile(request)
    with pytest.raises(ConnectionError):
        functions.reconcile(request)
    for _ in range(3):
        functions.reconcile(request)
    assert called == ["sync"]


def test_another_place_may_have_the_states_and_may_be_away(calls: Calls) -> None:
    table = Table()
    app = own(handled_states=table)
    app.on_add(THING)(calls.of("add"))
    app.on_update(THING)(calls.update())
    with World(THING, app) as world:
        table.failures = 2
        world.create("a", {"a": 1})
        world.run(600)
        assert calls == [("add", 1)]
        assert KEY not in world.objects()[0].annotations
        assert len(table.texts) == 1
        table.failures = 2
        world.replace("a", {"a": 2})
        world.run(600)
        world.down(60)
        table.failures = 3
        world.replace("a", {"a": 3})
        world.run(600)
        assert calls == [("add", 1), ("update", (1, 0), (2, 0)), ("update", (2, 0), (3, 0))]
        assert writes(world) == 0
        world.delete("a")
        world.run(60)
        assert not world.objects()
        assert not table.texts


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"remember": "yes"}, TypeError, "remember"),
        ({"remember": 3}, TypeError, "True, False, or a list of kinds"),
        ({"remember": THING}, TypeError, "a list of kinds"),
        ({"remember": ["Thing"]}, TypeError, "remember"),
        ({"handled_states": Table}, TypeError, "load"),
        ({"handled_states": {}}, TypeError, "store"),
    ],
)
def test_what_cannot_be_used_is_refused_when_given(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        App("thing-operator", **options)


def test_a_place_of_the_programs_has_the_marks_of_what_is_not_remembered(calls: Calls) -> None:
    table = Table()
    app = App("thing-operator", remember=False, handled_states=table)
    app.on_add(THING)(lambda obj: calls.append(("add", obj.spec.a)))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        world.restart()
        world.run(60)
        assert not world.objects()[0].annotations
    assert calls == [("add", 1)]
    assert len(table.texts) == 1


def test_own_kinds_with_updates_are_remembered_and_others_where_asked_for() -> None:
    other = Kind(group="example.com", version="v2", kind="Other")

    def made(**options: Any) -> App:
        app = App("thing-operator", **options)
        app.on_update(THING)(nothing)
        app.on_add(CONFIG_MAP)(nothing)
        app.every(60, SECRET)(nothing)
        app.watch(other, SimpleWatcher(update=nothing))
        return app

    kinds_of = (THING, CONFIG_MAP, SECRET, other)

    def remembered(app: App) -> list[bool]:
        return [remembers(app, kind) for kind in kinds_of]

    app = made()
    assert remembered(app) == [False, False, False, False]
    app.own(THING)
    assert remembered(app) == [True, False, False, False]
    assert remembered(made(remember=True)) == [True, True, False, False]
    assert remembered(made(remember=[CONFIG_MAP])) == [False, True, False, False]
    off = made(remember=False)
    off.own(THING)
    assert remembered(off) == [False, False, False, False]


def test_a_kind_without_functions_is_refused() -> None:
    app = App("thing-operator", remember=[CONFIG_MAP])
    app.on_update(THING)(nothing)
    with pytest.raises(ValueError, match="remember names"):
        app.manager(no_client())
