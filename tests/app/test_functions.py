"""The functions of an App side by side: finalizers, requests, filters, failures, what is shown."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.app import App, functions_of, timers_of
from appsdk_operator.app._functions import KindFunctions
from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.client import ClientLike, Hooks, InterceptedClient, NotFound
from appsdk_operator.controllers import TerminalError
from appsdk_operator.manager import Manager
from appsdk_operator.resource import Kind, Object, field, filter_of
from appsdk_operator.runtime import Clock, ManualClock
from appsdk_operator.testing import Replica, World
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    JoinedFinalizer,
    ReconcileRequest,
    never_retry,
)
from tests.hypothesis_profiles import scaled
from tests.simulations import no_client
from tests.watchers.conftest import ScriptedInformer


@attrs.frozen
class ThingSpec:
    a: int = 0


THING = Kind(group="example.com", version="v1", kind="Thing", spec=ThingSpec)
OURS = "example.com/thing-operator.v1.Thing"
MARK = "example.com/wip.thing-operator.v1.Thing"
RED = {"metadata": {"labels": {"color": "red"}}}
BLUE = {"metadata": {"labels": {"color": "blue"}}}


def is_red(thing: Object) -> bool:
    return thing.labels.get("color") == "red"


def nothing(*_: Any) -> None: ...


def writes(world: World) -> list[str]:
    return [entry.text for entry in world.journal.of("write")]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_new_object_costs_two_patches_however_many_functions_there_are(count: int) -> None:
    app = App("thing-operator")
    for _ in range(count):
        app.on_add(THING)(nothing)
        app.on_update(THING)(nothing)
        app.on_delete(THING)(nothing)
        app.every(60, THING, name=f"timer-{_}")(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(600)
        assert len(writes(world)) == 2
        world.replace("a", {"a": 2})
        world.run(600)
        world.restart()
        world.run(600)
        assert len(writes(world)) == 2
        world.delete("a")
        world.run(60)
        assert len(writes(world)) == 3
        assert not world.objects()


def test_updates_and_timers_alone_put_on_no_finalizer_and_take_an_earlier_one_off() -> None:
    app, calls = App("thing-operator"), list[Any]()
    app.on_update(THING)(lambda old, new: calls.append((old.spec.a, new.spec.a)))
    app.every(60, THING)(nothing)
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(100)
        world.replace("a", {"a": 2})
        world.run(100)
        assert not writes(world)
        world.patch("a", {"metadata": {"finalizers": [OURS]}})
        world.run(100)
        world.delete("a")
        world.run(10)
        assert not world.objects()
    assert calls == [(1, 2)]


def test_each_function_is_repeated_alone_and_an_update_begins_with_the_oldest_of_all() -> None:
    app, calls, failures = App("thing-operator"), list[Any](), [1, 1]

    @app.on_add(THING)
    def first(thing: Object[ThingSpec]) -> None:
        calls.append(("first", thing.spec.a))

    @app.on_add(THING)
    def second(thing: Object[ThingSpec]) -> None:
        calls.append(("second", thing.spec.a))
        if failures:
            raise ConnectionError(failures.pop())

    app.on_update(THING)(lambda old, new: calls.append((old.spec.a, new.spec.a)))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.replace("a", {"a": 2})
        world.run(60)
        assert not world.objects()[0].finalizers
    assert calls == [("first", 1), ("second", 1), ("second", 2), ("second", 2), (1, 2)]


def test_a_crash_between_two_functions_repeats_what_was_not_finished() -> None:
    app, calls = App("thing-operator"), list[Any]()
    world = World(THING, app)

    @app.on_add(THING)
    def first(thing: Object[ThingSpec]) -> None:
        calls.append("first")

    @app.on_add(THING)
    def second(thing: Object[ThingSpec]) -> None:
        calls.append("second")
        if len(calls) == 2:
            world.crash()

    with World(THING, app) as made:
        world = made
        world.create("a", {"a": 1})
        world.run(60)
    assert calls == ["first", "second", "first", "second"]


def test_an_object_that_leaves_where_keeps_its_finalizer_and_is_cleaned_up() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_add(THING, where=is_red)(lambda thing: calls.append("add"))
    app.on_update(THING, where=is_red)(lambda o, n: calls.append(f"{o.spec.a} to {n.spec.a}"))
    app.on_delete(THING, where=is_red)(lambda thing: calls.append("delete"))
    app.every(10, THING, where=is_red)(lambda thing: calls.append("every"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(60)
        assert not calls
        assert not world.objects()[0].finalizers
        world.patch("a", RED)
        world.run(1)
        assert calls == ["add", "every"]
        assert world.objects()[0].finalizers == (OURS,)
        world.patch("a", BLUE)
        world.replace("a", {"a": 2})
        world.replace("a", {"a": 3})
        world.run(60)
        assert calls == ["add", "every"]
        world.patch("a", RED)
        world.run(1)
        assert calls == ["add", "every", "1 to 3", "every"]
        world.patch("a", BLUE)
        world.run(1)
        world.restart()
        world.delete("a")
        world.run(10)
        assert calls[4:] == ["delete"]
        assert not world.objects()


def test_objects_that_never_matched_are_neither_held_nor_cleaned_up() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_delete(THING, where=is_red)(lambda thing: calls.append("red"))
    app.on_delete(THING, where=lambda thing: not is_red(thing))(lambda _: calls.append("other"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(5)
        world.restart()
        world.delete("a")
        world.run(5)
    assert calls == ["other"]


def test_an_add_that_comes_late_is_not_forgotten_in_a_crash() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_add(THING)(lambda thing: calls.append("add"))
    app.on_update(THING)(nothing)
    app.on_delete(THING)(nothing)

    @app.on_add(THING, where=is_red)
    def paint(thing: Object) -> None:
        calls.append("paint")
        if calls.count("paint") == 1:
            assert set(world.objects()[0].finalizers) == {OURS, MARK}
            world.crash()

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(5)
        assert calls == ["add"]
        world.patch("a", RED)
        world.run(30)
        assert world.objects()[0].finalizers == (OURS,)
    assert calls == ["add", "paint", "add", "paint"]


def test_a_filter_that_fails_lets_pass_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_add(THING, where=lambda thing: thing["nowhere"])(lambda thing: calls.append("add"))
    app.on_update(THING, when=lambda old, new: bool(1 / 0))(lambda old, new: calls.append("update"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(5)
        world.patch("a", RED)
        world.run(60)
    assert calls == ["add", "update"]
    assert len([text for text in caplog.messages if text.startswith("where= of")]) == 1
    assert len([text for text in caplog.messages if text.startswith("when= of")]) == 1


def test_when_looks_at_all_of_an_object_but_the_apps_finalizer() -> None:
    app, calls = App("thing-operator"), list[Any]()
    app.on_add(THING)(nothing)

    @app.on_update(THING, when=lambda old, new: True)
    def update(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append((old.labels.get("color"), new.labels.get("color")))

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(300)
        assert not calls
        world.patch("a", RED)
        world.run(300)
        world.patch("a", BLUE)
        world.run(300)
    assert calls == [(None, "red"), ("red", "blue")]


def test_an_event_of_no_concern_leaves_a_retry_alone_and_another_call_does_not_end_it() -> None:
    app, calls = App("thing-operator", retry_policy=ConstantBackoff(20)), list[Any]()
    world: World

    def at(what: str) -> None:
        calls.append((round(world.clock.monotonic() - begin), what))

    @app.on_update(THING, when=field("spec.a").changed)
    def change(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        at("change")
        if len([what for _, what in calls if what == "change"]) < 3:
            raise ConnectionError("down")

    app.every(7, THING)(lambda thing: at("look"))
    with World(THING, app) as world:
        begin = world.clock.monotonic()
        world.create("a", {"a": 1})
        world.run(2)
        world.replace("a", {"a": 2})
        world.run(5)
        world.patch("a", RED)
        world.run(45)
    assert [when for when, what in calls if what == "change"] == [2, 22, 42]
    looks = [when for when, what in calls if what == "look"]
    assert {after - before for before, after in itertools.pairwise(looks)} == {7}


def functions_of_thing(
    app: App,
    clock: Clock,
    client: ClientLike | None = None,
    *,
    paused: Callable[[Object], bool] | None = None,
    observe: Callable[[Callable[..., Any]], Callable[..., Any]] = lambda function: function,
) -> KindFunctions:
    return KindFunctions(
        THING,
        client or no_client(),
        [*functions_of(app), *timers_of(app)],
        function_of=lambda declared: observe(declared.function),
        clock=clock,
        finalizer=JoinedFinalizer(),
        paused=paused,
    )


def thing(version: int, size: int, **more: Any) -> Object:
    metadata = {"name": "a", "uid": "u", "resourceVersion": str(version), "generation": size}
    metadata |= more
    return Object.from_dict(THING, {"metadata": metadata, "spec": {"a": size}})


_STEPS = st.tuples(
    st.sampled_from(["replace", "both", "red", "blue", "status", "strip", "hold", "delete"]),
    st.sampled_from([1, 1, 0, 40]),
)


def played(steps: Any, causes: str, failures: Any) -> list[Any]:
    """What the functions of an App are called for, and what it writes."""
    app, calls, left = App("thing-operator", retry_policy=ConstantBackoff(20)), [], list(failures)

    def note(name: str) -> Any:
        def function(*objects: Object[ThingSpec]) -> None:
            is_failing = bool(left) and left.pop()
            seen = [(each.spec.a, each.resource_version) for each in objects]
            calls.append((round(world.clock.monotonic() - begin), name, *seen, is_failing))
            if is_failing:
                raise ConnectionError("down")

        return function

    if "a" in causes:
        app.on_add(THING)(note("add"))
    if "r" in causes:
        app.on_add(THING, where=is_red)(note("paint"))
    app.on_update(THING)(note("update"))
    app.on_update(THING, when=field("metadata.labels").changed, where=is_red)(note("red"))
    if "d" in causes:
        app.on_delete(THING)(note("delete"))
    if "s" in causes:
        app.on_delete(THING, where=is_red)(note("strip"))
    with World(THING, app) as world:
        begin = world.clock.monotonic()
        world.create("a", {"a": 1})
        world.run(1)
        for number, (what, seconds) in enumerate(steps):
            if not world.objects():
                world.create("a", {"a": 1})
            elif what == "replace":
                world.replace("a", {"a": number + 2})
            elif what == "delete":
                world.delete("a")
            elif what == "hold" and world.objects()[0].is_deleting:
                continue  # the server takes no new finalizers
            else:
                patches: dict[str, Any] = {"red": RED, "blue": BLUE}
                patches["both"] = {**RED, "spec": {"a": number + 2}}
                patches["strip"] = {"metadata": {"finalizers": None}}
                held = [*world.objects()[0].finalizers, "example.com/other"]
                patches["hold"] = {"metadata": {"finalizers": list(dict.fromkeys(held))}}
                patches["status"] = {"status": {"n": len(calls)}}
                world.patch("a", patches[what])
            world.run(seconds)
        world.run(100)
        made = [(round(each.at - begin), each.text) for each in world.journal.of("write")]
        return [*calls, *made]


@given(
    steps=st.lists(_STEPS, max_size=10),
    causes=st.sampled_from(["", "a", "d", "ad", "ard", "as"]),
    failures=st.lists(st.booleans(), max_size=6),
)
@example(steps=[("replace", 1), ("strip", 1), ("replace", 1)], causes="a", failures=[])
@example(steps=[("replace", 1), ("red", 1), ("delete", 1)], causes="ard", failures=[])
@example(steps=[("replace", 1), ("red", 1), ("blue", 1), ("delete", 1)], causes="as", failures=[])
@example(steps=[("replace", 1), ("both", 1)], causes="", failures=[])
@example(steps=[("hold", 1), ("delete", 1), ("replace", 1)], causes="", failures=[])
@example(steps=[("delete", 1), ("hold", 1)], causes="ad", failures=[True, False])
@settings(max_examples=scaled(40), deadline=None)
def test_the_short_way_of_an_object_at_rest_makes_the_same_calls(
    steps: Any, causes: str, failures: Any
) -> None:
    short = played(steps, causes, failures)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(KindFunctions, "_settle", lambda *_: None)
        assert played(steps, causes, failures) == short


def test_an_object_that_is_no_longer_followed_is_forgotten() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_update(THING)(lambda old, new: calls.append("update"))
    app.every(60, THING)(lambda thing: calls.append("look"))
    controller, informer = InformerController(clock=ManualClock()), ScriptedInformer()
    functions = functions_of_thing(app, controller.clock)
    controller.add_reconciler(functions, THING)
    controller.add_informer(informer, THING)
    source, handle = informer.handler, controller._dispatcher.handle_event
    assert source is not None
    handle(source, Event(ResourceAction.CREATE, thing(1, 1)))
    assert controller.pending_requeues == 1
    handle(source, Event(ResourceAction.DELETE, thing(1, 1), is_unfollowed=True))
    assert controller.pending_requeues == 0
    assert not functions.waiting(thing(1, 1))
    handle(source, Event(ResourceAction.CREATE, thing(2, 2)))
    assert calls == ["look", "look"]


def test_a_restore_of_the_server_is_an_update_whatever_the_versions_say() -> None:
    app, calls = App("thing-operator"), list[Any]()
    app.on_update(THING)(lambda old, new: calls.append((old.spec.a, new.spec.a)))
    functions = functions_of_thing(app, ManualClock())
    old, new, newer = thing(5, 1), thing(9, 2), thing(12, 3)
    functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=old))
    assert not functions.waiting(old)
    for before, after in ((old, new), (new, old), (old, newer)):
        assert functions.concerns(before, after)
        functions.reconcile(ReconcileRequest(action=ResourceAction.UPDATE, object=after))
        assert not functions.waiting(after)
    # An event that was on its way is none.
    assert not functions.concerns(new, new)
    functions.reconcile(ReconcileRequest(action=ResourceAction.RESYNC, object=new))
    assert calls == [(1, 2), (2, 1), (1, 3)]


def test_a_finalizer_is_put_back_with_one_write() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_add(THING)(lambda thing: calls.append("add"))
    app.on_delete(THING)(lambda thing: calls.append("delete"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        api = world.server.api
        world.patch("a", {"metadata": {"finalizers": []}})
        before = len(api.requests)
        world.run(60)
        writes = [each for each in api.requests[before:] if each.method != "GET"]
        assert [each.method for each in writes] == ["PATCH"]
        assert OURS in world.get("a").finalizers
        world.delete("a")
        world.run(60)
    assert calls == ["add", "delete"]


def test_a_finalizer_that_cannot_be_put_back_keeps_no_function_of_a_handled_object() -> None:
    app, calls, looks = App("thing-operator"), list[Any](), list[float]()
    world: World
    app.on_add(THING)(lambda thing: calls.append("add"))
    app.on_delete(THING)(nothing)
    app.every(10, THING)(lambda thing: looks.append(world.clock.monotonic()))

    @app.on_update(THING)
    def update(old: Object[ThingSpec], new: Object[ThingSpec]) -> None:
        calls.append((old.spec.a, new.spec.a))
        if calls.count((1, 2)) == 1:
            raise ConnectionError("down")

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.write_faults += ["500"] * 100
        world.patch("a", {"metadata": {"finalizers": []}})
        world.run(60)
        assert calls == ["add"]
        world.replace("a", {"a": 2})
        world.run(60)
        assert calls == ["add", (1, 2), (1, 2)]
        strip_and_change = {"metadata": {"finalizers": []}, "spec": {"a": 3}}
        world.patch("a", {"metadata": {"finalizers": [OURS]}})
        world.run(300)
        world.patch("a", strip_and_change)
        world.run(1)
        assert calls == ["add", (1, 2), (1, 2), (2, 3)]
        left = len(world.write_faults)
        world.run(3600)
        # After 5, 10, 20, … and then every 300 seconds, although other calls succeed.
        assert 15 <= left - len(world.write_faults) <= 20
        assert not world.objects()[0].finalizers
        world.write_faults.clear()
        assert world.settle()
        assert world.objects()[0].finalizers == (OURS,)
        world.run(60)
        assert {round(after - before) for before, after in itertools.pairwise(looks)} == {10}
        assert calls == ["add", (1, 2), (1, 2), (2, 3)]
        world.delete("a")
        world.run(60)
        assert not world.objects()


def test_the_write_of_a_finalizer_that_fails_is_in_health_and_page_until_it_succeeds() -> None:
    app, managers = App("thing-operator"), list[Manager]()
    app.on_add(THING)(nothing)
    app.on_delete(THING)(nothing)
    app.every(10, THING)(nothing)

    def operator(replica: Replica) -> Manager:
        options: Any = {"metrics_server": None, "health_server": None, "profile_server": None}
        managers.append(
            app.manager(replica.config, clock=replica.clock, metrics=replica.metrics, **options)
        )
        return managers[-1]

    def retries(found: Manager) -> list[Any]:
        (controller,) = found.debug_state()["controllers"]
        return [one["object"] for one in controller["planned"] if "FinalizerError" in one["error"]]

    with World(THING, operator, crds=[crd.to_dict() for crd in app.crds()]) as world:
        world.create("a", {"a": 1})
        world.run(1)
        (manager,) = managers
        world.write_faults += ["500"] * 4
        world.patch("a", {"metadata": {"finalizers": []}})
        world.run(35)
        assert (
            "the finalizer of 1 object cannot be written, such as: could" in manager.health().text
        )
        assert manager.health().is_ready
        assert retries(manager) == ["default/a"]
        world.run(300)
        assert "cannot be written" not in manager.health().text
        assert not retries(manager)


def test_no_new_function_is_called_before_the_finalizer_that_cannot_be_put_back() -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_add(THING)(lambda thing: calls.append("add"))
    app.on_add(THING, where=is_red)(lambda thing: calls.append("red"))
    app.on_delete(THING)(nothing)
    app.every(10, THING, first_after=10)(lambda thing: calls.append("look"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.write_faults += ["500"] * 100
        world.patch("a", {"metadata": {"finalizers": []}})
        world.run(20)
        world.patch("a", RED)
        world.run(60)
        assert calls == ["add", "look", "look"]
        world.write_faults.clear()
        world.run(300)
        assert calls[:4] == ["add", "look", "look", "red"]


def test_what_became_of_an_object_is_asked_with_delays_and_no_timer_runs_meanwhile() -> None:
    app, calls = App("thing-operator", retry_policy=ConstantBackoff(20)), list[str]()
    app.on_add(THING)(nothing)
    app.every(10, THING)(lambda thing: calls.append("look"))
    app.on_delete(THING)(lambda thing: calls.append("delete"))
    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.failures["read"] += ["500"] * 50
        world.patch("a", {"metadata": {"finalizers": []}})
        world.delete("a")
        world.run(100)
        assert len(world.failures["read"]) > 20
        world.failures["read"].clear()
        world.run(100)
    assert calls == ["look", "delete"]


def test_after_a_restore_that_changes_nothing_for_the_functions_changes_are_seen() -> None:
    app, calls = App("thing-operator"), list[Any]()
    change = field("spec.a").changed
    app.on_update(THING, when=change)(lambda old, new: calls.append((old.spec.a, new.spec.a)))
    functions = functions_of_thing(app, ManualClock())
    first, later = thing(5, 1), thing(9, 1)
    functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=first))
    assert not functions.waiting(first)
    for before, after in ((first, thing(8, 2)), (thing(8, 2), later), (later, first)):
        assert functions.concerns(before, after)
        functions.reconcile(ReconcileRequest(action=ResourceAction.UPDATE, object=after))
        assert not functions.waiting(after)
    assert functions.concerns(first, thing(6, 3))
    assert calls == [(1, 2), (2, 1)]


def test_an_object_that_a_restore_brings_back_before_its_clean_up_lives_on() -> None:
    app, calls = App("thing-operator"), list[str]()

    @app.on_delete(THING)
    def remove(thing: Object) -> None:
        calls.append("remove")
        raise ConnectionError("down")

    app.every(60, THING)(lambda thing: calls.append("look"))

    def get(*_: Any, **__: Any) -> Object:
        raise NotFound("it is gone", status=404)

    client = InterceptedClient(no_client(), Hooks(get=get))
    clock = ManualClock()
    functions = functions_of_thing(app, clock, client)
    ours = functions.finalizer_lifecycle
    assert ours is not None
    old = thing(5, 1, finalizers=[ours.finalizer])
    gone = thing(9, 1, finalizers=[ours.finalizer])
    functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=old))
    with pytest.raises(ConnectionError) as raised:
        functions.reconcile(ReconcileRequest(action=ResourceAction.DELETE, object=gone))
    functions.failed(gone, raised.value, 10.0, 1)
    assert calls == ["look", "remove"]
    for _ in range(2):
        clock.advance(5)
        functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=old))
    assert calls == ["look", "remove", "look"]


@pytest.mark.parametrize("version", [3, 30])
def test_an_object_in_deletion_that_a_restore_brings_back_lives_on(version: int) -> None:
    app, calls = App("thing-operator"), list[str]()
    app.on_update(THING)(lambda old, new: calls.append("update"))
    app.on_delete(THING)(lambda thing: calls.append("delete"))
    server: list[Object] = []

    def patch(*_: Any, **__: Any) -> Object:
        return server.pop()

    client = InterceptedClient(no_client(), Hooks(patch=patch))
    functions = functions_of_thing(app, ManualClock(), client)
    ours = functions.finalizer_lifecycle
    assert ours is not None

    def look(old: Object, new: Object) -> None:
        assert functions.concerns(old, new)
        functions.reconcile(ReconcileRequest(action=ResourceAction.UPDATE, object=new, old=old))
        assert not functions.waiting(new)

    def states(version: int, size: int) -> list[Object]:
        """As it is, in deletion, and after its clean-up."""
        ended: Any = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
        return [
            thing(version, size, finalizers=["x.example.org/hold", ours.finalizer]),
            thing(version + 1, size, finalizers=["x.example.org/hold", ours.finalizer], **ended),
            thing(version + 2, size, finalizers=["x.example.org/hold"], **ended),
        ]

    first, deleted, cleaned = states(10, 2)
    functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=first))
    assert not functions.waiting(first)
    server.append(cleaned)
    look(first, deleted)
    assert not functions.concerns(deleted, cleaned)
    back, *_ = states(version, 1)
    look(cleaned, back)
    later, deleted, cleaned = states(version + 1, 3)
    look(back, later)
    server.append(cleaned)
    look(later, deleted)
    assert calls == ["delete", "update", "delete"]


def test_a_timer_waits_until_a_restored_object_does_not_change() -> None:
    app, clock, calls = App("thing-operator"), ManualClock(), list[float]()
    app.every(10, THING, idle=30)(lambda thing: calls.append(clock.monotonic()))
    functions = functions_of_thing(app, clock)
    old = thing(50, 1)
    functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=old))
    for version in range(10, 20):
        clock.advance(10)
        new = thing(version, version)
        functions.concerns(old, new)
        functions.reconcile(ReconcileRequest(action=ResourceAction.UPDATE, object=new))
        old = new
    assert not calls


def test_a_paused_object_that_is_gone_is_forgotten_whatever_the_server_answers() -> None:
    app = App("thing-operator")
    app.on_delete(THING)(nothing)
    functions = functions_of_thing(app, ManualClock(), paused=lambda _: True)
    ours = functions.finalizer_lifecycle
    assert ours is not None
    first = thing(5, 1, finalizers=[ours.finalizer])
    functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=first))
    assert functions.paused_objects() == [first.key]
    functions.reconcile(ReconcileRequest(action=ResourceAction.DELETE, object=first))
    assert functions.paused_objects() == []


def test_an_event_of_a_pause_that_an_answer_shows_as_over_keeps_no_timer_from_its_call() -> None:
    app, clock, calls = App("thing-operator"), ManualClock(), list[float]()
    app.on_update(THING)(nothing)
    app.every(5, THING)(lambda thing: calls.append(clock.monotonic()))
    functions = functions_of_thing(
        app,
        clock,
        InterceptedClient(no_client(), Hooks(patch=lambda *_, **__: thing(9, 1))),
        paused=lambda thing: "stop" in thing.labels,
    )
    ours = functions.finalizer_lifecycle
    assert ours is not None
    first = thing(5, 1, finalizers=[ours.finalizer])
    functions.reconcile(ReconcileRequest(action=ResourceAction.CREATE, object=first))
    functions.waiting(first)
    paused = thing(7, 1, finalizers=[ours.finalizer], labels={"stop": "yes"})
    assert functions.concerns(first, paused)
    clock.advance(5)
    for _ in range(2):
        functions.reconcile(ReconcileRequest(action=ResourceAction.UPDATE, object=paused))
        (waiting,) = functions.waiting(paused)
    assert calls == [0, 5]
    assert waiting.due == 10


def test_a_finalizer_that_is_refused_waits_for_its_time_whatever_others_write() -> None:
    app = App("thing-operator")
    app.on_delete(THING)(nothing)
    with World(THING, app) as world:
        world.write_faults += ["500"] * 100
        world.create("a", {"a": 1})
        for number in range(50):
            world.run(1)
            world.patch("a", {"metadata": {"labels": {"n": str(number)}}})
        assert len(writes(world)) == 4


def test_a_function_has_a_policy_of_its_own() -> None:
    app, calls = App("thing-operator", retry_policy=never_retry), list[str]()

    @app.on_add(THING, retry=ConstantBackoff(10, max_attempts=1))
    def patient(thing: Object) -> None:
        calls.append("patient")
        raise ConnectionError("down")

    @app.on_add(THING)
    def once(thing: Object) -> None:
        calls.append("once")
        raise ConnectionError("down")

    with World(THING, app) as world:
        world.create("a", {"a": 1})
        world.run(3600)
    assert calls == ["patient", "once", "patient", "patient"]


def test_what_fails_is_shown_by_the_functions_name_while_others_succeed() -> None:
    app, managers = App("thing-operator"), list[Manager]()

    @app.on_add(THING)
    def make(thing: Object) -> None: ...

    @app.on_update(THING)
    def fails(old: Object, new: Object) -> None:
        raise ConnectionError("down")

    @app.on_update(THING)
    def gives_up(old: Object, new: Object) -> None:
        raise TerminalError("never")

    @app.every(5, THING)
    def look(thing: Object) -> None: ...

    def operator(replica: Replica) -> Manager:
        options: Any = {"metrics_server": None, "health_server": None, "profile_server": None}
        managers.append(
            app.manager(replica.config, clock=replica.clock, metrics=replica.metrics, **options)
        )
        return managers[-1]

    with World(THING, operator, crds=[crd.to_dict() for crd in app.crds()]) as world:
        world.create("a", {"a": 1})
        world.run(1)
        world.replace("a", {"a": 2})
        world.run(600)
        rows = [one for one in managers[0].debug_state()["controllers"] if one["name"].count("/")]
        (controller,) = rows
        planned = {one["callback"].rpartition(".")[2]: one for one in controller["planned"]}
        (given_up,) = controller["given_up"]
    assert set(planned) == {"fails", "look"}
    assert "down" in planned["fails"]["error"]
    assert planned["fails"]["attempt"] >= 7
    assert given_up["callback"].endswith("gives_up")


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("option", ["where", "when"])
def test_a_filter_lets_interrupts_through(option: str, interrupt: type[BaseException]) -> None:
    def stop(obj: Object) -> bool:
        raise interrupt

    app = App("thing-operator")
    filters: Any = {option: filter_of(stop)}
    app.on_update(THING, **filters)(nothing)
    functions = functions_of_thing(app, ManualClock())

    def handle() -> None:
        for obj in (thing(5, 1), thing(9, 2)):
            functions.reconcile(ReconcileRequest(action=ResourceAction.UPDATE, object=obj))

    with pytest.raises(interrupt):
        handle()
