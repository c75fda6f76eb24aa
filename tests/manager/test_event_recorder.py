"""The event recorder: what it writes, that it never waits, and how it ends."""

from __future__ import annotations

import logging
import threading

import pytest

from appsdk_operator.client import (
    Client,
    ClientConfig,
    Conflict,
    ConnectionLost,
    Forbidden,
    ServiceUnavailable,
)
from appsdk_operator.manager import EventBroadcaster, EventOptions, ObjectReference
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import APIServer
from tests.manager.event_fakes import (
    NODE,
    PATIENCE,
    POD,
    Store,
    clock,
    make,
    metrics,
    numbers,
    pod,
    record,
    store,
)
from tests.waiting import eventually

__all__ = ["clock", "make", "metrics", "store"]


def test_an_event_has_everything_that_the_server_asks_for(make, store):
    recorder = make().recorder("example.com/widgets")
    recorder.event(
        pod(),
        "Warning",
        "Failed",
        "Create",
        "no room",
        related=pod("other", "u2"),
        annotations={"a": "b"},
    )
    store.wait(lambda s: s.events)
    event = dict(store.only)
    name = event["metadata"].pop("name")
    assert name.startswith("web.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "x", "annotations": {"a": "b"}},
        "reason": "Failed",
        "type": "Warning",
        "action": "Create",
        "note": "no room",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "web",
            "namespace": "x",
            "uid": "u1",
        },
        "related": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "other",
            "namespace": "x",
            "uid": "u2",
        },
        "eventTime": "2023-11-14T22:13:20.250000Z",
        "reportingController": "example.com/widgets",
        "reportingInstance": "pod-1",
    }
    assert "hunter2" not in str(event)


def test_the_older_api_gets_its_own_fields(make, store, clock):
    recorder = make(options=EventOptions(legacy=True)).recorder("widgets")
    recorder.event(pod(), "Normal", "Made", "Make", "first")
    store.wait(lambda s: s.events)
    clock.advance(2)
    recorder.event(pod(), "Normal", "Made", "Make", "second")
    store.wait(lambda s: s.only["count"] == 2)
    event = store.only
    assert event["apiVersion"] == "v1"
    assert event["involvedObject"]["uid"] == "u1"
    assert event["source"] == {"component": "widgets", "host": "pod-1"}
    assert event["message"] == "second"
    assert event["firstTimestamp"] == "2023-11-14T22:13:20Z"
    assert event["lastTimestamp"] == "2023-11-14T22:13:22Z"
    assert "series" not in event


def test_repetitions_are_a_series_whatever_the_version_and_the_note(make, store, clock):
    broadcaster = make()
    recorder = broadcaster.recorder("widgets")
    for number in range(5):
        recorder.event(pod(version=str(number)), "Normal", "Made", "Make", f"note {number}")
        store.wait(lambda s: s.events)
        clock.advance(1)
    store.wait(lambda s: "series" in s.only)
    threading.Thread(target=broadcaster.flush).start()
    store.wait(lambda s: s.only["series"]["count"] == 5)
    assert store.only["series"]["lastObservedTime"] == "2023-11-14T22:13:24.250000Z"
    assert store.only["note"] == "note 0"


@pytest.mark.parametrize(
    "other",
    [
        {"obj": pod(uid="u2")},
        {"obj": pod("other")},
        {"reason": "Unmade"},
        {"related": pod("other")},
    ],
)
def test_what_differs_is_another_event(make, store, other):
    recorder = make().recorder("widgets")
    record(recorder)
    record(recorder, **other)
    store.wait(lambda s: len(s.events) == 2)


def test_two_controllers_have_two_events_and_a_name_one_recorder(make, store):
    broadcaster = make()
    assert broadcaster.recorder("a") is broadcaster.recorder("a")
    record(broadcaster.recorder("a"))
    record(broadcaster.recorder("b"))
    store.wait(lambda s: len(s.events) == 2)


@pytest.mark.parametrize(("legacy", "namespace"), [(False, "kube-system"), (True, "default")])
def test_events_about_cluster_scoped_objects_live_where_the_server_takes_them(
    make, store, legacy, namespace
):
    node = MutableObject.new(NODE, "n1")
    recorder = make(options=EventOptions(legacy=legacy)).recorder("widgets")
    record(recorder, node)
    store.wait(lambda s: s.events)
    assert store.only["metadata"]["namespace"] == namespace
    reference = store.only["involvedObject" if legacy else "regarding"]
    assert reference == {"apiVersion": "v1", "kind": "Node", "name": "n1"}
    record(recorder, node)
    store.wait(lambda s: "patch" in s.writes)


