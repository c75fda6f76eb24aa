"""What was handled outlives the process: on the embedded and on a real API server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.client import Client, ClientConfig, MergePatch
from appsdk_operator.resource import Kind, MutableObject, Object, field, labels
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer, install_crds
from tests.app.test_managers import Calls, running
from tests.shared_plane import SharedPlane
from tests.waiting import eventually

THING = Kind(group="example.com", version="v1", kind="Thing")
SECRET = kinds.core.v1.Secret
KEY = "thing-operator.appsdk-operator.io/handled"


@pytest.fixture(params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def config(request: pytest.FixtureRequest) -> Iterator[ClientConfig]:
    if request.param == "embedded":
        with APIServer() as server:
            yield ClientConfig(server=server.url)
        return
    shared: SharedPlane = request.getfixturevalue("shared_plane")
    with shared.lent() as plane:
        yield plane.client_config()


def made(calls: Calls) -> App:
    app = App("thing-operator", remember=[THING, SECRET])
    app.own(THING)

    @app.on_add(THING)
    def make(thing: Object) -> None:
        calls.add(("add", thing.name))

    @app.on_update(THING)
    def change(old: Object, new: Object) -> None:
        calls.add(("change", new.name, old.spec["a"], new.spec["a"]))

    @app.on_update(THING, when=field("spec.b").changed)
    def change_b(old: Object, new: Object) -> None:
        calls.add(("b", new.name, old.spec.get("b"), new.spec.get("b")))

    @app.on_delete(THING, where=labels("backup"))
    def remove(thing: Object) -> None:
        calls.add(("remove", thing.name))

    # Without a finalizer.
    @app.on_update(SECRET, where=labels("thing"), when=field("data.token").changed)
    def rotate(old: Object, new: Object) -> None:
        calls.add(("rotate", new["data"]["token"]))

    return app


def change(api: Client, name: str, **content: Any) -> None:
    api.patch(THING, name, MergePatch(content), namespace="default")


def test_what_changed_while_the_operator_was_down_is_an_update(config: ClientConfig) -> None:
    calls = Calls()
    with Client(config) as api:
        app = made(calls)
        install_crds(api, app.crds())
        with running(app.manager(config, metrics=Metrics())):
            for name in ("plain", "noted", "backed"):
                thing = MutableObject.new(THING, name, namespace="default", spec={"a": 1})
                if name == "noted":
                    thing.annotations["example.com/a.b"] = "c"
                if name == "backed":
                    thing.labels["backup"] = "yes"
                api.create(thing)
            secret = MutableObject.new(SECRET, "s", namespace="default", data={"token": "eA=="})
            secret.labels["thing"] = "yes"
            api.create(secret)
            for name in ("plain", "noted", "backed"):
                wait_until_recorded(api, THING, name)
            wait_until_recorded(api, SECRET, "s")
            change(api, "plain", spec={"a": 2})
            calls.wait_for(("change", "plain", 1, 2))
            eventually(lambda: '"a":2' in record_of(api, THING, "plain"))
            change(api, "backed", metadata={"labels": {"backup": None}})
        before = len(calls.all)
        change(api, "plain", spec={"a": 3})
        change(api, "noted", spec={"b": 7})
        api.delete(THING, "backed", namespace="default")
        token = MergePatch({"data": {"token": "eQ=="}})
        api.patch(SECRET, "s", token, namespace="default")
        with running(app.manager(config, metrics=Metrics())):
            calls.wait_for(("change", "plain", 2, 3))
            calls.wait_for(("b", "noted", None, 7))
            calls.wait_for(("remove", "backed"))
            calls.wait_for(("rotate", "eQ=="))
            eventually(lambda: '"a":3' in record_of(api, THING, "plain"))
            eventually(lambda: "7" in record_of(api, THING, "noted"))
        assert "eQ==" not in record_of(api, SECRET, "s")
        assert api.get(THING, "noted", namespace="default").annotations["example.com/a.b"] == "c"
        versions = {each.name: each.resource_version for each in api.list(THING)}
        after = calls.all[before:]
        assert sorted(after, key=str) == [
            ("b", "noted", None, 7),
            ("change", "noted", 1, 1),
            ("change", "plain", 2, 3),
            ("remove", "backed"),
            ("rotate", "eQ=="),
        ]
        with running(app.manager(config, metrics=Metrics())):
            # Another object shows that the operator has gone past these.
            api.create(MutableObject.new(THING, "last", namespace="default", spec={"a": 1}))
            wait_until_recorded(api, THING, "last")
        assert calls.all[before + len(after) :] == [("add", "last")]
        assert {each.name: each.resource_version for each in api.list(THING)}.items() >= (
            versions.items()
        )


def record_of(api: Client, kind: Kind, name: str) -> str:
    return api.get(kind, name, namespace="default").annotations.get(KEY, "")


def wait_until_recorded(api: Client, kind: Kind, name: str) -> None:
    def is_recorded() -> bool:
        text = record_of(api, kind, name)
        return bool(text) and '"new"' not in text

    eventually(is_recorded)
