"""Objects that are paused: nothing is called for them, and afterwards what has changed, once."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from appsdk_operator import annotation, kinds
from appsdk_operator.app import App
from appsdk_operator.app._due import Function, ObjectState, Step
from appsdk_operator.app._schedules import Schedule
from appsdk_operator.client import Client, ClientConfig, MergePatch, NotFound
from appsdk_operator.manager import LeaderElection, pause_operator, resume_operator
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer, World
from tests.app.test_managers import Calls, running
from tests.hypothesis_profiles import scaled
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
PAUSED = "example.com/paused"
TIMEOUT = 60.0


# -- the machine ---------------------------------------------------------------------------------


def state(version: int, size: int, *, is_paused: bool, is_deleting: bool = False) -> Object:
    metadata = {
        "name": "a",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": str(version),
        "annotations": {PAUSED: "yes"} if is_paused else {},
    }
    if is_deleting:
        metadata["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    return Object.from_dict(
        CONFIG_MAP,
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"n": str(size)}},
    )


def size_of(obj: Object) -> str:
    found: str = obj["data"]["n"]
    return found


FUNCTIONS = [
    Function(
        cause=cause,  # type: ignore[arg-type]
        where=lambda _: True,
        when=lambda old, new: size_of(old) != size_of(new),
        schedule=Schedule(interval=5.0, first_after=5.0),
    )
    for cause in ("add", "update", "every", "delete")
]
INPUTS = st.lists(
    st.sampled_from(["change", "pause", "go on", "time", "work", "fail", "delete"]), max_size=25
)


@given(inputs=INPUTS, is_known=st.booleans())
def test_whatever_happens_nothing_is_due_while_paused_and_afterwards_each_update_once(
    inputs: list[str], is_known: bool
) -> None:
    is_paused = annotation(PAUSED)
    now, version, size = 0.0, 1, 0
    paused = deleting = False
    machine = ObjectState(
        FUNCTIONS,
        state(version, size, is_paused=False),
        now,
        is_known=is_known,
        relents=lambda old, new: size_of(old) != size_of(new),
        is_paused=is_paused,
    )
    handled: str | None = None
    for what in [*inputs, "go on", "time", "work"]:
        if what in ("change", "pause", "go on", "delete"):
            version += 1
            size += what == "change"
            paused = what == "pause" or (paused and what != "go on")
            deleting = deleting or what == "delete"
            machine.see(state(version, size, is_paused=paused, is_deleting=deleting))
        elif what == "time":
            now += 20.0
        elif what == "fail":
            step = machine.next(now)
            if step is not None:
                machine.start(step)
                machine.failed(step, machine.present, 10.0, 1, now)
        else:
            for step in done(machine, now):
                if FUNCTIONS[step.number].cause == "update":
                    assert step.old is not None
                    assert handled is None or size_of(step.old) == handled
                    handled = size_of(machine.present)
        if paused:
            assert machine.next(now) is None
            assert machine.look_at() is None
    assert machine.next(now) is None
    if handled is not None and not deleting:
        assert handled == str(size)


def done(machine: ObjectState, now: float) -> Iterator[Step]:
    """Makes all calls that are due, which succeed."""
    seen = set()
    while (step := machine.next(now)) is not None:
        assert step.number not in seen, "it is due twice"
        seen.add(step.number)
        machine.start(step)
        machine.succeeded(step, machine.present, now)
        yield step


# -- an operator -----------------------------------------------------------------------------------


@pytest.fixture
def config() -> Iterator[ClientConfig]:
    with APIServer() as server:
        yield ClientConfig(server=server.url)


@pytest.fixture
def api(config: ClientConfig) -> Iterator[Client]:
    with Client(config) as client:
        yield client


def made(calls: Calls) -> App:
    app = App("mapper", paused=annotation(PAUSED) == "yes")

    @app.on_add(CONFIG_MAP, where=is_ours)
    def add(obj: Object) -> None:
        calls.add(("add", obj.name, size_of(obj)))

    @app.on_update(CONFIG_MAP, where=is_ours, when=lambda old, new: size_of(old) != size_of(new))
    def update(old: Object, new: Object) -> None:
        calls.add(("update", size_of(old), size_of(new)))

    @app.on_delete(CONFIG_MAP, where=is_ours)
    def delete(obj: Object) -> None:
        calls.add(("delete", obj.name))

    @app.every(0.02, CONFIG_MAP, where=is_ours)
    def tick(obj: Object) -> None:
        calls.add(("tick", obj.name))

    return app


def is_ours(obj: Object) -> bool:
    return obj.namespace == "default" and "n" in (obj.get("data") or {})


def change(api: Client, name: str, **content: object) -> None:
    api.patch(CONFIG_MAP, name, MergePatch(content), namespace="default")


def pause(api: Client, name: str, value: str | None = "yes") -> None:
    change(api, name, metadata={"annotations": {PAUSED: value}})


def test_a_paused_object_is_left_alone_and_afterwards_gets_one_update(
    config: ClientConfig, api: Client
) -> None:
    calls, metrics = Calls(), Metrics()
    labels = {"app": "mapper", "kind": "configmaps"}
    with running(made(calls).manager(config, metrics=metrics)) as manager:
        assert metrics.value("app_paused_objects", **labels) == 0
        api.create(MutableObject.new(CONFIG_MAP, "a", namespace="default", data={"n": "0"}))
        calls.wait_for(("tick", "a"))
        pause(api, "a")
        eventually(lambda: metrics.value("app_paused_objects", **labels) == 1)
        for number in range(1, 4):
            change(api, "a", data={"n": str(number)})
        [controller] = manager.debug_state()["controllers"]
        assert (controller["paused"], controller["paused_total"]) == (["default/a"], 1)
        # Another object shows that the operator has gone on past all that.
        api.create(MutableObject.new(CONFIG_MAP, "b", namespace="default", data={"n": "9"}))
        calls.wait_for(("add", "b", "9"))
        ticks = calls.all.count(("tick", "a"))
        calls.wait_for(("tick", "b"), 5)
        assert calls.all.count(("tick", "a")) <= ticks + 1  # one may have run meanwhile
        assert not [call for call in calls.all if call[0] == "update"]
        pause(api, "a", None)
        calls.wait_for(("update", "0", "3"))
        calls.wait_for(("tick", "a"), ticks + 2)
        eventually(lambda: metrics.value("app_paused_objects", **labels) == 0)
    assert [call for call in calls.all if call[0] == "update"] == [("update", "0", "3")]


def test_a_deleted_object_waits_for_its_clean_up_while_it_is_paused_also_across_a_restart(
    config: ClientConfig, api: Client
) -> None:
    calls = Calls()
    with running(made(calls).manager(config, metrics=Metrics())):
        api.create(MutableObject.new(CONFIG_MAP, "a", namespace="default", data={"n": "0"}))
        calls.wait_for(("tick", "a"))
        pause(api, "a")
        api.delete(CONFIG_MAP, "a", namespace="default")
    metrics = Metrics()
    with running(made(calls).manager(config, metrics=metrics)):
        eventually(
            lambda: metrics.value("app_paused_objects", app="mapper", kind="configmaps") == 1
        )
        assert api.get(CONFIG_MAP, "a", namespace="default").is_deleting
        assert ("delete", "a") not in calls.all
        pause(api, "a", None)
        calls.wait_for(("delete", "a"))
        eventually(lambda: is_gone(api, "a"))


def is_gone(api: Client, name: str) -> bool:
    try:
        api.get(CONFIG_MAP, name, namespace="default")
    except NotFound:
        return True
    return False


def test_a_new_object_that_is_paused_gets_no_finalizer_and_may_go_without_a_call(
    config: ClientConfig, api: Client
) -> None:
    calls, metrics = Calls(), Metrics()
    labels = {"app": "mapper", "kind": "configmaps"}
    with running(made(calls).manager(config, metrics=metrics)):
        new = MutableObject.new(CONFIG_MAP, "a", namespace="default", data={"n": "0"})
        new.annotations[PAUSED] = "yes"
        api.create(new)
        eventually(lambda: metrics.value("app_paused_objects", **labels) == 1)
        assert not api.get(CONFIG_MAP, "a", namespace="default").finalizers
        api.delete(CONFIG_MAP, "a", namespace="default")
        eventually(lambda: metrics.value("app_paused_objects", **labels) == 0)
    assert calls.all == []


def test_a_filter_that_fails_pauses_nothing_and_is_said_once(
    config: ClientConfig, api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(obj: Object) -> bool:
        raise KeyError(obj.name)

    calls = Calls()
    app = App("mapper", paused=broken)

    @app.on_add(CONFIG_MAP, where=is_ours)
    def add(obj: Object) -> None:
        calls.add(obj.name)

    with (
        caplog.at_level(logging.ERROR),
        running(app.manager(config, metrics=Metrics())),
    ):
        api.create(MutableObject.new(CONFIG_MAP, "a", namespace="default", data={"n": "0"}))
        calls.wait_for("a")
    said = [r for r in caplog.records if "takes it for false" in r.getMessage()]
    assert len(said) == 1


def test_what_is_no_filter_of_objects_is_refused() -> None:
    with pytest.raises(TypeError, match="paused"):
        App("mapper", paused=5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="paused"):
        App("mapper", paused=annotation(PAUSED).changed)  # type: ignore[arg-type]


# -- a paused operator -----------------------------------------------------------------------------

QUICK = LeaderElection(
    id="mapper", namespace="default", lease_duration=3.0, renew_deadline=2.0, retry_period=0.1
)


def test_after_a_pause_of_the_operator_all_changes_of_an_object_are_one_call(
    config: ClientConfig, api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    app = App("mapper", leader_election=QUICK, workers=1)

    @app.on_add(CONFIG_MAP, where=is_ours)
    def add(obj: Object) -> None:
        calls.add(("add", obj.name, size_of(obj)))

    @app.on_update(CONFIG_MAP, where=is_ours)
    def update(old: Object, new: Object) -> None:
        calls.add(("update", new.name, size_of(old), size_of(new)))

    @app.on_delete(CONFIG_MAP, where=is_ours)
    def delete(obj: Object) -> None:
        calls.add(("delete", obj.name))

    def put(name: str, size: int) -> None:
        api.create(MutableObject.new(CONFIG_MAP, name, namespace="default", data={"n": str(size)}))

    def is_cached(name: str, size: str) -> bool:
        found = manager.cache.get(CONFIG_MAP, name, namespace="default")
        return found is not None and size_of(found) == size

    manager = app.manager(config, metrics=Metrics())
    with caplog.at_level(logging.INFO, "appsdk_operator.manager"), running(manager):
        for name in ("changes", "comes-back", "goes"):
            put(name, 0)
            calls.wait_for(("add", name, "0"))
        before = len(calls.all)
        pause_operator(api, QUICK.id, namespace="default", seconds=600, reason="x", by="ann")
        eventually(lambda: "no new ones begin" in caplog.text)
        put("new", 0)
        for size in ("1", "2", "3"):
            for name in ("changes", "new", "goes", "comes-back"):
                change(api, name, data={"n": size})
        change(api, "comes-back", data={"n": "0"})
        api.delete(CONFIG_MAP, "goes", namespace="default")
        put("last", 0)
        eventually(lambda: is_cached("last", "0") and is_cached("comes-back", "0"))
        assert calls.all[before:] == []
        resume_operator(api, QUICK.id, namespace="default")
        calls.wait_for(("add", "last", "0"))
        assert sorted(calls.all[before:]) == [
            ("add", "last", "0"),
            ("add", "new", "3"),
            ("delete", "goes"),
            ("update", "changes", "0", "3"),
        ]
        change(api, "changes", data={"n": "4"})
        calls.wait_for(("update", "changes", "3", "4"))


# -- a world ---------------------------------------------------------------------------------------

MOVES = st.lists(
    st.tuples(
        st.sampled_from(["pause", "go on", "touch", "strip", "restart"]),
        st.sampled_from([0.0, 1.0]),
    ),
    max_size=6,
)


@settings(max_examples=scaled(40))
@given(causes=st.lists(st.sampled_from(["add", "update", "delete"]), unique=True), moves=MOVES)
@example(causes=[], moves=[("pause", 0.0)])
def test_after_a_pause_the_object_is_protected_at_once(
    causes: list[str], moves: list[tuple[str, float]]
) -> None:
    app, deleted = App("mapper", paused=annotation(PAUSED) == "yes"), list[str]()
    for cause in causes:
        getattr(app, f"on_{cause}")(CONFIG_MAP)(lambda *_: None)
    app.on_delete(CONFIG_MAP)(lambda obj: deleted.append(obj.uid))
    with World(CONFIG_MAP, app) as world:
        obj = world.create("a", {"data": {"n": "0"}})
        for number, (what, seconds) in enumerate([*moves, ("go on", 1.0)]):
            match what:
                case "pause" | "go on":
                    value = "yes" if what == "pause" else None
                    world.patch("a", {"metadata": {"annotations": {PAUSED: value}}})
                case "touch":
                    world.patch("a", {"data": {"n": str(number)}})
                case "strip":
                    world.patch("a", {"metadata": {"finalizers": []}})
                case "restart":
                    world.restart()
            world.run(seconds)
        [present] = world.objects()
        assert len(present.finalizers) == 1
        world.delete("a")
        world.run(1.0)
    assert deleted == [obj.uid]
