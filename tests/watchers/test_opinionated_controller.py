"""OpinionatedWatchers under a controller that runs, on the embedded server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.client import Client, ClientConfig, JsonPatch, MergePatch, NotFound
from appsdk_operator.resource import Kind, MutableObject, Object
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer, Simulation
from appsdk_operator.watchers import (
    ConstantBackoff,
    InformerController,
    KubernetesInformer,
    OpinionatedWatcher,
    keep_all_retries,
    opinionated_retry_dequeue_policy,
)

CONFIG_MAP = Kind(group="", version="v1", kind="ConfigMap")
DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment")
GADGET = Kind(group="example.com", version="v1", kind="Gadget")
POD = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
SPEC = {"selector": {"matchLabels": {"a": "b"}}, "template": POD, "replicas": 1}


class Operator:
    """One operator's process, and what its callbacks were told."""

    def __init__(self, server: APIServer, kind: Kind, **options: Any) -> None:
        self.kind = kind
        self.notes: list[str] = []
        self.failures: dict[str, list[Exception]] = {}
        self._changed = threading.Condition()
        self.client = Client(ClientConfig(server=server.url), metrics=Metrics())
        callbacks = {name: self._callback(name) for name in ("add", "sync", "update", "delete")}
        self.watcher = OpinionatedWatcher(kind, self.client, **callbacks)
        self.controller = InformerController(
            metrics=Metrics(),
            retry_policy=ConstantBackoff(0.01),
            error_handler=lambda *_: None,
            **options,
        )
        self.controller.add_informer(
            KubernetesInformer(kind, self.client, namespace="default", metrics=Metrics()), kind
        )
        self.controller.add_watcher(self.watcher, kind)
        self.stop = StopSignal()
        self._thread = threading.Thread(target=self.controller.run, args=(self.stop,))
        self._thread.start()

    def _callback(self, name: str) -> Callable[..., None]:
        def call(*objects: Object) -> None:
            with self._changed:
                self.notes.append(f"{name} {objects[-1].name}")
                self._changed.notify_all()
            if self.failures.get(name):
                raise self.failures[name].pop()

        return call

    def wait_for(self, *notes: str) -> None:
        """Wait until these are all the notes, and the controller has nothing left to do."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.notes) >= len(notes), 10), self.notes
        assert self.notes == list(notes)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        for _ in range(2000):
            if holds():
                return
            threading.Event().wait(0.005)
        raise AssertionError(f"it never holds; told: {self.notes}")

    def finalizers(self, name: str) -> tuple[str, ...] | None:
        try:
            return self.client.get(self.kind, name, namespace="default").finalizers
        except NotFound:
            return None

    def end(self) -> None:
        self.stop.set()
        self._thread.join()
        self.client.close()


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


@pytest.fixture
def start(server: APIServer) -> Iterator[Callable[..., Operator]]:
    started: list[Operator] = []

    def make(kind: Kind, **options: Any) -> Operator:
        started.append(Operator(server, kind, **options))
        return started[-1]

    yield make
    for operator in started:
        operator.end()


def draft(kind: Kind, name: str) -> MutableObject:
    fields = {"data": {"n": "0"}} if kind is CONFIG_MAP else {"spec": SPEC}
    return MutableObject.new(kind, name, namespace="default", **fields)


def respec(operator: Operator, name: str) -> None:
    kind = operator.kind
    patch = {"data": {"n": "1"}} if kind is CONFIG_MAP else {"spec": {"replicas": 2}}
    operator.client.patch(kind, name, MergePatch(patch), namespace="default")


@pytest.mark.parametrize("kind", [CONFIG_MAP, DEPLOYMENT], ids=["no generation", "generation"])
@pytest.mark.parametrize("policy", [None, opinionated_retry_dequeue_policy])
def test_a_life_with_failures_is_told_once_and_in_order(start, kind, policy):
    operator = start(kind, retry_dequeue_policy=policy)
    ours = operator.watcher.finalizer
    operator.failures["add"] = [ConnectionError("one"), ConnectionError("two")]
    operator.client.create(draft(kind, "a"))
    operator.wait_until(lambda: operator.finalizers("a") == (ours,))
    operator.wait_for("add a", "add a", "add a")
    respec(operator, "a")
    operator.wait_for(*["add a"] * 3, "update a")
    operator.failures["delete"] = [ConnectionError("not yet")]
    operator.client.delete(kind, "a", namespace="default")
    operator.wait_until(lambda: operator.finalizers("a") is None)
    operator.wait_for(*["add a"] * 3, "update a", "delete a", "delete a")
    operator.wait_until(lambda: not operator.watcher._finalizer_lifecycle._records)
    operator.wait_until(lambda: not operator.controller._dispatcher._pending)


def test_a_second_process_syncs_what_the_first_added_and_cleans_up_what_it_missed(start):
    first = start(CONFIG_MAP)
    for name in ("stays", "goes"):
        first.client.create(draft(CONFIG_MAP, name))
    for name in ("stays", "goes"):
        first.wait_until(lambda name=name: first.finalizers(name) == (first.watcher.finalizer,))
    first.stop.set()
    first._thread.join()
    first.client.delete(CONFIG_MAP, "goes", namespace="default")
    second = start(CONFIG_MAP)
    second.wait_until(lambda: second.finalizers("goes") is None)
    second.wait_until(lambda: len(second.notes) == 2)
    assert sorted(second.notes) == ["delete goes", "sync stays"]


def test_several_operators_hold_one_object_until_each_has_cleaned_up(start, server):
    operator = start(CONFIG_MAP)
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as client:
        other_notes = []
        other = OpinionatedWatcher(
            CONFIG_MAP,
            client,
            add=lambda _: other_notes.append("add"),
            delete=lambda _: other_notes.append("delete"),
            finalizer=lambda _: "other.example.com/cleanup",
        )
        other.add(client.create(draft(CONFIG_MAP, "a")))
        names = {operator.watcher.finalizer, other.finalizer}
        operator.wait_until(lambda: set(operator.finalizers("a") or ()) == names)
        client.delete(CONFIG_MAP, "a", namespace="default")
        operator.wait_until(lambda: operator.finalizers("a") == (other.finalizer,))
        other.add(client.get(CONFIG_MAP, "a", namespace="default"))
        assert operator.finalizers("a") is None
        assert other_notes == ["add", "delete"]
        # Without generations the other one's finalizer is news, and shown as an update.
        assert [note for note in operator.notes if note != "update a"] == ["add a", "delete a"]


def test_writers_that_race_for_the_list_of_finalizers_all_keep_theirs(start, server):
    operator = start(CONFIG_MAP, workers=3)
    names = [f"a{n}" for n in range(8)]
    clients = [Client(ClientConfig(server=server.url), metrics=Metrics()) for _ in range(3)]

    def write(number: int) -> None:
        for name in names:
            for part in range(3):
                patch = [
                    {
                        "op": "add",
                        "path": "/metadata/finalizers/-",
                        "value": f"f{part}.example.org/{number}",
                    }
                ]
                clients[number].patch(CONFIG_MAP, name, JsonPatch(patch), namespace="default")

    for name in names:
        made = draft(CONFIG_MAP, name)
        made.finalizers.append("first.example.org/x")
        clients[0].create(made)
    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ours = operator.watcher.finalizer
    for name in names:
        operator.wait_until(lambda name=name: ours in (operator.finalizers(name) or ()))
        found = [f for f in operator.finalizers(name) or () if f != ours]
        assert found[0] == "first.example.org/x"
        assert len(found) == 10
        for number in range(3):
            own = [f for f in found if f.endswith(f"/{number}")]
            assert own == [f"f{part}.example.org/{number}" for part in range(3)], "in their order"
    for client in clients:
        client.close()


def test_a_resync_does_not_repeat_an_add_that_another_call_has_made_up_for() -> None:
    notes: list[str] = []
    failures = [ConnectionError() for _ in range(3)]

    def add(obj: Object) -> None:
        notes.append("add")
        if failures:
            raise failures.pop()

    def watchers(process: Any) -> list[Any]:
        sync = lambda _: notes.append("sync")  # noqa: E731
        return [OpinionatedWatcher(GADGET, process.client, add=add, sync=sync)]

    with Simulation(
        GADGET,
        watchers,
        retry_policy=lambda _, attempt: None if attempt else 1.0,
        retry_dequeue_policy=keep_all_retries,
        resync=30.0,
    ) as simulation:
        simulation.create("a")
        simulation.poll()
        while simulation.handle():
            pass
        simulation.patch("a", {"spec": {"n": 1}})
        for _ in range(5):
            simulation.poll()
            while simulation.handle():
                pass
            simulation.advance(1.0)
        assert notes == ["add"] * 4, "the last one as the retry of the update"
        simulation.advance(60.0)
        simulation.poll()
        while simulation.handle():
            pass
    assert notes == ["add"] * 4
