"""Shards on an API server in the process: several replicas in threads, with real leases."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.client import Client, ClientConfig, MergePatch, NotFound
from appsdk_operator.controllers import Result
from appsdk_operator.manager import SHARDS_LABEL, Elector, LeaderElection, LeadershipLost, Shards
from appsdk_operator.manager._election.client import LEASE
from appsdk_operator.resource import MutableObject, Object, ObjectKey, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer, FaultProxy
from tests.forking import in_child
from tests.waiting import eventually

CONFIG_MAP = kinds.core.v1.ConfigMap
COUNT = 6
SHORT = 1.0
"""Seconds of a lease whose end a test waits for."""


class Replica:
    """Shards in a thread."""

    def __init__(
        self,
        url: str,
        identity: str,
        count: int = COUNT,
        *,
        lease: float = 10.0,
        before: Callable[[Shards], object] = lambda _: None,
        **options: Any,
    ) -> None:
        self.client = Client(ClientConfig(server=url, max_retries=0), metrics=Metrics())
        election = LeaderElection(
            id="work",
            namespace="default",
            identity=identity,
            lease_duration=lease,
            renew_deadline=0.8 * lease,
            retry_period=0.1,
        )
        self.metrics = Metrics()
        self.shards = Shards(self.client, election, count, metrics=self.metrics, **options)
        before(self.shards)
        self.stop_signal = StopSignal()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=identity)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.shards.run(self.stop_signal)
        except BaseException as error:
            self.error = error

    def keys(self, count: int = 1) -> list[ObjectKey]:
        """Keys of objects of shards that it holds."""
        keys = (ObjectKey("default", f"o{n}") for n in range(1000))
        return [key for key in keys if self.shards.owns(key)][:count]

    def end(self) -> None:
        self.stop_signal.set()
        self.thread.join(30)
        assert not self.thread.is_alive()
        self.client.close()
        if self.error is not None:
            raise self.error


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


@pytest.fixture
def replica(server: APIServer) -> Iterator[Callable[..., Replica]]:
    made: list[Replica] = []

    def make(identity: str, count: int = COUNT, url: str = "", **options: Any) -> Replica:
        made.append(Replica(url or server.url, identity, count, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop_signal.set()
    for one in made:
        one.end()


def shares(*replicas: Replica) -> list[int]:
    return sorted(len(replica.shards.held) for replica in replicas)


def are_disjoint(*replicas: Replica) -> bool:
    held = [shard for replica in replicas for shard in replica.shards.held]
    return len(held) == len(set(held))


def test_one_alone_holds_all_and_two_hold_half_each(replica: Callable[..., Replica]) -> None:
    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    second = replica("second")
    assert eventually(lambda: shares(first, second) == [3, 3])
    assert are_disjoint(first, second)
    assert eventually(lambda: first.shards.members == {"first", "second"})
    assert first.shards.health().text == "holds 3 of 6 shards"
    values = [
        first.metrics.value(f"shards{each}", name="work") for each in ("", "_held", "_members")
    ]
    assert values == [6, 3, 2]
    first.end()
    assert first.metrics.value("shards_held", name="work") is None


def test_who_leaves_hands_its_shards_over_and_leaves_nothing_of_its_own(
    replica: Callable[..., Replica], server: APIServer
) -> None:
    first, second = replica("first"), replica("second")
    assert eventually(lambda: shares(first, second) == [3, 3])
    second.end()
    assert eventually(lambda: shares(first) == [6])
    members = [o for o in server.objects(LEASE) if "-member-" in o["metadata"]["name"]]
    assert [o["spec"]["holderIdentity"] for o in members] == ["first"]


def test_each_key_belongs_to_one_replica(replica: Callable[..., Replica]) -> None:
    replicas = [replica("first"), replica("second")]
    assert eventually(lambda: shares(*replicas) == [3, 3])
    for number in range(50):
        key = ObjectKey("default", f"o{number}")
        assert sum(r.shards.owns(key) for r in replicas) == 1
        (owner,) = (r for r in replicas if r.shards.owns(key))
        obj = Object.from_dict(
            CONFIG_MAP, {"metadata": {"name": key.name, "namespace": key.namespace}}
        )
        event = Event(ResourceAction.CREATE, obj, None)
        assert [r.shards.predicate(event) for r in replicas] == [r is owner for r in replicas]


def test_a_shard_is_handed_over_only_after_its_last_reconcile(
    replica: Callable[..., Replica], server: APIServer
) -> None:
    first = replica("first", 1)
    assert eventually(lambda: shares(first) == [1])
    (key,) = first.keys()
    running, finish = threading.Event(), threading.Event()

    def work(request: ObjectKey) -> None:
        running.set()
        finish.wait(20)

    thread = threading.Thread(
        target=lambda: first.shards.reconciler(work).reconcile(key), name="reconcile"
    )
    thread.start()
    assert running.wait(10)
    first.stop_signal.set()
    second = replica("second", 1)
    assert eventually(lambda: not first.shards.owns(key))
    assert first.shards.reconciler(work).reconcile(key) is None, "nothing new begins"
    # It is renewed as long as the reconcile runs.
    renewals: set[str] = set()

    def is_renewed() -> bool:
        [lease] = [o for o in server.objects(LEASE) if "-shard-" in o["metadata"]["name"]]
        assert lease["spec"]["holderIdentity"] == "first"
        renewals.add(lease["spec"]["renewTime"])
        return len(renewals) > 5

    assert eventually(is_renewed)
    assert not second.shards.owns(key)
    finish.set()
    thread.join()
    assert eventually(lambda: second.shards.owns(key))


def test_requests_of_other_shards_are_dropped(replica: Callable[..., Replica]) -> None:
    first = replica("first")
    done: list[ObjectKey] = []
    reconciler = first.shards.reconciler(done.append)
    key = ObjectKey("default", "a")
    assert reconciler.reconcile(key) is None
    assert done == []
    assert eventually(lambda: shares(first) == [6])
    reconciler.reconcile(key)
    assert done == [key]


def test_an_async_reconciler_works_for_its_shard_too(
    replica: Callable[..., Replica], server: APIServer
) -> None:
    first = replica("first")
    key = ObjectKey("default", "a")
    terms: list[int] = []

    async def work(request: ObjectKey) -> None:
        await asyncio.sleep(0)
        first.shards.check_write()
        terms.append(first.shards.term())

    reconciler = first.shards.reconciler(work)
    asyncio.run(reconciler.reconcile(key))  # type: ignore[arg-type]
    assert terms == []
    assert eventually(lambda: shares(first) == [6])
    asyncio.run(reconciler.reconcile(key))  # type: ignore[arg-type]
    assert terms == [0]
    outcome: Any = reconciler.reconcile(key)
    outcome.close()  # one that is never begun keeps no shard from being handed over
    first.end()


def test_what_comes_in_the_fence_margin_is_put_off_and_not_dropped(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The lease may still be renewed, and then nobody would ask for it again.
    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    key = ObjectKey("default", "a")
    done: list[ObjectKey] = []

    async def work(request: ObjectKey) -> None:
        done.append(request)

    with monkeypatch.context() as patch:
        patch.setattr(Elector, "may_write", lambda self: False)
        assert first.shards.owns(key)
        later = Result(requeue_after=0.1)
        assert first.shards.reconciler(done.append).reconcile(key) == later
        outcome: Any = first.shards.reconciler(work).reconcile(key)
        assert asyncio.run(outcome) == later
    assert done == []
    first.shards.reconciler(done.append).reconcile(key)
    assert done == [key]


def test_requests_that_are_no_keys_say_whose_they_are(replica: Callable[..., Replica]) -> None:
    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    done: list[str] = []
    with pytest.raises(TypeError, match="key_of"):
        first.shards.reconciler(done.append).reconcile("x")
    by_name = first.shards.reconciler(done.append, key_of=lambda name: ObjectKey("default", name))
    by_name.reconcile("x")
    assert done == ["x"]
    future: asyncio.Future[None] = asyncio.Future(loop=asyncio.new_event_loop())
    with pytest.raises(TypeError, match="make it one"):
        first.shards.reconciler(lambda key: future).reconcile(ObjectKey("default", "x"))
    future.get_loop().close()
    with pytest.raises(TypeError, match="not a reconciler"):
        first.shards.reconciler(object())  # type: ignore[arg-type]


def test_all_objects_of_a_shard_are_asked_for_when_it_is_won(
    replica: Callable[..., Replica],
) -> None:
    keys = [ObjectKey("default", f"o{n}") for n in range(60)]

    class Queue:
        def __init__(self) -> None:
            self.keys: list[ObjectKey] = []
            self.reasons: set[str] = set()

        def add(self, request: ObjectKey, **options: Any) -> None:
            self.keys.append(request)
            self.reasons.add(options["reason"])

    early, late, stop = Queue(), Queue(), StopSignal()
    first = replica("first", before=lambda s: s.source(lambda: keys).start(early, stop))  # type: ignore[arg-type]
    assert eventually(lambda: sorted(early.keys) == sorted(keys))
    assert "shard 0 was won" in early.reasons
    first.shards.source(lambda: keys).start(late, stop)  # type: ignore[arg-type]
    assert sorted(late.keys) == sorted(keys), "those that are held already"
    stop.set()
    second = replica("second")
    assert eventually(lambda: shares(first, second) == [3, 3])
    second.end()
    assert eventually(lambda: shares(first) == [6])
    assert len(early.keys) == len(keys), "it was stopped"


def test_writes_belong_to_a_shard_that_is_held(
    replica: Callable[..., Replica], server: APIServer
) -> None:
    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    client = first.shards.client(first.client)
    key = ObjectKey("default", "a")
    draft = MutableObject.new(CONFIG_MAP, "a", namespace="default", data={})
    with pytest.raises(RuntimeError, match="belongs to no shard"):
        client.create(draft)
    with pytest.raises(RuntimeError, match="a term belongs to a shard"):
        first.shards.term()
    with first.shards.acting_for(key) as is_ours:
        assert is_ours
        client.create(draft)
    assert client.get(CONFIG_MAP, "a", namespace="default").name == "a"


def test_writes_for_a_shard_whose_lease_has_run_out_are_refused(
    replica: Callable[..., Replica], server: APIServer
) -> None:
    with FaultProxy(server.url) as proxy:
        first = replica("first", url=proxy.url, lease=SHORT)
        assert eventually(lambda: shares(first) == [6])
        key = ObjectKey("default", "a")
        with (
            Client(ClientConfig(server=server.url), metrics=Metrics()) as direct,
            first.shards.acting_for(key) as is_ours,
        ):
            assert is_ours
            client = first.shards.client(direct)
            client.create(MutableObject.new(CONFIG_MAP, "a", namespace="default", data={}))
            proxy.refuse()
            proxy.cut()
            second = replica("second")
            assert eventually(lambda: second.shards.owns(key))
            with pytest.raises(LeadershipLost):
                client.patch(CONFIG_MAP, "a", MergePatch({"data": {"x": "1"}}), namespace="default")
        assert eventually(lambda: not first.shards.owns(key))
        assert eventually(lambda: not first.shards.health().is_ready)
        proxy.clear()
        assert eventually(lambda: shares(first, second) == [3, 3])
        assert first.shards.health().is_ready
        first.end()


def test_a_replica_that_died_is_forgotten(
    replica: Callable[..., Replica], server: APIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appsdk_operator.manager._shards.shards._FORGET_AFTER", 2.0)
    with Client(ClientConfig(server=server.url), metrics=Metrics()) as client:
        draft = MutableObject.new(
            LEASE,
            "work-member-dead",
            namespace="default",
            spec={"holderIdentity": "dead", "leaseDurationSeconds": 3},
        )
        draft.labels[SHARDS_LABEL] = "work"
        client.create(draft)
        first = replica("first", lease=SHORT)
        assert eventually(lambda: shares(first) == [3]), "it may live"
        assert eventually(lambda: shares(first) == [6])

        def is_gone() -> bool:
            try:
                client.get(LEASE, "work-member-dead", namespace="default")
            except NotFound:
                return True
            return False

        assert eventually(is_gone)


def test_a_reconcile_that_does_not_end_keeps_its_lease_and_not_the_stop(
    replica: Callable[..., Replica], server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    first = replica("first", 1, stop_timeout=0.3)
    assert eventually(lambda: shares(first) == [1])
    (key,) = first.keys()
    with first.shards.acting_for(key):
        first.end()
        (lease,) = (o for o in server.objects(LEASE) if "-shard-" in o["metadata"]["name"])
        assert lease["spec"]["holderIdentity"] == "first"
    assert "did not end within 0.3 s" in caplog.text


def test_a_callback_that_fails_does_no_harm(
    replica: Callable[..., Replica], caplog: pytest.LogCaptureFixture
) -> None:
    first = replica("first")

    def fail(shard: int) -> None:
        raise OSError("no disk")

    first.shards.on_gain(fail)
    assert eventually(lambda: shares(first) == [6])
    assert eventually(lambda: "a callback for shard" in caplog.text)


@pytest.mark.parametrize(
    ("options", "count", "text"),
    [({"id": "x"}, 0, "1 to 1000"), ({"id": "x"}, 1001, "1 to"), ({"id": "x" * 60}, 4, "label")],
)
def test_what_cannot_work_is_refused(options: dict[str, str], count: int, text: str) -> None:
    election = LeaderElection(namespace="default", **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=text):
        Shards(None, election, count)  # type: ignore[arg-type]


def test_a_forked_child_holds_no_shards(replica: Callable[..., Replica]) -> None:
    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    [key] = first.keys()

    def look() -> object:
        shards = first.shards
        with shards.acting_for(key) as ours:
            return shards.held, shards.owns(key), ours, shards.health().text

    with first.shards._changed:  # another thread's, at the moment of the fork
        seen = in_child(look)
    forked = "shards: they belong to the process that this one was forked from"
    assert seen == str((frozenset(), False, False, forked))
    assert "make new Shards in the child" in in_child(lambda: first.shards.run(StopSignal()))
    assert shares(first) == [6]


def test_shards_run_once(replica: Callable[..., Replica]) -> None:
    first = replica("first")
    first.end()
    with pytest.raises(RuntimeError, match="make new ones"):
        first.shards.run(StopSignal())