@pytest.mark.parametrize("name", ["system:node:a", "UPPER", "x" * 253, "a" + "-" * 240 + "b"])
def test_the_name_of_an_event_is_one_that_servers_take(make, store, name):
    record(make().recorder("widgets"), ObjectReference(NODE, name))
    store.wait(lambda s: s.events)
    (made,) = store.events
    assert len(made) <= 253
    assert made == made.lower()
    assert ":" not in made
    assert "-." not in made


@pytest.mark.parametrize(("note", "kept"), [("ä" * 512, 512), ("ä" * 513, 510), ("x" * 2000, 1021)])
def test_a_long_note_is_cut_at_a_whole_character(make, store, note, kept):
    make().recorder("widgets").event(pod(), "Normal", "Made", "Make", note)
    store.wait(lambda s: s.events)
    written = store.only["note"]
    assert len(written.encode()) <= 1024
    assert written.rstrip("…") == note[:kept]


def test_a_long_instance_is_cut(make, store):
    record(make(instance="i" * 200).recorder("widgets"))
    store.wait(lambda s: s.events)
    assert store.only["reportingInstance"] == "i" * 128


def test_the_server_counts_the_bytes_of_an_instance(make, store):
    record(make(instance="é" * 128).recorder("widgets"))
    store.wait(lambda s: s.events)
    assert store.only["reportingInstance"] == "é" * 64


def test_what_no_server_takes_is_refused_at_once(make, store):
    broadcaster = make()
    for name in ("", "two words", "a/b/c", "x" * 64, "Upper.Case/x", "d" * 126 + ".e/x"):
        with pytest.raises(ValueError, match="qualified name"):
            broadcaster.recorder(name)
    recorder = broadcaster.recorder("widgets")
    with pytest.raises(ValueError, match="'Normal' or 'Warning'"):
        recorder.event(pod(), "Error", "Made", "Make")  # type: ignore[arg-type]
    for reason, action in (("", "Make"), ("Made", ""), ("R" * 129, "Make"), ("Made", "ä" * 65)):
        with pytest.raises(ValueError, match="text for people into the note"):
            recorder.event(pod(), "Normal", reason, action)
    for reason, action in (("Deployed", "deployed 3 replicas"), ("is deployed", "Deploy")):
        with pytest.raises(ValueError, match=r"reason, action, note\).* note='"):
            recorder.event(pod(), "Normal", reason, action)
    with pytest.raises(ValueError, match="no name yet"):
        recorder.event(MutableObject.new(POD), "Normal", "Made", "Make")
    with pytest.raises(TypeError, match="ObjectReference"):
        recorder.event({"kind": "Pod"}, "Normal", "Made", "Make")  # type: ignore[arg-type]
    assert store.writes == []


def test_recording_does_not_wait_for_the_server(make, store, metrics):
    gate = threading.Event()
    store.fail = lambda verb: gate.wait(PATIENCE)
    recorder = make().recorder("widgets")
    record(recorder)
    store.wait(lambda s: s.writes)
    for number in range(10):
        record(recorder, reason=f"R{number}")
    assert numbers(metrics) == [11, 0, 0, 11]
    gate.set()
    store.wait(lambda s: len(s.events) == 11)


def test_floods_are_dropped_counted_and_said_once(make, metrics, caplog):
    recorder = make(options=EventOptions(burst=2)).recorder("widgets")
    for number in range(5):
        record(recorder, reason=f"R{number}")
    assert numbers(metrics)[:2] == [2, 3]
    (said,) = [r.message for r in caplog.records if "too many different" in r.message]
    assert said.startswith("too many different events about web: some are dropped, see the metric")


def test_a_full_memory_drops_what_is_new(make, store, metrics, caplog):
    gate = threading.Event()
    store.fail = lambda verb: gate.wait(PATIENCE)
    recorder = make(options=EventOptions(capacity=1)).recorder("widgets")
    record(recorder)
    for number in range(3):
        record(recorder, reason=f"R{number}")
    gate.set()
    assert numbers(metrics)[:2] == [1, 3]
    assert len([r for r in caplog.records if "wait to be written" in r.message]) == 1


