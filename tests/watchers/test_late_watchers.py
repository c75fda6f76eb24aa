"""Watchers that are added while the controller works: additions first, then what happens."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from appsdk_operator.cache import Event, Informer, ResourceAction
from appsdk_operator.client import Expired
from appsdk_operator.controllers import Result
from appsdk_operator.resource import Kind, ListPage, Object
from appsdk_operator.runtime import ManualClock, Metrics, StopSignal
from appsdk_operator.testing import FaultRule
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    KubernetesInformer,
    ReconcileRequest,
    RetryDequeuePolicy,
    SimpleReconciler,
    SimpleWatcher,
    keep_all_retries,
)
from tests.hypothesis_profiles import scaled
from tests.simulations import Others, no_client, version_of

WIDGET = Kind(group="example.com", version="v1", kind="Widget")


class Notes:
    """A watcher's notes, and whether they make sense: nobody is told of what it does not know, and
    nobody is shown an older state than before, be it by an event or by a retry."""

    def __init__(self, fails: Callable[[], bool] = lambda: False) -> None:
        self.told: list[str] = []
        self.known: dict[str, Object] = {}
        self.watcher = SimpleWatcher(add=self.add, update=self.update, delete=self.delete)
        self.has_restores = False
        self.keeps_retries = False
        self._again: set[str] = set()
        self._fails = fails

    def add(self, obj: Object) -> None:
        self.told.append(f"add {obj.name}@{version_of(obj)}")
        assert not self._shown_before(obj), f"{self.told}: added twice"
        self._note(obj)

    def update(self, old: Object, new: Object) -> None:
        self.told.append(f"update {new.name}@{version_of(old)}->{version_of(new)}")
        assert new.uid in self.known, f"{self.told}: an update of an unknown object"
        is_resync = old is new
        assert self._version(new) > 0
        if not is_resync:
            assert not self._shown_before(new), f"{self.told}: not newer"
        self._note(new)

    def delete(self, obj: Object) -> None:
        self.told.append(f"delete {obj.name}@{version_of(obj)}")
        assert obj.uid in self.known, f"{self.told}: a deletion of an unknown object"
        self._note(obj)
        del self.known[obj.uid]

    def reconcile(self, request: ReconcileRequest) -> Result | None:
        """As the watcher, in the words of a reconciler, which asks to be called again."""
        obj = request.object
        self.told.append(f"{request.action.value} {obj.name}@{version_of(obj)}")
        if request.action is ResourceAction.DELETE:
            # What a list no longer has went with the last state that was seen of it.
            known = self.known.get(obj.uid, obj)
            assert self.has_restores or self._version(known) <= self._version(obj), self.told
        elif request.action is not ResourceAction.RESYNC:
            assert not self._shown_before(obj), f"{self.told}: not newer"
        try:
            self._note(obj)
        except ConnectionError:
            return Result(requeue_after=1.0)
        if request.action is ResourceAction.DELETE:
            del self.known[obj.uid]
        return None

    def _note(self, obj: Object) -> None:
        self.known[obj.uid] = obj
        self._again.discard(obj.uid)
        if self._fails():
            self._again.add(obj.uid)
            raise ConnectionError("planned")

    def _version(self, obj: Object) -> int:
        return int(obj.resource_version)

    def _shown_before(self, obj: Object) -> bool:
        known = self.known.get(obj.uid)
        if known is None or self.has_restores:
            return False
        is_again = obj.uid in self._again or self.keeps_retries
        return self._version(known) >= self._version(obj) + is_again


class World:
    """A server, an informer and a controller, one step at a time."""

    def __init__(
        self, dequeue_policy: RetryDequeuePolicy | None = None, max_pending: int = 10_000
    ) -> None:
        self.clock = ManualClock()
        self.server = Others(WIDGET)
        self.errors: list[Exception] = []
        self.informer = KubernetesInformer(
            WIDGET, self.server, clock=self.clock, metrics=Metrics(), resync=0
        )
        self.controller = InformerController(
            clock=self.clock,
            metrics=Metrics(),
            retry_policy=ConstantBackoff(1),
            retry_dequeue_policy=dequeue_policy,
            max_pending=max_pending,
            error_handler=lambda error, _: self.errors.append(error),
        )
        self.controller.add_informer(self.informer, WIDGET)
        self.stop = StopSignal(clock=self.clock)
        self.late: list[Notes] = []
        self.gap: DuringHandOver | None = None

    def poll(self) -> None:
        """One request, after what the informer wants to wait before it."""
        if wait := self.informer.step(self.stop):
            self.clock.advance(wait)
            self.informer.step(self.stop)
        if self.gap is not None:
            self.gap.join()

    def work(self) -> None:
        while self.controller.process_next():
            pass

    def settle(self) -> None:
        # Not more rounds: after several watches without an event an informer lists anew.
        for _ in range(3):
            self.clock.advance(40)
            self.poll()
            self.work()

    def add_late(self, failures: int = 0, *, as_reconciler: bool = False) -> Notes:
        """Add a watcher, or a reconciler, whose first calls fail or are asked for again."""
        outcomes = iter([True] * failures)
        notes = Notes(lambda: next(outcomes, False))
        self.late.append(notes)
        if as_reconciler:
            self.controller.add_reconciler(SimpleReconciler(notes.reconcile), WIDGET)
        else:
            self.controller.add_watcher(notes.watcher, WIDGET)
        return notes

    def close(self) -> None:
        self.controller.close()


@pytest.fixture
def world():
    made = World()
    yield made
    made.close()


def test_it_is_told_of_the_present_objects_as_additions(world):
    for name in "ab":
        world.server.create(name)
    world.settle()
    late = world.add_late()
    world.work()
    assert sorted(late.told) == ["add a@2", "add b@3"]
    world.server.change("a", spec={"n": 1})
    world.settle()
    assert late.told[2:] == ["update a@2->4"]


def test_a_watcher_that_was_there_from_the_start_is_told_nothing_twice(world):
    world.server.create("a")
    world.poll()
    world.poll()
    early = world.add_late()  # nothing was handled yet
    world.settle()
    assert early.told == ["add a@2"]


def test_nobody_else_is_told_anything_because_of_it(world):
    first = world.add_late()
    world.server.create("a")
    world.settle()
    world.add_late()
    world.settle()
    assert first.told == ["add a@2"]


def test_an_update_on_its_way_becomes_its_addition(world):
    world.server.create("a")
    world.settle()
    world.server.change("a", spec={"n": 1})
    world.poll()  # in the store, and waits to be handled
    late = world.add_late()
    world.settle()
    assert late.told == ["add a@3"]


def test_a_deletion_on_its_way_is_none_of_its_business(world):
    world.server.create("a")
    world.settle()
    world.server.delete("a")
    world.poll()
    late = world.add_late()
    world.settle()
    assert late.told == []


def test_an_object_made_anew_on_its_way_is_added_once(world):
    world.server.create("a")
    world.settle()
    world.server.change("a", spec={"n": 1})
    world.server.delete("a")
    world.server.create("a")
    world.poll()
    late = world.add_late()
    world.settle()
    assert late.told == ["add a@5"]


def test_an_object_that_goes_before_its_first_call_is_added_and_deleted(world):
    world.server.create("a")
    world.settle()
    late = world.add_late()
    world.server.delete("a")
    world.poll()
    world.settle()
    assert late.told == ["add a@2", "delete a@3"]


def test_it_may_be_removed_and_added_again_before_its_first_call(world):
    world.server.create("a")
    world.settle()
    late = world.add_late()
    world.controller.remove_watcher(late.watcher, WIDGET)
    world.server.change("a", spec={"n": 1})
    world.poll()
    world.controller.add_watcher(late.watcher, WIDGET)
    world.settle()
    assert late.told == ["add a@3"]


def test_it_is_not_there_if_its_first_calls_cannot_be_put_in_line(world, monkeypatch):
    world.server.create("a")
    world.settle()
    late = Notes()
    with monkeypatch.context() as patch:
        patch.setattr(world.informer._access, "sent_to", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            world.controller.add_watcher(late.watcher, WIDGET)
    world.server.change("a", spec={"n": 1})
    world.settle()
    assert late.told == []
    world.controller.add_watcher(late.watcher, WIDGET)
    world.settle()
    assert late.told == ["add a@3"]


def test_what_is_in_line_for_it_goes_with_its_informer(world):
    world.server.create("a")
    world.settle()
    late = world.add_late()
    world.controller.remove_informer(world.informer)
    world.work()
    (target,) = world.controller._dispatcher.registered()
    assert (late.told, target.not_shown) == ([], None)


def test_what_is_in_line_for_it_holds_no_object_once_it_is_removed(world):
    world.server.create("a")
    world.settle()
    late = world.add_late()
    target = world.controller._dispatcher.registered()[-1]
    assert [obj.name for obj in target.not_shown.values()] == ["a"]
    world.controller.remove_watcher(late.watcher, WIDGET)
    assert list(target.not_shown.values()) == [None]
    world.settle()
    assert (late.told, target.not_shown) == ([], None)


def test_nothing_in_line_for_it_is_called_after_the_stop(world):
    world.server.create("a")
    world.settle()
    late = world.add_late()
    world.controller._dispatcher.stop()
    world.work()
    assert late.told == []


def test_its_first_call_has_the_types_of_its_kind(world):
    typed = WIDGET.typed(spec=dict[str, int])
    world.server.create("a", spec={"n": 1})
    world.settle()
    seen: list[Any] = []
    world.controller.add_watcher(SimpleWatcher(add=lambda obj: seen.append(obj.kind)), typed)
    world.work()
    assert [kind.spec for kind in seen] == [typed.spec]


def test_its_first_call_waits_for_the_deletion_of_another_informers_object_of_the_name():
    """That was created and deleted while the watcher was added."""
    world = World()
    other = KubernetesInformer(WIDGET, world.server, clock=world.clock, metrics=Metrics(), resync=0)
    world.controller.add_informer(other, WIDGET)
    world.server.create("b")
    world.settle()
    for _ in range(3):
        other.step(world.stop)
    world.work()
    told: list[str] = []
    errors = iter([ConnectionError("planned")])

    def delete(obj: Object) -> None:
        told.append(f"delete {obj.name}@{version_of(obj)}")
        for error in errors:
            raise error

    watcher = SimpleWatcher(
        add=lambda obj: told.append(f"add {obj.name}@{version_of(obj)}"), delete=delete
    )
    world.server.create("a")
    world.server.delete("a")
    world.server.create("a")
    is_awaited = threading.Event()
    access = other._access
    access.lock = ContendedLock(access.lock, is_awaited)
    adding = threading.Thread(target=world.controller.add_watcher, args=(watcher, WIDGET))
    for _ in range(3):
        other.step(world.stop)
    with access.lock:
        adding.start()
        assert is_awaited.wait(10)
        world.poll()  # after the first informer was looked at, before the other one
    adding.join()
    world.work()
    about_a = [each for each in told if " a@" in each]
    assert about_a[:2] == ["add a@3", "delete a@4"]
    world.clock.advance(1)
    world.work()
    about_a = [each for each in told if " a@" in each]
    world.close()
    assert about_a[2] == "delete a@4", about_a
    assert set(about_a[3:]) == {"add a@5"}


def test_its_first_call_is_retried_with_attempt_numbers_of_its_own(world):
    world.server.create("a")
    world.settle()
    failures = [ConnectionError("one"), ConnectionError("two")]

    def add(obj):
        if failures:
            raise failures.pop(0)
        told.append(obj.name)

    told: list[str] = []
    world.controller.add_watcher(SimpleWatcher(add=add), WIDGET)
    assert world.controller.pending_retries == 0, "a first call is no retry"
    world.work()
    assert world.controller.pending_retries == 1
    world.clock.advance(1)
    world.work()
    world.clock.advance(1)
    world.work()
    assert told == ["a"]
    assert [str(error) for error in world.errors] == ["one", "two"]


def test_it_may_be_removed_before_its_first_call(world):
    world.server.create("a")
    world.settle()
    late = world.add_late()
    world.controller.remove_watcher(late.watcher, WIDGET)
    world.settle()
    assert late.told == []
    assert not world.controller._dispatcher._pending


def test_a_selective_watcher_gets_its_first_call_whatever_it_ignores(world):
    class Selective(Notes):
        def __init__(self) -> None:
            super().__init__()
            self.watcher = self

        def concerns(self, old, new):
            return False

    world.server.create("a")
    world.settle()
    world.server.change("a", spec={"n": 1})
    world.poll()
    late = Selective()
    world.controller.add_watcher(late, WIDGET)
    world.settle()
    assert late.told == ["add a@3"]


class Scripted:
    """A server that answers what the test says, with versions that may go back, or none at all."""

    def __init__(self, *states: tuple[str, int]) -> None:
        self.states = [self._widget(*state) for state in states]

    def list_page(self, *_, **__):
        state = self.states.pop(0)
        return ListPage([state], state.resource_version or "1", "", None)

    def watch(self, *_, **__):
        raise Expired("the history is gone", status=410, reason="Expired")

    def _widget(self, version: str, size: int) -> Object:
        metadata = {"name": "a", "namespace": "default", "uid": "u"}
        if version:
            metadata["resourceVersion"] = version
        return Object.from_dict(WIDGET, {"metadata": metadata, "spec": size})


class Sizes:
    """Notes the sizes it is told of, and is not concerned by updates to one of them."""

    def __init__(self, ignored: int) -> None:
        self.told: list[int] = []
        self._ignored = ignored

    def concerns(self, _old: Object, new: Object) -> bool:
        return new.spec != self._ignored

    def add(self, obj: Object) -> None:
        self.told.append(obj.spec)

    def update(self, _old: Object, new: Object) -> None:
        self.told.append(new.spec)

    def delete(self, _obj: Object) -> None: ...


@pytest.mark.parametrize("ignored", [0, 2])
@pytest.mark.parametrize(
    "versions", [("100", "50", "51"), ("", "", ""), ("100", "101", "50")], ids=str
)
def test_it_follows_a_history_that_goes_back_and_objects_without_versions(versions, ignored):
    clock, stop = ManualClock(), StopSignal()
    server = Scripted(*zip(versions, (1, 2, 3), strict=True))
    informer = Informer(
        WIDGET,
        server,
        stream_first_sync=False,
        resync=1000,
        clock=clock,
        metrics=Metrics(),
        on_error=lambda _: None,
    )
    controller = InformerController(clock=clock, metrics=Metrics())
    controller.add_informer(informer, WIDGET)
    early, late = Sizes(ignored), Sizes(ignored)

    def follow() -> None:
        left = len(server.states)
        while len(server.states) == left or informer.is_backing_off:
            clock.advance(informer.step(stop))
            while controller.process_next():
                pass

    controller.add_watcher(early, WIDGET)
    follow()
    controller.add_watcher(late, WIDGET)
    follow()
    follow()
    clock.advance(1200)
    while controller.process_next():
        pass
    assert early.told == late.told == [size for size in (1, 2, 3, 3) if size != ignored]
    controller.close()


class ContendedLock:
    """A lock that says when somebody has to wait for it."""

    def __init__(self, lock: Any, is_awaited: threading.Event) -> None:
        self._lock = lock
        self._is_awaited = is_awaited

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._is_awaited.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class DuringHandOver:
    """Acts in other threads when the store has changed, before the controller gets the events.

    Each of them runs until it has to wait, or has ended; the worker, if any, comes last. It also
    notes all events.
    """

    def __init__(self, world: World) -> None:
        self.acts: list[Callable[[], object]] = []
        self.works: Callable[[], object] | None = None
        self.events: list[Event] = []
        self._threads: list[threading.Thread] = []
        self._is_awaited = threading.Event()
        world.controller.remove_informer(world.informer)
        world.informer.add_event_handler(self)
        world.controller.add_informer(world.informer, WIDGET)
        controller = world.controller
        for owner, name in (
            (world.informer._access, "lock"),
            (controller._dispatcher, "_showing"),
            (controller, "_targets_lock"),
        ):
            setattr(owner, name, ContendedLock(getattr(owner, name), self._is_awaited))

    def on_events(self, events) -> None:
        self.events += events
        acts = self.acts if self.works is None else [*self.acts, self.works]
        self.acts, self.works = [], None
        for act in acts:
            self._is_awaited.clear()

            def run(act: Callable[[], object] = act) -> None:
                try:
                    act()
                finally:
                    self._is_awaited.set()

            self._threads.append(threading.Thread(target=run))
            self._threads[-1].start()
            assert self._is_awaited.wait(10)

    def on_initial_list_end(self) -> None:
        pass

    def join(self) -> None:
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        self._threads.clear()


@pytest.fixture
def racing():
    """A world where a watcher comes between the store's change and the event."""
    made = World()
    made.gap = DuringHandOver(made)
    made.server.create("a")
    made.settle()
    yield made
    made.close()


