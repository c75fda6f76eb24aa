from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.cache import Event
from appsdk_operator.controllers import LOW_PRIORITY, Handler, Request
from appsdk_operator.controllers import _handlers as h
from appsdk_operator.resource import Kind, Scope
from tests.cache.conftest import THING
from tests.controllers.event_tools import (
    CREATE,
    DELETE,
    GENERIC,
    RESYNC,
    UPDATE,
    RecordingQueue,
    created,
    obj,
    one_of_each,
    owned,
    updated,
)

SET = Kind(group="apps", version="v1", kind="ReplicaSet")
CORE = Kind(group="", version="v1", kind="ReplicaSet")
CLUSTER = Kind(group="apps", version="v1", kind="Fleet", scope=Scope.CLUSTER)


def ref(name, kind="ReplicaSet", api_version="apps/v1", controller=True):
    reference = {"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}"}
    return {**reference, "controller": True} if controller else reference


@pytest.fixture
def queue():
    return RecordingQueue()


def names(handler, *events):
    queue = RecordingQueue()
    for event in events:
        handler.handle(event, queue)
    return queue.names


EACH = pytest.mark.parametrize("action", [CREATE, UPDATE, DELETE, RESYNC, GENERIC])


# For the object.


@EACH
def test_for_object_requests_the_object_of_each_event(action, queue):
    event = one_of_each(obj("a", 2), obj("a", 1))[action]
    h.for_object().handle(event, queue)
    assert queue.requests == [Request("x", "a")]
    assert queue.reasons == [event]


# By a function.


def by_target(it):
    return [Request("x", name) for name in it["spec"]["targets"]]


def pointing_at(*targets, version=1):
    return obj("a", version, spec={"targets": list(targets)})


@EACH
def test_a_map_function_is_asked_of_each_event(action):
    event = one_of_each(pointing_at("b", "c"))[action]
    assert names(h.map_objects(by_target), event) == ["x/b", "x/c"]


def test_a_map_function_is_asked_of_the_old_and_the_new_object_and_each_request_made_once():
    event = updated(pointing_at("b", "c"), pointing_at("c", "d", "d", version=2))
    assert names(h.map_objects(by_target), event) == ["x/b", "x/c", "x/d"]


@given(st.lists(st.sampled_from("bcdef")), st.lists(st.sampled_from("bcdef")))
def test_requests_are_the_union_of_old_and_new_without_doubles(old, new):
    event = updated(pointing_at(*old), pointing_at(*new, version=2))
    queue = RecordingQueue()
    h.map_objects(by_target).handle(event, queue)
    assert queue.names == [f"x/{name}" for name in dict.fromkeys(old + new)]


def test_a_map_function_may_request_anything_hashable_and_may_be_a_generator(queue):
    def function(it):
        yield 7
        yield it.name

    h.map_objects(function).handle(created(), queue)
    assert queue.requests == [7, "a"]


def test_a_map_function_that_returns_nothing_requests_nothing():
    assert names(h.map_objects(lambda it: None), created()) == []


@pytest.mark.parametrize("found", [Request("x", "a"), "x/a", b"x"])
def test_a_single_request_instead_of_a_list_is_an_error_and_not_its_letters(found, queue):
    with pytest.raises(TypeError, match="return a list of requests"):
        h.map_objects(lambda it: found).handle(created(), queue)
    assert queue.calls == []


def test_nothing_is_requested_when_the_function_fails_at_one_of_the_two_objects(queue):
    def function(it):
        if it.resource_version == "2":
            raise ValueError("no")
        return [it.name]

    with pytest.raises(ValueError, match="no"):
        h.map_objects(function).handle(updated(obj("a", 1), obj("a", 2)), queue)
    assert queue.calls == []


async def async_function(it):
    return []


@pytest.mark.parametrize("function", [async_function, 3, lambda it, queue: []])
def test_what_is_no_plain_function_of_an_object_is_refused(function):
    with pytest.raises(TypeError, match=r"plain function|give a function of"):
        h.map_objects(function)


