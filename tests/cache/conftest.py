"""A kind, its objects and events as a server writes them, and a scripted client."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Self

import attrs
import pytest

from appsdk_operator.cache import Event, Informer, ResourceAction
from appsdk_operator.client import RequestStopped
from appsdk_operator.resource import (
    Kind,
    ListPage,
    Object,
    Scope,
    WatchEvent,
    decode_watch_event,
)
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal

THING = Kind(group="example.com", version="v1", kind="Thing")
PLACE = Kind(group="example.com", version="v1", kind="Place", scope=Scope.CLUSTER)

PATIENCE = 30.0
"""Seconds that a test waits for another thread before it fails."""


class NoJitter(random.Random):
    """Always the lower end."""

    def random(self) -> float:
        return 0.0


def data(
    name: str = "a",
    version: int | str = 1,
    *,
    uid: str | None = None,
    namespace: str = "x",
    kind: Kind = THING,
    labels: dict[str, str] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A thing as JSON values."""
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}" if uid is None else uid,
        "resourceVersion": str(version),
    }
    if not kind.is_namespaced:
        del metadata["namespace"]
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}


def thing(name: str = "a", version: int | str = 1, *, kind: Kind = THING, **more: Any) -> Object:
    return Object.from_dict(kind, data(name, version, kind=kind, **more))


def line(type_: str, obj: Object | dict[str, Any]) -> bytes:
    """A line of a watch stream."""
    raw = obj.raw if isinstance(obj, Object) else json.dumps(obj, separators=(",", ":")).encode()
    return b'{"type":"%s","object":%s}' % (type_.encode(), raw)


def bookmark(version: int | str, *, ends_initial: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if ends_initial:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return line("BOOKMARK", {"kind": "Thing", "apiVersion": "example.com/v1", "metadata": metadata})


def error_line(code: int, reason: str = "", message: str = "no") -> bytes:
    status = {"kind": "Status", "apiVersion": "v1", "code": code}
    return line("ERROR", {**status, "reason": reason, "message": message})


def event(text: bytes) -> WatchEvent:
    return decode_watch_event(THING, text)


def page(*objects: Object, version: int | str = 10, token: str = "") -> ListPage:
    return ListPage(list(objects), str(version), token, None)


class Stream:
    """A watch whose lines come when a test sends them."""

    def __init__(self, *batches: Iterable[bytes], then: Exception | str | None = "end") -> None:
        """``then``: what comes after the batches: "end", an error, or None: wait for more."""
        self._condition = threading.Condition()
        self._batches: list[list[bytes]] = [list(batch) for batch in batches]
        self._then: Exception | str | None = then
        self.is_closed = False

    def send(self, *lines: bytes) -> None:
        with self._condition:
            self._batches.append(list(lines))
            self._condition.notify_all()

    def end(self, error: Exception | str = "end") -> None:
        with self._condition:
            self._then = error
            self._condition.notify_all()

    def close(self) -> None:
        self.is_closed = True
        self.end("end")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.is_closed = True

    def __iter__(self) -> Iterator[list[bytes]]:
        while True:
            with self._condition:
                while not self._batches and self._then is None:
                    self._condition.wait()
                if self.is_closed or not self._batches:
                    if isinstance(self._then, Exception) and not self.is_closed:
                        raise self._then
                    return
                batch = self._batches.pop(0)
            yield batch


class Hang:
    """An answer that never comes."""


Answer = ListPage | Stream | Exception | type[Hang] | Callable[..., Any]


@attrs.frozen
class Request:
    verb: str
    options: dict[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return self.options[name]
        except KeyError:
            raise AttributeError(name) from None


class ScriptedClient:
    """Answers lists and watches in the order of the script; after its end it hangs."""

    def __init__(self, *answers: Answer) -> None:
        self._condition = threading.Condition()
        self._answers = list(answers)
        self.requests: list[Request] = []

    def then(self, *answers: Answer) -> None:
        with self._condition:
            self._answers += answers
            self._condition.notify_all()

    def wait_for_requests(self, count: int) -> Request:
        """Wait for the request of that number, from 1."""
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.requests) >= count, PATIENCE), (
                f"{len(self.requests)} of {count} requests came: {self.verbs}"
            )
            return self.requests[count - 1]

    @property
    def verbs(self) -> list[str]:
        return [request.verb for request in self.requests]

    def list_page(self, kind: Kind, **options: Any) -> ListPage:
        answer = self._answer("list", kind, options)
        assert isinstance(answer, ListPage), answer
        return answer

    def watch(self, kind: Kind, **options: Any) -> Stream:
        verb = "stream" if options["send_initial_events"] else "watch"
        stream = self._answer(verb, kind, options)
        assert isinstance(stream, Stream), stream
        options["stop"].on_set(stream.close)
        return stream

    def _answer(self, verb: str, kind: Kind, options: dict[str, Any]) -> Any:
        stop: StopSignal = options["stop"]
        with self._condition:
            self.requests.append(Request(verb, {"kind": kind, **options}))
            answer = self._answers.pop(0) if self._answers else Hang
            self._condition.notify_all()
        if answer is Hang:
            hung = threading.Event()
            detach = stop.on_set(hung.set)
            assert hung.wait(PATIENCE), f"{verb} hung, and nobody stopped it"
            detach()
            raise RequestStopped("stopped")
        if callable(answer):
            answer = answer(**options)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Recorder:
    """An event handler that records its calls."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.calls: list[str] = []
        self.events: list[Event] = []
        self.hook: Callable[[str], None] = lambda _: None
        """Called before each note, in the handler's thread."""

    def on_add(self, obj: Object, *, is_initial: bool) -> None:
        self._note(
            f"add {obj.name}@{obj.resource_version}{' initial' * is_initial}",
            Event(ResourceAction.CREATE, obj, None, is_initial),
        )

    def on_update(self, old: Object, new: Object) -> None:
        if old is new:
            self._note(
                f"resync {new.name}@{new.resource_version}", Event(ResourceAction.RESYNC, new)
            )
            return
        self._note(
            f"update {new.name}@{old.resource_version}->{new.resource_version}",
            Event(ResourceAction.UPDATE, new, old),
        )

    def on_delete(self, obj: Object, *, is_final_state_unknown: bool) -> None:
        self._note(
            f"delete {obj.name}@{obj.resource_version}{' unknown' * is_final_state_unknown}",
            Event(ResourceAction.DELETE, obj, None, False, is_final_state_unknown),
        )

    def _note(self, text: str, event_: Event) -> None:
        self.hook(text)
        with self._condition:
            self.calls.append(text)
            self.events.append(event_)
            self._condition.notify_all()

    def wait_for(self, text: str, count: int = 1) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: self.calls.count(text) >= count, PATIENCE), (
                f"{text!r} did not come; so far {self.calls}"
            )

    def wait_for_count(self, count: int) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: len(self.calls) >= count, PATIENCE), (
                f"{count} calls did not come; so far {self.calls}"
            )


