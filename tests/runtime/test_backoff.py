"""One backoff for all parts: with their numbers it gives the delays of their former formulas."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.runtime import Backoff, ItemExponential

FAILURES = st.integers(0, 3000)
SECONDS = st.floats(1e-6, 1e5)
SHARES = st.floats(0.0, 3.0)
SEEDS = st.integers(0, 2**32)


@given(initial=SECONDS, maximum=SECONDS, jitter=SHARES, failures=FAILURES, seed=SEEDS)
def test_a_work_queue_adds_its_jitter_at_the_maximum_too(initial, maximum, jitter, failures, seed):
    backoff = Backoff(initial=initial, maximum=maximum, jitter=jitter)
    expected = min(maximum, initial * 2.0 ** min(failures, 1000))
    if jitter:
        expected *= 1.0 + jitter * random.Random(seed).random()
    assert backoff.delay(failures, random.Random(seed)) == expected


@given(initial=SECONDS, maximum=st.none() | SECONDS, jitter=SHARES, failures=FAILURES, seed=SEEDS)
def test_a_retry_policy_never_exceeds_its_maximum(initial, maximum, jitter, failures, seed):
    backoff = Backoff(
        initial=initial,
        maximum=float("inf") if maximum is None else maximum,
        jitter=jitter,
        caps_jitter=True,
    )
    expected = initial * 2.0 ** min(failures, 1000)
    expected *= 1.0 + jitter * random.Random(seed).random()
    expected = expected if maximum is None else min(maximum, expected)
    assert backoff.delay(failures, random.Random(seed)) == expected


@given(initial=SECONDS, maximum=SECONDS, failures=FAILURES, seed=SEEDS)
def test_a_client_spreads_its_retries_over_the_upper_half(initial, maximum, failures, seed):
    backoff = Backoff(initial=initial, maximum=maximum / 2.0, jitter=1.0)
    expected = min(maximum / 2.0, initial * 2.0 ** min(failures, 100))
    expected *= 1.0 + random.Random(seed).random()
    delay = backoff.delay(failures, random.Random(seed))
    assert delay == expected
    assert delay <= maximum


@given(initial=SECONDS, maximum=SECONDS, seed=SEEDS)
def test_a_watch_doubles_step_by_step(initial, maximum, seed):
    maximum = max(initial, maximum)
    backoff = Backoff(initial=initial, maximum=maximum, jitter=1.0)
    ours, theirs = random.Random(seed), random.Random(seed)
    base = initial
    for failures in range(60):
        expected = base * (1.0 + theirs.random())
        base = min(maximum, base * 2.0)
        assert backoff.delay(failures, ours) == expected


@given(initial=SECONDS, maximum=SECONDS, failures=st.integers(1, 3000), seed=SEEDS)
def test_a_source_waits_up_to_a_tenth_longer(initial, maximum, failures, seed):
    backoff = Backoff(initial=initial, maximum=maximum, jitter=0.1)
    expected = min(maximum, initial * 2.0 ** min(failures - 1, 100))
    expected *= random.Random(seed).uniform(1.0, 1.1)
    assert backoff.delay(failures - 1, random.Random(seed)) == pytest.approx(expected, rel=1e-15)


def test_a_wait_without_jitter_doubles_and_then_stays():
    backoff = Backoff(initial=0.2, maximum=5.0)
    pause, pauses = 0.2, []
    for _ in range(20):
        pauses.append(pause)
        pause = min(2 * pause, 5.0)
    assert [backoff.delay(failures) for failures in range(20)] == pauses


def test_other_factors_than_two():
    backoff = Backoff(initial=0.5, factor=1.5)
    assert [backoff.delay(failures) for failures in range(4)] == [0.5, 0.75, 1.125, 1.6875]


def test_without_jitter_no_random_number_is_drawn():
    rng = random.Random(7)
    state = rng.getstate()
    ItemExponential(jitter=0.0, rng=rng).when("a")
    assert rng.getstate() == state
