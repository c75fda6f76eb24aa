"""The promises of shards, whatever the machines, the network and the server do.

Replicas that share shards by the real ``Shards``, ``decide``, ``ObservedLeases`` and ``LeaseState``
in a model of what runs them; see ``shards_model``, which says what of the threads is modelled, and
checks at each step:

* nobody holds a shard, by its own clock, which another believes to hold;
* no reconcile of a shard begins while one of another replica runs, unless that is fenced;
* nobody gives a shard up in the middle of a reconcile;
* no write for a shard comes after one of a later term.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from appsdk_operator.manager import Elector, LeaderElection, Shards
from appsdk_operator.manager._shards import shards as _shards
from appsdk_operator.manager._shards.assignment import Decision, ObservedLeases
from appsdk_operator.manager._shards.reconciler import ShardClaim
from tests.hypothesis_profiles import scaled
from tests.manager.lease_model import LATENCY, TIMES
from tests.manager.shards_model import ShardsWorld, in_time, world
from tests.manager.shards_parts import CALM, FAULTS_END, LONGEST

seeds = st.integers(0, 2**32)
some_times = st.sampled_from([TIMES[0], TIMES[1], TIMES[3]])
counts = st.integers(1, 8)
replicas = st.integers(2, 5)


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Faults are the rule here; hypothesis would show the log of each."""
    logger = logging.getLogger("appsdk_operator.manager")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


def lease(times: Mapping[str, float]) -> LeaderElection:
    return LeaderElection(id="set", namespace="default", **times)


def after_a_loss(options: LeaderElection) -> float:
    """When every shard of a replica that has died is held again.

    The others have seen its last renewal one look later, and take what is free at the look after
    that; what is left when each has its smaller share at the next one.
    """
    return options.record_duration + 3 * 1.2 * options.retry_period + 12 * LATENCY


def for_a_move(options: LeaderElection) -> float:
    """A hand-over: two looks, the last reconcile and its write, a release, a read and a write."""
    return 3 * 1.2 * options.retry_period + LONGEST + 0.3 * options.margin + 12 * LATENCY


def to_be_fair(options: LeaderElection, count: int) -> float:
    return after_a_loss(options) + (count + 1) * for_a_move(options)


def stays(made: ShardsWorld, seconds: float) -> None:
    """Nothing is won or given in that time."""
    before = (len(made.gained), len(made.given))
    made.run(made.now + seconds)
    assert made.is_fair()
    assert (len(made.gained), len(made.given)) == before, "a shard moves for nothing"


def one_joins(made: ShardsWorld, options: LeaderElection) -> None:
    """A new replica gets its share, and nothing else moves."""
    before = len(made.given)
    share = made.count // (len(made.living) + 1) + 1
    made.join(0.0)
    made.run(made.now + 0.1)
    made.until_fair((share + 1) * for_a_move(options))
    assert len(made.given) - before <= share, "more moved than had to"


@settings(max_examples=scaled(40), deadline=None)
@given(seed=seeds, number=replicas, count=counts, times=some_times)
def test_whatever_happens_a_shard_has_one_holder_and_then_all_are_shared_fairly(
    seed: int, number: int, count: int, times: dict[str, float]
) -> None:
    options = lease(times)
    with world(seed, number, count, options) as made:
        made.run(CALM)
        made.until_fair(to_be_fair(options, count))
        stays(made, 10 * options.retry_period)
        assert made.writes


@settings(max_examples=scaled(25), deadline=None)
@given(
    seed=seeds,
    number=replicas,
    count=counts,
    times=some_times,
    part=st.sampled_from([0.01, 0.5, 1.0]),
)
def test_clocks_that_run_apart_make_no_two_writers_of_a_shard_within_the_margin(
    seed: int, number: int, count: int, times: dict[str, float], part: float
) -> None:
    options = lease(times)
    drift = part * options.margin / (2 * options.lease_duration)
    with world(seed, number, count, options, drift=drift) as made:
        made.run(CALM)