@pytest.mark.parametrize(
    "error",
    [
        ConnectionLost("cut"),
        ServiceUnavailable("later", status=503),
        Conflict("somebody was quicker", status=409),
    ],
)
def test_what_passes_is_tried_again_after_a_pause(make, store, clock, metrics, error):
    failures = [error]

    def fail(verb):
        if failures:
            raise failures.pop()

    store.fail = fail
    record(make().recorder("widgets"))
    clock.block_until_waiting(1)
    assert store.events == {}
    clock.advance(10)
    store.wait(lambda s: s.events)
    assert store.writes == ["create", "create"]
    assert numbers(metrics)[2] == 0


def test_after_enough_attempts_it_is_given_up_and_said_once(make, store, clock, metrics, caplog):
    def fail(verb):
        raise ServiceUnavailable("never", status=503)

    store.fail = fail
    recorder = make(options=EventOptions(attempts=2)).recorder("widgets")
    record(recorder)
    record(recorder, reason="Other")
    clock.block_until_waiting(1)
    store.wait(lambda s: len(s.writes) == 2)
    clock.block_until_waiting(1)
    clock.advance(10)
    store.wait(lambda s: len(s.writes) == 4)
    with caplog.at_level(logging.WARNING):
        assert eventually(lambda: numbers(metrics)[2] == 2)
    assert len([r for r in caplog.records if "could not be written" in r.message]) == 1


def test_a_refusal_is_not_tried_again_and_the_thread_lives_on(make, store, metrics, caplog):
    errors = [RuntimeError("what"), Forbidden("namespace is being terminated", status=403)]

    def fail(verb):
        if errors:
            raise errors.pop()

    store.fail = fail
    recorder = make().recorder("widgets")
    for reason in ("A", "B", "C"):
        record(recorder, reason=reason)
    store.wait(lambda s: s.events)
    assert store.writes == ["create"] * 3
    assert eventually(lambda: numbers(metrics)[2:] == [2, 0])
    text = "event A about Pod web could not be written: 403 Forbidden: namespace is being"
    assert [r for r in caplog.records if r.message.startswith(text)]


def test_a_create_whose_answer_was_lost_is_not_made_twice(make, store, clock):
    recorder = make().recorder("widgets")
    lost = [True]

    class Losing(Store):
        def create(self, obj):
            made = super().create(obj)
            if lost:
                lost.pop()
                raise ConnectionLost("after it was sent")
            return made

    losing = Losing()
    store.create, store.events = losing.create, losing.events  # type: ignore[method-assign]
    record(recorder)
    clock.block_until_waiting(1)
    record(recorder)
    clock.advance(10)
    store.wait(lambda s: "series" in s.only)
    assert store.only["series"]["count"] == 2


def test_a_series_whose_event_was_deleted_begins_anew_with_its_count(make, store):
    recorder = make().recorder("widgets")
    record(recorder)
    store.wait(lambda s: s.events)
    with store.changed:
        store.events.clear()
    record(recorder)
    store.wait(lambda s: s.events)
    assert store.only["series"]["count"] == 2
    assert store.writes == ["create", "patch", "create"]


def test_series_exist_at_zero(make, metrics):
    make()
    assert numbers(metrics) == [0, 0, 0, 0]


@pytest.mark.parametrize("legacy", [False, True])
def test_both_apis_are_published_on_a_server(legacy):
    with (
        APIServer() as server,
        Client(ClientConfig(server=server.url), metrics=Metrics()) as client,
    ):
        draft = MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="default", data={})
        made = client.create(draft)
        options = EventOptions(legacy=legacy)
        broadcaster = EventBroadcaster(client, options=options, metrics=Metrics())
        for _ in range(3):
            record(broadcaster.recorder("widgets"), made)
        assert broadcaster.close(timeout=30.0) is True
        (new,) = client.list(kinds.events.v1.Event, namespace="default")
        (old,) = client.list(kinds.core.v1.Event, namespace="default")
        assert new["regarding"]["uid"] == old["involvedObject"]["uid"] == made.uid
        assert (old["count"] if legacy else new["series"]["count"]) == 3


def test_many_threads_lose_nothing(store, metrics):
    broadcaster = EventBroadcaster(store, metrics=metrics)
    recorder = broadcaster.recorder("widgets")

    def work(number):
        for turn in range(50):
            record(recorder, pod(uid=f"u{number % 2}"), reason=f"R{turn % 3}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert broadcaster.close(timeout=30.0) is True
    counts = [e.get("series", {}).get("count", 1) for e in store.events.values()]
    assert (len(counts), sum(counts)) == (6, 300)
