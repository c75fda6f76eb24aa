"""Convergence of informer and handlers with a model server, under any fault at any step.

One thread, the reflector's own code, a clock moved by hand. After each step the handlers' histories
are legal and end in what the store holds; after the faults the store is what the server has.
"""

from __future__ import annotations

import enum
import json
import random
from collections.abc import Iterator
from typing import Any, Self

import attrs
import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from appsdk_operator import client as c
from appsdk_operator.cache import Delivery, DeliveryKey, Event, Informer, Registration
from appsdk_operator.resource import DecodeError, ListPage, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import (
    THING,
    BatchRecorder,
    bookmark,
    check_history,
    error_line,
    line,
    page,
    thing,
)
from tests.hypothesis_profiles import scaled

EXAMPLES = 300
NAMES = ("a", "b", "c", "d", "e")


class Fault(enum.Enum):
    NONE = "the server ends the watch in its time"
    SHORT = "it ends at once, without an event"
    RESET = "the connection breaks"
    SILENT = "no byte comes any more"
    HALF = "the last event is cut in the middle, and dropped by the client"
    GARBAGE = "a line that is no event"
    WRONG_KIND = "an event of another kind in between"
    EXPIRED_EVENT = "an ERROR event: 410"
    INTERNAL_EVENT = "an ERROR event: 500"
    REPLAY = "an old event comes once more"
    TWICE = "each event comes twice"
    PLAIN_BOOKMARK = "a bookmark that ends nothing comes first"
    LAGGING = "lists show an older state, though never older than one shown before"
    EXPIRED = "410"
    UNAUTHORIZED = "401"
    FORBIDDEN = "403"
    NOT_FOUND = "404"
    UNSUPPORTED = "422"
    SLOW_DOWN = "429"
    INTERNAL = "500"
    UNAVAILABLE = "503"
    TOO_LARGE = "the version is in the future"
    REFUSED = "no connection"
    UNDECODABLE = "half an answer"
    STRANGE = "an error that no client documents"


def answer(code: int, **more: Any) -> Exception:
    return c.error_from_status({"code": code, **more})


REFUSALS = {
    Fault.EXPIRED: answer(410, reason="Expired"),
    Fault.UNAUTHORIZED: answer(401),
    Fault.FORBIDDEN: answer(403),
    Fault.NOT_FOUND: answer(404),
    Fault.UNSUPPORTED: answer(422),
    Fault.SLOW_DOWN: answer(429, details={"retryAfterSeconds": 3}),
    Fault.INTERNAL: answer(500),
    Fault.UNAVAILABLE: answer(503),
    Fault.TOO_LARGE: answer(504, details={"causes": [{"reason": "ResourceVersionTooLarge"}]}),
    Fault.REFUSED: c.ConnectFailed("refused"),
    Fault.UNDECODABLE: DecodeError("half a page"),
    Fault.STRANGE: OSError("the credentials plugin is gone"),
}


@attrs.frozen
class Write:
    name: str
    what: str


@attrs.frozen
class Plan:
    """The faults of one request."""

    fault: Fault = Fault.NONE
    cut: int = 1_000
    """After how many lines the fault comes."""
    batch: int = 3
    """How many lines come with each read."""
    lag: int = 0
    writes: tuple[Write, ...] = ()
    """What happens on the server while the watch is open."""


writes = st.builds(
    Write,
    st.sampled_from(NAMES),
    st.sampled_from(["change", "change", "change", "delete", "recreate"]),
)
plans = st.builds(
    Plan,
    st.sampled_from(Fault),
    cut=st.integers(0, 6) | st.just(1_000),
    batch=st.integers(1, 4),
    lag=st.integers(0, 5),
    writes=st.lists(writes, max_size=4).map(tuple),
)