def test_an_async_map_function_in_disguise_is_an_error(queue):
    with pytest.raises(TypeError, match="returned coroutine: make it a plain function"):
        h.map_objects(lambda it: async_function(it) or []).handle(created(), queue)


# For the owner.


@EACH
def test_for_owner_requests_the_owner_of_each_event(action):
    event = one_of_each(owned("pod", ref("rs")))[action]
    assert names(h.for_owner(SET), event) == ["x/rs"]


def test_the_owners_before_and_after_an_update_are_requested_each_once():
    moved = updated(owned("pod", ref("one")), owned("pod", ref("two"), version=2))
    kept = updated(owned("pod", ref("one")), owned("pod", ref("one"), version=2))
    assert names(h.for_owner(SET), moved) == ["x/one", "x/two"]
    assert names(h.for_owner(SET), kept) == ["x/one"]


def test_group_and_kind_must_match_and_the_version_need_not():
    event = Event(
        CREATE,
        owned(
            "pod",
            ref("same"),
            ref("other-version", api_version="apps/v1beta2"),
            ref("other-group", api_version="example.com/v1"),
            ref("core", api_version="v1"),
            ref("other-kind", kind="Deployment"),
        ),
    )
    assert names(h.for_owner(SET), event) == ["x/same", "x/other-version"]
    assert names(h.for_owner(CORE), event) == ["x/core"]


def test_the_owner_that_is_not_the_controller_counts_only_when_all_owners_are_asked_for():
    event = Event(CREATE, owned("pod", ref("one", controller=False), ref("two")))
    assert names(h.for_owner(SET), event) == ["x/two"]
    assert names(h.for_owner(SET, only_controller=False), event) == ["x/one", "x/two"]


def test_an_object_without_owners_requests_nothing():
    assert names(h.for_owner(SET), *one_of_each(obj()).values()) == []


def test_a_cluster_scoped_owner_has_no_namespace():
    event = Event(CREATE, owned("pod", ref("fleet", kind="Fleet")))
    assert names(h.for_owner(CLUSTER), event) == ["fleet"]


def test_a_cluster_scoped_object_cannot_have_an_owner_in_a_namespace():
    event = Event(
        CREATE,
        owned(
            "it",
            ref("rs"),
            kind=Kind(group="a.b", version="v1", kind="T", scope=Scope.CLUSTER),
        ),
    )
    assert names(h.for_owner(SET), event) == []


@pytest.mark.parametrize("wrong", ["a/b/c", "apps/", "", "/"])
def test_a_reference_that_cannot_be_understood_does_not_hide_the_others(wrong, caplog):
    event = Event(CREATE, owned("pod", ref("broken", api_version=wrong), ref("rs")))
    assert names(h.for_owner(SET), event) == ["x/rs"]
    assert "is not group/version" in caplog.text


def test_the_owner_s_kind_must_be_a_kind():
    with pytest.raises(TypeError, match="give a Kind"):
        h.for_owner("ReplicaSet")


# By functions.


def test_missing_functions_are_ignored(queue):
    for event in one_of_each(obj()).values():
        assert h.HandlerFunctions().handle(event, queue) is None
    assert queue.calls == []


def test_each_function_gets_its_own_events(queue):
    handler = h.HandlerFunctions(
        create=lambda event, queue: queue.add("create"),
        update=lambda event, queue: queue.add("update"),
        delete=lambda event, queue: queue.add("delete"),
        generic=lambda event, queue: queue.add("generic"),
    )
    for event in one_of_each(obj()).values():
        handler.handle(event, queue)
    assert queue.requests == ["create", "update", "delete", "update", "generic"]


def test_the_update_function_sees_a_resync_as_an_update_with_nothing_changed(queue):
    def update(event, queue):
        assert event.old is event.object
        queue.add(event.action)

    h.HandlerFunctions(update=update).handle(Event(RESYNC, obj()), queue)
    assert queue.requests == [RESYNC]