@settings(max_examples=scaled(40), deadline=None)
@given(seed=seeds, number=replicas, count=counts, times=some_times)
def test_shards_of_a_replica_that_died_are_held_again_within_a_lease_and_three_looks(
    seed: int, number: int, count: int, times: dict[str, float]
) -> None:
    options = lease(times)
    with world(seed, number, count, options, faults=False) as made:
        made.run(3.0)
        made.until_fair(to_be_fair(options, count))
        made.end(made.rng.choice(made.living), comes_back=False)
        died = made.now
        made.run(died + after_a_loss(options))
        assert sum(made.shares()) == count
        made.until_fair(to_be_fair(options, count))
        stays(made, 10 * options.retry_period)


@settings(max_examples=scaled(25), deadline=None)
@given(seed=seeds, number=replicas, count=counts, times=some_times)
@example(seed=5, number=5, count=8, times=TIMES[0])
def test_without_faults_shards_move_for_who_joins_and_leaves_and_else_never(
    seed: int, number: int, count: int, times: dict[str, float]
) -> None:
    options = lease(times)
    with world(seed, number, count, options, faults=False) as made:
        made.run(3.0)
        made.until_fair(to_be_fair(options, count))
        stays(made, 20 * options.retry_period)
        one_joins(made, options)
        stays(made, 20 * options.retry_period)
        gone = made.rng.choice(made.living)
        made.leave(gone, comes_back=False)
        made.run(made.now + 4 * for_a_move(options))
        assert gone not in made.living
        assert sum(made.shares()) == count, "who leaves lets nobody wait for a lease to end"


LONG = {"lease_duration": 60.0, "renew_deadline": 5.0, "retry_period": 0.5, "fence_margin": 1.0}


@settings(max_examples=scaled(50), deadline=None)
@given(seed=seeds, number=replicas, count=counts)
def test_who_leaves_while_it_acquires_shards_lets_nobody_wait_for_a_lease_to_end(
    seed: int, number: int, count: int
) -> None:
    options = lease(LONG)
    assert 4 * for_a_move(options) < options.lease_duration / 2
    with world(seed, number, count, options, faults=False) as made:
        while not (first := [replica for replica in made.living if replica.shards._claims]):
            made.run(made.now + 0.01)
        made.run(made.now + 6 * LATENCY * made.rng.random())
        made.leave(first[0], comes_back=False)
        made.run(max(made.now, 3.0) + 4 * for_a_move(options))
        assert first[0] not in made.living
        assert sum(made.shares()) == count


@settings(max_examples=scaled(20), deadline=None)
@given(seed=seeds, count=st.integers(1, 3), times=some_times)
def test_replicas_beyond_the_number_of_shards_stand_by(
    seed: int, count: int, times: dict[str, float]
) -> None:
    options = lease(times)
    with world(seed, count + 2, count, options, faults=False) as made:
        made.run(3.0)
        made.until_fair(to_be_fair(options, count))
        assert sorted(made.shares()) == [0, 0] + [1] * count
        stays(made, 20 * options.retry_period)
        made.end(next(r for r in made.living if made.believed(r)), comes_back=False)
        made.run(made.now + after_a_loss(options))
        assert sorted(made.shares()) == [0] + [1] * count


@settings(max_examples=scaled(20), deadline=None)
@given(seed=seeds, shard=st.integers(0, 5), times=some_times)
def test_a_reconcile_that_never_ends_keeps_its_own_shard_and_no_other(
    seed: int, shard: int, times: dict[str, float]
) -> None:
    options = lease(times)
    with world(seed, 1, 6, options, faults=False) as made:
        made.run(3.0)
        made.until_fair(to_be_fair(options, 6))
        (first,) = made.living
        assert first.shards.enter(made.keys[shard]) is not None
        second = made.join(0.0)
        made.run(made.now + 4 * for_a_move(options))
        assert len(made.believed(second)) >= 2
        assert shard in {claim.shard for claim in first.shards._claims.values()}


# -- who is careless -------------------------------------------------------------------------------


BUSY = {"lease_duration": 10.0, "renew_deadline": 5.0, "retry_period": 0.5}


