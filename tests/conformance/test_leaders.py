"""Leaders for real: electors on both API servers, and three processes that are killed, put to
sleep and cut off.

What decides is the history of one object, written by whoever leads: a writer that comes again
after its successor has begun would be a stale leader's write.
"""

from __future__ import annotations

import contextlib
import importlib.util
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.client import Client
from appsdk_operator.manager import Elector, LeaderElection, LeadershipLost, elector_config
from appsdk_operator.resource import kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import FaultProxy
from tests.conformance.conftest import TIMEOUT, World
from tests.waiting import eventually

pytestmark = pytest.mark.programs

EXAMPLE = Path(__file__).parents[2] / "examples" / "leader_election.py"
LEASE = kinds.coordination.v1.Lease
LEASE_DURATION = 2.0


def load() -> Any:
    spec = importlib.util.spec_from_file_location("leader_election_example", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


example = load()


# -- electors ------------------------------------------------------------------------------------


class Candidate:
    """An elector in a thread, with a client of its own."""

    def __init__(self, world: World, identity: str, server: str = "", **options: Any) -> None:
        self.options = LeaderElection(
            **{
                "id": "lock",
                "namespace": world.namespace,
                "identity": identity,
                # A leader that has to wait for its turn on a busy machine goes on.
                "lease_duration": 29.5,
                "renew_deadline": 20.0,
                "retry_period": 0.2,
                **options,
            }
        )
        config = world.server.config(**({"server": server} if server else {}))
        self.client = Client(elector_config(config, self.options), metrics=Metrics())
        self.elector = Elector(self.client, self.options, metrics=Metrics())
        self.started = threading.Event()
        self.stop_signal = StopSignal()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=identity)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.elector.run(self.stop_signal, self.started.set)
        except LeadershipLost as error:
            self.error = error

    def close(self) -> None:
        self.stop_signal.set()
        self.thread.join(TIMEOUT)
        self.client.close()
        assert not self.elector.join(TIMEOUT)


@pytest.fixture
def exits() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as exits:
        yield exits


def test_one_of_two_leads_and_gives_the_lease_up_to_the_other(
    world: World, exits: contextlib.ExitStack
) -> None:
    first = Candidate(world, "first", release_on_cancel=True, labels={"app": "mine"})
    exits.callback(first.close)
    assert first.started.wait(TIMEOUT)
    lease = world.get(LEASE, "lock")
    assert dict(lease.labels) == {"app": "mine"}
    assert lease.spec["holderIdentity"] == "first"
    assert lease.spec["leaseDurationSeconds"] == 30
    assert lease.spec["leaseTransitions"] == 0
    second = Candidate(world, "second")
    exits.callback(second.close)
    assert eventually(lambda: second.elector.leader == "first")
    assert eventually(lambda: world.get(LEASE, "lock").spec["renewTime"] > lease.spec["renewTime"])
    assert not second.started.is_set()
    first.close()
    assert second.started.wait(TIMEOUT)
    after = world.get(LEASE, "lock").spec
    assert (after["holderIdentity"], after["leaseTransitions"]) == ("second", 1)
    assert after["acquireTime"] >= lease.spec["acquireTime"]


def test_a_leader_keeps_the_lead_when_answers_are_lost_and_others_touch_the_lease(
    world: World, exits: contextlib.ExitStack
) -> None:
    proxy = world.proxy()
    leader = Candidate(world, "first", server=proxy.url)
    exits.callback(leader.close)
    assert leader.started.wait(TIMEOUT)

    def renewed() -> Any:
        return world.get(LEASE, "lock").spec["renewTime"]

    for number in range(3):
        before = renewed()
        proxy.cut_after(0)  # it is done, and its answer lost
        draft = world.get(LEASE, "lock").mutable_copy()
        draft.labels["touched"] = str(number)
        with contextlib.suppress(Exception):  # the leader may have been faster
            world.client.update(draft)
        assert eventually(lambda before=before: renewed() > before)
    proxy.clear()
    assert eventually(leader.elector.may_write)
    assert world.get(LEASE, "lock").spec["leaseTransitions"] == 0


