"""Undecodable objects: they affect no others, and each is reported once."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from appsdk_operator.cache import Informer
from appsdk_operator.resource import DecodeError, ListPage, Object, decode_list, encode_json
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import (
    THING,
    BatchRecorder,
    NoJitter,
    ScriptedClient,
    Stream,
    bookmark,
    check_history,
    data,
    line,
    thing,
)
from tests.hypothesis_profiles import scaled


def odd(name: str = "odd", version: int = 5, **more: Any) -> dict[str, Any]:
    """A thing whose header does not fit."""
    made = data(name, version, **more)
    made["metadata"]["generation"] = "many"
    return made


def listed(*items: Any, version: int = 10) -> ListPage:
    """A page as the client reads it."""
    texts = [item if isinstance(item, bytes) else encode_json(item) for item in items]
    body = b'{"metadata":{"resourceVersion":"%d"},"items":[%s]}' % (version, b",".join(texts))
    return decode_list(THING, body)


class Steps:
    """An informer that makes one request at a time."""

    def __init__(self, *answers: Any, stream: bool = False) -> None:
        self.client = ScriptedClient(*answers)
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.errors: list[Exception] = []
        self.informer = Informer(
            THING,
            self.client,
            stream_first_sync=stream,
            on_error=self.errors.append,
            clock=self.clock,
            metrics=self.metrics,
            rng=NoJitter(),
        )
        self.recorder = BatchRecorder()
        self.informer.add_event_handler(self.recorder)
        self.stop = StopSignal(clock=self.clock)

    def run(self, count: int = 1) -> Steps:
        for _ in range(count):
            while seconds := self.informer.step(self.stop):
                self.clock.advance(seconds)
        return self

    @property
    def names(self) -> list[str]:
        return sorted(obj.name for obj in self.informer.store.list())

    @property
    def calls(self) -> list[str]:
        return self.recorder.calls

    @property
    def text(self) -> str:
        return self.informer.health().text.partition("ok, ")[2]


def test_an_item_that_cannot_be_read_costs_itself_alone_and_is_a_problem_once():
    stream = Stream([line("MODIFIED", thing("a", 11))])
    steps = Steps(listed(data("a", 1), odd(), data("b", 2)), stream).run(2)
    assert steps.informer.has_synced
    assert steps.names == ["a", "b"]
    assert steps.calls == ["add a@1 initial", "add b@2 initial", "update a@1->11"]
    [error] = steps.errors
    assert isinstance(error, DecodeError)
    assert "things.example.com: x/odd (resourceVersion 5) cannot be read" in str(error)
    assert "generation" in str(error)
    health = steps.informer.health()
    assert health.is_ready
    assert health.text.endswith("ok, 2 objects; 1 cannot be read: x/odd")
    assert steps.informer.undecodable_objects == 1


def test_it_is_not_reported_again_while_it_stays_so():
    error_event = line("ERROR", {"kind": "Status", "code": 410})
    steps = Steps(
        listed(odd(version=5)),
        Stream([line("MODIFIED", odd(version=11)), line("MODIFIED", odd(version=12)), error_event]),
        listed(odd(version=12), version=12),
        Stream(),
    ).run(4)
    assert [str(e).partition(" cannot")[0] for e in steps.errors if isinstance(e, DecodeError)] == [
        "things.example.com: x/odd (resourceVersion 5)"
    ]
    assert steps.informer.resource_version == "12"


@pytest.mark.parametrize("way", ["list", "watch"])
def test_the_last_state_that_could_be_read_stays_until_it_is_mended(way):
    bad = line("MODIFIED", odd("a", 11))
    ways = {
        "list": [Stream([line("ERROR", {"code": 410})]), listed(odd("a", 11), version=11)],
        "watch": [Stream([bad])],
    }[way]
    steps = Steps(listed(data("a", 1)), *ways).run(1 + len(ways))
    assert steps.calls == ["add a@1 initial"]
    assert steps.informer.store.get("a", "x").resource_version == "1"
    assert steps.text == "1 object; 1 cannot be read: x/a"
    steps.client.then(Stream([line("MODIFIED", thing("a", 12))]))
    steps.run()
    assert steps.calls == ["add a@1 initial", "update a@1->12"]
    assert steps.text == "1 object"
    assert steps.informer.undecodable_objects == 0


def test_it_is_a_problem_again_after_it_was_mended():
    steps = Steps(
        listed(odd("a", 1)),
        Stream([line("MODIFIED", thing("a", 11)), line("MODIFIED", odd("a", 12))]),
    ).run(2)
    assert len(steps.errors) == 2
    assert steps.text == "1 object; 1 cannot be read: x/a"


@pytest.mark.parametrize("name", ["a", "other"])
def test_a_deletion_that_cannot_be_read_is_a_deletion(name):
    stream = Stream([line("MODIFIED", odd(name, 11)), line("DELETED", odd(name, 12))])
    steps = Steps(listed(data("a", 1)), stream).run(2)
    assert steps.names == ([] if name == "a" else ["a"])
    assert steps.calls[1:] == (["delete a@1 unknown"] if name == "a" else [])
    assert steps.informer.undecodable_objects == 0


def test_another_object_of_the_name_ends_the_one_before():
    steps = Steps(
        listed(data("a", 1), data("b", 2)),
        Stream([line("ADDED", odd("a", 11, uid="new")), line("ERROR", {"code": 410})]),
        listed(odd("a", 11, uid="new"), odd("b", 12, uid="new"), version=12),
    ).run(3)
    assert steps.calls[2:] == ["delete a@1 unknown", "delete b@2 unknown"]
    assert steps.names == []


def test_a_late_event_of_an_older_object_changes_nothing():
    steps = Steps(listed(data("a", 11)), Stream([line("DELETED", odd("a", 5))])).run(2)
    assert steps.names == ["a"]
    steps = Steps(listed(data("a", 20)), Stream([line("DELETED", odd("a", 15))])).run(2)
    assert steps.names == ["a"]


def test_a_list_with_a_nameless_item_deletes_nothing_since_that_may_be_any():
    steps = Steps(
        listed(data("a", 1), data("b", 2)),
        Stream([line("ERROR", {"code": 410})]),
        listed(data("b", 2), b"[]"),
        Stream([line("ERROR", {"code": 410})]),
        listed(data("b", 2), version=11),
    ).run(3)
    assert steps.names == ["a", "b"]
    assert steps.text == "2 objects; 1 cannot be read: an object without a readable name"
    steps.run(2)
    assert steps.names == ["b"]
    assert steps.text == "1 object"


def test_a_nameless_deletion_leads_to_a_list():
    steps = Steps(
        listed(data("a", 1)), Stream([b'{"type":"DELETED","object":5}']), listed(version=11)
    ).run(3)
    assert steps.client.verbs == ["list", "watch", "list"]
    assert steps.names == []


def test_a_streamed_list_keeps_what_it_cannot_read():
    first = Stream([line("ADDED", thing("a", 1)), bookmark(10, ends_initial=True)], then="end")
    steps = Steps(first, Stream([line("ERROR", {"code": 410})]), stream=True).run(2)
    second = Stream(
        [
            line("ADDED", odd("a", 11)),
            line("ADDED", thing("b", 12)),
            bookmark(12, ends_initial=True),
        ]
    )
    steps.client.then(second)
    steps.run()
    assert steps.client.verbs == ["stream", "watch", "stream"]
    assert steps.names == ["a", "b"]
    assert steps.text == "2 objects; 1 cannot be read: x/a"


def test_many_are_counted_and_few_are_named():
    steps = Steps(listed(*(odd(f"o{number}") for number in range(5)))).run()
    assert steps.text == "0 objects; 5 cannot be read: x/o0, x/o1, x/o2 and 2 more"
    steps.informer._informer_metrics.publish()
    labels = {"kind": str(THING), "namespace": ""}
    assert steps.metrics.value("informer_undecodable_objects", **labels) == 5


ITEMS = st.one_of(
    st.sampled_from(
        [
            b"5",
            b"null",
            b"\xff",
            b"nul",
            b'{"metadata":{"name":5}}',
            b"[" * 3_000 + b"]" * 3_000,
            encode_json(odd("d", 30)),
            encode_json(odd("c", 30, uid="new")),
            encode_json({**data("c", 30), "kind": "Other"}),
            b'{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"deep",'
            b'"namespace":"x","uid":"d","resourceVersion":"30"},"spec":'
            + b'{"a":' * 500
            + b"1"
            + b"}" * 500
            + b"}",
        ]
    ),
    # Of the object that is there, and of another one without a namespace.
    st.builds(
        lambda place, noise: (
            b'{"metadata":{"name":"c",%s"x":%s}}'
            % (place, bytes(byte for byte in noise if byte not in b'[]{},"\\\n'))
        ),
        st.sampled_from([b'"namespace":"x",', b""]),
        st.one_of(st.binary(max_size=10), st.just(b"0")),
    ),
)


def is_well(raw: bytes) -> bool:
    try:
        Object.from_json(THING, raw)
    except DecodeError:
        return False
    return True


@given(
    bad=ITEMS,
    way=st.sampled_from(["list", "stream", "watch"]),
    place=st.integers(0, 2),
    type_=st.sampled_from(["ADDED", "MODIFIED"]),
)
@settings(max_examples=scaled(100), deadline=None)
def test_whatever_bytes_one_object_has_all_others_arrive_and_go_on(bad, way, place, type_):
    versions = (11, 12) if place == 2 else (11, 32) if place == 1 else (31, 32)
    items = [encode_json(data(*of)) for of in zip(("a", "b"), versions, strict=True)]
    items.insert(place, bad)
    lines = [b'{"type":"%s","object":%s}' % (type_.encode(), item) for item in items]
    if way == "list":
        steps = Steps(listed(*items, version=30), Stream())
    elif way == "stream":
        steps = Steps(Stream([*lines, bookmark(30, ends_initial=True)]), stream=True)
    else:
        steps = Steps(listed(data("c", 1)), Stream(lines))
    steps.run(2 if way != "stream" else 1)
    steps.client.then(Stream([line("MODIFIED", thing("b", 40)), line("DELETED", thing("a", 41))]))
    steps.run()
    assert steps.informer.has_synced
    assert "a" not in steps.names
    found = steps.informer.store.get("b", "x")
    assert isinstance(found, Object)
    assert found.resource_version == "40"
    problems = [error for error in steps.errors if isinstance(error, DecodeError)]
    if is_well(bad):
        present = {("x", "b"), tuple(Object.from_json(THING, bad).key)}
        if way == "watch":
            present.add(("x", "c"))
        assert len(steps.names) == len(present)
        assert problems == []
    else:
        assert len(problems) == steps.informer.undecodable_objects == 1
    check_history(steps.recorder.events)
