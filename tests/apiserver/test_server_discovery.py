"""What the server tells of itself: discovery, health, version, metrics."""

from __future__ import annotations

from typing import Any

import pytest

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def test_aggregated_discovery_tells_all_groups_at_once(api: Any) -> None:
    reply = api.get("/apis", Accept=f"{AGGREGATED},application/json")
    assert reply.headers["Content-Type"] == AGGREGATED
    assert (reply["kind"], reply["apiVersion"]) == (
        "APIGroupDiscoveryList",
        "apidiscovery.k8s.io/v2",
    )
    groups = {item["metadata"]["name"]: item for item in reply["items"]}
    versions = [version["version"] for version in groups["example.com"]["versions"]]
    assert versions == ["v1", "v1beta1"]
    (widgets,) = groups["example.com"]["versions"][0]["resources"]
    assert widgets == {
        "resource": "widgets",
        "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
        "scope": "Namespaced",
        "singularResource": "widget",
        "verbs": [
            *("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
        ],
        "shortNames": ["wd"],
        "subresources": [
            {
                "subresource": name,
                "responseKind": dict(zip(("group", "version", "kind"), kind, strict=True)),
                "verbs": ["get", "patch", "update"],
            }
            for name, kind in (
                ("status", ("example.com", "v1", "Widget")),
                ("scale", ("autoscaling", "v1", "Scale")),
            )
        ],
    }
    (core,) = api.get("/api", Accept=AGGREGATED)["items"]
    found = {r["resource"]: r["verbs"] for r in core["versions"][0]["resources"]}
    assert set(found["configmaps"]) - set(found["namespaces"]) == {"deletecollection"}
    assert core["metadata"] == {}
    accounts = {r["resource"]: r for r in core["versions"][0]["resources"]}["serviceaccounts"]
    assert accounts["responseKind"] == {"group": "", "version": "", "kind": "ServiceAccount"}
    assert accounts["subresources"] == [
        {
            "subresource": "token",
            "responseKind": {
                "group": "authentication.k8s.io",
                "version": "v1",
                "kind": "TokenRequest",
            },
            "verbs": ["create"],
        }
    ]


def test_a_client_that_has_the_newest_discovery_is_told_so(api: Any) -> None:
    first = api.get("/apis", Accept=AGGREGATED)
    tag = first.headers["ETag"]
    again = api.get("/apis", Accept=AGGREGATED, If_None_Match=tag)
    assert (again.status, again.body) == (304, "")
    api.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
    changed = api.get("/apis", Accept=AGGREGATED, If_None_Match=tag)
    assert changed.status == 200
    assert changed.headers["ETag"] != tag
    assert "example.com" not in [item["metadata"]["name"] for item in changed["items"]]


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("application/json", "APIGroupList"),
        (f"application/json,{AGGREGATED}", "APIGroupList"),
        (f"{AGGREGATED},application/json", "APIGroupDiscoveryList"),
        (f"application/vnd.kubernetes.protobuf;as=x,{AGGREGATED}", "APIGroupDiscoveryList"),
        (AGGREGATED.replace(";v=v2", ";v=v2beta1") + ",application/json", "APIGroupList"),
    ],
)
def test_the_first_form_of_discovery_that_a_client_takes_wins(
    api: Any, accept: str, kind: str
) -> None:
    assert api.get("/apis", Accept=accept)["kind"] == kind


def test_the_hash_of_the_stored_form_is_that_of_the_real_server(api: Any) -> None:
    resources = {r["name"]: r for r in api.get("/api/v1")["resources"]}
    assert resources["configmaps"]["storageVersionHash"] == "qFsyl6wFWjQ="
    (widgets, *_) = api.get("/apis/example.com/v1")["resources"]
    assert widgets["storageVersionHash"] == "gIwvi5rymmg="
    assert "storageVersionHash" not in resources["bindings"]


def test_the_root_lists_the_paths(api: Any) -> None:
    paths = api.get("/")["paths"]
    assert {"/api/v1", "/apis/example.com/v1", "/healthz/ping", "/version"} <= set(paths)
    assert paths == sorted(paths)


def test_health_can_be_looked_at_in_detail(api: Any) -> None:
    assert api.get("/readyz").body == "ok"
    assert api.get("/livez/etcd").body == "ok"
    assert api.get("/livez/none").status == 404
    told = api.get("/readyz?verbose&exclude=etcd&exclude=none").body.splitlines()
    assert told[0] == "[+]ping ok"
    assert "[+]etcd excluded: ok" in told
    assert told[-2:] == [
        'warn: some health checks cannot be excluded: no matches for "none"',
        "readyz check passed",
    ]


def test_the_version_is_that_of_a_current_server(api: Any) -> None:
    version = api.get("/version").body
    assert (version["major"], version["minor"]) == ("1", "36")
    assert version["gitVersion"].startswith("v1.36.")


def test_metrics_count_the_objects(api: Any) -> None:
    api.map("a")
    reply = api.get("/metrics")
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'apiserver_resource_objects{group="",resource="configmaps"} 1\n' in reply.body
