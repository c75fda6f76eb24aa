"""An App does not start while an operator with kopf runs, as far as peering objects tell."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator.app import App, Kopf
from appsdk_operator.app._kopf_peers import (
    CLUSTER_PEERINGS,
    PEERINGS,
    LivePeerError,
    check_peers,
)
from appsdk_operator.client import Client, ClientConfig, Forbidden, MergePatch
from appsdk_operator.controllers import wait_for
from appsdk_operator.manager import CacheSetup
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Metrics, RealClock, StopSignal
from appsdk_operator.testing import APIServer, FaultRule, install_crds, running
from tests.app.test_kopf import THING, own
from tests.app.test_permissions import RBAC, USER, grant

NOW = 1_790_000_000.0


def definition(kind: Kind) -> dict[str, Any]:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": anything},
    }
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "scope": "Namespaced" if kind.is_namespaced else "Cluster",
            "names": names,
            "versions": [version],
        },
    }


def peer(seconds_ago: float, **more: Any) -> dict[str, Any]:
    seen = dt.datetime.fromtimestamp(NOW - seconds_ago, dt.UTC)
    return {"priority": 0, "lifetime": 60, "lastseen": seen.isoformat(), **more}


def peering(kind: Kind, name: str = "default", **peers: Any) -> MutableObject:
    namespace = "default" if kind.is_namespaced else ""
    return MutableObject.new(kind, name, namespace=namespace, status=peers)


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer(crds=[definition(kind) for kind in (*CLUSTER_PEERINGS, *PEERINGS)]) as server:
        yield server


@pytest.fixture
def client(server: APIServer) -> Iterator[Client]:
    with Client(ClientConfig(server=server.url)) as client:
        yield client


@pytest.mark.parametrize("kind", [*CLUSTER_PEERINGS, *PEERINGS], ids=str)
@pytest.mark.parametrize("namespaces", [(), ("other", "default")], ids=["all", "some"])
def test_a_live_peer_is_found_in_each_kind_of_peering_object(
    client: Client, kind: Kind, namespaces: tuple[str, ...]
) -> None:
    client.create(peering(kind, dead=peer(60), live=peer(45)))
    with pytest.raises(LivePeerError, match=r"peer live in .* is alive for 15 seconds more") as it:
        check_peers(client, "default", namespaces, NOW)
    for remedy in ("Deployment to 0", "kopf resume", "peering=None"):
        assert remedy in str(it.value)
    check_peers(client, "other", namespaces, NOW)
    check_peers(client, "default", namespaces, NOW + 15)


def test_peers_elsewhere_do_not_count(client: Client) -> None:
    client.create(peering(PEERINGS[0], live=peer(0)))
    check_peers(client, "default", ["other"], NOW)


@pytest.mark.parametrize(
    ("status", "lives"),
    [
        ({"peer": peer(60)}, False),
        ({"peer": peer(59)}, True),
        ({"peer": peer(59, lifetime=30)}, False),
        ({"peer": {"lastseen": peer(59)["lastseen"].replace("+00:00", "")}}, True),
        ({"peer": {"priority": 100}}, True),
        ({"peer": {"lastseen": "once", "lifetime": 60}}, True),
        ({"peer": None, "note": "text"}, False),
        (None, False),
    ],
)
def test_a_peer_lives_for_its_lifetime_since_it_was_seen(
    client: Client, status: Any, lives: bool
) -> None:
    obj = MutableObject.new(PEERINGS[0], "default", namespace="default")
    if status is not None:
        obj["status"] = status
    client.create(obj)
    if lives:
        with pytest.raises(LivePeerError):
            check_peers(client, "default", (), NOW)
    else:
        check_peers(client, "default", (), NOW)


def test_without_definitions_there_is_no_peer() -> None:
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        check_peers(client, "default", (), NOW)
        check_peers(client, "default", ("default",), NOW)


def test_peers_that_cannot_be_read_are_an_error_with_a_remedy(
    server: APIServer, client: Client
) -> None:
    server.inject([FaultRule.answer(403)])
    with pytest.raises(Forbidden) as it:
        check_peers(client, "default", (), NOW)
    assert "grant the App's permissions" in it.value.__notes__[0]


def test_an_app_starts_no_function_while_a_peer_is_alive(server: APIServer, client: Client) -> None:
    seen = dt.datetime.fromtimestamp(RealClock().time(), dt.UTC).isoformat()
    client.create(peering(CLUSTER_PEERINGS[0], live={"lastseen": seen, "lifetime": 3600}))
    calls: list[str] = []

    def made(adopt: Kopf) -> App:
        app = own(adopt=adopt)

        @app.lifespan
        def life() -> Iterator[None]:
            calls.append("begins")
            yield

        app.on_add(THING)(lambda thing: calls.append("add"))
        return app

    install_crds(client, made(Kopf()).crds())
    config = ClientConfig(server=server.url)
    with pytest.raises(LivePeerError):
        made(Kopf()).manager(config, metrics=Metrics()).run(StopSignal())
    assert not calls
    for adopt in (Kopf(peering=None), Kopf(peering="other")):
        with running(made(adopt).manager(config, metrics=Metrics())):
            pass
    gone = MergePatch({"status": {"live": None}})
    client.patch(CLUSTER_PEERINGS[0], "default", gone)
    with running(made(Kopf()).manager(config, metrics=Metrics())):
        pass
    assert calls == ["begins"] * 3


# What it needs for that.


def permissions(app: App) -> dict[str, set[str]]:
    return {
        f"{resource}.{permission.groups[0]}{list(permission.names) or ''}": set(permission.verbs)
        for permission in app.permissions()
        for resource in permission.resources
    }


def test_the_permissions_to_adopt_are_those_of_the_app() -> None:
    app = own()
    app.every(60, THING)(lambda thing: None)
    found = permissions(app)
    assert found["things.example.com"] == {"list", "watch", "get", "patch"}
    for group in ("kopf.dev", "zalando.org"):
        assert found[f"clusterkopfpeerings.{group}['default']"] == {"get"}
        assert found[f"kopfpeerings.{group}"] == {"list"}
    some = own(adopt=Kopf(peering="mine"), cache=CacheSetup(namespaces=["default"]))
    some.on_update(THING)(lambda old, new: None)
    assert permissions(some)["kopfpeerings.kopf.dev['mine']"] == {"get"}
    for adopt in (None, Kopf(peering=None)):
        app = own(adopt=adopt)
        app.every(60, THING)(lambda thing: None)
        assert not any("kopfpeering" in name for name in permissions(app))


# Its options.


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"finalizer": "no finalizer"}, ValueError),
        ({"prefix": ""}, ValueError),
        ({"key": ""}, ValueError),
        ({"peering": ""}, ValueError),
        ({"prefix": 3}, TypeError),
    ],
)
def test_options_that_cannot_be_used_are_errors(options: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        Kopf(**options)


def test_adopt_takes_the_options_themselves() -> None:
    wrong: Any = Kopf
    with pytest.raises(TypeError, match="give Kopf\\(\\)"):
        App("a", adopt=wrong)


def test_an_app_that_adopts_follows_objects_outside_of_all_filters_too() -> None:
    from appsdk_operator import labels
    from appsdk_operator.app._selection import common_selectors

    app = own()

    @app.every(60, THING, where=labels("timed"))
    def look(thing: Object) -> None: ...

    assert common_selectors(app._declared, adopts=False)
    assert not common_selectors(app._declared, adopts=True)


@pytest.mark.parametrize("namespaces", [None, ["default"]], ids=["all", "one"])
def test_these_permissions_are_enough_and_each_is_needed(namespaces: list[str] | None) -> None:
    app = App(USER, adopt=Kopf(), namespaces=namespaces)
    app.every(60, THING)(lambda thing: None)
    with APIServer(rbac=True) as server, Client(server.client_config()) as admin:
        install_crds(admin, own().crds())
        metadata = {"finalizers": [Kopf().finalizer]}
        admin.create(MutableObject.new(THING, "a", namespace="default", metadata=metadata))
        found = app.permissions()
        kinds_of_peers = {f"{kind.plural}.{kind.group}" for kind in (*CLUSTER_PEERINGS, *PEERINGS)}
        of_peers = [p for p in found if f"{p.resources[0]}.{p.groups[0]}" in kinds_of_peers]
        grant(admin, [each for each in found if each not in of_peers], namespaces or ())
        config = ClientConfig(server=server.url, token=server.token_for(USER), max_retries=0)
        with pytest.raises(Forbidden):
            app.manager(config, metrics=Metrics()).run(StopSignal())
        for kind in (RBAC.ClusterRole, RBAC.ClusterRoleBinding):
            admin.delete_collection(kind)
        for kind in (RBAC.Role, RBAC.RoleBinding):
            admin.delete_collection(kind, namespace="default")
        grant(admin, found, namespaces or ())

        def is_released(obj: Object | None) -> bool:
            return obj is not None and not obj.finalizers

        with running(app.manager(config, metrics=Metrics())):
            wait_for(admin, THING, "a", is_released, namespace="default", timeout=60)