class ModelServer:
    """Objects, revisions, a history that is compacted, pages of a snapshot. A client as well."""

    def __init__(self, clock: ManualClock, *, streams: bool) -> None:
        self.clock = clock
        self.streams = streams
        self.revision = 5
        self.compacted = 5
        self.shown = 5
        """The newest state that anybody was shown."""
        self.uids = 0
        self.objects: dict[str, Object] = {}
        self.history: list[tuple[int, str, Object]] = []
        self.states: dict[int, dict[str, Object]] = {5: {}}
        self.plan = Plan()

    def write(self, write: Write) -> None:
        before = self.objects.get(write.name)
        if write.what == "delete" and before is None:
            return
        if write.what == "recreate":
            self.write(Write(write.name, "delete"))
            before = None
        self.revision += 1
        if before is None:
            self.uids += 1
        uid = f"uid-{self.uids}" if before is None else before.uid
        made = thing(write.name, self.revision, uid=uid, spec={"n": self.revision})
        if write.what == "delete":
            del self.objects[write.name]
            self.history.append((self.revision, "DELETED", made))
        else:
            self.objects[write.name] = made
            self.history.append((self.revision, "MODIFIED" if before else "ADDED", made))
        self.states[self.revision] = dict(self.objects)

    def compact(self) -> None:
        self.compacted = self.revision
        self.history.clear()

    def _refuse(self) -> None:
        error = REFUSALS.get(self.plan.fault)
        if error is not None:
            raise error

    def _state(self) -> int:
        """The revision whose state is shown."""
        if self.plan.fault is Fault.LAGGING:
            oldest = max(self.shown, self.compacted)
            return max(oldest, self.revision - self.plan.lag)
        return self.revision

    def list_page(self, kind: object, *, limit: int, continue_token: str, **_: object) -> ListPage:
        self._refuse()
        if continue_token:
            revision, start = json.loads(continue_token)
            if revision < self.compacted:
                raise REFUSALS[Fault.EXPIRED]
        else:
            revision, start = self._state(), 0
        self.shown = max(self.shown, revision)
        objects = [obj for _, obj in sorted(self.states[revision].items())]
        end = start + limit if limit else len(objects)
        token = json.dumps([revision, end]) if end < len(objects) else ""
        return page(*objects[start:end], version=revision, token=token)

    def watch(
        self,
        kind: object,
        *,
        resource_version: str,
        send_initial_events: bool,
        timeout: float,
        **_: object,
    ) -> Stream:
        self._refuse()
        if send_initial_events:
            if not self.streams:
                raise answer(422)
            assert resource_version == ""
            return Stream(self, self._streamed_list(), is_list=True)
        if int(resource_version) < self.compacted:
            raise REFUSALS[Fault.EXPIRED]
        assert int(resource_version) <= self.revision
        return Stream(self, self._news(int(resource_version)), is_list=False)

    def _streamed_list(self) -> Iterator[bytes]:
        if self.plan.fault is Fault.PLAIN_BOOKMARK:
            yield bookmark(self.revision)
        revision = self._state()
        self.shown = max(self.shown, revision)
        present = list(self.states[revision].values())
        random.Random(revision).shuffle(present)
        for obj in present:
            yield line("ADDED", obj)
        yield bookmark(revision, ends_initial=True)
        yield from self._news(revision)

    def _news(self, position: int) -> Iterator[bytes]:
        pending = list(self.plan.writes)
        while True:
            for revision, type_, obj in list(self.history):
                if revision > position:
                    position = revision
                    self.shown = max(self.shown, revision)
                    yield line(type_, obj)
                    if self.plan.fault is Fault.TWICE:
                        yield line(type_, obj)
            if not pending:
                break
            self.write(pending.pop(0))
        self.shown = max(self.shown, self.revision)
        yield bookmark(self.revision)


class Stream:
    def __init__(self, server: ModelServer, lines: Iterator[bytes], *, is_list: bool) -> None:
        self._server = server
        self._lines = lines
        self._is_list = is_list

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[list[bytes]]:
        plan, clock = self._server.plan, self._server.clock
        fault = plan.fault
        if fault is Fault.SHORT:
            return
        batch: list[bytes] = []
        for number, text in enumerate(self._lines):
            if number == plan.cut and fault is not Fault.NONE:
                batch += self._odd_line(fault)
                if fault in (Fault.RESET, Fault.SILENT, Fault.HALF, Fault.GARBAGE):
                    break
            batch.append(text)
            if len(batch) >= plan.batch:
                yield batch
                batch = []
        if batch:
            yield batch
        clock.advance(2.0)
        if fault is Fault.RESET:
            raise c.ConnectionLost("reset")
        if fault is Fault.SILENT:
            raise c.WatchSilent("silent")

    def _odd_line(self, fault: Fault) -> list[bytes]:
        if fault is Fault.GARBAGE:
            return [b'{"type":"ADDED","object":{"half']
        if fault is Fault.WRONG_KIND:
            other = {"kind": "Other", "apiVersion": "v1", "metadata": {"name": "a"}}
            return [line("ADDED", other)]
        if fault is Fault.EXPIRED_EVENT:
            return [error_line(410, "Expired")]
        if fault is Fault.INTERNAL_EVENT:
            return [error_line(500, "InternalError")]
        # A streamed list may go back, as after a restore, and then shows each object once.
        if fault is Fault.REPLAY and self._server.history and not self._is_list:
            _, type_, obj = self._server.history[0]
            return [line(type_, obj)]
        return []


