"""Who asked for what: the accesses that the embedded server and the proxy note."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator import Client, MutableObject, kinds
from appsdk_operator.apiserver._auth.access_table import AccessTable
from appsdk_operator.client import Forbidden
from appsdk_operator.resource import encode_json
from appsdk_operator.testing import APIServer, FaultProxy

ConfigMap, Lease = kinds.core.v1.ConfigMap, kinds.coordination.v1.Lease

Row = tuple[str, str, str, str]


def rows(server: APIServer | FaultProxy, user: str = "jane") -> list[Row]:
    """Verb, resource, namespace and name of each access."""
    found = server.accesses(user) if isinstance(server, APIServer) else server.accesses()
    return [(each.verb, each.full_resource, each.namespace, each.name) for each in found]


def use(client: Client) -> list[Row]:
    """Some requests, and the accesses that they are."""
    client.create(MutableObject.new(ConfigMap, "a", namespace="default", data={}))
    client.create(MutableObject.new(ConfigMap, "b", namespace="default", data={}))
    client.get(ConfigMap, "a", namespace="default")
    client.list_page(ConfigMap)
    client.list_page(ConfigMap, field_selector="metadata.name=b")
    client.subresource("status").get(kinds.core.v1.Namespace, "default")
    client.delete(ConfigMap, "a", namespace="default")
    applied = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    client.request(
        "PATCH",
        "/api/v1/namespaces/default/configmaps/c",
        query={"fieldManager": "test"},
        body=encode_json(applied),
        content_type="application/apply-patch+yaml",
    )
    return [
        ("create", "configmaps", "default", ""),
        ("create", "configmaps", "default", "a"),
        ("create", "configmaps", "default", "b"),
        ("create", "configmaps", "default", "c"),
        ("delete", "configmaps", "default", "a"),
        ("get", "configmaps", "default", "a"),
        ("get", "namespaces/status", "", "default"),
        ("list", "configmaps", "", ""),
        ("list", "configmaps", "", "b"),
        ("patch", "configmaps", "default", "c"),
    ]


def test_each_access_is_there_once_with_user_verb_resource_and_object() -> None:
    with APIServer() as server, Client(server.client_config(token=server.token_for("jane"))) as c:
        expected = use(c)
        with Client(server.client_config()) as admin:
            admin.get(ConfigMap, "b", namespace="default")
        assert rows(server) == expected
        assert {each.user for each in server.accesses()} == {"admin", "jane"}
        server.clear_accesses()
        assert server.accesses() == []


def test_a_proxy_notes_the_same() -> None:
    with (
        APIServer() as server,
        FaultProxy(server.client_config()) as proxy,
        Client(proxy.client_config()) as client,
    ):
        expected = use(client)
        assert rows(proxy) == expected
        proxy.clear_accesses()
        assert proxy.accesses() == []


def test_an_update_that_creates_is_a_creation_as_well() -> None:
    with APIServer() as server, Client(server.client_config(token=server.token_for("jane"))) as c:
        path = Lease.path("default", "l")
        c.request(
            "PUT",
            path,
            body=encode_json(MutableObject.new(Lease, "l", namespace="default").to_dict()),
        )
        assert rows(server) == [
            ("create", "leases", "default", "l"),
            ("update", "leases", "default", "l"),
        ]


def test_a_request_that_is_refused_is_no_access() -> None:
    with (
        APIServer(rbac=True) as server,
        Client(server.client_config(token=server.token_for("jane"))) as client,
    ):
        with pytest.raises(Forbidden):
            client.list_page(ConfigMap)
        client.request("GET", "/version")
        assert [(each.verb, each.path) for each in server.accesses("jane")] == [("get", "/version")]


NAMES = st.text("ab", min_size=1, max_size=9)


@given(pairs=st.lists(st.tuples(NAMES, NAMES), max_size=20), times=st.integers(1, 3))
def test_how_often_and_in_which_order_makes_no_difference(
    pairs: list[tuple[str, str]], times: int
) -> None:
    once, often = AccessTable(), AccessTable()
    for namespace, name in pairs:
        once.note("u", "get", resource="pods", namespace=namespace, name=name)
    for namespace, name in reversed(pairs * times):
        often.note("u", "get", resource="pods", namespace=namespace, name=name)
    assert once.read() == often.read()
    assert {(each.namespace, each.name) for each in once.read()} == set(pairs)


def test_of_too_many_names_the_namespaces_are_left_and_of_too_many_namespaces_all() -> None:
    table = AccessTable()
    for number in range(1001):
        table.note("u", "get", resource="pods", namespace=f"n{number % 3}", name=str(number))
    assert {(a.namespace, a.name) for a in table.read()} == {("n0", ""), ("n1", ""), ("n2", "")}
    for number in range(1001):
        table.note("u", "get", resource="pods", namespace=f"m{number}", name="a")
    assert [(a.namespace, a.name) for a in table.read()] == [("", "")]


def test_the_number_of_rows_is_bounded() -> None:
    table = AccessTable()
    for number in range(10_001):
        table.note("u", "get", path=f"/{number}")
    assert len(table.read()) == 10_000
