"""Shards that get no threads, whose callbacks fail, and who are not the first."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.manager import LeaderElection, Shards
from appsdk_operator.manager._election.client import LEASE
from appsdk_operator.manager._election.lease_state import LeaseRecord, ObservedLease
from appsdk_operator.manager._shards.reconciler import ShardClaim
from appsdk_operator.resource import ObjectKey
from appsdk_operator.runtime import Metrics, StopSignal, ThreadGroup
from appsdk_operator.testing import APIServer, FaultProxy
from tests.manager.test_shards import SHORT, Replica, shares
from tests.waiting import eventually


@pytest.fixture
def server() -> Iterator[APIServer]:
    with APIServer() as server:
        yield server


@pytest.fixture
def replica(server: APIServer) -> Iterator[Callable[..., Replica]]:
    made: list[Replica] = []

    def make(identity: str, count: int = 6, url: str = "", **options: Any) -> Replica:
        made.append(Replica(url or server.url, identity, count, **options))
        return made[-1]

    yield make
    for one in made:
        one.end()


class Queue:
    """Takes what is added."""

    def __init__(self) -> None:
        self.keys: list[ObjectKey] = []

    def add(self, request: ObjectKey, **options: Any) -> None:
        self.keys.append(request)


KEYS = [ObjectKey("default", f"o{n}") for n in range(60)]


@pytest.mark.parametrize("is_late", [False, True])
def test_keys_that_cannot_be_listed_when_a_shard_is_won_are_asked_for_again(
    replica: Callable[..., Replica], caplog: pytest.LogCaptureFixture, is_late: bool
) -> None:
    # Nobody else would ask for them: their objects would wait for their next change.
    queue, stop, tries = Queue(), StopSignal(), threading.Semaphore(3)

    def keys() -> list[ObjectKey]:
        if tries.acquire(blocking=False):
            raise OSError("no connection")
        return KEYS

    first = replica("first")
    if is_late:
        assert eventually(lambda: shares(first) == [6])
    first.shards.source(keys).start(queue, stop)  # type: ignore[arg-type]
    assert eventually(lambda: set(queue.keys) == set(KEYS))
    assert "a callback for shard" in caplog.text
    stop.set()


def test_a_callback_that_is_taken_back_is_not_tried_again(
    replica: Callable[..., Replica],
) -> None:
    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    calls: list[int] = []

    def fail(shard: int) -> None:
        calls.append(shard)
        raise OSError("no disk")

    forget = first.shards.on_gain(fail)
    assert eventually(lambda: len(calls) > 12)
    forget()
    assert eventually(
        lambda: not [t for t in threading.enumerate() if t.name.startswith("shards/gain")]
    )


@pytest.mark.parametrize("what", ["shard-", "gain-"])
def test_a_lack_of_threads_delays_a_shard_and_does_not_lose_it(
    replica: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    start = ThreadGroup.start
    refused: list[str] = []

    def refuse(group: ThreadGroup, name: str, target: Any) -> Any:
        if name.startswith(what) and len(refused) < 2:
            refused.append(name)
            raise RuntimeError("can't start new thread")
        return start(group, name, target)

    monkeypatch.setattr(ThreadGroup, "start", refuse)
    queue, stop = Queue(), StopSignal()
    first = replica("first", before=lambda s: s.source(lambda: KEYS).start(queue, stop))  # type: ignore[arg-type]
    assert eventually(lambda: shares(first) == [6])
    assert eventually(lambda: set(queue.keys) == set(KEYS))
    assert len(refused) == 2
    stop.set()


def test_a_shard_that_is_won_in_the_moment_in_which_it_is_let_go_of_begins_nothing() -> None:
    # We see that another has it, and win it before we have said that we want it no more.
    election = LeaderElection(id="work", namespace="default", identity="me")
    shards = Shards(None, election, 1, metrics=Metrics())  # type: ignore[arg-type]
    claim = ShardClaim(0, shards._elector("work-shard-0"), StopSignal())
    shards._claims[0] = claim
    record = LeaseRecord("them", 15, "", "", 0)
    shards._leases.update(0.0, {"work-shard-0": ObservedLease(record, "1")})
    seen: list[bool] = []

    def won_meanwhile() -> None:
        shards._gained(claim)
        seen.append(shards.owns(ObjectKey("default", "a")))

    claim.stop.on_set(won_meanwhile)
    shards._balance(1.0)
    assert claim.stop.is_set()
    assert seen == [False]


def test_who_asks_for_shards_while_one_is_won_is_told_of_it_once() -> None:
    election = LeaderElection(id="work", namespace="default", identity="me")
    shards = Shards(None, election, 1, metrics=Metrics())  # type: ignore[arg-type]
    claim = ShardClaim(0, shards._elector("work-shard-0"), StopSignal())
    shards._claims[0] = claim
    told: list[int] = []
    gains: Any = shards._gains
    won = gains.won

    def asked_first(*args: Any) -> None:
        shards.on_gain(told.append)
        won(*args)

    gains.won = asked_first
    shards._gained(claim)
    assert shards._threads.join(10) == []
    assert told == [0]


def test_what_is_async_in_disguise_is_refused_and_leaves_nothing_behind(
    replica: Callable[..., Replica],
) -> None:
    class Disguised:
        async def __call__(self, request: ObjectKey) -> None:
            await asyncio.sleep(0)

    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    with pytest.raises(TypeError, match="make it one"):
        first.shards.reconciler(Disguised()).reconcile(KEYS[0])


@pytest.mark.parametrize("by_reconciler", [False, True])
def test_work_that_ends_in_another_context_does_not_keep_its_shard(by_reconciler: bool) -> None:
    # As an asynchronous generator does that is not read to its end: the event loop closes it.
    election = LeaderElection(id="work", namespace="default", identity="me")
    shards = Shards(None, election, 1, metrics=Metrics())  # type: ignore[arg-type]
    claim = ShardClaim(0, shards._elector("work-shard-0"), StopSignal())
    shards._claims[0] = claim
    shards._gained(claim)
    claim.elector._state.held_until = float("inf")

    async def reconcile(_: object = None) -> None:
        await asyncio.sleep(0)

    async def act() -> None:
        with shards.acting_for(KEYS[0]):
            await reconcile()

    begun: Any = shards.reconciler(reconcile).reconcile(KEYS[0]) if by_reconciler else act()
    contextvars.copy_context().run(begun.send, None)
    shards._hand_over(claim)
    assert not claim.stop.is_set()
    with pytest.raises(ValueError, match="different Context"):
        begun.close()
    assert claim.stop.is_set()


class ListsElsewhere:
    """A client whose lists take another way to the server."""

    def __init__(self, client: Client, other: Client) -> None:
        self._client = client
        self.list = other.list

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_list_that_hangs_does_not_keep_the_shards_at_a_stop(
    replica: Callable[..., Replica], server: APIServer
) -> None:
    first = replica("first")
    assert eventually(lambda: shares(first) == [6])
    with FaultProxy(server.url) as proxy:
        proxy.stall()
        with Client(ClientConfig(server=proxy.url), metrics=Metrics()) as stalled:
            first.shards._client = ListsElsewhere(first.client, stalled)  # type: ignore[assignment]
            assert proxy.wait_for(lambda proxy: proxy.connections > 0)
            first.end()
    assert first.shards.held == frozenset()


def test_a_stop_without_time_for_reconciles_hands_over_idle_shards(
    replica: Callable[..., Replica], server: APIServer, caplog: pytest.LogCaptureFixture
) -> None:
    first = replica("first", stop_timeout=0.0)
    assert eventually(lambda: shares(first) == [6])
    [key] = first.keys()
    with first.shards.acting_for(key):
        first.end()
    holders = [o["spec"]["holderIdentity"] for o in server.objects(LEASE)]
    assert sorted(holders) == ["", "", "", "", "", "first"]
    assert caplog.text.count("did not end within") == 1


class MemberHangs:
    """A client whose requests for the Lease of a member get no answer while ``hangs``."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.hangs = False
        self.answers = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get(self, kind: Any, name: str, **options: Any) -> Any:
        return self._ask("get", name, kind, name, **options)

    def update(self, obj: Any) -> Any:
        return self._ask("update", obj.name, obj)

    def _ask(self, verb: str, lease: str, *args: Any, **options: Any) -> Any:
        if self.hangs and "-member-" in lease:
            self.answers.wait()
        return getattr(self._client, verb)(*args, **options)


def test_a_request_that_still_hangs_does_not_keep_a_member_from_coming_back(
    replica: Callable[..., Replica], caplog: pytest.LogCaptureFixture
) -> None:
    clients: list[MemberHangs] = []

    def before(shards: Shards) -> None:
        clients.append(MemberHangs(shards._client))
        shards._client = clients[0]  # type: ignore[assignment]

    first = replica("first", lease=SHORT, before=before)
    second = replica("second")
    assert eventually(lambda: second.shards.members == {"first", "second"})
    [client] = clients
    client.hangs = True
    try:
        assert eventually(lambda: second.shards.members == {"second"})
        client.hangs = False
        assert eventually(lambda: second.shards.members == {"first", "second"})
    finally:
        client.hangs = False
        client.answers.set()
    assert "could not renew the Lease of this member" in caplog.text
    first.end()
