"""The rate limiters: client-go's numbers, and jitter."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from appsdk_operator.runtime import (
    ItemExponential,
    ManualClock,
    MaxOf,
    RateLimiter,
    TokenBucket,
)
from tests.hypothesis_profiles import scaled


def test_delays_double_from_5_ms_and_the_nineteenth_is_the_first_at_the_maximum() -> None:
    limiter = ItemExponential(jitter=0.0)
    delays = [limiter.when("a") for _ in range(20)]
    assert delays[:5] == [0.005, 0.01, 0.02, 0.04, 0.08]
    assert delays[17] == 0.005 * 2**17
    assert delays[17] < 1000.0
    assert delays[18:] == [1000.0, 1000.0]


def test_thousands_of_failures_do_not_overflow() -> None:
    limiter = ItemExponential(base=1e-3, maximum=60.0, jitter=0.5)
    assert 60.0 <= [limiter.when("a") for _ in range(5000)][-1] <= 90.0
    endless = ItemExponential(base=1e300, maximum=math.inf, jitter=0.0)
    assert [endless.when("a") for _ in range(1100)][-1] == math.inf


def test_items_count_apart_and_forget_starts_one_anew() -> None:
    limiter = ItemExponential(base=1.0, jitter=0.0)
    assert [limiter.when("a"), limiter.when("a"), limiter.when("b")] == [1.0, 2.0, 1.0]
    assert (limiter.failures("a"), limiter.failures("b"), limiter.failures("c")) == (2, 1, 0)
    limiter.forget("a")
    limiter.forget("never seen")
    assert (limiter.failures("a"), limiter.when("a"), limiter.when("b")) == (0, 1.0, 2.0)
    limiter.forget("a")
    limiter.forget("b")
    assert limiter._counts._failures == {}


@settings(max_examples=scaled(100))
@given(jitter=st.floats(0.0, 2.0), failures=st.integers(0, 12), seed=st.integers(0, 1000))
def test_jitter_only_lengthens_and_stays_within_its_share(
    jitter: float, failures: int, seed: int
) -> None:
    limiter = ItemExponential(base=1.0, maximum=1000.0, jitter=jitter, rng=random.Random(seed))
    delay = [limiter.when("a") for _ in range(failures + 1)][-1]
    plain = min(1000.0, 2.0**failures)
    assert plain <= delay <= plain * (1.0 + jitter)


def test_items_that_have_all_reached_the_maximum_do_not_come_back_in_step() -> None:
    limiter = ItemExponential(base=1.0, maximum=4.0, jitter=0.1, rng=random.Random(1))
    for _ in range(10):
        delays = [limiter.when(item) for item in range(100)]
    assert len(set(delays)) == 100
    assert all(4.0 <= delay <= 4.4 for delay in delays)


def test_jitter_is_on_by_default_and_repeatable() -> None:
    one, other = (ItemExponential(rng=random.Random(1)) for _ in range(2))
    delays = [one.when(n) for n in range(50)]
    assert delays == [other.when(n) for n in range(50)]
    assert len(set(delays)) == 50
    assert all(0.005 <= delay <= 0.0055 for delay in delays)


def test_a_bucket_lets_a_burst_through_and_then_its_rate() -> None:
    clock = ManualClock()
    bucket = TokenBucket(rate=2.0, burst=3, clock=clock)
    assert [bucket.reserve() for _ in range(5)] == [0.0, 0.0, 0.0, 0.5, 1.0]
    clock.advance(1.0)
    assert bucket.reserve() == 0.5
    clock.advance(1000.0)
    assert [bucket.when(n) for n in range(4)] == [0.0, 0.0, 0.0, 0.5]


def test_a_bucket_takes_tokens_back_up_to_its_burst() -> None:
    bucket = TokenBucket(rate=2.0, burst=1, clock=ManualClock())
    assert [bucket.reserve() for _ in range(3)] == [0.0, 0.5, 1.0]
    bucket.cancel()
    assert bucket.reserve() == 1.0
    for _ in range(9):
        bucket.cancel()
    assert [bucket.reserve() for _ in range(2)] == [0.0, 0.5]


def test_a_bucket_knows_no_items() -> None:
    bucket = TokenBucket(burst=1, clock=ManualClock())
    bucket.when("a")
    bucket.forget("a")
    assert bucket.failures("a") == 0
    assert bucket.when("b") == 0.1


def test_max_of_gives_the_longest_delay_and_counts_in_all() -> None:
    one = ItemExponential(base=1.0, maximum=9.0, jitter=0.0)
    two = ItemExponential(base=2.0, jitter=0.0)
    limiter = MaxOf(one, two)
    two.when("a")
    assert [limiter.when("a") for _ in range(3)] == [4.0, 8.0, 16.0]
    assert limiter.when("b") == 2.0
    assert limiter.failures("a") == 4
    limiter.forget("a")
    assert (one.failures("a"), two.failures("a")) == (0, 0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ItemExponential(base=0.0), "use 0 < base <= maximum"),
        (lambda: ItemExponential(base=math.nan), "use 0 < base <= maximum"),
        (lambda: ItemExponential(base=5.0, maximum=1.0), "use 0 < base <= maximum"),
        (lambda: ItemExponential(jitter=-0.1), "jitter >= 0"),
        (lambda: ItemExponential(jitter=math.nan), "jitter >= 0"),
        (lambda: TokenBucket(rate=0.0), "use rate > 0"),
        (lambda: TokenBucket(rate=math.nan), "use rate > 0"),
        (lambda: TokenBucket(burst=0), "burst >= 1"),
        (MaxOf, "at least one limiter"),
    ],
)
def test_numbers_that_make_no_sense_are_refused_with_the_remedy(
    make: Callable[[], RateLimiter], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        make()