class Slow:
    """A delivery that merges from the third event on, and handles events when the test says."""

    def __init__(self, clock: ManualClock) -> None:
        self.handled: list[Event] = []
        self.delivery = Delivery("slow", self._handle, max_pending=2, clock=clock)
        self.source = self.delivery.source("things")

    def _handle(self, key: DeliveryKey, event: Event | None) -> None:
        if event is not None:
            self.handled.append(event)


class InformerMachine(RuleBasedStateMachine):
    @initialize(
        streams=st.booleans(),
        asks_for_streams=st.booleans(),
        page_size=st.sampled_from([0, 1, 2, 500]),
    )
    def begin(self, streams: bool, asks_for_streams: bool, page_size: int) -> None:
        self.clock = ManualClock()
        self.stop = StopSignal(clock=self.clock)
        self.server = ModelServer(self.clock, streams=streams)
        self.errors: list[Exception] = []
        self.informer = Informer(
            THING,
            self.server,
            page_size=page_size,
            stream_first_sync=asks_for_streams,
            indexes={"uid": lambda obj: [obj.uid]},
            on_error=self.errors.append,
            clock=self.clock,
            metrics=Metrics(),
            rng=random.Random(1),
        )
        self.handlers: list[tuple[BatchRecorder, Registration]] = []
        self.slow = Slow(self.clock)
        self.add_handler()
        self.informer.add_event_handler(self.slow.source)

    @rule(write=writes)
    def write(self, write: Write) -> None:
        self.server.write(write)

    @rule()
    def compact(self) -> None:
        self.server.compact()

    @rule(plan=plans)
    def poll(self, plan: Plan) -> None:
        self.server.plan = plan
        self.clock.advance(self.informer.step(self.stop))

    @rule()
    def poll_without_fault(self) -> None:
        self.poll(Plan())

    @rule(count=st.integers(1, 3))
    def work(self, count: int) -> None:
        for _ in range(count):
            self.slow.delivery.step()

    @precondition(lambda self: len(self.handlers) < 3)
    @rule()
    def add_handler(self) -> None:
        handler = BatchRecorder()
        registration = self.informer.add_event_handler(handler)
        assert all(event.is_initial for event in handler.events)
        self.handlers.append((handler, registration))

    @precondition(lambda self: len(self.handlers) > 1)
    @rule()
    def remove_handler(self) -> None:
        handler, registration = self.handlers.pop()
        registration.remove()
        handler.events.clear()

    @rule()
    def replay(self) -> None:
        for _, registration in self.handlers:
            registration.replay()

    @invariant()
    def handlers_know_what_the_store_holds(self) -> None:
        store = self.informer.store
        held = {obj.key: obj for obj in store.list()}
        for handler, _ in self.handlers:
            told = check_history(handler.events)
            assert {key: id(obj) for key, obj in told.items()} == {
                key: id(obj) for key, obj in held.items()
            }
            assert handler.ends == int(self.informer.has_synced)
        check_history(self.slow.handled)
        assert len(store) == len(held)
        assert store.json_bytes == sum(len(obj.raw) for obj in held.values())
        assert set(store.index_values("uid")) == {obj.uid for obj in held.values()}

    @invariant()
    def what_waits_is_bounded_by_the_objects(self) -> None:
        assert self.slow.delivery.pending <= 2 + 2 * len(NAMES)

    def teardown(self) -> None:
        if not hasattr(self, "informer"):
            return
        try:
            self.settle()
        finally:
            self.slow.delivery.stop()

    def settle(self) -> None:
        for _ in range(20):
            self.poll(Plan())
            self.handlers_know_what_the_store_holds()
            if self.informer.resource_version == str(self.server.revision):
                break
        assert self.informer.has_synced
        assert self.informer.resource_version == str(self.server.revision), self.errors
        expected = {(o.name, o.uid, o.resource_version) for o in self.server.objects.values()}
        held = {(o.name, o.uid, o.resource_version) for o in self.informer.store.list()}
        assert held == expected
        while self.slow.delivery.step():
            pass
        assert self.slow.delivery.pending == 0
        assert self.slow.source.has_synced
        final = check_history(self.slow.handled)
        assert {(o.name, o.uid, o.resource_version) for o in final.values()} == expected


@pytest.mark.hypothesis
def test_whatever_goes_wrong_the_copy_converges_and_every_history_is_legal():
    run_state_machine_as_test(
        InformerMachine,
        settings=settings(
            max_examples=scaled(EXAMPLES),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
