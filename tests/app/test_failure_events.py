"""What an App gives up is an Event on its object, on the embedded server."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.client import Client, ClientConfig, MergePatch
from appsdk_operator.controllers import TerminalError
from appsdk_operator.manager import FailureEvents
from appsdk_operator.resource import Object
from appsdk_operator.testing import APIServer, FaultRule, World, install_crds
from appsdk_operator.watchers import ConstantBackoff
from tests.app.test_app import BUCKET
from tests.app.test_managers import Calls, bucket, made, running
from tests.waiting import eventually

EVENT = kinds.events.v1.Event


@pytest.fixture
def server() -> Iterator[APIServer]:
    app = App("owner")
    app.own(BUCKET)
    with APIServer() as server:
        with Client(ClientConfig(server=server.url)) as client:
            install_crds(client, app.crds())
        yield server


@pytest.fixture
def api(server: APIServer) -> Iterator[Client]:
    with Client(ClientConfig(server=server.url)) as client:
        yield client


def told(api: Client) -> list[tuple[str, str, str]]:
    return [
        (event["regarding"]["name"], event["reason"], event["note"]) for event in api.list(EVENT)
    ]


def refusing(calls: Calls, **options: Any) -> App:
    """An App of which one function of three gives up."""
    app = App("bucket-operator", **options)

    @app.on_add(BUCKET)
    def announce(obj: Object[Any, Any]) -> None: ...

    @app.on_add(BUCKET)
    def refuse(obj: Object[Any, Any]) -> None:
        calls.add("refuse")
        raise TerminalError("spec.size: 100 at most")

    @app.on_add(BUCKET)
    def follow(obj: Object[Any, Any]) -> None:
        calls.add("follow")

    return app


def test_what_a_function_gives_up_is_an_event_on_its_object(server: APIServer, api: Client) -> None:
    calls = Calls()
    with running(made(refusing(calls), ClientConfig(server=server.url))):
        api.create(bucket("a"))
        calls.wait_for("follow")
        eventually(lambda: bool(told(api)))
    ((name, reason, note),) = told(api)
    assert (name, reason) == ("a", "Failing")
    assert note.endswith(
        "refuse failed: TerminalError: spec.size: 100 at most; not tried again before the object "
        "changes"
    )


def test_failures_that_are_repeated_are_none_and_the_last_one_of_a_limit_is(
    server: APIServer, api: Client
) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.on_add(BUCKET, retry=ConstantBackoff(0.01, max_calls=3))
    def refuse(obj: Object[Any, Any]) -> None:
        calls.add("call")
        raise ConnectionError("no storage")

    with running(made(app, ClientConfig(server=server.url))):
        api.create(bucket("a"))
        calls.wait_for("call", 3)
        eventually(lambda: bool(told(api)))
        api.patch(BUCKET, "a", MergePatch({"spec": {"size": 5}}), namespace="default")
        calls.wait_for("call", 6)
    assert calls.all.count("call") == 6
    # The second one is a repetition of the first.
    ((_, _, note),) = told(api)
    assert note.endswith("ConnectionError: no storage; given up")


def test_events_that_are_forbidden_cost_one_line(
    server: APIServer, api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    calls = Calls()
    caplog.set_level(logging.DEBUG, "appsdk_operator.manager")
    server.inject([FaultRule.answer(403, verb="create", kind=EVENT)])
    with running(made(refusing(calls), ClientConfig(server=server.url))):
        for name in ("a", "b", "c"):
            api.create(bucket(name))
        calls.wait_for("follow", 3)
        # All before the stop, which counts those that are refused from then on.
        eventually(lambda: caplog.text.count("could not be written") == 3)
    warned = [each for each in caplog.records if "could not be written" in each.message]
    assert [each.levelname for each in warned if each.levelname != "DEBUG"] == ["WARNING"]
    assert told(api) == []


@pytest.mark.parametrize("given", [False, None])
def test_an_app_may_leave_them_out(server: APIServer, api: Client, given: bool | None) -> None:
    calls = Calls()
    app = refusing(calls, failure_events=given)
    assert app.options.failure_events is None
    with running(made(app, ClientConfig(server=server.url))):
        api.create(bucket("a"))
        calls.wait_for("follow")
    assert told(api) == []


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"failure_events": FailureEvents(lasting=0)},
        {"failure_events": FailureEvents(after=None)},
    ],
)
def test_the_history_of_a_world_has_them_if_the_app_asks(given: dict[str, Any]) -> None:
    with World(refusing(Calls(), **given)) as world:
        world.create("a", {"size": 1})
        world.settle()
        assert bool(list(world.client.list(EVENT))) is bool(given)
