"""Objects and watches of other libraries."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from appsdk_operator.cache import ForeignStream
from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    UndecodableEvent,
    WatchEventType,
    WrongKindError,
    as_object,
    decode_watch_event,
    decode_watch_events,
)

POD = Kind(group="", version="v1", kind="Pod")
SECRET = Kind(group="", version="v1", kind="Secret")
DATA = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}}


class Wrapper:
    def unwrap_object(self) -> Object:
        return Object.from_dict(POD, DATA)


class Convertible:
    def into_object(self, kind: Kind) -> dict[str, Any]:
        return DATA


class Model:
    def to_dict(self) -> dict[str, Any]:
        return DATA


def test_an_object_is_used_as_it_is() -> None:
    obj = Object.from_dict(POD, DATA)
    assert as_object(POD, obj) is obj


@pytest.mark.parametrize(
    "value", [Wrapper(), Convertible(), Model(), DATA, MutableObject(POD, DATA)]
)
def test_what_carries_or_can_become_an_object_is_converted(value: Any) -> None:
    assert as_object(POD, value).to_dict() == DATA


@pytest.mark.parametrize("value", ["web", 1, None, SimpleNamespace(metadata={})])
def test_anything_else_is_an_error_that_names_its_type(value: Any) -> None:
    with pytest.raises(
        TypeError, match=rf"{type(value).__qualname__} is not an object of pods\.v1"
    ):
        as_object(POD, value)


def test_a_generated_model_is_sent_to_the_function_that_knows_its_names() -> None:
    class V1Pod(Model):
        attribute_map = {"api_version": "apiVersion"}  # noqa: RUF012 - as generated

    with pytest.raises(TypeError, match="from_model"):
        as_object(POD, V1Pod())


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(WrongKindError):
        as_object(SECRET, Object.from_dict(POD, DATA))


@pytest.mark.parametrize(
    "event",
    [
        ("MODIFIED", DATA),
        {"type": "MODIFIED", "object": Model()},
        {"type": "MODIFIED", "object": object(), "raw_object": DATA},
        SimpleNamespace(type="MODIFIED", object=Model()),
        (WatchEventType.MODIFIED, Wrapper()),
    ],
)
def test_a_foreign_watch_is_read_as_the_servers_own_stream(event: Any) -> None:
    with ForeignStream(POD, [event]) as stream:
        lines = [line for lines in stream for line in lines]
    (read,) = [decode_watch_event(POD, line) for line in lines]
    assert read.type is WatchEventType.MODIFIED
    assert read.object is not None
    assert read.object.to_dict() == DATA


def test_bookmarks_of_a_foreign_watch_pass() -> None:
    bookmark = {"metadata": {"resourceVersion": "7"}}
    ((line,),) = list(ForeignStream(POD, [("BOOKMARK", bookmark)]))
    assert decode_watch_event(POD, line).resource_version == "7"


@pytest.mark.parametrize(
    "more", [{"kind": "Secret"}, {"spec": json.loads('{"x":' * 600 + "1" + "}" * 600)}]
)
def test_an_object_that_cannot_be_decoded_ends_no_foreign_watch(more: dict[str, Any]) -> None:
    events = [("ADDED", {**DATA, **more}), ("MODIFIED", DATA)]
    lines = [line for lines in ForeignStream(POD, events) for line in lines]
    (first, second), garbage = decode_watch_events(POD, lines)
    assert garbage is None
    assert isinstance(first, UndecodableEvent)
    assert (first.type, first.undecodable.name) == (WatchEventType.ADDED, "web")
    assert second.object is not None


@pytest.mark.parametrize("event", ["ADDED", ("CHANGED", DATA), {"object": DATA}])
def test_what_is_no_event_is_an_error_that_names_its_type(event: Any) -> None:
    with pytest.raises(TypeError, match="is not a watch event"):
        list(ForeignStream(POD, [event]))


def test_a_foreign_watch_is_closed_with_the_stream() -> None:
    closed: list[bool] = []

    class Events(list[Any]):
        def close(self) -> None:
            closed.append(True)

    with ForeignStream(POD, Events()):
        pass
    assert closed == [True]