@pytest.mark.parametrize("is_handled_meanwhile", [True, False])
@pytest.mark.parametrize(
    ("history", "told"),
    [
        (["create b"], ["add a@2", "add b@3"]),
        (["change a", "change a", "change a"], ["add a@5"]),
        (["delete a"], []),
        (["delete a", "create a"], ["add a@4"]),
        (["change a", "delete a", "create a", "change a"], ["add a@6"]),
        (["create b", "delete b"], ["add a@2"]),
    ],
)
def test_what_is_handed_over_while_it_is_added_is_neither_lost_nor_told_twice(
    racing, history, told, is_handled_meanwhile
):
    racing.gap.acts.append(racing.add_late)
    if is_handled_meanwhile:
        racing.gap.works = racing.work
    for number, step in enumerate(history):
        verb, name = step.split()
        if verb == "create":
            racing.server.create(name)
        elif verb == "change":
            racing.server.change(name, spec={"n": number})
        else:
            racing.server.delete(name)
    racing.poll()
    racing.settle()
    assert not racing.errors
    assert sorted(racing.late[0].told) == told


def test_an_event_that_waited_is_not_for_it_though_it_is_handled_while_it_is_added(racing):
    racing.server.change("a", spec={"n": 1})
    racing.poll()
    racing.gap.acts.append(racing.add_late)
    racing.gap.works = racing.work
    racing.server.change("a", spec={"n": 2})
    racing.poll()
    racing.settle()
    assert not racing.errors
    assert racing.late[0].told == ["add a@4"]


