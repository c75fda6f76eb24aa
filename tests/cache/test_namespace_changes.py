"""Changes of namespaces while objects change and watches lag: the events of handlers.

One thread, informers that step when told to. After each step what handlers were told is what the
informers hold, whatever changes are under way; in the end it is what the server has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

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
from appsdk_operator.cache import (
    Cache,
    CacheRegistration,
    Event,
    NamespaceOptions,
    NotCachedError,
    NotFollowedError,
    ResourceAction,
)
from appsdk_operator.cache._delivery import delivery
from appsdk_operator.resource import FieldSelector, ListPage, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from tests.cache.conftest import THING, BatchRecorder, Recorder, bookmark, error_line, line, page
from tests.cache.conftest import thing as make_thing
from tests.hypothesis_profiles import scaled

EXAMPLES = 200
SPACES = ("x", "y", "z")
NAMES = ("a", "b")


class Model:
    """A server with objects in namespaces, whose watches deliver as much as the test says."""

    def __init__(self) -> None:
        self.revision = 10
        self.uids = 0
        self.objects: dict[tuple[str, str], Object] = {}
        self.history: list[tuple[int, str, Object]] = []
        self.deleted: set[str] = set()
        self.budget = 0
        self.expires = False

    def write(self, namespace: str, name: str, *, deletes: bool) -> None:
        before = self.objects.get((namespace, name))
        if deletes and before is None:
            return
        self.revision += 1
        if before is None:
            self.uids += 1
        uid = before.uid if before else f"u{self.uids}"
        made = make_thing(name, self.revision, namespace=namespace, uid=uid)
        if deletes:
            del self.objects[namespace, name]
            self.deleted.add(uid)
        else:
            self.objects[namespace, name] = made
        what = "DELETED" if deletes else "MODIFIED" if before else "ADDED"
        self.history.append((self.revision, what, made))

    def list_page(
        self, kind: Any, *, namespace: str, field_selector: str | None, **_: Any
    ) -> ListPage:
        found = [o for o in self.objects.values() if is_in(o, namespace, field_selector)]
        return page(*found, version=self.revision)

    def watch(
        self,
        kind: Any,
        *,
        namespace: str,
        field_selector: str | None,
        resource_version: str,
        send_initial_events: bool,
        **_: Any,
    ) -> Watch:
        if send_initial_events:
            raise c.error_from_status({"code": 422})
        return Watch(list(self._lines(int(resource_version), namespace, field_selector)))

    def _lines(self, position: int, namespace: str, fields: str | None) -> Iterator[bytes]:
        if self.expires:
            yield error_line(410, "Expired")
            return
        for revision, what, obj in self.history:
            if revision > position and is_in(obj, namespace, fields):
                if self.budget <= 0:
                    return
                self.budget -= 1
                yield line(what, obj)
        yield bookmark(self.revision)


def is_in(obj: Object, namespace: str, fields: str | None) -> bool:
    if namespace and obj.namespace != namespace:
        return False
    selector = FieldSelector.parse(fields or "")
    return selector.matches({"metadata": {"namespace": obj.namespace}})


class Watch:
    def __init__(self, lines: list[bytes]) -> None:
        self.lines = lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[list[bytes]]:
        for text in self.lines:
            yield [text]


class NoThreads:
    """Informers and deliveries do not run, but step when a test says so."""

    def __init__(self, name: str = "", *, on_failure: object = None) -> None:
        pass

    def start(self, name: str, target: object) -> None:
        pass

    def join(self, timeout: float | None = None) -> list[str]:
        return []


everything = NamespaceOptions()
choices = st.lists(st.sampled_from(SPACES), unique=True, max_size=3) | st.lists(
    st.sampled_from(SPACES), unique=True, max_size=2
).map(lambda names: dict.fromkeys([*names, ""], everything))


def names_of(choice: Any) -> set[str]:
    """The namespaces that are followed."""
    return set(choice) if choice and "" not in choice else set(SPACES)


class NamespaceChanges(RuleBasedStateMachine):
    @initialize(choice=choices, metadata=st.booleans())
    def begin(self, choice: Any, metadata: bool = False) -> None:
        self.clock = ManualClock()
        self.model = Model()
        self.cache = Cache(
            self.model,  # type: ignore[arg-type]
            namespaces=choice,
            clock=self.clock,
            metrics=Metrics(),
            on_error=lambda _: None,
        )
        self.cache._stop = StopSignal(clock=self.clock)
        self.cache._threads = NoThreads()  # type: ignore[assignment]
        if metadata:
            self.cache.add_metadata(THING)
        else:
            self.cache.add(THING)
        self.is_whole = not metadata
        self.kind_cache = self.cache._kind_caches[THING]
        self.names = names_of(choice)
        self.own: set[str] | None = None
        self.handlers: list[tuple[BatchRecorder, list[Event]]] = []
        self.registrations: list[CacheRegistration] = []
        self.need_whole: list[BatchRecorder] = []
        self.gone: set[str] = set()
        self.add_handler()
        self.slow = Recorder()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(delivery, "ThreadGroup", NoThreads)
            self.slow_registration = self.cache.add_event_handler(THING, self.slow, max_pending=3)

    @property
    def target(self) -> set[str]:
        return self.names if self.own is None else self.own

    @rule(choice=choices)
    def set_namespaces(self, choice: Any) -> None:
        self.cache.set_namespaces(choice)
        self.names = names_of(choice)

    @rule(choice=st.none() | choices)
    def set_namespaces_of_the_kind(self, choice: Any) -> None:
        self.cache.set_namespaces(choice, kind=THING)
        self.own = None if choice is None else names_of(choice)

    @rule()
    def widen(self) -> None:
        """Upgrade from metadata to full objects."""
        self.cache.add(THING)
        self.is_whole = True

    @rule(space=st.sampled_from(SPACES), name=st.sampled_from(NAMES), deletes=st.booleans())
    def write(self, space: str, name: str, deletes: bool) -> None:
        self.model.write(space, name, deletes=deletes)

    @rule(number=st.integers(0, 5), budget=st.integers(0, 3))
    def step(self, number: int, budget: int) -> None:
        living = [f for f in self.kind_cache.routing.active if f.stop is not None]
        each = living[number % len(living)]
        self.model.budget = budget
        assert each.stop is not None
        self.clock.advance(each.informer.step(each.stop))

    @rule(number=st.integers(0, 5))
    def relist(self, number: int) -> None:
        self.model.expires = True
        self.step(number, 0)
        self.model.expires = False

    @precondition(lambda self: len(self.handlers) < 3)
    @rule()
    def add_handler(self) -> None:
        recorder = BatchRecorder()
        self.registrations.append(self.cache.add_event_handler(THING, recorder))
        self.handlers.append((recorder, []))
        if self.is_whole:
            self.need_whole.append(recorder)

    @rule()
    def work(self) -> None:
        assert self.slow_registration._delivery is not None
        self.slow_registration._delivery.step()

    @invariant()
    def handlers_were_told_what_the_informers_hold(self) -> None:
        for (recorder, _), registration in zip(self.handlers, self.registrations, strict=True):
            held = {
                (o.namespace, o.name): (o.uid, o.resource_version)
                for f in self.kind_cache.routing.current
                if not registration.awaits_full_objects or registration.follows(f.informer)
                for o in f.informer.store.list()
            }
            assert told_by(recorder.events, self.model.deleted) == held

    @invariant()
    def who_waits_for_whole_objects_has_not_synced(self) -> None:
        assert not any(r.awaits_full_objects and r.has_synced for r in self.registrations)

    @invariant()
    def who_comes_when_the_kind_is_needed_whole_sees_nothing_else(self) -> None:
        for recorder in self.need_whole:
            assert not any(event.object.is_metadata_only for event in recorder.events)
        for f in self.kind_cache.routing.current:
            assert f.informer.transform is None or not self.is_whole or f.selection.metadata_only

    @invariant()
    def nobody_is_told_that_something_is_followed_no_more_that_is(self) -> None:
        for recorder, seen in self.handlers:
            for event in recorder.events[len(seen) :]:
                assert not (event.is_unfollowed and event.key.namespace in self.target), event
            seen[:] = recorder.events

    @invariant()
    def reads_are_of_what_is_followed(self) -> None:
        for space in SPACES:
            if space not in self.target:
                with pytest.raises(NotFollowedError):
                    self.cache.list(THING, namespace=space)
                continue
            try:
                found = self.cache.list(THING, namespace=space)
            except NotCachedError:
                continue
            assert {obj.namespace for obj in found} <= {space}
            self.all_are_whole(found)
        try:
            found = self.cache.list(THING)
        except NotCachedError:
            return
        assert {obj.namespace for obj in found} <= self.target
        assert len({obj.key for obj in found}) == len(found)
        self.all_are_whole(found)

    def all_are_whole(self, found: list[Object]) -> None:
        assert not (self.is_whole and any(obj.is_metadata_only for obj in found))

    def teardown(self) -> None:
        if not hasattr(self, "kind_cache"):
            return
        for _ in range(60):
            for number in range(len(self.kind_cache.routing.active)):
                self.step(number, 100)
        assert self.cache.has_synced
        assert self.slow_registration._delivery is not None
        while self.slow_registration._delivery.step():
            pass
        expected = {
            key: (obj.uid, obj.resource_version)
            for key, obj in self.model.objects.items()
            if key[0] in self.target
        }
        shown = {(o.namespace, o.name): (o.uid, o.resource_version) for o in self.cache.list(THING)}
        assert shown == expected
        for recorder, _ in self.handlers:
            assert told_by(recorder.events, self.model.deleted) == expected
        assert told_by(self.slow.events, None) == expected
        assert self.slow_registration.has_synced
        assert all(registration.has_synced for registration in self.registrations)
        assert all(o.is_metadata_only is not self.is_whole for o in self.cache.list(THING))
        assert len(self.kind_cache.routing.active) == len(self.kind_cache.routing.selections)
        self.slow_registration.remove()


def told_by(events: list[Event], deleted: set[str] | None) -> dict[Any, tuple[str, str]]:
    """The objects after a history, which is checked; ``deleted`` are the uids of real deletions."""
    present: dict[Any, tuple[str, str]] = {}
    gone: set[str] = set()
    for event in events:
        obj = event.object
        key, now = (obj.namespace, obj.name), (obj.uid, obj.resource_version)
        before = present.get(key)
        if event.action is ResourceAction.CREATE:
            assert before is None, f"{event}: it was known"
            assert obj.uid not in gone, f"{event}: it was deleted"
            present[key] = now
            continue
        assert before is not None, f"{event}: it was not known"
        assert before[0] == obj.uid, f"{event}: it was {before}"
        if event.action is ResourceAction.UPDATE:
            assert event.old is not None
            assert event.old.resource_version == before[1], f"{event}: it was {before}"
            assert int(before[1]) < int(now[1]), f"{event}: it was {before}"
            present[key] = now
        else:
            del present[key]
            if not event.is_unfollowed and deleted is not None:
                assert obj.uid in deleted, f"{event}: nobody deleted it"
                gone.add(obj.uid)
    return present


@pytest.mark.hypothesis
def test_whatever_namespaces_come_and_go_handlers_are_told_what_happened_and_no_more():
    run_state_machine_as_test(
        NamespaceChanges,
        settings=settings(
            max_examples=scaled(EXAMPLES),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_what_lags_behind_what_handlers_were_told_is_listed_again_before_it_takes_over():
    """From all namespaces to two, of which one is listed before, the other after a deletion."""
    machine = NamespaceChanges()
    machine.begin([])
    try:
        lags_behind(machine)
    finally:
        machine.slow_registration.remove()


def lags_behind(machine: NamespaceChanges) -> None:
    model, kind_cache = machine.model, machine.kind_cache
    model.write("x", "a", deletes=False)
    machine.step(0, 0)  # no streamed lists here, the fallback comes next
    machine.step(0, 0)
    machine.cache.set_namespaces(["x", "y"])
    machine.names = {"x", "y"}
    old, of_x, of_y = kind_cache.routing.active
    for _ in range(2):
        of_x.informer.step(of_x.stop)
    model.write("x", "a", deletes=True)
    model.budget = 5
    old.informer.step(old.stop)
    for _ in range(2):
        of_y.informer.step(of_y.stop)
    assert of_x.is_frozen
    assert not machine.cache.has_synced
    machine.teardown()
    ((recorder, _),) = machine.handlers
    assert [event.action for event in recorder.events] == [
        ResourceAction.CREATE,
        ResourceAction.DELETE,
    ]


def test_who_waits_for_whole_objects_in_namespaces_that_are_left_waits_no_longer():
    machine = NamespaceChanges()
    machine.begin(["x"], metadata=True)
    try:
        machine.step(0, 0)
        machine.step(0, 0)
        machine.widen()
        machine.add_handler()
        registration = machine.registrations[-1]
        assert registration.awaits_full_objects
        assert not registration.has_synced
        assert not registration.wait_for_sync(StopSignal(), 0)
        machine.set_namespaces(["y"])
        assert not registration.awaits_full_objects
        machine.teardown()
    finally:
        machine.slow_registration.remove()
