"""What functions return, in the status of their objects."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator import kinds
from appsdk_operator.app import App
from appsdk_operator.app._results import ResultWriter
from appsdk_operator.client import (
    Client,
    ClientConfig,
    Hooks,
    InterceptedClient,
    MergePatch,
    NotFound,
)
from appsdk_operator.resource import Kind, MutableObject, Object, field
from appsdk_operator.testing import APIServer, MemoryServer, World, install_crds
from tests.app.test_app import BUCKET, BucketSpec, nothing
from tests.app.test_managers import Calls, api, bucket, config, made, running
from tests.definitions import widget_definition
from tests.waiting import eventually

__all__ = ["api", "config"]

OPEN = {"x-kubernetes-preserve-unknown-fields": True}
WIDGET: Kind[Any, Any] = Kind(group="example.com", version="v1", kind="Widget")


@attrs.frozen
class Endpoint:
    """Where a thing is."""

    host_name: str
    port: int = 80


@attrs.frozen
class ThingStatus:
    """What the operator says."""

    url: str = ""
    endpoint: Endpoint | None = None
    seen: dict[str, int] = attrs.field(factory=dict)


THING: Kind[Any, ThingStatus] = Kind(
    group="example.com", version="v1", kind="Thing", status=ThingStatus
)


def status_of(world: World, name: str = "a") -> Any:
    [found] = [o for o in world.server.objects(THING) if o["metadata"]["name"] == name]
    return found["status"]


def status_writes(world: World) -> list[str]:
    return [e.line for e in world.journal.of("write") if "status" in e.line]


def test_the_value_is_written_to_the_status_once() -> None:
    app = App("thing-operator")

    @app.on_add(THING, result="status.url")
    def make(obj: Object[Any, ThingStatus]) -> str:
        return f"https://{obj.name}"

    @app.every(10, THING, result="status.seen")
    async def look(obj: Object[Any, ThingStatus]) -> dict[str, int]:
        return {"a": 1}

    with World(app) as world:
        world.create("a", {})
        world.run(100.0)
        assert status_of(world) == {"url": "https://a", "seen": {"a": 1}}
        assert len(status_writes(world)) == 2


def test_a_value_replaces_the_former_one_as_a_whole_and_none_leaves_it() -> None:
    app, values = App("thing-operator"), [{"a": 1, "b": 2}, {"b": 3}, None, None, {}]

    @app.every(10, THING, result="status.seen")
    def look(obj: Object[Any, ThingStatus]) -> dict[str, int] | None:
        return values.pop(0) if len(values) > 1 else values[0]

    with World(app) as world:
        world.create("a", {})
        seen = []
        for seconds in (5.0, 10.0, 10.0, 10.0, 10.0):
            world.run(seconds)
            seen.append(status_of(world)["seen"])
    assert seen == [{"a": 1, "b": 2}, {"b": 3}, {"b": 3}, {"b": 3}, {}]


def test_a_value_may_be_of_the_class_of_the_field() -> None:
    app = App("thing-operator")

    @app.on_add(THING, result="status.endpoint")
    def make(obj: Object[Any, ThingStatus]) -> Endpoint:
        return Endpoint("a.example.com", 8080)

    with World(app) as world:
        world.create("a", {})
        world.settle()
        assert status_of(world)["endpoint"] == {
            "host_name": "a.example.com",
            "port": 8080,
        }


def test_a_kind_without_the_subresource_gets_it_with_its_body() -> None:
    plain: Kind[Any, Any] = Kind(group="example.com", version="v1", kind="Plain")
    app, calls = App("plain-operator"), Calls()
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "plains.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Plain", "plural": "plains"},
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "x-kubernetes-preserve-unknown-fields": True,
                        }
                    },
                }
            ],
        },
    }

    @app.on_add(plain, result="status.url")
    def make(obj: Object[Any, Any]) -> str:
        calls.add(obj.name)
        return obj.name

    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        definition = Object.from_dict(kinds.apiextensions.v1.CustomResourceDefinition, crd)
        install_crds(client, [definition.mutable_copy()])
        with running(made(app, ClientConfig(server=server.url))):
            for name in ("a", "b"):
                client.create(MutableObject.new(plain, name, namespace="default"))
                calls.wait_for(name)
                eventually(
                    lambda name=name: (
                        client.get(plain, name, namespace="default").get("status") == {"url": name}
                    )
                )


def test_an_object_that_is_gone_meanwhile_gets_nothing(api: Client, config: ClientConfig) -> None:
    app, calls = App("bucket-operator"), Calls()

    @app.every(3600, BUCKET, result="status.url")
    def look(obj: Object[BucketSpec]) -> str:
        api.delete(BUCKET, obj.name, namespace="default")
        calls.add(obj.uid)
        return "late"

    with running(made(app, config)) as manager:
        one = api.create(bucket("a"))
        calls.wait_for(one.uid)
        eventually(lambda: manager.cache.get(BUCKET, "a", namespace="default") is None)
    assert calls.all == [one.uid]


URL = field("status.url")


@pytest.fixture
def is_apart() -> bool:
    """Whether the status is written apart."""
    return True


@pytest.fixture
def widgets(is_apart: bool) -> Iterator[Client]:
    """Of a server of widgets."""
    crd = widget_definition({**OPEN, "properties": {"spec": {"type": "object", **OPEN}}})
    if not is_apart:
        del crd["spec"]["versions"][0]["subresources"]
    with MemoryServer(crds=[crd]) as server, server.client() as client:
        yield client


def widget(client: Client, name: str) -> Object[Any, Any]:
    return client.create(MutableObject.new(WIDGET, name, namespace="default", spec={"size": 1}))


def url_of(client: Client, name: str) -> Any:
    return URL.value(client.get(WIDGET, name, namespace="default"))


def test_an_object_that_is_made_anew_meanwhile_costs_no_other_its_result(widgets: Client) -> None:
    old, other, steps = widget(widgets, "a"), widget(widgets, "other"), [True, True]

    def delete_first(inner: Any, kind: Any, name: str, patch: Any, **options: Any) -> Any:
        if len(steps) == 2:
            steps.pop()
            widgets.delete(WIDGET, "a", namespace="default")
        return inner.patch(kind, name, patch, **options)

    def create_first(inner: Any, *args: Any, **options: Any) -> Any:
        if len(steps) == 1:
            steps.pop()
            widget(widgets, "a")
        return inner.patch(*args, **options)

    hooks = Hooks(subresource_patch=delete_first, patch=create_first)
    writer = ResultWriter(WIDGET, InterceptedClient(widgets, hooks))
    writer.write(old, URL, "https://old")
    writer.write(other, URL, "https://other")
    assert url_of(widgets, "other") == "https://other"


@pytest.mark.parametrize("is_apart", [True, False])
def test_a_value_is_not_written_to_the_next_object_of_the_name(
    widgets: Client, is_apart: bool
) -> None:
    old = widget(widgets, "a")
    widgets.delete(WIDGET, "a", namespace="default")
    widget(widgets, "a")
    other, reads = widget(widgets, "other"), list[Object]()

    def get(inner: Any, *args: Any, **options: Any) -> Any:
        return reads.pop() if reads else inner.get(*args, **options)  # the cache lags behind

    writer = ResultWriter(WIDGET, InterceptedClient(widgets, Hooks(get=get)))
    writer.write(other, URL, "https://other")
    assert url_of(widgets, "other") == "https://other"
    reads.append(old)
    writer.write(old, URL, "https://old")
    assert url_of(widgets, "a") is None


def test_a_subresource_that_is_not_served_for_a_moment_is_asked_for_again(widgets: Client) -> None:
    one, failing = widget(widgets, "a"), [True]

    def patch(inner: Any, *args: Any, **options: Any) -> Any:
        if failing[0]:
            raise NotFound("404 page not found", status=404)
        return inner.patch(*args, **options)

    writer = ResultWriter(WIDGET, InterceptedClient(widgets, Hooks(subresource_patch=patch)))
    with pytest.raises(NotFound, match="page not found"):
        writer.write(one, URL, "https://a")
    failing[0] = False
    writer.write(one, URL, "https://a")
    assert url_of(widgets, "a") == "https://a"


def test_a_value_is_written_although_others_write_the_status_at_the_same_time(
    widgets: Client,
) -> None:
    one = widget(widgets, "a")
    others = MergePatch({"status": {"phase": "ready"}})
    widgets.status.patch(WIDGET, "a", others, namespace="default")
    reads = [one]

    def get(inner: Any, *args: Any, **options: Any) -> Any:
        return reads.pop() if reads else inner.get(*args, **options)

    ResultWriter(WIDGET, InterceptedClient(widgets, Hooks(get=get))).write(one, URL, "https://a")
    assert widgets.get(WIDGET, "a", namespace="default")["status"] == {
        "phase": "ready",
        "url": "https://a",
    }


def test_a_write_that_fails_is_a_failure_of_the_call() -> None:
    app, calls = App("thing-operator"), Calls()

    @app.on_add(THING, result="status.seen")
    def make(obj: Object[Any, ThingStatus]) -> Any:
        calls.add(obj.name)
        return {"a": "no number"} if len(calls.all) == 1 else {"a": 1}

    with World(app) as world:
        world.create("a", {})
        world.settle()
        assert status_of(world)["seen"] == {"a": 1}
    assert calls.all == ["a", "a"]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ("status.ur", r"result: .*'status.ur'.* did you mean 'url'"),
        ("status", "name a field of the status"),
        ("spec.size", "name a field of the status"),
        ("metadata.labels['a']", "name a field of the status"),
        ("status.seen[0]", "name a field of the status"),
        ("status..url", "not a path to a field"),
    ],
)
def test_a_path_that_cannot_be_written_is_refused(result: str, text: str) -> None:
    app = App("thing-operator")
    for decorator in (app.on_add, app.on_sync, app.on_update):
        with pytest.raises(ValueError, match=text):
            decorator(THING, result=result)
    with pytest.raises(ValueError, match=text):
        app.every(10, THING, result=result)


def test_a_path_is_checked_against_a_schema_that_comes_later() -> None:
    app = App("thing-operator")
    kind: Kind[Any, Any] = Kind(group="example.com", version="v1", kind="Other")
    app.on_add(kind, result="status.ur")(lambda obj: "a")
    schema = {"type": "object", "properties": {"url": {"type": "string"}}}
    with pytest.raises(ValueError, match="did you mean 'url'"):
        app.own(kind, schema={"type": "object", "properties": {"status": schema}})


def test_a_timer_without_a_kind_and_what_is_no_text_are_refused() -> None:
    app = App("thing-operator")
    every: Any = app.every
    with pytest.raises(TypeError, match="result= is about objects"):
        every(10, result="status.url")
    on_add: Any = app.on_add
    with pytest.raises(TypeError, match="result"):
        on_add(THING, result=3)


def test_without_a_path_a_value_is_an_error_that_names_the_option() -> None:
    app, seen = App("thing-operator"), Calls()

    @app.on_add(THING)
    def make(obj: Object[Any, ThingStatus]) -> str:
        seen.add(obj.name)
        return "https://a"

    with World(app) as world:
        world.create("a", {})
        world.run(1.0)
        [failed] = [e for e in world.journal.of("function") if e.error is not None]
    assert "give the decorator result='status.…'" in str(failed.error)


def test_its_permission_says_why() -> None:
    app = App("thing-operator")
    app.on_add(kinds.core.v1.Pod, result="status.message")(nothing)
    found = {each.resources: each for each in app.permissions()}
    status, pods = found["pods/status",], found["pods",]
    assert status.verbs == ("patch",)
    assert status.reasons == ("what functions return is written to status.message of pods",)
    assert "get" in pods.verbs
    assert "status.message is written to the current state of pods" in pods.reasons
