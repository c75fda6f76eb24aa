"""Clients that change what a client does, on both lanes: a dry run never stores anything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from appsdk_operator.client import (
    AlreadyExists,
    BadRequest,
    Conflict,
    DryRunClient,
    FieldOwnerClient,
    Invalid,
    JsonPatch,
    MergePatch,
    NamespacedClient,
    NotFound,
    StrategicMergePatch,
)
from appsdk_operator.resource import MutableObject, kinds
from tests.conformance.conftest import CONFIG_MAP, WIDGET, World

NAMESPACE = kinds.core.v1.Namespace


def changed(world: World, **metadata: Any) -> MutableObject:
    draft = world.get(WIDGET, "there").mutable_copy()
    draft["spec"] = {"size": 7}
    draft["status"] = {"phase": "Dry"}
    draft.metadata.update(metadata)
    return draft


def space(world: World) -> dict[str, str]:
    return {"namespace": world.namespace}


WRITES: dict[str, Callable[[Any, World], Any]] = {
    "create": lambda c, w: c.create(w.draft(WIDGET, "new")),
    "create built-in": lambda c, w: c.create(w.draft(CONFIG_MAP, "new")),
    "create cluster-scoped": lambda c, w: c.create(
        MutableObject.new(NAMESPACE, f"{w.namespace}-new")
    ),
    "update": lambda c, w: c.update(changed(w)),
    "patch merge": lambda c, w: c.patch(
        WIDGET, "there", MergePatch({"spec": {"size": 7}}), **space(w)
    ),
    "patch JSON": lambda c, w: c.patch(
        WIDGET,
        "there",
        JsonPatch([{"op": "replace", "path": "/spec/size", "value": 7}]),
        **space(w),
    ),
    "patch strategic": lambda c, w: c.patch(
        CONFIG_MAP, "there", StrategicMergePatch({"data": {"size": "7"}}), **space(w)
    ),
    "delete": lambda c, w: c.delete(WIDGET, "there", **space(w)),
    "delete built-in": lambda c, w: c.delete(CONFIG_MAP, "there", **space(w)),
    "delete collection": lambda c, w: c.delete_collection(WIDGET, **space(w)),
    "update status": lambda c, w: c.status.update(changed(w)),
    "patch status": lambda c, w: c.status.patch(
        WIDGET, "there", MergePatch({"status": {"phase": "Dry"}}), **space(w)
    ),
}
REFUSED: dict[str, tuple[type[Exception], Callable[[Any, World], Any]]] = {
    "create of what is there": (AlreadyExists, lambda c, w: c.create(w.draft(WIDGET, "there"))),
    "create of nonsense": (Invalid, lambda c, w: c.create(w.draft(WIDGET, "new", size=2 * 10**9))),
    "update of an old version": (
        Conflict,
        lambda c, w: c.update(changed(w, resourceVersion="1")),
    ),
    "update of what is missing": (
        NotFound,
        lambda c, w: c.update(changed(w, name="missing", uid="")),
    ),
    "patch of what is missing": (
        NotFound,
        lambda c, w: c.patch(WIDGET, "missing", MergePatch({"spec": {}}), **space(w)),
    ),
    "delete of what is missing": (NotFound, lambda c, w: c.delete(WIDGET, "missing", **space(w))),
    "status of an old version": (
        Conflict,
        lambda c, w: c.status.update(changed(w, resourceVersion="1")),
    ),
}


def stored(world: World) -> Any:
    names = [o.name for o in world.client.list(NAMESPACE) if world.namespace in o.name]
    return names, [o.raw for kind in (WIDGET, CONFIG_MAP) for o in world.objects(kind)]


@pytest.fixture
def peopled(world: World) -> World:
    world.create(WIDGET, "there")
    world.create(CONFIG_MAP, "there")
    return world


@pytest.mark.parametrize("write", WRITES)
def test_a_dry_run_answers_and_stores_nothing(peopled: World, write: str) -> None:
    before = stored(peopled)
    WRITES[write](DryRunClient(peopled.client), peopled)
    assert stored(peopled) == before
    # The same for real does store something, or the test would say nothing.
    WRITES[write](peopled.client, peopled)
    assert stored(peopled) != before


@pytest.mark.parametrize("write", REFUSED)
def test_a_dry_run_refuses_what_the_real_one_refuses(peopled: World, write: str) -> None:
    error, call = REFUSED[write]
    before = stored(peopled)
    for client in (DryRunClient(peopled.client), peopled.client):
        with pytest.raises((error, BadRequest) if error is Conflict else error):
            call(client, peopled)
    assert stored(peopled) == before


def test_a_field_owner_is_written_down_unless_the_call_has_its_own(world: World) -> None:
    client = FieldOwnerClient(world.client, "the-owner")
    made = client.create(world.draft(CONFIG_MAP, "a"))
    assert {f["manager"] for f in made.metadata.get("managedFields", ())} <= {"the-owner"}
    patch = MergePatch({"data": {"color": "blue"}})
    patched = client.patch(CONFIG_MAP, "a", patch, field_manager="call", **space(world))
    owners = {f["manager"] for f in patched.metadata.get("managedFields", ())}
    assert owners <= {"the-owner", "call"}
    if world.server.name == "real":
        assert owners == {"the-owner", "call"}


def test_a_namespaced_client_works_in_its_namespace_only(world: World) -> None:
    client = NamespacedClient(world.client, world.namespace)
    draft = world.draft(CONFIG_MAP, "a")
    del draft.metadata["namespace"]
    assert client.create(draft).namespace == world.namespace
    assert client.get(CONFIG_MAP, "a").name == "a"
    assert client.get(NAMESPACE, world.namespace).name == world.namespace
    with pytest.raises(ValueError, match="does not match the namespace"):
        client.get(CONFIG_MAP, "a", namespace="default")