class SlowWatcher:
    """The first watcher of a kind: in its next call everything happens that a test wants."""

    def __init__(self) -> None:
        self.act: Callable[[], None] = lambda: None
        self.watcher = SimpleWatcher(
            add=lambda _: self._call(),
            update=lambda *_: self._call(),
            delete=lambda _: self._call(),
        )

    def _call(self) -> None:
        act, self.act = self.act, lambda: None
        act()


def test_a_retry_of_its_first_call_is_never_made_with_an_older_state(world):
    slow = SlowWatcher()
    world.controller.add_watcher(slow.watcher, WIDGET)
    world.server.create("a")
    world.settle()

    late: list[Notes] = []
    slow.act = lambda: late.append(world.add_late(failures=1))
    for n in range(3):
        world.server.change("a", spec={"n": n})
    world.poll()
    world.work()
    assert late[0].told == ["add a@5"], "in line behind the older events"
    world.clock.advance(1)
    world.work()
    assert late[0].told == ["add a@5", "add a@5"]


def test_what_a_late_reconciler_asks_for_is_never_made_with_an_older_state(world):
    slow = SlowWatcher()
    world.controller.add_watcher(slow.watcher, WIDGET)
    world.server.create("a")
    world.settle()

    late: list[Notes] = []
    slow.act = lambda: late.append(world.add_late(failures=1, as_reconciler=True))
    for n in range(3):
        world.server.change("a", spec={"n": n})
    world.poll()
    world.work()
    world.clock.advance(1)
    world.work()
    assert late[0].told == ["CREATE a@5", "CREATE a@5"]


