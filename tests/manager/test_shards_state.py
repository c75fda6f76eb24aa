"""Who takes and gives which shard: always towards what is fair, and never for nothing."""

from __future__ import annotations

import random
from collections import Counter

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from appsdk_operator.manager._election.lease_state import LeaseRecord, ObservedLease
from appsdk_operator.manager._shards.assignment import Decision, ObservedLeases, decide, shard_of
from appsdk_operator.resource import ObjectKey
from tests.hypothesis_profiles import scaled

OLD = "1999-01-01T00:00:00.000000Z"


def seen(holder: str, version: str = "1", duration: int | None = 15) -> ObservedLease:
    return ObservedLease(LeaseRecord(holder, duration, OLD, OLD, 0), version)


# -- keys ----------------------------------------------------------------------------------------


def test_a_key_belongs_to_the_same_shard_for_ever() -> None:
    # A change here would move the objects of everybody's operators while old replicas still run.
    keys = [ObjectKey("default", "web"), ObjectKey("", "node-1"), ObjectKey("a", "b/c")]
    assert [shard_of(key, 16) for key in keys] == [SHARDS[key] for key in keys]


SHARDS = {ObjectKey("default", "web"): 12, ObjectKey("", "node-1"): 14, ObjectKey("a", "b/c"): 3}


def test_keys_spread_evenly() -> None:
    counts = Counter(shard_of(ObjectKey("ns", f"object-{n}"), 10) for n in range(10_000))
    assert set(counts) == set(range(10))
    assert min(counts.values()) > 850
    assert max(counts.values()) < 1150


# -- decisions -----------------------------------------------------------------------------------


def test_one_alone_takes_everything() -> None:
    assert sorted(decide("a", 4, {}, frozenset()).acquire) == [0, 1, 2, 3]


def test_two_take_half_each() -> None:
    assert len(decide("a", 4, {}, frozenset("ab")).acquire) == 2
    assert len(decide("a", 5, {}, frozenset("ab")).acquire) == 3


def test_who_lacks_none_leaves_the_rest_to_those_who_do() -> None:
    holders = {0: "a", 1: "a", 2: "b"}
    # Of five shards for two, b gets one before a may have its third.
    assert decide("a", 5, {**holders}, frozenset("ab")).acquire in [(3,), (4,)]
    assert decide("a", 4, {**holders}, frozenset("ab")) == Decision()


def test_a_shard_of_a_dead_replica_is_not_free_before_its_lease_is() -> None:
    assert decide("a", 2, {0: "a", 1: "dead"}, frozenset("a")) == Decision()


def test_who_has_too_much_gives_one_and_not_before_what_is_free_is_taken() -> None:
    holders = dict.fromkeys(range(4), "a")
    given_up = decide("a", 4, holders, frozenset("ab")).release
    assert given_up in holders
    assert given_up is not None
    del holders[given_up]
    assert decide("a", 4, holders, frozenset("ab")) == Decision()
    assert decide("b", 4, holders, frozenset("ab")) == Decision(acquire=(given_up,))


def test_only_one_of_those_with_a_larger_share_gives_to_who_has_none() -> None:
    holders = {0: "a", 1: "a", 2: "b", 3: "b"}
    decisions = [decide(who, 4, holders, frozenset("abc")) for who in "abc"]
    assert [d.release is not None for d in decisions] == [False, True, False]


@settings(max_examples=scaled(300), deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 24),
    start=st.integers(1, 6),
    lag=st.integers(0, 3),
)
def test_it_ends_in_fair_shares_and_then_nothing_moves(
    seed: int, count: int, start: int, lag: int
) -> None:
    rng = random.Random(seed)
    members = {f"m{n}" for n in range(start)}
    holders: dict[int, str] = {}
    views = [dict(holders)]

    def turns(number: int, lag: int) -> int:
        moves = 0
        for _ in range(number):
            for who in rng.sample(sorted(members), len(members)):
                # What others hold may be seen late; what oneself holds is known.
                view = {
                    **{s: h for s, h in views[-1 - rng.randint(0, lag) :][0].items() if h != who},
                    **{s: h for s, h in holders.items() if h == who},
                }
                decision = decide(who, count, view, frozenset(members))
                for shard in decision.acquire:
                    if shard not in holders:  # the Lease lets one in
                        holders[shard] = who
                        moves += 1
                if decision.release is not None:
                    assert holders[decision.release] == who
                    del holders[decision.release]
                    moves += 1
                views.append(dict(holders))
                del views[: -lag - 1]
        return moves

    for _ in range(4):
        turns(3, lag)
        if len(members) > 1 and rng.random() < 0.5:
            gone = rng.choice(sorted(members))
            members.discard(gone)
            holders = {s: h for s, h in holders.items() if h != gone}
        else:
            members.add(f"n{rng.randrange(1000)}")
        views = [dict(holders)]
    turns(4 * count + 8, lag)
    turns(2 * count + 4, 0)
    held = Counter(dict.fromkeys(members, 0))
    held.update(holders.values())
    assert len(holders) == count
    assert max(held.values()) - min(held.values()) <= 1, held
    assert turns(5, lag) == 0


# -- what was seen ---------------------------------------------------------------------------------


def test_a_lease_counts_for_its_duration_from_when_it_was_first_seen_so() -> None:
    board = ObservedLeases(15.0)
    board.update(100.0, {"x": seen("them")})
    board.update(110.0, {"x": seen("them")})
    assert board.holder(114.9, "x") == "them"
    assert board.holder(115.0, "x") == ""
    board.update(112.0, {"x": seen("them", "2")})
    assert board.holder(126.9, "x") == "them"
    assert board.known("x") == (seen("them", "2"), 112.0)


def test_a_lease_that_is_gone_counts_on_and_is_then_forgotten() -> None:
    board = ObservedLeases(15.0)
    board.update(100.0, {"x": seen("them")})
    board.update(110.0, {})
    assert board.holder(114.9, "x") == "them"
    board.update(116.0, {})
    assert board.known("x") is None


@pytest.mark.parametrize("holder", ["", "them"])
def test_how_long_a_lease_was_left_is_known(holder: str) -> None:
    board = ObservedLeases(15.0)
    assert board.expired_for(0.0, "x") == 0.0
    board.update(100.0, {"x": seen(holder)})
    assert board.expired_for(110.0, "x") == (0.0 if holder else 10.0)
    assert board.expired_for(120.0, "x") == 20.0
    board.update(121.0, {})
    assert board.expired_for(122.0, "x") == 0.0, "it is gone"


def test_a_record_without_a_duration_counts_as_long_as_an_own() -> None:
    board = ObservedLeases(15.0)
    board.update(100.0, {"x": seen("them", duration=None)})
    assert board.holder(114.0, "x") == "them"
    assert board.holder(116.0, "x") == ""
