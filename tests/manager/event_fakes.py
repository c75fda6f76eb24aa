"""A client that keeps events, and what tests of the recorder have in common."""

from __future__ import annotations

import contextlib
import threading

import pytest

from appsdk_operator.client import AlreadyExists, NotFound
from appsdk_operator.manager import EventBroadcaster
from appsdk_operator.resource import Object, apply_merge_patch, kinds
from appsdk_operator.runtime import ManualClock, Metrics

POD, NODE = kinds.core.v1.Pod, kinds.core.v1.Node
PATIENCE = 20.0


def pod(name="web", uid="u1", version="7", **more) -> Object:
    metadata = {"name": name, "namespace": "x", "uid": uid, "resourceVersion": version, **more}
    return Object.from_dict(POD, {"metadata": metadata, "spec": {"secret": "hunter2"}})


class Store:
    """A client that keeps events; ``fail`` is asked before each write, and may wait or raise."""

    def __init__(self):
        self.events: dict[str, dict] = {}
        self.writes: list[str] = []
        self.changed = threading.Condition()
        self.fail = lambda verb: None

    def create(self, obj):
        with self.changed:
            self.writes.append("create")
            self.changed.notify_all()
        self.fail("create")
        with self.changed:
            if obj.name in self.events:
                raise AlreadyExists("there", status=409)
            self.events[obj.name] = obj.to_dict()
            self.changed.notify_all()
        return obj

    def patch(self, kind, name, patch, *, namespace=""):
        with self.changed:
            self.writes.append("patch")
            self.changed.notify_all()
        self.fail("patch")
        with self.changed:
            if name not in self.events:
                raise NotFound("gone", status=404)
            assert self.events[name]["apiVersion"] == kind.api_version
            assert self.events[name]["metadata"]["namespace"] == namespace
            self.events[name] = apply_merge_patch(self.events[name], patch.fields)
            self.changed.notify_all()
        return

    def wait(self, condition):
        with self.changed:
            assert self.changed.wait_for(lambda: condition(self), PATIENCE), self.writes

    @property
    def only(self) -> dict:
        (event,) = self.events.values()
        return event


class NoThreads:
    """A group of threads whose first one cannot be started."""

    def __init__(self, group, failure=None):
        self.group = group
        self.failures = [failure or RuntimeError("can't start new thread")]

    def start(self, name, target):
        if self.failures:
            raise self.failures.pop()
        return self.group.start(name, target)

    def join(self, timeout=None):
        return self.group.join(timeout)


@contextlib.contextmanager
def broadcasters(store, clock, metrics):
    """Makes broadcasters that end with the test."""
    made = []

    def make(**options):
        chosen = {"clock": clock, "metrics": metrics, "instance": "pod-1", **options}
        made.append(EventBroadcaster(store, **chosen))
        return made[-1]

    yield make
    for one in made:
        one.close(timeout=0.0)


def numbers(metrics):
    names = ("recorded_total", "dropped_total", "failed_total", "pending")
    return [metrics.value(f"event_recorder_{name}") for name in names]


def record(recorder, obj=None, reason="Made", **options):
    recorder.event(obj or pod(), "Normal", reason, "Make", "made it", **options)


@pytest.fixture
def store():
    return Store()


@pytest.fixture
def clock():
    return ManualClock(epoch=1_700_000_000.25)


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def make(store, clock, metrics):
    with broadcasters(store, clock, metrics) as made:
        yield made