class BatchRecorder:
    """A batch handler that records its calls."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ends = 0

    def on_events(self, events: Iterable[Event]) -> None:
        self.events += events

    def on_initial_list_end(self) -> None:
        self.ends += 1

    @property
    def calls(self) -> list[str]:
        return [told(event_) for event_ in self.events]


def told(event_: Event) -> str:
    """An event in the words of a :class:`Recorder`."""
    obj, at = event_.object, event_.object.resource_version
    if event_.action is ResourceAction.CREATE:
        return f"add {obj.name}@{at}{' initial' * event_.is_initial}"
    if event_.action is ResourceAction.DELETE:
        return f"delete {obj.name}@{at}{' unknown' * event_.is_final_state_unknown}"
    if event_.action is ResourceAction.RESYNC:
        return f"resync {obj.name}@{at}"
    assert event_.old is not None
    return f"update {obj.name}@{event_.old.resource_version}->{at}"


def check_history(events: Iterable[Event], *, versions_rise: bool = True) -> dict[Any, Object]:
    """Check that the events of each object form a legal history; returns what is left of them."""
    present: dict[Any, Object] = {}
    for item in events:
        obj, before = item.object, present.get(item.key)
        if item.action is ResourceAction.CREATE:
            assert before is None, f"{item} although {before} was added and not deleted"
            present[item.key] = obj
        elif item.action is ResourceAction.DELETE:
            assert before is not None, f"{item} of what was never added"
            assert before.uid == obj.uid, f"{item} after {before}"
            del present[item.key]
        else:
            assert before is not None, f"{item} of what was never added"
            assert before.uid == obj.uid, f"{item} after {before}: another object"
            if item.action is ResourceAction.UPDATE:
                assert item.old is before, f"{item}: old is {item.old}, told was {before}"
                if versions_rise:
                    assert int(before.resource_version) < int(obj.resource_version), item
            else:
                assert obj is before, f"{item}: not what was told"
            present[item.key] = obj
    return present


@attrs.define
class Running:
    """An informer that runs in a thread."""

    informer: Informer
    client: ScriptedClient
    clock: ManualClock
    metrics: Metrics
    errors: list[Exception]
    stop: StopSignal
    thread: threading.Thread | None = None

    def start(self) -> Running:
        self.thread = threading.Thread(target=self.informer.run, args=(self.stop,))
        self.thread.start()
        return self

    def end(self) -> None:
        self.stop.set()
        if self.thread is not None:
            self.thread.join(PATIENCE)
            assert not self.thread.is_alive(), "the informer did not stop"

    def sync(self) -> Running:
        assert self.informer.wait_for_sync(self.stop, None)
        return self


@pytest.fixture
def make() -> Iterator[Callable[..., Running]]:
    """Make an informer on a script; it is stopped at the end of the test."""
    made: list[Running] = []

    def make(*answers: Answer, kind: Kind = THING, **options: Any) -> Running:
        client = ScriptedClient(*answers)
        clock, metrics = ManualClock(), Metrics()
        errors: list[Exception] = []
        options = {
            "stream_first_sync": False,
            "on_error": errors.append,
            "rng": NoJitter(),
            **options,
        }
        informer = Informer(kind, client, clock=clock, metrics=metrics, **options)
        running = Running(informer, client, clock, metrics, errors, StopSignal())
        made.append(running)
        return running

    yield make
    for running in made:
        running.end()