def test_a_leader_behind_a_silent_network_loses_on_time(
    world: World, exits: contextlib.ExitStack
) -> None:
    proxy = world.proxy()
    times = {"lease_duration": 1.5, "renew_deadline": 1.0}
    leader = Candidate(world, "first", server=proxy.url, **times)
    exits.callback(leader.close)
    assert leader.started.wait(TIMEOUT)
    proxy.stall()
    leader.thread.join(15.0)
    assert not leader.thread.is_alive()
    assert isinstance(leader.error, LeadershipLost)
    assert not leader.elector.is_leader


# -- processes -----------------------------------------------------------------------------------


class Replicas:
    """Three processes, each behind a proxy of its own, and the ledger that the leader writes."""

    def __init__(self, world: World, folder: Path, exits: contextlib.ExitStack) -> None:
        lane: Any = world.server
        self.kubeconfig = str(folder / "kubeconfig")
        server = lane.plane if lane.name == "real" else lane.server
        server.write_kubeconfig(self.kubeconfig)
        self.world = world
        self.exits = exits
        self.ledger = exits.enter_context(
            contextlib.closing(example.Ledger(world.client, world.namespace))
        )
        self.proxies: dict[str, FaultProxy] = {}
        self.processes: dict[str, Any] = {}
        for name in ("red", "green", "blue"):
            self.add(name)

    def add(self, name: str) -> None:
        proxy = self.proxies[name] = self.world.proxy()
        self.processes[name] = example.Replica(
            name,
            self.kubeconfig,
            lease_duration=LEASE_DURATION,
            namespace=self.world.namespace,
            server=proxy.url,
        )
        self.exits.callback(self.processes[name].close)

    def leader(self, *, other_than: str = "") -> str:
        """Who writes, once it has written for a while."""
        name: str = self.ledger.wait_for(lambda who: who != other_than)
        self.ledger.wait_for_more(10)
        return name

    def ends_as_loser(self, name: str) -> None:
        status, said = self.processes[name].ends()
        assert status == 1, said
        assert "lost: leader election lost" in said

    def check(self, *terms: str) -> None:
        assert self.ledger.overlaps() == []
        assert self.ledger.terms() == list(terms)
        transitions = self.world.get(LEASE, example.LOCK).spec["leaseTransitions"]
        assert transitions == len(terms) - 1


@pytest.fixture
def replicas(world: World, tmp_path: Path, exits: contextlib.ExitStack) -> Replicas:
    return Replicas(world, tmp_path, exits)


def test_a_killed_leader_is_followed_by_another(replicas: Replicas) -> None:
    first = replicas.leader()
    replicas.processes[first].signal(signal.SIGKILL)
    second = replicas.leader(other_than=first)
    replicas.processes[second].signal(signal.SIGKILL)
    third = replicas.leader(other_than=second)
    replicas.check(first, second, third)


def test_a_leader_that_slept_beyond_its_lease_writes_nothing_any_more(replicas: Replicas) -> None:
    first = replicas.leader()
    replicas.processes[first].signal(signal.SIGSTOP)
    second = replicas.leader(other_than=first)
    replicas.processes[first].signal(signal.SIGCONT)
    replicas.ends_as_loser(first)
    replicas.ledger.wait_for_more(10)
    replicas.check(first, second)


def test_a_leader_that_slept_for_a_moment_goes_on(replicas: Replicas) -> None:
    first = replicas.leader()
    replicas.processes[first].signal(signal.SIGSTOP)
    StopSignal().wait(LEASE_DURATION * 0.3)
    replicas.processes[first].signal(signal.SIGCONT)
    replicas.ledger.wait_for_more(50)
    replicas.check(first)


def test_a_leader_that_is_cut_off_ends_and_is_followed_by_another(replicas: Replicas) -> None:
    first = replicas.leader()
    replicas.proxies[first].refuse()
    replicas.proxies[first].cut()
    second = replicas.leader(other_than=first)
    replicas.ends_as_loser(first)
    replicas.check(first, second)


def test_a_leader_whose_network_falls_silent_ends_and_its_late_bytes_change_nothing(
    replicas: Replicas,
) -> None:
    first = replicas.leader()
    replicas.proxies[first].stall()
    second = replicas.leader(other_than=first)
    # Its clients are closed by now, and with them the connections on which bytes may still wait.
    replicas.ends_as_loser(first)
    replicas.proxies[first].cut()
    replicas.proxies[first].clear()
    replicas.ledger.wait_for_more(10)
    replicas.check(first, second)
