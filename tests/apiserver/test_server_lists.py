"""Lists: pages, resourceVersions, selectors and representations."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from appsdk_operator.apiserver import APIServer
from appsdk_operator.apiserver._core import Core
from appsdk_operator.apiserver._storage.lists import ListOptions, Selection, list_page
from appsdk_operator.apiserver._values.run_sync import run_sync
from appsdk_operator.runtime import system_clock
from tests.counting import calls_of
from tests.definitions import widget_definition

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"


def test_pages_show_one_moment_whatever_happens_between_them(api: Any) -> None:
    for name in "bdfh":
        api.map(name)
    first = api.get(f"{api.maps}?limit=2")
    meta = first["metadata"]
    assert meta["remainingItemCount"] == 2
    for name in "aceg":
        api.map(name)
    api.delete(f"{api.maps}/f")
    second = api.get(f"{api.maps}?limit=2&continue={meta['continue']}")
    found = [item["metadata"]["name"] for page in (first, second) for item in page["items"]]
    assert found == ["b", "d", "f", "h"]
    assert "continue" not in second["metadata"]
    assert second["metadata"]["resourceVersion"] == meta["resourceVersion"]


def test_an_expired_token_comes_with_one_that_goes_on(api: Any, server: Any) -> None:
    for name in "abc":
        api.map(name)
    token = api.get(f"{api.maps}?limit=1")["metadata"]["continue"]
    api.map("bb")
    server.compact()
    gone = api.get(f"{api.maps}?limit=1&continue={token}")
    assert (gone.status, gone["reason"]) == (410, "Expired")
    assert "The provided continue parameter is too old" in gone["message"]
    rest = api.get(f"{api.maps}?continue={gone['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "bb", "c"]


def test_a_token_that_is_none_is_refused(api: Any) -> None:
    assert api.get(f"{api.maps}?continue=abc").status == 400
    assert api.get(f"{api.maps}?limit=lots").status == 400


def test_a_list_of_an_exact_version_is_the_state_then(api: Any, server: Any) -> None:
    api.map("a")
    then = api.map("b").version
    api.map("c")
    api.delete(f"{api.maps}/a")
    exact = f"{api.maps}?resourceVersion={then}&resourceVersionMatch=Exact"
    assert api.names(exact) == ["a", "b"]
    assert api.names(f"{api.maps}?resourceVersion={then}&resourceVersionMatch=NotOlderThan") == [
        "b",
        "c",
    ]
    server.compact()
    assert api.get(exact).status == 410


def test_a_version_that_is_yet_to_come_is_to_be_waited_for(api: Any) -> None:
    ahead = api.get(f"{api.maps}?resourceVersion=99999")
    assert ahead.status == 504
    assert ahead["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"
    assert ahead["details"]["retryAfterSeconds"] == 1


@pytest.mark.parametrize(
    "query",
    [
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=Nearly&resourceVersion=5",
        "resourceVersionMatch=Exact&resourceVersion=0",
        "sendInitialEvents=true",
    ],
)
def test_options_that_contradict_each_other_are_refused(api: Any, query: str) -> None:
    refused = api.get(f"{api.maps}?{query}")
    assert (refused.status, refused["details"]["kind"]) == (422, "ListOptions")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("tier=web", ["a", "b"]),
        ("tier!=web", ["c", "d"]),
        ("tier in (web,db),!old", ["a", "c"]),
        ("old", ["b"]),
        ("tier notin (web)", ["c", "d"]),
    ],
)
def test_label_selectors_select(api: Any, selector: str, names: list[str]) -> None:
    api.map("a", {"tier": "web"})
    api.map("b", {"tier": "web", "old": "yes"})
    api.map("c", {"tier": "db"})
    api.map("d")
    assert api.names(f"{api.maps}?labelSelector={quote(selector)}") == names


def test_field_selectors_select_by_what_a_kind_offers(api: Any) -> None:
    pods = "/api/v1/namespaces/default/pods"
    for name in ("p", "q"):
        spec = {"nodeName": f"on-{name}", "containers": [{"name": "c", "image": "i"}]}
        api.create(pods, {"metadata": {"name": name}, "spec": spec})
    assert api.names(f"{pods}?fieldSelector=spec.nodeName%3Don-q") == ["q"]
    assert api.names(f"{pods}?fieldSelector=metadata.name%21%3Dq") == ["p"]
    refused = api.get(f"{api.maps}?fieldSelector=spec.x%3D1")
    assert refused.status == 400
    assert "is not a known field selector" in refused["message"]
    assert api.get(f"{api.maps}?labelSelector=a%20b").status == 400


def test_lists_are_in_the_order_of_namespace_and_name(api: Any) -> None:
    for space in ("b", "a", "a-b"):
        api.create("/api/v1/namespaces", {"metadata": {"name": space}})
        for name in ("y", "x"):
            path = f"/api/v1/namespaces/{space}/configmaps"
            api.create(path, {"metadata": {"name": name}})
    items = api.get("/api/v1/configmaps")["items"]
    # The order of the keys in etcd, where "-" sorts before "/".
    assert [(i["metadata"]["namespace"], i["metadata"]["name"]) for i in items] == [
        (space, name) for space in ("a-b", "a", "b") for name in ("x", "y")
    ]
    assert api.names("/api/v1/namespaces/a/configmaps") == ["x", "y"]


def test_items_of_built_in_lists_leave_their_kind_to_the_list(api: Any) -> None:
    api.map("a")
    api.create(api.maps, {"kind": "ConfigMap", "metadata": {"name": "b"}, "apiVersion": "v1"})
    api.widget("w")
    for item in api.get(api.maps)["items"]:
        assert "kind" not in item
        assert "apiVersion" not in item
    assert api.get(api.widgets)["items"][0]["kind"] == "Widget"


def test_tables_have_the_columns_of_the_definition(api: Any) -> None:
    api.widget("a", size=7)
    table = api.get(api.widgets, Accept=TABLE)
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Size"]
    assert table["rows"][0]["cells"] == ["a", 7]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    api.map("m")
    row = api.get(f"{api.maps}/m?includeObject=Object", Accept=TABLE)["rows"][0]
    assert row["cells"][0] == "m"
    assert row["object"]["kind"] == "ConfigMap"


def test_metadata_can_be_had_alone(api: Any) -> None:
    api.widget("a")
    listed = api.get(api.widgets, Accept=PARTIAL)
    assert listed["kind"] == "PartialObjectMetadataList"
    assert "spec" not in listed["items"][0]
    one = api.get(f"{api.widgets}/a", Accept=PARTIAL.replace("List", ""))
    assert (one["kind"], one.name) == ("PartialObjectMetadata", "a")


def test_what_cannot_be_sent_is_not_acceptable(api: Any) -> None:
    refused = api.get(api.widgets, Accept="application/vnd.kubernetes.protobuf")
    assert (refused.status, refused["reason"]) == (406, "NotAcceptable")
    assert api.get(api.maps, Accept="application/xml").status == 406
    both = "application/vnd.kubernetes.protobuf,application/json"
    assert api.get(api.widgets, Accept=both).status == 200


def test_a_history_that_is_too_short_for_a_page_is_told(connect: Any) -> None:
    with APIServer(history=3) as server:
        api = connect(server)
        for name in "abc":
            api.map(name)
        token = api.get(f"{api.maps}?limit=1")["metadata"]["continue"]
        for name in "defg":
            api.map(name)
        assert api.get(f"{api.maps}?limit=1&continue={token}").status == 410


def test_each_page_of_a_long_list_costs_the_same() -> None:
    def work(count: int, *, writes: bool) -> int:
        core = Core(clock=system_clock, history=10_000)
        maps = core.served("", "v1", "configmaps")

        def write(name: str) -> None:
            metadata = {"name": name, "namespace": "default", "uid": name}
            obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata}
            core.storage.put(maps.resource.collection, f"default/{name}", obj)

        for number in range(count):
            write(f"m{number:05}")

        def read() -> None:
            token, seen = "", 0
            while not seen or token:
                options = ListOptions(limit=50, continue_token=token)
                page = run_sync(list_page(core.storage, maps, Selection("default"), options))
                token, seen = page.continue_token, seen + len(page.records)
                if writes:
                    write(f"z{seen:05}")
            assert seen == count

        return calls_of(read)

    for writes in (False, True):
        assert work(2000, writes=writes) < 3 * work(1000, writes=writes)


@pytest.mark.parametrize(
    ("when", "shown"),
    [
        # As kube-apiserver 1.20 shows them.
        ("0001-01-01T00:00:00Z", "<unknown>"),
        ("", "<unknown>"),
        ("9999-12-31T23:59:59-23:00", "<invalid>"),
        ("2020-01-01", "<invalid>"),
        ("2020-W01", "<invalid>"),
        ("2020-01-01 00:00:00Z", "<invalid>"),
        ({}, None),
    ],
)
def test_the_table_of_any_kind_shows_what_is_no_date(connect: Any, when: Any, shown: Any) -> None:
    # Only the core group's pods have a row for their phase.
    names = {"plural": "pods", "kind": "Pod"}
    crd = widget_definition({"x-kubernetes-preserve-unknown-fields": True})
    crd["metadata"]["name"] = "pods.example.com"
    columns = [
        {"name": "When", "type": "date", "jsonPath": ".spec.when"},
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
    ]
    crd["spec"] |= {"names": names}
    crd["spec"]["versions"][0] |= {"additionalPrinterColumns": columns, "subresources": {}}
    pod = {
        "apiVersion": "example.com/v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"when": when, "size": 1e300},
        "status": {"phase": []},
    }
    with APIServer(crds=[crd]) as server:
        api = connect(server)
        path = "/apis/example.com/v1/namespaces/default/pods"
        assert api.create(path, pod).status == 201
        [row] = api.get(path, Accept=TABLE)["rows"]
    assert row["cells"] == ["p", shown, -(2**63)]


def test_what_has_no_columns_is_no_table(api: Any) -> None:
    only = TABLE.partition(",")[0]
    review = {"spec": {"token": "t"}}
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    assert api("POST", path, review, Accept=only).status == 406
    assert api("POST", path, review, Accept=TABLE)["kind"] == "TokenReview"
    api.widget("a", replicas=2)
    assert api.get(f"{api.widgets}/a/scale", Accept=TABLE)["kind"] == "Scale"
    assert api.get(f"{api.widgets}/a/scale", Accept=only).status == 406