def test_functions_may_be_async(queue):
    async def create(event, queue):
        await asyncio.sleep(0)
        queue.add(event.key)

    outcome = h.HandlerFunctions(create=create).handle(created(), queue)
    asyncio.run(outcome)
    assert queue.names == ["x/a"]


def test_functions_that_take_something_else_are_refused():
    with pytest.raises(TypeError, match=r"create=.*give a function of \(event, queue\)"):
        h.HandlerFunctions(create=lambda event: None)


# Priorities.

UNCHANGED = {
    "initial": created(initial=True),
    "same version": updated(obj("a", 1), obj("a", 1)),
    "resync": Event(RESYNC, obj("a", 1)),
}
NEWS = {
    "create": created(),
    "update": updated(obj("a", 1), obj("a", 2)),
    "delete": Event(DELETE, obj()),
    "generic": Event(GENERIC, obj()),
    "no old": Event(UPDATE, obj()),
}


class Own:
    def handle(self, event, queue):
        queue.add(event.key)
        queue.add(event.key, priority=7)
        queue.add_rate_limited(event.key)
        queue.add_rate_limited(event.key, priority=8, reason="mine")


def functions():
    def add(event, queue):
        queue.add(event.key)

    return h.HandlerFunctions(create=add, update=add, delete=add, generic=add)


HANDLERS = {
    "object": h.for_object,
    "owner": lambda **options: h.for_owner(THING, **options),
    "map": lambda **options: h.map_objects(lambda it: [it.key], **options),
    "functions": functions,
}


def with_owner(event):
    """The same with objects that own themselves, for all handlers alike."""

    def own(it):
        reference = ref(it.name, kind="Thing", api_version="example.com/v1")
        return owned(it.name, reference, version=int(it.resource_version))

    old = None if event.old is None else own(event.old)
    return Event(event.action, own(event.object), old, event.is_initial)


@pytest.mark.parametrize("make", HANDLERS.values(), ids=HANDLERS)
@pytest.mark.parametrize("event", UNCHANGED.values(), ids=UNCHANGED)
def test_what_brings_nothing_new_has_low_priority(make, event, queue):
    make().handle(with_owner(event), queue)
    assert queue.priorities == [LOW_PRIORITY] == [-100]


@pytest.mark.parametrize("make", HANDLERS.values(), ids=HANDLERS)
@pytest.mark.parametrize("event", NEWS.values(), ids=NEWS)
def test_news_have_the_normal_priority(make, event, queue):
    make().handle(with_owner(event), queue)
    assert queue.priorities == [None]


@pytest.mark.parametrize("name", ["object", "owner", "map"])
def test_low_priority_can_be_left_out(name, queue):
    handler = HANDLERS[name](low_priority_when_unchanged=False)
    handler.handle(with_owner(UNCHANGED["resync"]), queue)
    assert queue.priorities == [None]


def test_another_handler_gets_low_priority_by_wrapping_and_keeps_its_own(queue):
    event = UNCHANGED["resync"]
    h.with_low_priority_when_unchanged(Own()).handle(event, queue)
    assert queue.priorities == [LOW_PRIORITY, 7, LOW_PRIORITY, 8]
    assert queue.reasons == [event, event, event, "mine"]


def test_a_wrapped_handler_s_news_are_left_as_they_are(queue):
    h.with_low_priority_when_unchanged(Own()).handle(created(), queue)
    assert queue.priorities == [None, 7, None, 8]


@pytest.mark.parametrize("wrong", [None, Own, lambda event, queue: None, "for_object"])
def test_what_is_no_handler_is_refused(wrong):
    with pytest.raises(TypeError, match=r"no method handle\(event, queue\)"):
        h.with_low_priority_when_unchanged(wrong)


def test_ours_are_handlers_and_say_what_they_are():
    texts = []
    for make in HANDLERS.values():
        assert isinstance(make(), Handler)
        texts.append(str(make()))
    assert texts[:2] == ["for_object()", "for_owner(things.v1.example.com)"]
    assert texts[2].startswith("map_objects(")
    assert str(h.with_low_priority_when_unchanged(h.for_object())) == "for_object()"
