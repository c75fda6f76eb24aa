"""OpinionatedWatcher: nothing is let go or missed, and no finalizer of others is touched."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from appsdk_operator.client import (
    ApiError,
    Client,
    ClientError,
    Hooks,
    InterceptedClient,
    JsonPatch,
    MergePatch,
    NotFound,
)
from appsdk_operator.resource import Kind, Object
from appsdk_operator.watchers import OpinionatedWatcher, opinionated_retry_dequeue_policy
from tests.conformance.conftest import (
    CONFIG_MAP,
    TIMEOUT,
    WIDGET,
    Recorder,
    Running,
    World,
)
from tests.waiting import eventually

BOTH_KINDS = pytest.mark.parametrize("kind", [WIDGET, CONFIG_MAP], ids=["widget", "configmap"])


def opinionated(
    world: World, kind: Kind, recorder: Any, client: Any = None, **options: Any
) -> tuple[OpinionatedWatcher, Running]:
    client = client or world.client
    watcher = OpinionatedWatcher(
        kind,
        client,
        add=recorder.add,
        update=recorder.update,
        delete=recorder.delete,
        sync=recorder.sync,
    )
    informer_options = {"label_selector": "!unwatched"}
    return watcher, world.operate(kind, watcher, informer_options=informer_options, **options)


def is_settled(world: World, kind: Kind, name: str, watcher: OpinionatedWatcher) -> bool:
    obj = world.find(kind, name)
    return obj is not None and obj.finalizers[-1:] == (watcher.finalizer,)


@BOTH_KINDS
def test_an_object_goes_through_add_update_and_delete_once_each(world: World, kind: Kind) -> None:
    recorder = Recorder(one_worker=True)
    watcher, running = opinionated(world, kind, recorder)
    running.wait_for_sync()
    world.create(kind, "one")
    assert eventually(lambda: is_settled(world, kind, "one", watcher))
    world.resize(kind, "one", 2)
    assert recorder.wait(lambda r: r.succeeded("update"))
    world.delete(kind, "one")
    assert eventually(lambda: world.find(kind, "one") is None)
    assert running.controller.wait_idle(TIMEOUT)
    assert recorder.actions("one") == ["add", "update", "delete"]
    assert not recorder.wrong


def test_changes_of_status_and_labels_are_not_shown(world: World) -> None:
    recorder = Recorder()
    watcher, running = opinionated(world, WIDGET, recorder)
    running.wait_for_sync()
    world.create(WIDGET, "one")
    assert eventually(lambda: is_settled(world, WIDGET, "one", watcher))
    draft = world.get(WIDGET, "one").mutable_copy()
    draft["status"] = {"phase": "Ready"}
    world.client.status.update(draft)
    label = MergePatch({"metadata": {"labels": {"app": "web"}}})
    world.client.patch(WIDGET, "one", label, namespace=world.namespace)
    world.resize(WIDGET, "one", 5)
    assert recorder.wait(lambda r: r.succeeded("update"))
    assert recorder.actions("one") == ["add", "update"]


@BOTH_KINDS
def test_a_restarted_operator_syncs_what_it_knows_and_deletes_what_was_deleted_meanwhile(
    world: World, kind: Kind
) -> None:
    first = Recorder()
    watcher, running = opinionated(world, kind, first)
    for name in ("kept", "doomed"):
        world.create(kind, name)
    for name in ("kept", "doomed"):
        assert eventually(lambda name=name: is_settled(world, kind, name, watcher))
    running.end()
    world.delete(kind, "doomed")
    world.create(kind, "new")
    assert world.get(kind, "doomed").is_deleting
    second = Recorder()
    _, running = opinionated(world, kind, second)
    running.wait_for_sync()
    assert eventually(lambda: world.find(kind, "doomed") is None)
    assert eventually(lambda: is_settled(world, kind, "new", watcher))
    assert running.controller.wait_idle(TIMEOUT)
    assert second.actions("kept") == ["sync"]
    assert second.actions("doomed") == ["delete"]
    assert second.actions("new") == ["add"]


class CrashError(Exception):
    """The process dies here."""


class Crashing:
    """A client that dies at its n-th write: before it, or after it with the answer lost."""

    def __init__(self, client: Client, at: int, *, after: bool) -> None:
        self._left = at
        self._after = after
        self._client = InterceptedClient(client, Hooks(patch=self._patch))
        self.has_crashed = threading.Event()
        self.get = self._client.get
        self.patch = self._client.patch

    def _patch(self, inner: Any, *args: Any, **options: Any) -> Object:
        if self.has_crashed.is_set():
            raise CrashError("still dead")
        self._left -= 1
        if self._left > 0:
            result: Object = inner.patch(*args, **options)
            return result
        if self._after:
            inner.patch(*args, **options)
        self.has_crashed.set()
        raise CrashError("dies")


@BOTH_KINDS
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_crash_at_any_write_loses_neither_the_add_nor_the_delete(
    world: World, kind: Kind, write: int, after: bool
) -> None:
    """Writes 1 and 2 put the finalizers on, 3 takes them off."""
    world.create(kind, "one", finalizers=["example.com/other"])
    before = Recorder()
    crashing = Crashing(world.client, write, after=after)
    watcher, running = opinionated(
        world, kind, before, crashing, retry_policy=lambda error, attempt: None
    )
    if write == 3:
        assert eventually(lambda: is_settled(world, kind, "one", watcher))
        world.delete(kind, "one")
    assert crashing.has_crashed.wait(TIMEOUT)
    running.end()
    again = Recorder()
    _, running = opinionated(world, kind, again)
    if write < 3:
        assert eventually(lambda: is_settled(world, kind, "one", watcher))
        world.delete(kind, "one")
    other = ("example.com/other",)
    assert eventually(lambda: world.get(kind, "one").finalizers == other)
    assert running.controller.wait_idle(TIMEOUT)
    calls = [*before.actions("one"), *again.actions("one")]
    assert "add" in calls
    assert "delete" in calls
    assert calls.index("add") < calls.index("delete")
    draft = world.get(kind, "one").mutable_copy()
    draft.finalizers.clear()
    world.client.update(draft)
    assert world.find(kind, "one") is None


@BOTH_KINDS
@pytest.mark.parametrize("policy", [None, opinionated_retry_dequeue_policy])
def test_callbacks_that_fail_are_called_again_until_they_succeed(
    world: World, kind: Kind, policy: Any
) -> None:
    left = {"add": 2, "update": 2, "delete": 2}

    def fail(action: str, obj: Object) -> None:
        if left.get(action, 0):
            left[action] -= 1
            raise RuntimeError("not yet")

    recorder = Recorder(fail)
    watcher, running = opinionated(world, kind, recorder, retry_dequeue_policy=policy)
    running.wait_for_sync()
    world.create(kind, "one")
    assert eventually(lambda: is_settled(world, kind, "one", watcher)), recorder.actions("one")
    world.resize(kind, "one", 2)
    assert recorder.wait(lambda r: r.succeeded("update"))
    world.delete(kind, "one")
    assert eventually(lambda: world.find(kind, "one") is None)
    assert recorder.actions("one") == [
        *("add!", "add!", "add"),
        *("update!", "update!", "update"),
        *("delete!", "delete!", "delete"),
    ]


@BOTH_KINDS
def test_an_object_that_is_deleted_during_its_add_is_cleaned_up_after_it(
    world: World, kind: Kind
) -> None:
    inside, let_go = threading.Event(), threading.Event()

    def block(action: str, obj: Object) -> None:
        if action == "add":
            inside.set()
            let_go.wait(TIMEOUT)

    recorder = Recorder(block)
    opinionated(world, kind, recorder)
    world.create(kind, "one")
    assert inside.wait(TIMEOUT)
    world.delete(kind, "one")
    # The finalizer of work in progress holds it already.
    assert world.get(kind, "one").is_deleting
    let_go.set()
    assert eventually(lambda: world.find(kind, "one") is None)
    assert recorder.actions("one") == ["add", "delete"]


def test_an_object_made_anew_under_its_name_is_added_again(world: World) -> None:
    recorder = Recorder()
    watcher, running = opinionated(world, WIDGET, recorder, workers=2)
    running.wait_for_sync()
    uids = []
    for _ in range(3):
        uids.append(world.create(WIDGET, "one").uid)
        assert eventually(lambda: is_settled(world, WIDGET, "one", watcher))
        world.delete(WIDGET, "one")
        assert eventually(lambda: world.find(WIDGET, "one") is None)
    assert [c.object.uid for c in recorder.calls if c.action == "add"] == uids
    assert [c.object.uid for c in recorder.calls if c.action == "delete"] == uids


class Rival(threading.Thread):
    """Another controller, with no manners but its own finalizers: puts them on and off."""

    def __init__(self, world: World, kind: Kind, number: int) -> None:
        super().__init__(name=f"rival-{number}")
        self._world = world
        self._kind = kind
        self.names = [f"rival-{number}.example.com/{letter}" for letter in "ab"]
        self._rng = random.Random(number)
        self.stopping = threading.Event()
        self.wrong: list[str] = []

    def run(self) -> None:
        mine: list[str] = []
        while not self.stopping.is_set():
            for obj in self._world.objects(self._kind):
                present = [name for name in obj.finalizers if name in self.names]
                if obj.name == "fought" and present != mine:
                    self.wrong.append(f"left {mine} and found {present}")
                if obj.name == "fought" and not obj.is_deleting:
                    mine = self._write(obj, mine)

    def _write(self, obj: Object, mine: list[str]) -> list[str]:
        if mine == self.names:
            wanted = [name for name in obj.finalizers if name not in self.names]
            own: list[str] = []
        else:
            own = self.names[: len(mine) + 1]
            wanted = [*obj.finalizers, own[-1]]
        test = {"op": "test", "path": "/metadata/resourceVersion", "value": obj.resource_version}
        change = {"op": "add", "path": "/metadata/finalizers", "value": wanted}
        try:
            self._world.client.patch(
                self._kind, obj.name, JsonPatch([test, change]), namespace=obj.namespace
            )
        except ApiError:
            return mine
        return own


@pytest.mark.stress
@BOTH_KINDS
def test_rivals_over_finalizers_all_keep_theirs_in_order(world: World, kind: Kind) -> None:
    rivals = [Rival(world, kind, number) for number in range(3)]
    recorder = Recorder()
    world.create(kind, "fought", finalizers=["first.example.com/keep", "second.example.com/keep"])
    for rival in rivals:
        rival.start()
    try:
        watcher, running = opinionated(world, kind, recorder)
        assert recorder.wait(lambda r: r.succeeded("add"))
        assert eventually(lambda: watcher.finalizer in world.get(kind, "fought").finalizers)
        running.controller.wait_idle(1.0)
        world.delete(kind, "fought")
        assert recorder.wait(lambda r: r.succeeded("delete"))
        assert eventually(lambda: watcher.finalizer not in world.get(kind, "fought").finalizers)
    finally:
        for rival in rivals:
            rival.stopping.set()
        for rival in rivals:
            rival.join(TIMEOUT)
    left = world.get(kind, "fought")
    assert left.finalizers[:2] == ("first.example.com/keep", "second.example.com/keep")
    assert not [wrong for rival in rivals for wrong in rival.wrong]
    draft = left.mutable_copy()
    draft.finalizers.clear()
    world.client.update(draft)


@pytest.mark.stress
@BOTH_KINDS
def test_restarts_failures_and_cuts_at_random_lose_no_add_and_no_delete(
    world: World, kind: Kind
) -> None:
    rng = random.Random(7)
    lock = threading.Lock()

    def fail(action: str, obj: Object) -> None:
        with lock:
            if rng.random() < 0.2:
                raise RuntimeError("sometimes")

    def is_done() -> bool:
        present = world.objects(kind)
        return all(
            o.finalizers == (watcher.finalizer,) and int(o.name[-1]) % 2 == 0 for o in present
        )

    added: set[str] = set()
    deleted: set[str] = set()
    with world.proxy() as proxy:
        client = world.new_client(server=proxy.url)
        uids: dict[str, str] = {}
        for life in range(3):
            recorder = Recorder(fail)
            watcher, running = opinionated(world, kind, recorder, client, workers=2)
            for number in range(8):
                name = f"o-{life}-{number}"
                uids[name] = world.create(kind, name).uid
                if number == 3:
                    proxy.cut()
                if number % 2:
                    # kube-apiserver lets an object go in spite of a finalizer that is put on
                    # between its look at the finalizers and the deletion itself.
                    assert recorder.wait(lambda r, name=name: r.actions(name))
                    world.delete(kind, name)
            if life == 2:
                assert eventually(is_done)
                assert running.controller.wait_idle(TIMEOUT)
            running.end()
            added.update(c.object.uid for c in recorder.calls if c.action == "add" and not c.failed)
            deleted.update(
                c.object.uid for c in recorder.calls if c.action == "delete" and not c.failed
            )
            assert not recorder.wrong
    present = {o.uid for o in world.objects(kind)}
    assert present <= added
    assert added - present <= deleted
    assert deleted <= set(uids.values())


def test_a_deletion_waits_for_the_callback_however_often_it_fails(world: World) -> None:
    hold = threading.Event()

    def fail(action: str, obj: Object) -> None:
        if action == "delete" and not hold.is_set():
            raise ClientError("not yet")

    recorder = Recorder(fail)
    watcher, _ = opinionated(world, WIDGET, recorder)
    world.create(WIDGET, "one")
    assert eventually(lambda: is_settled(world, WIDGET, "one", watcher))
    world.delete(WIDGET, "one")
    assert recorder.wait(lambda r: r.actions("one").count("delete!") == 3)
    # News of the object that changes no generation must not end the clean-up.
    label = MergePatch({"metadata": {"labels": {"app": "web"}}})
    world.client.patch(WIDGET, "one", label, namespace=world.namespace)
    count = recorder.actions("one").count("delete!")
    assert recorder.wait(lambda r: r.actions("one").count("delete!") > count + 1)
    assert world.get(WIDGET, "one").is_deleting
    hold.set()
    assert eventually(lambda: world.find(WIDGET, "one") is None)
    with pytest.raises(NotFound):
        world.get(WIDGET, "one")


@BOTH_KINDS
def test_a_deletion_that_races_with_the_finalizer_is_not_missed(world: World, kind: Kind) -> None:
    recorder = Recorder()
    _, running = opinionated(world, kind, recorder, world.new_client(), workers=4)
    for number in range(40):
        world.create(kind, f"o-{number}")
        world.delete(kind, f"o-{number}")
    assert eventually(lambda: not world.objects(kind))
    world.create(kind, "last")
    assert recorder.wait(lambda r: "add" in r.actions("last"))
    assert running.controller.wait_idle(TIMEOUT)
    added = {c.object.uid for c in recorder.calls if c.action == "add" and c.object.name != "last"}
    deleted = {c.object.uid for c in recorder.calls if c.action == "delete" and not c.failed}
    assert added <= deleted
