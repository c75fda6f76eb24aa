"""The helpers that write, with copies from a cache whose transform dropped some of their parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Cache, CachedClient, drop_managed_fields
from appsdk_operator.client import ClientLike
from appsdk_operator.controllers import (
    Condition,
    create_or_patch,
    create_or_update,
    finalizing,
    patch_conditions,
    put_finalizer,
    take_finalizer_off,
)
from appsdk_operator.resource import MutableObject, Object, kinds
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.testing import MemoryServer, running
from tests.hypothesis_profiles import scaled

POD = kinds.core.v1.Pod
OURS, THEIRS = "mine.example.com/x", "other.example.com/y"
PARTS: list[tuple[str, ...]] = [
    ("metadata", "finalizers"),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("status",),
    ("status", "conditions"),
    ("status", "message"),
    ("spec",),
    ("spec", "tolerations"),
]
READY = Condition("Ready", "True", "Up")


def changed(draft: MutableObject) -> None:
    draft.labels["x"] = "y"
    draft.annotations.pop("theirs", None)


def done(obj: Object) -> None:
    """Nothing is to be done."""


Helper = Callable[[ClientLike, Object], Any]
HELPERS: dict[str, Helper] = {
    "set conditions": lambda client, obj: patch_conditions(client, obj, READY, clock=ManualClock()),
    "remove conditions": lambda client, obj: patch_conditions(client, obj, remove=["Theirs"]),
    "put a finalizer": lambda client, obj: put_finalizer(client, obj, OURS),
    "take a finalizer off": lambda client, obj: take_finalizer_off(client, obj, OURS),
    "finalizing": lambda client, obj: finalizing(client, obj, OURS, apply=done, cleanup=done),
    "create_or_update": lambda client, obj: create_or_update(
        client, MutableObject.new(POD, obj.name, namespace=obj.namespace), changed
    ),
    "create_or_patch": lambda client, obj: create_or_patch(
        client, MutableObject.new(POD, obj.name, namespace=obj.namespace), changed
    ),
}


def without(parts: frozenset[tuple[str, ...]]) -> Callable[[Object], MutableObject]:
    def transform(obj: Object) -> MutableObject:
        draft = obj.mutable_copy()
        for path in parts:
            inner: Any = draft.data
            for name in path[:-1]:
                inner = inner.get(name) or {}
            inner.pop(path[-1], None)
        return draft

    return transform


def after(helper: Helper, ours: bool, is_deleting: bool, transform: Any) -> dict[str, Any] | None:
    """What the server has after the helper, without what differs between two servers."""
    with MemoryServer() as server, server.client() as live:
        draft = MutableObject.new(
            POD,
            "web",
            namespace="default",
            spec={
                "containers": [{"name": "web", "image": "x"}],
                "tolerations": [{"key": "a", "operator": "Exists"}],
            },
            metadata={
                "labels": {"a": "b"},
                "annotations": {"theirs": "1", "others": "2"},
                "finalizers": [THEIRS, OURS] if ours else [THEIRS],
            },
        )
        created = live.create(draft).mutable_copy()
        created["status"] = {
            "phase": "Running",
            "message": "precious",
            "conditions": [
                {"type": "Theirs", "status": "True", "lastTransitionTime": "2001-01-01T00:00:00Z"}
            ],
        }
        live.status.update(created)
        if is_deleting:
            live.delete(POD, "web", namespace="default", grace_period=0)
        cache = Cache(live, transform=transform, metrics=Metrics())
        cache.add(POD)
        with running(cache):
            client = CachedClient(live, cache)
            helper(client, client.get(POD, "web", namespace="default"))
        found = list(live.list(POD, namespace="default"))
        if not found:
            return None
        whole = found[0].to_dict()
        for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
            whole["metadata"].pop(name, None)
        whole["metadata"].pop("deletionTimestamp", None)
        return whole


@settings(max_examples=scaled(40), deadline=None)
@given(
    st.sampled_from(sorted(HELPERS)),
    st.frozensets(st.sampled_from(PARTS), min_size=1),
    st.booleans(),
    st.booleans(),
)
def test_a_helper_writes_the_same_from_a_copy_that_lacks_parts(
    name: str, parts: frozenset[tuple[str, ...]], ours: bool, is_deleting: bool
) -> None:
    helper = HELPERS[name]
    expected = after(helper, ours, is_deleting, None)
    assert after(helper, ours, is_deleting, without(parts)) == expected


def test_a_copy_that_lacks_managed_fields_alone_is_whole() -> None:
    with MemoryServer() as server, server.client() as live:
        spec = {"containers": [{"name": "web", "image": "x"}]}
        live.create(MutableObject.new(POD, "web", namespace="default", spec=spec))
        cache = Cache(live, transform=drop_managed_fields, metrics=Metrics())
        cache.add(POD)
        with running(cache):
            client = CachedClient(live, cache)
            obj = client.get(POD, "web", namespace="default")
            assert not obj.metadata.get("managedFields")
            assert not obj.is_transformed
