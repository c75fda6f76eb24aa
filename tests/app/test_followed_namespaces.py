"""An App whose namespaces a pattern or labels select, as they come and go."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from appsdk_operator import kinds, labels
from appsdk_operator.app import App
from appsdk_operator.cache import NotFollowedError
from appsdk_operator.client import Client, ClientConfig, MergePatch, NotFound
from appsdk_operator.manager import Manager
from appsdk_operator.resource import LabelSelector, MutableObject, Object
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer
from tests.app.test_managers import Calls, running
from tests.shared_plane import SharedPlane

CONFIG_MAP = kinds.core.v1.ConfigMap
NAMESPACE = kinds.core.v1.Namespace
TIMEOUT = 60.0


@pytest.fixture
def config() -> Iterator[ClientConfig]:
    with APIServer() as server:
        yield ClientConfig(server=server.url)


@pytest.fixture
def api(config: ClientConfig) -> Iterator[Client]:
    with Client(config) as client:
        yield client


def make_namespace(api: Client, name: str, **labels: str) -> None:
    api.create(MutableObject.new(NAMESPACE, name, metadata={"labels": labels}))


def make_map(api: Client, namespace: str, name: str) -> None:
    api.create(MutableObject.new(CONFIG_MAP, name, namespace=namespace))


def noting(app: App, calls: Calls) -> App:
    @app.on_add(CONFIG_MAP)
    def add(obj: Object) -> None:
        calls.add(("add", str(obj.key)))

    @app.on_delete(CONFIG_MAP)
    def delete(obj: Object) -> None:
        calls.add(("delete", str(obj.key)))

    return app


def test_a_namespace_is_watched_from_the_moment_at_which_its_name_matches(
    config: ClientConfig, api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    make_namespace(api, "team-a")
    make_namespace(api, "team-x")
    for namespace in ("team-a", "team-x", "default"):
        make_map(api, namespace, "one")
    calls = Calls()
    app = noting(App("mapper", namespaces=["team-*", "!team-x"]), calls)
    with (
        caplog.at_level(logging.INFO, "appsdk_operator"),
        running(app.manager(config, metrics=Metrics())) as manager,
    ):
        calls.wait_for(("add", "team-a/one"))
        make_namespace(api, "team-b")
        make_map(api, "team-b", "two")
        calls.wait_for(("add", "team-b/two"))
        found = manager.client.list(CONFIG_MAP)
        assert {obj.namespace for obj in found} <= {"team-a", "team-b"}
        with pytest.raises(
            NotFollowedError, match=r"team-\*, !team-x, and 'team-x' does not match"
        ):
            manager.client.get(CONFIG_MAP, "one", namespace="team-x")
    assert {key.partition("/")[0] for _, key in calls.all} == {"team-a", "team-b"}
    assert "mapper watches configmaps in team-*, !team-x" in caplog.text
    assert "the cache follows the namespaces that match team-*, !team-x: team-a" in caplog.text
    assert (
        "the cache follows namespace team-b from now on: it matches team-*, !team-x" in caplog.text
    )


def test_a_namespace_whose_labels_cease_to_match_is_left_and_nobody_is_told_of_deletions(
    config: ClientConfig, api: Client
) -> None:
    make_namespace(api, "one", team="a")
    make_namespace(api, "two")
    make_map(api, "one", "map")
    make_map(api, "two", "map")
    calls = Calls()
    app = noting(App("mapper", namespaces=labels("team=a")), calls)
    with running(app.manager(config, metrics=Metrics())) as manager:
        calls.wait_for(("add", "one/map"))
        api.patch(NAMESPACE, "two", MergePatch({"metadata": {"labels": {"team": "a"}}}))
        calls.wait_for(("add", "two/map"))
        api.patch(NAMESPACE, "one", MergePatch({"metadata": {"labels": {"team": "b"}}}))
        wait_until_left(manager, "one")
        make_map(api, "two", "second")
        calls.wait_for(("add", "two/second"))
    assert not [call for call in calls.all if call[0] == "delete"]
    # Its finalizer stays: the object is still there, and may be ours again.
    assert api.get(CONFIG_MAP, "map", namespace="one").finalizers


def wait_until_left(manager: Manager, namespace: str) -> None:
    stop = StopSignal()
    while True:
        try:
            next(iter(manager.cache.list(CONFIG_MAP, namespace=namespace)), None)
        except NotFollowedError:
            return
        assert not stop.wait(0.01)


def wait_until_gone(api: Client, namespace: str) -> None:
    for _ in range(int(TIMEOUT / 0.05)):
        try:
            api.get(NAMESPACE, namespace)
        except NotFound:
            return
        StopSignal().wait(0.05)
    raise TimeoutError(f"namespace {namespace} is still there")


def test_the_clean_ups_of_a_deleted_namespace_run_before_it_is_left(
    config: ClientConfig, api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    make_namespace(api, "team-a")
    for number in range(5):
        make_map(api, "team-a", f"map-{number}")
    calls = Calls()
    app = noting(App("mapper", namespaces=["team-*"]), calls)
    with (
        caplog.at_level(logging.INFO, "appsdk_operator"),
        running(app.manager(config, metrics=Metrics())) as manager,
    ):
        for number in range(5):
            calls.wait_for(("add", f"team-a/map-{number}"))
        api.delete(NAMESPACE, "team-a")
        for number in range(5):
            calls.wait_for(("delete", f"team-a/map-{number}"))
        wait_until_gone(api, "team-a")
        # What is read of it afterwards is what is there: nothing.
        with pytest.raises(NotFound):
            manager.client.get(CONFIG_MAP, "map-0", namespace="team-a")
        assert manager.cache.get(CONFIG_MAP, "map-0", namespace="team-a") is None
        assert not list(manager.client.list(CONFIG_MAP, namespace="team-a"))
        # It comes back under its name.
        make_namespace(api, "team-a")
        make_map(api, "team-a", "map-0")
        calls.wait_for(("add", "team-a/map-0"), 2)


def test_a_namespace_that_is_being_deleted_is_watched_by_the_next_process_too(
    config: ClientConfig, api: Client
) -> None:
    make_namespace(api, "team-a")
    make_map(api, "team-a", "map")
    calls = Calls()
    app = noting(App("mapper", namespaces=["team-*"]), calls)
    with running(app.manager(config, metrics=Metrics())):
        calls.wait_for(("add", "team-a/map"))
    api.delete(NAMESPACE, "team-a")
    assert api.get(NAMESPACE, "team-a").is_deleting
    with running(app.manager(config, metrics=Metrics())):
        calls.wait_for(("delete", "team-a/map"))
        wait_until_gone(api, "team-a")


@pytest.mark.real
def test_on_a_real_server_namespaces_come_and_go_and_labels_change(
    shared_plane: SharedPlane,
) -> None:
    with shared_plane.lent() as plane, Client(plane.client_config()) as api:
        make_namespace(api, "team-a", watched="yes")
        make_map(api, "team-a", "one")
        calls = Calls()
        app = noting(App("mapper", namespaces=LabelSelector.parse("watched")), calls)
        with running(app.manager(plane.client_config(), metrics=Metrics())) as manager:
            calls.wait_for(("add", "team-a/one"))
            make_namespace(api, "team-b", watched="yes")
            make_map(api, "team-b", "two")
            calls.wait_for(("add", "team-b/two"))
            # No controller manager runs here, so the namespace stays, and its objects go by hand.
            api.delete(NAMESPACE, "team-b")
            api.delete(CONFIG_MAP, "two", namespace="team-b")
            calls.wait_for(("delete", "team-b/two"))
            api.patch(NAMESPACE, "team-a", MergePatch({"metadata": {"labels": {"watched": None}}}))
            wait_until_left(manager, "team-a")
        assert [call for call in calls.all if call[0] == "delete"] == [("delete", "team-b/two")]
