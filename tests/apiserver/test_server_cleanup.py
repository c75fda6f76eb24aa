"""What a bare API server leaves lying: dependents of owners and the content of namespaces."""

from __future__ import annotations

from typing import Any

from appsdk_operator.resource import kinds


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
