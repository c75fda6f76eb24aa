"""What a bare API server leaves lying: dependents of owners and the content of namespaces."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appsdk_operator.resource import kinds
from tests.hypothesis_profiles import scaled


def owned_by(owner: Any, kind: str = "ConfigMap", **more: Any) -> list[dict[str, Any]]:
    reference = {
        "apiVersion": "v1",
        "kind": kind,
        "name": owner.name,
        "uid": owner["metadata"]["uid"],
    }
    return [{**reference, **more}]


def until_gone(api: Any, *names: str) -> list[str]:
    """Wait, by watching, until config maps are deleted; the names that are left."""
    stream = api.watch(api.maps)
    left = set(names)
    while left & set(api.names(api.maps)):
        kind, obj = stream.event()
        if kind == "DELETED":
            left.discard(obj["metadata"]["name"])
    found: list[str] = api.names(api.maps)
    return found


def test_dependents_go_with_their_owner(api: Any) -> None:
    owner = api.map("owner")
    child = api.map("child", ownerReferences=owned_by(owner))
    api.map("grandchild", ownerReferences=owned_by(child))
    api.map("other")
    api.delete(f"{api.maps}/owner")
    assert until_gone(api, "child", "grandchild") == ["other"]


def test_a_dependent_of_two_goes_with_the_last(api: Any) -> None:
    one, two = api.map("one"), api.map("two")
    api.map("child", ownerReferences=owned_by(one) + owned_by(two))
    stream = api.watch(api.maps, "fieldSelector=metadata.name%3Dchild")
    assert stream.event()[0] == "ADDED"
    api.delete(f"{api.maps}/one")
    kind, child = stream.event()
    assert kind == "MODIFIED"
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["two"]
    api.delete(f"{api.maps}/two")
    assert stream.event()[0] == "DELETED"


def test_a_dependent_whose_owner_never_was_is_collected(api: Any) -> None:
    owner = api.map("owner")
    stranger = [{**owned_by(owner)[0], "uid": "somebody-else"}]
    api.map("child", ownerReferences=stranger)
    assert until_gone(api, "child") == ["owner"]


def test_orphans_stay_and_forget_their_owner(api: Any) -> None:
    owner = api.map("owner")
    api.map("child", ownerReferences=owned_by(owner))
    assert api.delete(f"{api.maps}/owner", {"propagationPolicy": "Orphan"}).status == 200
    assert until_gone(api, "owner") == ["child"]
    assert "ownerReferences" not in api.get(f"{api.maps}/child")["metadata"]


def test_in_the_foreground_the_owner_goes_last(api: Any, server: Any) -> None:
    owner = api.map("owner")
    reference = owned_by(owner, blockOwnerDeletion=True)
    api.map("child", ownerReferences=reference, finalizers=["example.com/x"])
    marked = api.delete(f"{api.maps}/owner", {"propagationPolicy": "Foreground"})
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]
    stream = api.watch(api.maps, "fieldSelector=metadata.name%3Dchild")
    while "deletionTimestamp" not in stream.event()[1]["metadata"]:
        pass
    assert api.get(f"{api.maps}/owner").status == 200
    api.patch(f"{api.maps}/child", {"metadata": {"finalizers": None}})
    assert until_gone(api, "owner", "child") == []
    gone = [
        obj["metadata"]["name"]
        for _, kind, obj in server.history(kinds.core.v1.ConfigMap)
        if kind == "DELETED"
    ]
    assert gone == ["child", "owner"]


JOB = "/apis/batch/v1/namespaces/default/jobs"
CONTROLLER = "/api/v1/namespaces/default/replicationcontrollers"


@pytest.mark.parametrize("path", [JOB, CONTROLLER])
@pytest.mark.parametrize(
    ("body", "finalizers"),
    [
        (None, ["orphan"]),
        ({"propagationPolicy": "Foreground"}, ["foregroundDeletion"]),
        ({"propagationPolicy": "Background"}, None),
        ({"orphanDependents": False}, None),
    ],
)
def test_jobs_and_replication_controllers_orphan_their_pods_unless_told_otherwise(
    api: Any, path: str, body: Any, finalizers: list[str] | None
) -> None:
    pod: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    spec: dict[str, Any] = {"template": {"metadata": {"labels": {"a": "b"}}, "spec": pod}}
    if path == JOB:
        pod["restartPolicy"] = "Never"
    else:
        spec["selector"] = {"a": "b"}
    assert api.create(path, {"metadata": {"name": "o"}, "spec": spec}).status == 201
    gone = api.delete(f"{path}/o", body)
    assert gone.body.get("metadata", {}).get("finalizers") == finalizers


@pytest.mark.parametrize("group", ["/api/v1", "/apis/events.k8s.io/v1"])
def test_an_event_has_no_dependents_to_wait_for(api: Any, group: str) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"namespace": "default"}}
    assert api.create("/api/v1/namespaces/default/events", event).status == 201
    path = f"{group}/namespaces/default/events/e"
    gone = api.delete(path, {"propagationPolicy": "Foreground"})
    assert (gone["kind"], gone["status"]) == ("Status", "Success")


def test_who_deletes_without_a_policy_leaves_that_of_the_object(api: Any) -> None:
    api.map("a", finalizers=["foregroundDeletion"])
    marked = api.delete(f"{api.maps}/a")
    assert marked["metadata"]["finalizers"] == ["foregroundDeletion"]


def test_owners_of_custom_kinds_count_too(api: Any) -> None:
    owner = api.widget("w")
    reference = {**owned_by(owner, "Widget")[0], "apiVersion": "example.com/v1"}
    api.map("child", ownerReferences=[reference])
    unknown = {**reference, "apiVersion": "unknown.example.com/v1"}
    api.map("kept", ownerReferences=[unknown])
    api.delete(f"{api.widgets}/w")
    assert until_gone(api, "child") == ["kept"]


def test_a_namespace_takes_its_content_along_and_waits_for_finalizers(api: Any) -> None:
    spaces = "/api/v1/namespaces"
    api.create(spaces, {"metadata": {"name": "n"}})
    maps = f"{spaces}/n/configmaps"
    api.create(maps, {"metadata": {"name": "a"}})
    api.create(maps, {"metadata": {"name": "held", "finalizers": ["example.com/x"]}})
    pod = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    api.create(f"{spaces}/n/pods", {"metadata": {"name": "p"}, "spec": pod})
    stream = api.watch(spaces, "fieldSelector=metadata.name%3Dn")
    assert stream.event()[0] == "ADDED"
    ended = api.delete(f"{spaces}/n")
    assert ended["status"]["phase"] == "Terminating"
    refused = api.create(maps, {"metadata": {"name": "late"}})
    assert (refused.status, refused["reason"]) == (403, "Forbidden")
    assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    assert stream.event()[0] == "MODIFIED"
    assert api.names(maps) == ["held"]
    api.patch(f"{maps}/held", {"metadata": {"finalizers": None}})
    assert stream.event()[0] == "DELETED"
    assert api.get(f"{spaces}/n").status == 404
    assert api.create(spaces, {"metadata": {"name": "n"}}).status == 201


def test_a_namespace_waits_for_foreign_finalizers_in_its_spec(api: Any) -> None:
    path, foreign = "/api/v1/namespaces/n", ["example.com/x"]
    api.create("/api/v1/namespaces", {"metadata": {"name": "n"}, "spec": {"finalizers": foreign}})
    stream = api.watch("/api/v1/namespaces", "fieldSelector=metadata.name%3Dn")
    assert stream.event()[1]["spec"] == {"finalizers": [*foreign, "kubernetes"]}
    api.delete(path)
    assert [stream.event()[0] for _ in range(2)] == ["MODIFIED", "MODIFIED"]
    emptied = api.get(path)
    assert emptied["spec"] == {"finalizers": foreign}
    released = api.update(f"{path}/finalize", {**emptied.body, "spec": {"finalizers": []}})
    assert released.status == 200
    assert stream.event()[0] == "DELETED"


def test_a_dependent_that_is_too_large_to_be_marked_is_deleted_once_it_is_smaller(
    api: Any,
) -> None:
    owner, path = api.map("owner"), f"{api.widgets}/w"
    api.widget("w")
    metadata = {"finalizers": ["example.com/x"], "ownerReferences": owned_by(owner)}

    def grow(size: int) -> bool:
        spec = {"size": 1, "free": {"a": "x" * size}}
        return bool(api.patch(path, {"metadata": metadata, "spec": spec}).status == 200)

    fits, fits_not = 1, 3 * 1024 * 1024 // 2
    while fits_not - fits > 1:
        middle = (fits + fits_not) // 2
        fits, fits_not = (middle, fits_not) if grow(middle) else (fits, middle)
    assert grow(fits)
    refused = api.delete(path)
    assert (refused.status, refused["message"]) == (500, "etcdserver: request is too large")
    api.delete(f"{api.maps}/owner")
    api.map("other", ownerReferences=[{**owned_by(owner)[0], "uid": "nobody"}])
    assert until_gone(api, "owner", "other") == []
    stream = api.watch(api.widgets)
    assert "deletionTimestamp" not in stream.event()[1]["metadata"]
    assert grow(1)
    while "deletionTimestamp" not in stream.event()[1]["metadata"]:
        pass


def test_the_namespaces_of_every_cluster_are_there_and_stay(api: Any) -> None:
    assert api.names("/api/v1/namespaces") == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    refused = api.delete("/api/v1/namespaces/default")
    assert refused.status == 403
    assert refused["message"].endswith("this namespace may not be deleted")


def test_a_foreground_deletion_ends_when_nothing_blocks_it_any_more(api: Any) -> None:
    owners = {name: api.map(name) for name in ("shared", "other", "released", "unblocked")}
    both = owned_by(owners["shared"], blockOwnerDeletion=True) + owned_by(owners["other"])
    api.map("a", ownerReferences=both)
    for name, owner in (("b", "released"), ("c", "unblocked")):
        reference = owned_by(owners[owner], blockOwnerDeletion=True)
        api.map(name, ownerReferences=reference, finalizers=["example.com/x"])
    for owner in ("shared", "released", "unblocked"):
        api.delete(f"{api.maps}/{owner}", {"propagationPolicy": "Foreground"})
    api.patch(f"{api.maps}/b", {"metadata": {"ownerReferences": None}})
    free = owned_by(owners["unblocked"], blockOwnerDeletion=False)
    api.patch(f"{api.maps}/c", {"metadata": {"ownerReferences": free}})
    assert until_gone(api, "shared", "released", "unblocked") == ["a", "b", "c", "other"]


@pytest.mark.parametrize("length", [2, 3, 5])
def test_a_cycle_of_owners_is_deleted_in_the_foreground(api: Any, length: int) -> None:
    names = [f"n{index}" for index in range(length)]
    made = [api.map(name) for name in names]
    for index, name in enumerate(names):
        reference = owned_by(made[index - 1], blockOwnerDeletion=True)
        api.patch(f"{api.maps}/{name}", {"metadata": {"ownerReferences": reference}})
    api.delete(f"{api.maps}/n0", {"propagationPolicy": "Foreground"})
    assert until_gone(api, *names) == []


def test_an_object_of_the_cluster_with_an_owner_in_a_namespace_stays(api: Any) -> None:
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    metadata = {"name": "mine", "ownerReferences": owned_by(api.map("owner"))}
    assert api.create(roles, {"metadata": metadata, "rules": []}).status == 201
    # What is queued later is deleted, so the role was looked at.
    api.map("child", ownerReferences=[{**metadata["ownerReferences"][0], "uid": "nobody"}])
    assert until_gone(api, "child") == ["owner"]
    assert api.get(f"{roles}/mine").status == 200


def test_what_the_objects_of_a_definition_own_goes_with_them(api: Any) -> None:
    reference = {**owned_by(api.widget("w"), "Widget")[0], "apiVersion": "example.com/v1"}
    api.map("child", ownerReferences=[reference])
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.delete(f"{definitions}/widgets.example.com")
    assert until_gone(api, "child") == []


def test_content_that_cannot_be_deleted_now_is_deleted_later(api: Any) -> None:
    spaces = "/api/v1/namespaces"
    api.create(spaces, {"metadata": {"name": "team"}})
    widgets = "/apis/example.com/v1/namespaces/team/widgets"
    made = api.create(
        widgets,
        {
            "apiVersion": "example.com/v1",
            "kind": "Widget",
            "metadata": {"name": "w"},
            "spec": {"size": 1},
        },
    )
    assert made.status == 201
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    definition = api.get(path).body
    first, second = definition["spec"]["versions"]
    definition["spec"]["versions"] = [{**first, "storage": False}, {**second, "storage": True}]
    review = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}}
    definition["spec"]["conversion"] = {"strategy": "Webhook", "webhook": review}
    changed = api.update(path, definition)
    assert changed.status == 200, changed.body
    stream = api.watch(spaces, "fieldSelector=metadata.name%3Dteam")
    assert stream.event()[0] == "ADDED"
    api.delete(f"{spaces}/team")
    assert stream.event()[0] == "MODIFIED"
    healed = {**api.get(path).body}
    healed["spec"]["conversion"] = {"strategy": "None"}
    assert api.update(path, healed).status == 200
    while stream.event()[0] != "DELETED":
        pass


NAMES = ["a", "b", "c"]
OWNERS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=2, unique_by=lambda x: x[0]
)
OWN = st.tuples(st.just("own"), st.sampled_from(NAMES), OWNERS)
DELETE = st.tuples(
    st.just("delete"),
    st.sampled_from(NAMES),
    st.sampled_from(["Foreground", "Foreground", "Background", "Orphan"]),
)
# All have owners; some are deleted and may have to wait; then the owners change.
STEPS = st.tuples(
    st.tuples(*(st.tuples(st.just("own"), st.just(name), OWNERS) for name in NAMES)),
    st.lists(DELETE, min_size=1, max_size=2),
    st.lists(OWN, min_size=1, max_size=4),
    st.lists(DELETE, max_size=1),
).map(lambda parts: list(itertools.chain(*parts)))


@settings(
    max_examples=scaled(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(held=st.sets(st.sampled_from(NAMES)), steps=STEPS)
def test_at_rest_no_deletion_waits_for_nothing(api: Any, held: set[str], steps: list[Any]) -> None:
    """Over random owners and deletions: who waits in the foreground has a dependent that blocks."""
    made = {
        name: api.map(name, finalizers=["example.com/x"] if name in held else []) for name in NAMES
    }
    try:
        come_to_rest(api, made, steps)
    finally:
        for name in NAMES:
            api.patch(
                f"{api.maps}/{name}", {"metadata": {"finalizers": None, "ownerReferences": None}}
            )
            api.delete(f"{api.maps}/{name}", {"propagationPolicy": "Background"})


def come_to_rest(api: Any, made: dict[str, Any], steps: list[Any]) -> None:
    for step, name, what in steps:
        if step == "delete":
            api.delete(f"{api.maps}/{name}", {"propagationPolicy": what})
            continue
        references = [
            reference
            for owner, blocks in what
            if owner != name
            for reference in owned_by(made[owner], blockOwnerDeletion=blocks)
        ]
        api.patch(f"{api.maps}/{name}", {"metadata": {"ownerReferences": references}})
    stream = api.watch(api.maps)
    while True:
        items = api.get(api.maps)["items"]
        if not any(map(functools.partial(waits_for_nothing, items), items)):
            break
        stream.event()
    stream.close()


def waits_for_nothing(items: list[Any], item: Any) -> bool:
    """Whether an object is being deleted and nothing is left that it waits for."""
    metadata = item["metadata"]
    finalizers = metadata.get("finalizers") or []
    if "deletionTimestamp" not in metadata or "example.com/x" in finalizers:
        return False
    return "orphan" in finalizers or not any(
        reference["uid"] == metadata["uid"] and reference.get("blockOwnerDeletion")
        for other in items
        for reference in other["metadata"].get("ownerReferences") or ()
    )