class History:
    """What happens on a server that may be restored from a copy, as etcd is.

    No version is used twice, since nobody could tell its two states apart.
    """

    def __init__(self, server: Others) -> None:
        self._api = server.simulation.server.api
        self._storage = self._api._core.storage
        self._widgets = self._api._core.served("example.com", "v1", "widgets").resource.collection
        self._restores = 0
        self.copy()

    def begin_write(self) -> None:
        self._storage.revision = (self._storage.revision // 1000 + 1) * 1000 + self._restores - 1

    def copy(self) -> None:
        self._copy = dict(self._widgets.records), list(self._widgets.keys), self._storage.revision

    def restore(self) -> None:
        self._restores += 1
        records, keys, self._storage.revision = self._copy
        self._widgets.records, self._widgets.keys = dict(records), list(keys)
        self._widgets.events.clear()
        self._widgets.floor = self._storage.revision
        # The server knows of no versions as new as the informer's, and says so.
        self._api.inject([FaultRule.answer(410, verb="watch", times=1)])


def note_of(event: Event) -> str:
    """What a watcher notes for the event."""
    obj = event.object
    if event.action is ResourceAction.UPDATE:
        return f"update {obj.name}@{version_of(event.old)}->{version_of(obj)}"
    verb = "add" if event.action is ResourceAction.CREATE else "delete"
    return f"{verb} {obj.name}@{version_of(obj)}"


def by_name(notes: Iterable[str]) -> dict[str, list[str]]:
    """The notes of each object, without resyncs."""
    found: dict[str, list[str]] = defaultdict(list)
    for note in notes:
        name, _, versions = note.split()[1].partition("@")
        old, _, new = versions.partition("->")
        if old != new:
            found[name].append(note)
    return found


happenings = st.sampled_from(
    [f"{verb} {name}" for verb in ("create", "change", "change", "delete") for name in "ab"]
    + 2 * ["poll", "handle"]
    + ["late", "late in the gap", "late in a call", "resync", "time"]
    + ["failing", "failing in the gap", "failing in a call", "asking", "asking in a call"]
)
# A history with a backlog behind a slow watcher, which chance alone seldom makes.
backlogs = st.builds(
    lambda name, late, changes, rest: [
        f"create {name}", "poll", "poll", *["handle"] * 3, late,
        *[f"change {name}"] * changes, "poll", "handle", *rest,
    ],
    st.sampled_from("ab"),
    st.sampled_from(["late in a call", "failing in a call", "asking in a call"]),
    st.integers(2, 4),
    st.lists(st.sampled_from(["time", "handle", "change a", "change b", "poll"]), max_size=8),
)  # fmt: skip
steps = st.builds(
    lambda before, backlog, after: before + backlog + after,
    st.lists(happenings, max_size=40),
    backlogs | st.just([]),
    st.lists(happenings, max_size=10),
)
# And one that is restored: the informer is told that its version is gone, and lists.
restores = st.builds(
    lambda changes, late, backlog, rest: [
        "create a", "copy", *["change a"] * changes, "poll", "poll", *["handle"] * 5, late,
        *["change a", "poll", "handle"] * backlog, "handle", "restore", *["poll"] * 3, *rest,
    ],
    st.integers(1, 3),
    st.sampled_from(["late", "failing", "asking", "failing in a call"]),
    st.integers(0, 2),
    st.lists(st.sampled_from(["time", "handle", "poll"]), max_size=8),
)  # fmt: skip
# More events than may wait, around the moment at which it comes.
floods = st.builds(
    lambda late, before, after: [
        "create a", "poll", "poll", *["handle"] * 3, "delete a", "create a", *before, "poll", late,
        "handle", *after, "poll",
    ],
    st.sampled_from(["late", "failing", "asking"]),
    st.lists(st.sampled_from(["change a", "create b", "change b"]), max_size=2),
    st.lists(
        st.sampled_from(["handle", "poll", "change a", "delete a", "create a", "delete b"]),
        max_size=12,
    ),
)  # fmt: skip
disasters = st.lists(happenings | st.sampled_from(["copy", "restore", "poll"]), max_size=40)


@settings(max_examples=scaled(250), deadline=None)
@example(
    steps=["create a", "poll", "delete a", "handle", "late", "resync"],
    dequeue_policy=None,
    max_pending=10_000,
)
@example(
    steps=[
        *["create a", "poll", "poll", "handle", "failing in a call", "change a", "change a"],
        *["change a", "poll", "handle", "handle", "time", "handle"],
    ],
    dequeue_policy=None,
    max_pending=10_000,
)
@example(
    steps=[
        *["asking", "create b", "poll", "poll", "handle", "handle", "handle", "late in a call"],
        *["change b", "change b", "poll", "handle", "poll", "poll", "poll", "poll", "poll"],
        "delete b",
    ],
    dequeue_policy=None,
    max_pending=10_000,
)
@example(
    steps=[
        *["create a", "poll", "poll", "handle", "handle", "delete a", "create a", "poll", "late"],
        *["handle", "delete a", "poll"],
    ],
    dequeue_policy=None,
    max_pending=1,
)
@example(
    steps=[
        *["create a", "poll", "poll", "handle", "handle", "delete a", "create a", "poll", "late"],
        *["handle", "change a", "poll"],
    ],
    dequeue_policy=None,
    max_pending=1,
)
@given(
    steps=steps | restores | disasters | floods,
    dequeue_policy=st.sampled_from([None, keep_all_retries]),
    max_pending=st.sampled_from([1, 2, 3, 10_000]),
)
def test_whenever_it_comes_it_knows_what_it_is_told_of_and_ends_with_the_servers_state(
    steps, dequeue_policy, max_pending
):
    world = World(dequeue_policy, max_pending)
    history = History(world.server)
    gap = world.gap = DuringHandOver(world)
    slow = SlowWatcher()
    world.controller.add_watcher(slow.watcher, WIDGET)
    expected: list[tuple[Notes, list[Object], int]] = []

    def come(who: str, *, is_exact: bool = True) -> None:
        present, number = world.informer.store.list(), len(gap.events)
        late = world.add_late(0 if who == "late" else 2, as_reconciler=who == "asking")
        late.has_restores = "restore" in steps
        late.keeps_retries = dequeue_policy is not None
        if is_exact and who == "late" and world.controller._dispatcher._has_handled_event:
            expected.append((late, list(present), number))

    replay = world.controller._bindings.owned()[0].registration.replay
    try:
        for number, step in enumerate(steps):
            verb, _, name = step.partition(" ")
            present = world.server.find(name)
            if step == "poll":
                world.poll()
            elif step == "handle":
                world.controller.process_next()
            elif step == "time":
                world.clock.advance(1)
            elif step in ("late", "failing", "asking"):
                come(step)
            elif step.endswith("in the gap"):
                gap.acts.append(partial(come, verb, is_exact=False))
                gap.works = world.work
            elif step.endswith("in a call"):
                slow.act = partial(come, verb)
            elif step == "resync":
                replay()
            elif step == "copy":
                history.copy()
            elif step == "restore":
                history.restore()
            elif verb == "create" and present is None:
                history.begin_write()
                world.server.create(name)
            elif verb == "change" and present is not None:
                history.begin_write()
                world.server.change(name, spec={"n": number})
            elif verb == "delete" and present is not None:
                history.begin_write()
                world.server.delete(name)
        world.settle()
        assert {type(error) for error in world.errors} <= {ConnectionError}, world.errors
        there = {obj.uid: obj for obj in world.server.objects}
        for late in world.late:
            assert late.known == there
        for late, present, number in expected if max_pending == 10_000 else ():
            after = [*(Event(ResourceAction.CREATE, obj) for obj in present), *gap.events[number:]]
            assert by_name(late.told) == by_name(map(note_of, after))
        for target in world.controller._dispatcher.registered():
            assert target.not_shown is None
    finally:
        world.close()


def test_with_threads_late_watchers_miss_nothing_and_see_nothing_odd():
    class Feed(Informer):
        """An informer whose store the test changes from a thread."""

        def run(self, stop: StopSignal) -> None:
            stop.wait()

        def put(self, obj: Object, old: Object | None, *, is_deleted: bool) -> None:
            with self._access.lock:
                if is_deleted:
                    self._store._remove(old)
                    event = Event(ResourceAction.DELETE, obj)
                else:
                    self._store._put(obj, old)
                    event = (
                        Event(ResourceAction.UPDATE, obj, old)
                        if old
                        else Event(ResourceAction.CREATE, obj)
                    )
                self._send([event])

    feed = Feed(WIDGET, no_client(), metrics=Metrics())
    errors: list[Exception] = []
    controller = InformerController(
        workers=3,
        metrics=Metrics(),
        retry_policy=lambda *_: None,
        error_handler=lambda error, _: errors.append(error),
    )
    controller.add_informer(feed, WIDGET)
    stop = StopSignal()
    thread = threading.Thread(target=controller.run, args=(stop,))
    thread.start()
    present: dict[str, Object] = {}
    lates: list[Notes] = []
    try:
        for version in range(1, 600):
            name = f"w{version % 7}"
            old = present.get(name)
            is_deleted = old is not None and version % 11 == 0
            obj = Object.from_dict(
                WIDGET,
                {
                    "metadata": {
                        "name": name,
                        "namespace": "default",
                        "uid": old.uid if old else f"{name}-{version}",
                        "resourceVersion": str(version),
                    }
                },
            )
            adding = None
            if version % 40 == 0:
                lates.append(Notes())
                adding = threading.Thread(
                    target=controller.add_watcher, args=(lates[-1].watcher, WIDGET)
                )
                adding.start()
            feed.put(obj, old, is_deleted=is_deleted)
            if adding is not None:
                adding.join()
            if is_deleted:
                del present[name]
            else:
                present[name] = obj
        assert controller.wait_idle(20)
    finally:
        stop.set()
        thread.join()
    assert not errors
    for late in lates:
        assert late.known == {obj.uid: obj for obj in present.values()}