@settings(max_examples=scaled(25), deadline=None)
@given(seed=seeds, number=replicas, count=counts)
@example(seed=291811, number=2, count=1)
@example(seed=636589307, number=2, count=1)
def test_a_write_without_an_answer_is_not_late_where_its_shard_is_handed_over(
    seed: int, number: int, count: int
) -> None:
    options = lease(BUSY)
    with world(seed, number, count, options, is_busy=True) as made:
        # Before the faults end a world need not let anybody write: in the second example one of two
        # leaves soon; the other cannot reach the server, sleeps for 40 s, and leaves, too.
        made.run(CALM)
        made.until_fair(to_be_fair(options, count))
        stays(made, 10 * options.retry_period)
        assert made.writes


def test_the_busy_model_finds_out_who_gives_a_shard_up_with_a_write_on_its_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Elector, "last_write", lambda _: -math.inf)

    def try_all() -> None:
        for seed in range(100):
            with world(seed, 4, 6, lease(BUSY), is_busy=True) as made:
                made.run(FAULTS_END)

    with pytest.raises(AssertionError, match="a write of an earlier term"):
        try_all()


def test_the_figures_of_the_docs_page_are_those_of_the_model() -> None:
    options = lease({})
    assert in_time(options) == 2.5
    assert round(in_time(options, 500e-6), 3) == 2.486
    assert 0 < in_time(options, 2.5 / 30) < 0.25
    assert in_time(options, 0.1) == 0


@pytest.mark.parametrize(("times", "is_busy"), [(TIMES[1], False), (BUSY, True)])
def test_a_write_that_takes_longer_than_the_margin_may_be_late(
    times: dict[str, float], is_busy: bool
) -> None:
    # An API server that is stopped with the bytes in its socket, for example: no fence can help.
    options = lease(times)

    def is_late(seed: int) -> bool:
        longest = 2 * options.lease_duration
        try:
            with world(seed, 4, 6, options, on_their_way=longest, is_busy=is_busy) as made:
                made.run(60.0)
        except AssertionError as error:
            return "a write of an earlier term" in str(error)
        return False

    assert any(is_late(seed) for seed in range(100))


class GivesUpAtOnce(Shards):  # type: ignore[misc]
    """Does not let its reconciles end."""

    def _hand_over(self, claim: ShardClaim) -> None:
        super()._hand_over(claim)
        claim.stop.set()


class WritesOn(Shards):  # type: ignore[misc]
    """Has no fence."""

    def check_write(self) -> None:
        pass


class NeverForgets(ObservedLeases):  # type: ignore[misc]
    """Counts members for ever, the dead too."""

    def holder(self, now: float, name: str) -> str:
        known = self.known(name)
        if "-member-" in name and known is not None:
            return known[0].record.holder
        return super().holder(now, name)


class TakesOver(ObservedLeases):  # type: ignore[misc]
    """Hands an elector what it saw as if it had seen it long ago."""

    def known(self, name: str) -> Any:
        known = super().known(name)
        return known and (known[0], known[1] - 10.0)

    def holder(self, now: float, name: str) -> str:
        return "" if "-shard-" in name else super().holder(now, name)


def takes_all(
    identity: str, count: int, holders: Mapping[int, str], members: frozenset[str]
) -> Decision:
    """Takes whatever is free, and gives back what is too much."""
    free = tuple(shard for shard in range(count) if shard not in holders)
    return Decision(free) if free else decide(identity, count, holders, members)


decide: Callable[..., Decision] = _shards.decide


@pytest.mark.parametrize(
    ("what", "careless", "text"),
    [
        (None, GivesUpAtOnce, "in the middle of a reconcile|still works on"),
        (None, WritesOn, "an earlier term"),
        ("ObservedLeases", NeverForgets, "s: "),
        ("ObservedLeases", TakesOver, " hold shard | still works on"),
        ("decide", takes_all, "s: |for nothing|had to"),
    ],
)
def test_the_model_finds_out_who_is_careless(
    what: str | None, careless: Any, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if what:
        monkeypatch.setattr(_shards, what, careless)
    options = lease(TIMES[1])

    def try_all() -> None:
        for seed in range(100):
            with world(seed, 4, 6, options, shards=Shards if what else careless) as one:
                one.run(CALM)
                one.until_fair(to_be_fair(options, 6))
                stays(one, 10 * options.retry_period)
                one_joins(one, options)

    with pytest.raises(AssertionError, match=text):
        try_all()
