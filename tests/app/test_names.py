"""Where the name of an App is found, and what becomes of two operators of one name."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.controllers import Request
from appsdk_operator.manager import LeaderElection
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer, install_crds, running
from appsdk_operator.watchers import OpinionatedWatcher
from tests.app.test_app import nothing
from tests.waiting import eventually

BUCKET = Kind(group="example.com", version="v1", kind="Bucket")
NAME = "bucket-operator"


@pytest.fixture
def server() -> Iterator[APIServer]:
    app = App("owner")
    app.own(BUCKET)
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, app.crds())
        yield server


@pytest.fixture
def api(server: APIServer) -> Iterator[Client]:
    with Client(ClientConfig(server=server.url)) as client:
        yield client


def bucket(name: str) -> MutableObject:
    return MutableObject.new(BUCKET, name, namespace="default", spec={})


def watching(name: str) -> App:
    app = App(name)
    app.on_add(BUCKET)(nothing)
    return app


def reporters(api: Client) -> set[str]:
    """Who has reported events."""
    return {each["reportingController"] for each in api.list(kinds.events.v1.Event)}


def test_the_name_is_in_all_that_the_operator_leaves(server: APIServer, api: Client) -> None:
    app = App(NAME, leader_election=LeaderElection(id=NAME, namespace="default"))

    @app.on_add(BUCKET)
    def added(obj: Object) -> None:
        app.events.event(obj, "Normal", "Added", "Add", "it was added")

    @app.on_delete(BUCKET)
    def gone(obj: Object) -> None: ...

    @app.reconciler(BUCKET)
    def reconcile(request: Request) -> None: ...

    metrics = Metrics()
    manager = app.manager(ClientConfig(server=server.url), metrics=metrics)
    with running(manager):
        made = api.create(bucket("a"))
        finalizer = f"example.com/{NAME}.v1.Bucket"
        eventually(lambda: finalizer in api.get(BUCKET, "a", namespace=made.namespace).finalizers)
        eventually(lambda: NAME in reporters(api))  # and not only the one of the election
        text = metrics.render()
    present = api.get(BUCKET, "a", namespace="default")
    assert NAME in {each["manager"] for each in present.metadata["managedFields"]}
    assert [lease.name for lease in api.list(kinds.coordination.v1.Lease)] == [NAME]
    agents = {each.user_agent or "" for each in server.requests}
    assert any(agent.startswith(f"{NAME} appsdk-operator/") for agent in agents)
    for controller in ("buckets.example.com", "bucket"):
        assert f'controller="{NAME}/{controller}"' in text
    assert f'app_info{{app="{NAME}"}} 1' in text


def test_a_user_agent_that_the_program_chose_stays(server: APIServer) -> None:
    config = ClientConfig(server=server.url, user_agent="mine")
    with running(watching(NAME).manager(config, metrics=Metrics())):
        pass
    assert {each.user_agent for each in server.requests if each.user_agent == "mine"}


def test_two_apps_of_one_name_on_a_kind_are_refused_within_a_process(
    server: APIServer,
) -> None:
    config = ClientConfig(server=server.url)
    one, other = watching(NAME), watching(NAME)
    with (
        pytest.raises(ValueError, match="would share its finalizer"),
        running(one.manager(config, metrics=Metrics())),
        running(other.manager(config, metrics=Metrics())),
    ):
        pass
    # Two managers of one App are replicas, and two names are two finalizers.
    with (
        running(one.manager(config, metrics=Metrics())),
        running(one.manager(config, metrics=Metrics())),
        running(watching("another").manager(config, metrics=Metrics())),
    ):
        pass


def test_two_processes_of_one_name_are_warned_of(
    api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def watcher(finalizer: Any) -> OpinionatedWatcher:
        return OpinionatedWatcher(BUCKET, api, add=nothing, finalizer=finalizer)

    mine, theirs = watcher(lambda _: "example.com/a"), watcher(lambda _: "example.com/a")
    other = watcher(lambda _: "example.com/b")
    for number in range(4):
        seen = api.create(bucket(f"bucket-{number}"))
        other.add(seen)
        theirs.add(seen)
        mine.add(seen)
        warnings = [each for each in caplog.messages if "two processes run under one" in each]
        # One alone may be a write whose answer was lost.
        assert len(warnings) == max(0, number - 1)
