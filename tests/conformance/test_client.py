"""Every verb of the client, and every error that a server answers with, on both lanes."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.client import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Client,
    Conflict,
    Expired,
    Invalid,
    JsonPatch,
    MergePatch,
    NotFound,
    Patch,
    StrategicMergePatch,
    Unauthorized,
    UnsupportedMediaType,
)
from appsdk_operator.resource import Kind, MutableObject, Object, WatchEventType, kinds
from appsdk_operator.runtime import Metrics
from tests.conformance.conftest import CONFIG_MAP, WIDGET, Embedded, Real, World

BOTH_KINDS = pytest.mark.parametrize("kind", [WIDGET, CONFIG_MAP], ids=["widget", "configmap"])


@BOTH_KINDS
def test_an_object_is_created_read_changed_and_deleted(world: World, kind: Kind) -> None:
    made = world.create(kind, "one", labels={"app": "web"})
    assert made.uid
    assert made.generation == (1 if kind == WIDGET else 0)
    assert world.get(kind, "one") == made
    draft = made.mutable_copy()
    draft.annotations["note"] = "hello"
    changed = world.client.update(draft)
    assert int(changed.resource_version) > int(made.resource_version)
    assert changed.annotations == {"note": "hello"}
    assert changed.generation == made.generation
    deleted = world.client.delete(kind, "one", namespace=world.namespace, uid=made.uid)
    assert deleted is None or deleted.uid == made.uid
    assert world.find(kind, "one") is None


@pytest.mark.parametrize(
    "patch",
    [
        MergePatch({"data": {"b": "!!!also-secret"}}),
        MergePatch({"data": {"b": 123456789}}),
        StrategicMergePatch({"data": {"b": "!!!also-secret"}}),
        JsonPatch([{"op": "add", "path": "/data/b", "value": "!!!also-secret"}]),
        MergePatch({"type": "also-secret"}),
    ],
    ids=["merge", "number", "strategic", "json", "type"],
)
def test_no_refused_patch_of_a_secret_shows_it(world: World, patch: Patch) -> None:
    secret = kinds.core.v1.Secret
    data = {"a": "aHVudGVyMg=="}
    world.client.create(MutableObject.new(secret, "s", namespace=world.namespace, data=data))
    with pytest.raises(ApiError) as caught:
        world.client.patch(secret, "s", patch, namespace=world.namespace)
    error = caught.value
    shown = "".join(traceback.format_exception(error)) + repr(vars(error))
    for value in ("aHVudGVyMg", "also-secret", "123456789"):
        assert value not in shown


@BOTH_KINDS
def test_stale_and_doubled_writes_are_told_apart(world: World, kind: Kind) -> None:
    made = world.create(kind, "one")
    with pytest.raises(AlreadyExists):
        world.client.create(world.draft(kind, "one"))
    world.resize(kind, "one", 2)
    draft = made.mutable_copy()
    draft.annotations["note"] = "stale"
    with pytest.raises(Conflict):
        world.client.update(draft)
    with pytest.raises(Conflict):
        world.client.delete(kind, "one", namespace=world.namespace, uid="another")
    with pytest.raises(Conflict):
        world.client.delete(
            kind, "one", namespace=world.namespace, resource_version=made.resource_version
        )
    with pytest.raises(NotFound):
        world.get(kind, "two")
    with pytest.raises(NotFound):
        world.client.delete(kind, "two", namespace=world.namespace)


def test_a_change_of_the_spec_raises_the_generation_and_one_of_the_status_does_not(
    world: World,
) -> None:
    made = world.create(WIDGET, "one")
    resized = world.resize(WIDGET, "one", 2)
    draft = resized.mutable_copy()
    draft["status"] = {"phase": "Ready"}
    draft.spec["size"] = 99
    reported = world.client.status.update(draft)
    assert (made.generation, resized.generation, reported.generation) == (1, 2, 2)
    assert reported.status["phase"] == "Ready"
    assert reported.spec["size"] == 2


def test_the_kinds_of_patches_do_what_their_rules_say(world: World) -> None:
    world.create(CONFIG_MAP, "one", labels={"a": "1"})
    world.create(WIDGET, "one")

    def patched(kind: Kind, patch: Any) -> Object:
        return world.client.patch(kind, "one", patch, namespace=world.namespace)

    merged = patched(CONFIG_MAP, MergePatch({"metadata": {"labels": {"a": None, "b": "2"}}}))
    assert merged.labels == {"b": "2"}
    strategic = patched(CONFIG_MAP, StrategicMergePatch({"metadata": {"labels": {"c": "3"}}}))
    assert strategic.labels == {"b": "2", "c": "3"}
    test = {"op": "test", "path": "/spec/size", "value": 7}
    with pytest.raises((Invalid, Conflict)):
        patched(WIDGET, JsonPatch([test]))
    with pytest.raises(UnsupportedMediaType):
        patched(WIDGET, StrategicMergePatch({"spec": {"size": 3}}))
    assert world.get(WIDGET, "one").spec["size"] == 1


def test_applied_fields_belong_to_their_manager(world: World) -> None:
    draft = world.draft(WIDGET, "one", 1)
    draft.spec["color"] = "blue"
    world.client.apply(draft, field_manager="first")
    draft = world.draft(WIDGET, "one", 2)
    with pytest.raises(Conflict):
        world.client.apply(draft, field_manager="second")
    forced = world.client.apply(draft, field_manager="second", force=True)
    assert forced.spec["size"] == 2
    del draft.spec["size"]
    draft.labels["app"] = "web"
    world.client.apply(draft, field_manager="second")
    assert world.get(WIDGET, "one").spec == {"color": "blue"}


def test_a_dry_run_changes_nothing(world: World) -> None:
    made = world.client.create(world.draft(WIDGET, "one"), dry_run=True)
    assert made.uid
    assert world.find(WIDGET, "one") is None


@BOTH_KINDS
def test_an_object_with_a_finalizer_waits_for_it(world: World, kind: Kind) -> None:
    world.create(kind, "one", finalizers=["example.com/hold"])
    world.delete(kind, "one")
    held = world.get(kind, "one")
    assert held.is_deleting
    assert held.finalizers == ("example.com/hold",)
    draft = held.mutable_copy()
    draft.finalizers.append("example.com/more")
    with pytest.raises(ApiError) as caught:
        world.client.update(draft)
    assert caught.value.status in (403, 422)
    released = held.mutable_copy()
    released.finalizers.clear()
    world.client.update(released)
    assert world.find(kind, "one") is None


def test_a_list_comes_in_pages_of_one_state(world: World) -> None:
    for number in range(7):
        world.create(CONFIG_MAP, f"cm-{number}", labels={"odd": str(number % 2)})
    page = world.client.list_page(
        CONFIG_MAP, namespace=world.namespace, limit=3, label_selector={"odd": "0"}
    )
    assert len(page.items) == 3
    world.create(CONFIG_MAP, "cm-8", labels={"odd": "0"})
    rest = world.client.list_page(
        CONFIG_MAP,
        namespace=world.namespace,
        limit=3,
        label_selector={"odd": "0"},
        continue_token=page.continue_token,
    )
    assert [o.name for o in (*page.items, *rest.items)] == [f"cm-{n}" for n in (0, 2, 4, 6)]
    assert rest.resource_version == page.resource_version
    named = world.client.list(
        CONFIG_MAP, namespace=world.namespace, field_selector={"metadata.name": "cm-3"}
    )
    assert [o.name for o in named] == ["cm-3"]
    with pytest.raises(BadRequest):
        world.client.list_page(CONFIG_MAP, continue_token="nonsense")


@BOTH_KINDS
def test_a_watch_tells_every_change_in_order(world: World, kind: Kind) -> None:
    version = world.client.list_page(kind, namespace=world.namespace).resource_version
    with world.client.watch(
        kind, namespace=world.namespace, resource_version=version, timeout=20, bookmarks=False
    ) as watch:
        events = (e for e in watch.events() if e.object and e.object.name == "one")
        made = world.create(kind, "one")
        changed = world.resize(kind, "one", 2)
        world.delete(kind, "one")
        got = [next(events) for _ in range(3)]
    assert [event.type for event in got] == [
        WatchEventType.ADDED,
        WatchEventType.MODIFIED,
        WatchEventType.DELETED,
    ]
    versions = [int(event.object.resource_version) for event in got if event.object]
    assert versions[:2] == [int(made.resource_version), int(changed.resource_version)]
    assert versions == sorted(set(versions))


def test_delete_collection_takes_what_the_selector_chooses(world: World) -> None:
    for number in range(4):
        world.create(WIDGET, f"w-{number}", labels={"odd": str(number % 2)})
    world.client.delete_collection(WIDGET, namespace=world.namespace, label_selector={"odd": "1"})
    assert list(world.versions(WIDGET)) == ["w-0", "w-2"]


def test_a_wrong_token_is_unauthorized(world: World) -> None:
    client = world.new_client(token="wrong", ca_data=world.server.config().ca_data)
    with pytest.raises(Unauthorized):
        client.get(CONFIG_MAP, "one", namespace="default")


def test_a_watch_and_a_list_at_a_version_of_the_far_past_are_expired(world: World) -> None:
    world.create(CONFIG_MAP, "one")
    page = world.client.list_page(CONFIG_MAP, namespace="kube-system", limit=1)
    for number in range(3):
        world.create(CONFIG_MAP, f"more-{number}")
    world.server.forget_history()
    with pytest.raises(Expired):
        next(
            world.client.watch(
                CONFIG_MAP, resource_version=page.resource_version, timeout=5
            ).events()
        )


# -- what both answer ----------------------------------------------------------------------------


def _invalid_widget(client: Client) -> Any:
    return client.create(_widget("bad", size="large"))


def _widget(name: str, **spec: Any) -> MutableObject:
    return MutableObject.new(WIDGET, name, namespace="default", spec=spec)


def _config_map(name: str, **fields: Any) -> MutableObject:
    return MutableObject.new(CONFIG_MAP, name, namespace="default", **fields)


def _with(draft: MutableObject, **metadata: Any) -> MutableObject:
    draft.metadata.update(metadata)
    return draft


def _json_patch(kind: Kind, *operations: dict[str, Any]) -> Callable[[Client], Any]:
    return lambda client: client.patch(kind, "present", JsonPatch(operations), namespace="default")


def _test_of_a_text(client: Client) -> None:
    text = "<lambda> & \u2028 \u2029 é\n\t\x1f\x7f"
    client.patch(CONFIG_MAP, "present", MergePatch({"data": {"text": text}}), namespace="default")
    test = {"op": "test", "path": "/data/text", "value": text}
    patch = JsonPatch([test, {"op": "replace", "path": "/data/text", "value": "-"}])
    client.patch(CONFIG_MAP, "present", patch, namespace="default")


REQUESTS: dict[str, Callable[[Client], Any]] = {
    "an absent object": lambda c: c.get(CONFIG_MAP, "absent", namespace="default"),
    "an absent custom object": lambda c: c.get(WIDGET, "absent", namespace="default"),
    "an absent kind": lambda c: c.list_page(
        Kind(group="nowhere.example.com", version="v1", kind="Gadget")
    ),
    "an absent version": lambda c: c.list_page(
        Kind(group="example.com", version="v9", kind="Widget")
    ),
    "an absent namespace": lambda c: c.create(
        MutableObject.new(CONFIG_MAP, "one", namespace="nowhere")
    ),
    "a name that is taken": lambda c: c.create(_config_map("present")),
    "a custom name that is taken": lambda c: c.create(_widget("present")),
    "a bad name": lambda c: c.create(_config_map("Bad_Name")),
    "a bad custom name": lambda c: c.create(_widget("Bad_Name")),
    "no name": lambda c: c.create(_config_map("")),
    "a generated name": lambda c: c.create(_with(_config_map(""), generateName="made-")),
    "a bad label": lambda c: c.create(_with(_config_map("one"), labels={"a b": "c"})),
    "a bad finalizer": lambda c: c.create(_with(_config_map("one"), finalizers=["bare"])),
    "a custom bare finalizer": lambda c: c.create(
        _with(_widget("bare"), finalizers=["example.com/operator.v1.Widget"])
    ),
    "a version on create": lambda c: c.create(_with(_config_map("one"), resourceVersion="5")),
    "a wrong type": _invalid_widget,
    "a number out of range": lambda c: c.create(_widget("big", size=2_000_000_000)),
    "an update without version": lambda c: c.update(_widget("present", size=3)),
    "an update of what is absent": lambda c: c.update(
        _with(_widget("absent"), resourceVersion="1")
    ),
    "an update with a stale version": lambda c: c.update(
        _with(_widget("present", size=4), resourceVersion="1")
    ),
    "a failed test": _json_patch(WIDGET, {"op": "test", "path": "/spec/size", "value": 12345}),
    "a failed built-in test": _json_patch(
        CONFIG_MAP, {"op": "test", "path": "/metadata/name", "value": "other"}
    ),
    "a patch of a path that is absent": _json_patch(
        WIDGET, {"op": "remove", "path": "/spec/absent"}
    ),
    "a test of a text": _test_of_a_text,
    "a patch that makes it invalid": _json_patch(
        WIDGET, {"op": "add", "path": "/spec/size", "value": "large"}
    ),
    "a patch of the name": lambda c: c.patch(
        WIDGET, "present", MergePatch({"metadata": {"name": "other"}}), namespace="default"
    ),
    "a patch of what is absent": lambda c: c.patch(
        WIDGET, "absent", MergePatch({"spec": {}}), namespace="default"
    ),
    "a delete with another uid": lambda c: c.delete(
        WIDGET, "present", namespace="default", uid="another"
    ),
    "a delete of what is absent": lambda c: c.delete(WIDGET, "absent", namespace="default"),
    "a bad label selector": lambda c: c.request(
        "GET", "/api/v1/configmaps", query={"labelSelector": "a in"}
    ),
    "a bad field selector": lambda c: c.list_page(CONFIG_MAP, field_selector="data.size=1"),
    "a bad limit": lambda c: c.request("GET", "/api/v1/configmaps", query={"limit": "many"}),
    "a bad continue token": lambda c: c.list_page(CONFIG_MAP, continue_token="nonsense"),
    "a bad version": lambda c: c.list_page(CONFIG_MAP, resource_version="yesterday"),
    "a body that is no JSON": lambda c: c.request(
        "POST", "/api/v1/namespaces/default/configmaps", body=b"{"
    ),
    "a body of another kind": lambda c: c.request(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        body=b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"one"}}',
    ),
    "a body for another namespace": lambda c: c.request(
        "POST",
        "/api/v1/namespaces/default/configmaps",
        body=b'{"apiVersion":"v1","kind":"ConfigMap","metadata":'
        b'{"name":"one","namespace":"kube-system"}}',
    ),
    "a verb that is not there": lambda c: c.request("PUT", "/api/v1/namespaces/default/configmaps"),
    "a path that is not there": lambda c: c.request("GET", "/apis/example.com/v1/gadgets"),
    "an absent subresource": lambda c: c.subresource("scale").get(
        WIDGET, "present", namespace="default"
    ),
    "a status of a kind without": lambda c: c.status.get(
        CONFIG_MAP, "present", namespace="default"
    ),
    "a namespace that may not go": lambda c: c.delete(kinds.core.v1.Namespace, "default"),
}


@pytest.mark.real
def test_both_lanes_answer_alike(embedded: Embedded, real: Real) -> None:
    answers: list[dict[str, Any]] = []
    for lane in (embedded, real):
        with Client(lane.config(), metrics=Metrics()) as client:
            for draft in (_config_map("present"), _widget("present", size=1)):
                client.create(draft)
            answers.append({name: _answer(client, ask) for name, ask in REQUESTS.items()})
            for kind in (CONFIG_MAP, WIDGET):
                client.delete_collection(kind, namespace="default")
    ours, theirs = answers
    differences = {
        name: (ours[name], theirs[name]) for name in REQUESTS if ours[name] != theirs[name]
    }
    assert not differences


def _answer(client: Client, ask: Callable[[Client], Any]) -> Any:
    """What of an answer both lanes must agree on."""
    try:
        ask(client)
    except ApiError as error:
        # Older servers have one word for values that are wrong and for those of a wrong type.
        causes = [
            (c.reason.replace("ValueTypeInvalid", "ValueInvalid"), c.field) for c in error.causes
        ]
        return error.status, error.reason, sorted(causes)
    return "done"
