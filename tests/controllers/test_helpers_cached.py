"""The helpers with a client that reads from a cache, while that cache is behind."""

from __future__ import annotations

import threading

import pytest

from appsdk_operator.cache import Cache, CachedClient
from appsdk_operator.client import (
    Client,
    ClientConfig,
    FieldOwnerClient,
    Hooks,
    InterceptedClient,
    Invalid,
    NamespacedClient,
)
from appsdk_operator.controllers import (
    Condition,
    Finalizing,
    OperationResult,
    create_or_patch,
    create_or_update,
    finalizing,
    patch_conditions,
    put_finalizer,
    until,
    wait_for,
)
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer

POD = kinds.core.v1.Pod
PATIENCE = 20.0


class Behind:
    """A server, a live client, and a cached one whose cache stays at its first list."""

    def __init__(self, live: Client) -> None:
        self.live = live
        self.gate = threading.Event()
        self.stop = StopSignal()
        hooked = InterceptedClient(live, Hooks(watch=self._watch))
        self.cache = Cache(hooked, metrics=Metrics(), on_error=lambda error: None)
        self.cache.add(POD)
        self.client = FieldOwnerClient(CachedClient(live, self.cache), "me")
        self.thread = threading.Thread(target=self.cache.run, args=(self.stop,))

    def _watch(self, inner, kind, **options):
        if options.get("send_initial_events"):
            raise Invalid("lists only", status=422)
        self.gate.wait(PATIENCE)
        return inner.watch(kind, **options)

    def start(self) -> None:
        self.thread.start()
        for informer in self.cache.informers(POD):
            assert informer.wait_for_sync(self.stop, PATIENCE)

    def close(self) -> None:
        self.stop.set()
        self.gate.set()
        self.thread.join(PATIENCE)


def pod(name: str = "p") -> MutableObject:
    draft = MutableObject.new(POD, name, namespace="default")
    draft["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    return draft


@pytest.fixture
def behind():
    with (
        APIServer() as server,
        Client(ClientConfig(server=server.url), metrics=Metrics()) as live,
    ):
        live.create(pod())
        world = Behind(live)
        world.start()
        # What the cache does not know of.
        draft = live.get(POD, "p", namespace="default").mutable_copy()
        draft.labels["theirs"] = "yes"
        draft.finalizers.append("example.org/theirs")
        live.update(draft)
        live.create(pod("unseen"))
        yield world
        world.close()


def label(draft: MutableObject) -> None:
    draft.labels["ours"] = "yes"


@pytest.mark.parametrize("function", [create_or_update, create_or_patch])
def test_the_second_attempt_reads_live(behind, function):
    assert dict(behind.client.get(POD, "p", namespace="default").labels) == {}
    result, obj = function(behind.client, pod(), label)
    assert result is OperationResult.UPDATED
    assert obj.labels == {"theirs": "yes", "ours": "yes"}
    result, obj = function(behind.client, pod("unseen"), label)
    assert result is OperationResult.UPDATED
    assert obj.labels == {"ours": "yes"}
    # The own write is read back, though the cache has not heard of it.
    assert function(behind.client, pod(), label).result is OperationResult.UNCHANGED


def test_live_reads_stay_in_the_namespace_of_the_client(behind):
    client = NamespacedClient(behind.client, "default")
    draft = pod("unseen")
    del draft.metadata["namespace"]
    result, obj = create_or_update(client, draft, label)
    assert (result, obj.labels) == (OperationResult.UPDATED, {"ours": "yes"})


def test_finalizers_and_conditions_are_built_on_the_live_state(behind):
    stale = behind.client.get(POD, "p", namespace="default")
    put = put_finalizer(behind.client, stale, "example.com/ours")
    assert put is not None
    assert put.finalizers == ("example.org/theirs", "example.com/ours")
    patch_conditions(behind.live, put, Condition("Theirs", "True", "Up"))
    done = patch_conditions(behind.client, stale, Condition("Ours", "True", "Up"))
    assert done is not None
    assert [c["type"] for c in done.status["conditions"]] == ["Theirs", "Ours"]


def test_a_deletion_that_the_cache_does_not_know_of_is_not_applied_to(behind):
    stale = behind.client.get(POD, "p", namespace="default")
    behind.live.delete(POD, "p", namespace="default", grace_period=0)
    calls: list[str] = []
    outcome = finalizing(
        behind.client, stale, "example.com/ours", apply=calls.append, cleanup=calls.append
    )
    assert (outcome.done, calls) == (Finalizing.GONE, [])


def test_waiting_with_the_client_asks_the_server_and_with_the_cache_it(behind):
    theirs = until.field_equals("metadata.labels['theirs']", "yes")
    options = {"namespace": "default"}
    assert wait_for(behind.client, POD, "p", theirs, timeout=PATIENCE, **options) is not None
    with pytest.raises(TimeoutError):
        wait_for(behind.cache, POD, "p", theirs, timeout=0.05, **options)
    threading.Timer(0.0, behind.gate.set).start()
    assert wait_for(behind.cache, POD, "p", theirs, timeout=PATIENCE, **options) is not None
