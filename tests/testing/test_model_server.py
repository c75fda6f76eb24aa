"""The model of a server in simulations agrees with the server, whatever is asked of both."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.client import ApiError, JsonPatch, MergePatch
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    custom_resource_definition,
    decode_watch_event,
)
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.testing import MemoryServer, ModelServer
from tests.hypothesis_profiles import scaled

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
CRD = custom_resource_definition(WIDGET).to_dict()

names = st.sampled_from(["a", "b"])
finalizers = st.lists(st.sampled_from(["example.com/x", "example.com/y"]), unique=True)
steps = st.one_of(
    st.tuples(st.just("create"), names, finalizers),
    st.tuples(st.just("spec"), names, st.integers(0, 2)),
    st.tuples(st.just("status"), names, st.integers(0, 2)),
    st.tuples(st.just("label"), names, st.integers(0, 1)),
    st.tuples(st.just("finalizers"), names, finalizers),
    st.tuples(st.just("stale patch"), names, st.none()),
    st.tuples(st.just("failing test"), names, st.none()),
    st.tuples(st.sampled_from(["patch of all", "status patch"]), names, st.integers(0, 2)),
    st.tuples(st.just("stale status patch"), names, st.none()),
    st.tuples(st.just("delete"), names, st.none()),
    st.tuples(st.just("get"), names, st.none()),
    st.tuples(st.just("compact"), st.just(""), st.none()),
)


class Model:
    """The model, asked as the server is."""

    def __init__(self) -> None:
        self.server = ModelServer(WIDGET)
        self.begin = self.server.resource_version

    def do(self, what: str, name: str, value: Any) -> Object | None:
        server = self.server
        match what:
            case "create":
                return server.create(name, spec={"n": 0}, finalizers=value)
            case "spec":
                return server.change(name, spec={"n": value})
            case "status":
                return server.change(name, status={"n": value})
            case "label":
                return server.change(name, labels={"n": str(value)})
            case "delete":
                server.delete(name)
                return None
            case "compact":
                server.compact()
                return None
            case _:
                return _asked(server, what, name, value)


class Real:
    """The server, without its socket."""

    def __init__(self) -> None:
        self.server = MemoryServer(clock=ManualClock(), crds=[CRD], ends_idle_watches=True)
        self.client = self.server.client(metrics=Metrics())
        self.begin = self.client.list_page(WIDGET).resource_version

    def do(self, what: str, name: str, value: Any) -> Object | None:
        client = self.client

        def patch(changes: dict[str, Any]) -> Object:
            return client.patch(WIDGET, name, MergePatch(changes), namespace="default")

        match what:
            case "create":
                obj = MutableObject.new(WIDGET, name, namespace="default")
                obj["spec"] = {"n": 0}
                obj.metadata["finalizers"] = value
                return client.create(obj)
            case "spec":
                return patch({"spec": {"n": value}})
            case "status":
                changes = MergePatch({"status": {"n": value}})
                return client.status.patch(WIDGET, name, changes, namespace="default")
            case "label":
                return patch({"metadata": {"labels": {"n": str(value)}}})
            case "delete":
                client.delete(WIDGET, name, namespace="default")
                return None
            case "compact":
                self.server.api.compact()
                return None
            case _:
                return _asked(client, what, name, value)


def _asked(client: Any, what: str, name: str, value: Any) -> Object:
    """What both are asked in the same words."""
    if what == "finalizers":
        patch: Any = MergePatch({"metadata": {"finalizers": value}})
    elif what == "stale patch":
        patch = MergePatch({"metadata": {"resourceVersion": "1", "labels": {"n": "9"}}})
    elif what == "patch of all":
        patch = MergePatch({"spec": {"n": value}, "status": {"n": 8}})
    elif what in ("status patch", "stale status patch"):
        metadata: dict[str, Any] = {"labels": {"n": "8"}, "finalizers": ["example.com/z"]}
        if value is None:
            metadata["resourceVersion"] = "1"
        patch = MergePatch({"status": {"n": value}, "spec": {"n": 8}, "metadata": metadata})
        shown: Object = client.status.patch(WIDGET, name, patch, namespace="default")
        return shown
    elif what == "failing test":
        patch = JsonPatch([{"op": "test", "path": "/spec/n", "value": 77}])
    else:
        found: Object = client.get(WIDGET, name, namespace="default")
        return found
    written: Object = client.patch(WIDGET, name, patch, namespace="default")
    return written


def told(side: Model | Real, step: tuple[str, str, Any]) -> Any:
    try:
        obj = side.do(*step)
    except ApiError as error:
        return type(error).__name__
    return None if obj is None else plain(obj)


def plain(obj: Object) -> Any:
    return (
        obj.name,
        obj.generation,
        obj.spec,
        obj.status,
        dict(obj.labels),
        list(obj.finalizers),
        obj.is_deleting,
    )


def listed(client: Any) -> list[Any]:
    return [plain(obj) for obj in client.list_page(WIDGET, limit=0).items]


def watched(client: Any, since: str) -> Any:
    seen: list[Any] = []
    try:
        with client.watch(WIDGET, resource_version=since, timeout=300.0) as stream:
            for lines in stream:
                for line in lines:
                    event = decode_watch_event(WIDGET, line)
                    if event.status is not None:
                        return event.status["reason"]
                    if event.object is not None and event.type.value != "BOOKMARK":
                        seen.append((event.type.value, plain(event.object)))
    except ApiError as error:
        return error.reason
    return seen


@settings(max_examples=scaled(60), deadline=None)
@given(history=st.lists(steps, max_size=25))
@example(
    history=[
        ("create", "a", ["example.com/x"]),
        ("delete", "a", None),
        ("finalizers", "a", []),
    ]
)
def test_both_give_the_same_answers_lists_and_events(history: list[Any]) -> None:
    model, real = Model(), Real()
    with real.server:
        for step in history:
            assert told(model, step) == told(real, step), step
            assert sorted(listed(model.server)) == sorted(listed(real.client))
        assert watched(model.server, model.begin) == watched(real.client, real.begin)
