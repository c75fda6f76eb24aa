"""When a failed call is tried again, asked of the policies alone."""

from __future__ import annotations

import random

import pytest
import tenacity as t
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.runtime import (
    ConstantBackoff,
    ExponentialBackoff,
    TenacityRetry,
    never_retry,
)

ERROR = ConnectionError("reset")


def asked(policy, count=8, error=ERROR):
    return [policy(error, attempt) for attempt in range(count)]


def test_the_default_doubles_from_5_seconds_six_times_and_gives_up():
    assert asked(ExponentialBackoff()) == [5, 10, 20, 40, 80, 160, None, None]


def test_the_last_attempt_number_is_still_retried():
    assert asked(ExponentialBackoff(initial=1, max_attempts=0), 2) == [1, None]


def test_no_delay_exceeds_the_maximum():
    policy = ExponentialBackoff(initial=5, maximum=30, max_attempts=9, jitter=0.5)
    delays = [policy(ERROR, attempt) for attempt in range(10)]
    assert max(delays) == 30
    assert delays[3:] == [30] * 7


@given(st.integers(0, 20), st.floats(0, 3), st.integers(0, 2**32))
def test_jitter_only_makes_longer_and_only_by_its_share(attempt, jitter, seed):
    policy = ExponentialBackoff(initial=1, max_attempts=20, jitter=jitter, rng=random.Random(seed))
    delay = policy(ERROR, attempt)
    assert delay is not None
    assert 2.0**attempt <= delay <= 2.0**attempt * (1 + jitter)


def test_jitter_spreads_what_failed_together():
    policy = ExponentialBackoff(jitter=0.2)
    assert len({policy(ERROR, 0) for _ in range(50)}) > 40


def test_the_same_seed_gives_the_same_delays():
    first, second = (ExponentialBackoff(jitter=1, rng=random.Random(3)) for _ in range(2))
    assert asked(first) == asked(second)


def test_a_policy_that_never_gives_up_survives_any_attempt_number():
    policy = ExponentialBackoff(initial=1, max_attempts=10**9, maximum=60)
    assert policy(ERROR, 10**8) == 60


@pytest.mark.parametrize(
    "options",
    [{"initial": 0}, {"initial": -1}, {"max_attempts": -1}, {"jitter": -0.1}, {"maximum": 1}],
)
def test_options_out_of_bounds_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        ExponentialBackoff(**options)


def test_a_constant_delay_goes_on_for_ever_or_to_its_last_attempt():
    assert asked(ConstantBackoff(2), 3) == [2, 2, 2]
    assert ConstantBackoff(2)(ERROR, 10**9) == 2
    assert asked(ConstantBackoff(0, max_attempts=1), 3) == [0, 0, None]
    with pytest.raises(ValueError, match="delay=-1: give seconds from 0 on"):
        ConstantBackoff(-1)
    with pytest.raises(ValueError, match="max_attempts=-1: use 0 or more"):
        ConstantBackoff(1, max_attempts=-1)


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_limit_of_calls_counts_the_first_one(calls):
    retries = [0.0] * (calls - 1)
    assert asked(ConstantBackoff(0, max_calls=calls), calls) == [*retries, None]
    delays = [2.0**n for n in range(calls - 1)]
    assert asked(ExponentialBackoff(initial=1, max_calls=calls), calls) == [*delays, None]


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: ConstantBackoff(1, max_calls=0), ValueError, "max_calls=0: use 1 or more"),
        (lambda: ConstantBackoff(1, max_calls=2.0), TypeError, "max_calls=2.0"),
        (lambda: ConstantBackoff(1, max_calls=3, max_attempts=1), ValueError, "are one limit"),
        (lambda: ExponentialBackoff(max_calls=3, max_attempts=9), ValueError, "are one limit"),
    ],
)
def test_a_limit_of_calls_is_one_or_more_and_the_only_one(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_never_means_never():
    assert asked(never_retry, 2) == [None, None]


# tenacity's vocabulary


def test_stop_after_attempt_counts_calls_not_retries():
    policy = TenacityRetry(stop=t.stop_after_attempt(3), wait=t.wait_fixed(2))
    assert asked(policy, 4) == [2, 2, None, None]


def test_without_anything_it_retries_at_once_for_ever():
    assert asked(TenacityRetry(), 3) == [0, 0, 0]


def test_waits_may_be_added():
    policy = TenacityRetry(wait=t.wait_fixed(3) + t.wait_incrementing(start=1, increment=2))
    assert asked(policy, 4) == [4, 6, 8, 10]


def test_exponential_waits_begin_at_their_multiplier():
    assert asked(TenacityRetry(wait=t.wait_exponential(multiplier=2, max=10)), 5) == [
        2,
        4,
        8,
        10,
        10,
    ]


def test_a_chain_of_waits_stays_with_its_last_one():
    policy = TenacityRetry(wait=t.wait_chain(t.wait_fixed(1), t.wait_fixed(3), t.wait_fixed(9)))
    assert asked(policy, 5) == [1, 3, 9, 9, 9]


def test_random_waits_stay_in_their_bounds():
    policy = TenacityRetry(wait=t.wait_random(1, 2) + t.wait_random_exponential(max=5))
    assert all(1 <= delay <= 7 for delay in asked(policy, 30))


@pytest.mark.parametrize("stop", [t.stop_after_delay(60), t.stop_before_delay(60)])
def test_a_stop_by_time_without_waits_would_never_stop_and_is_refused(stop):
    with pytest.raises(ValueError, match="never stops, because the time is the sum of the waits"):
        TenacityRetry(stop=stop)
    either = TenacityRetry(stop=stop | t.stop_after_attempt(2))
    assert asked(either, 3) == [0, None, None]
    assert asked(TenacityRetry(stop=t.stop_never), 2) == [0, 0]


def test_stop_after_delay_counts_the_waits_so_far():
    policy = TenacityRetry(stop=t.stop_after_delay(10), wait=t.wait_fixed(4))
    assert asked(policy, 5) == [4, 4, 4, None, None]


def test_stop_before_delay_counts_the_wait_to_come():
    policy = TenacityRetry(stop=t.stop_before_delay(10), wait=t.wait_fixed(4))
    assert asked(policy, 4) == [4, 4, None, None]


def test_stops_may_be_combined():
    either = TenacityRetry(
        stop=t.stop_after_attempt(9) | t.stop_after_delay(3), wait=t.wait_fixed(2)
    )
    assert asked(either, 4) == [2, 2, None, None]
    both = TenacityRetry(stop=t.stop_after_attempt(2) & t.stop_after_delay(5), wait=t.wait_fixed(2))
    assert asked(both, 5) == [2, 2, 2, None, None]


def test_only_errors_worth_a_retry_are_retried():
    policy = TenacityRetry(
        retry=t.retry_if_exception_type(ConnectionError)
        | t.retry_if_exception_message(match="again")
    )
    assert policy(ConnectionResetError(), 0) == 0
    assert policy(ValueError("again, please"), 0) == 0
    assert policy(ValueError("never"), 0) is None
    unless = TenacityRetry(retry=t.retry_if_not_exception_type(ValueError))
    assert (unless(ValueError(), 0), unless(KeyError(), 0)) == (None, 0)


def test_a_function_of_the_retry_state_sees_the_error_and_the_attempt():
    seen = []

    def wait(state: t.RetryCallState) -> float:
        assert state.outcome is not None
        seen.append((state.attempt_number, state.outcome.exception(), state.outcome.failed))
        return 1.0

    assert TenacityRetry(wait=wait)(ERROR, 4) == 1.0
    assert seen == [(5, ERROR, True)]


def test_the_sum_of_many_waits_makes_no_state_for_each():
    seen: dict[int, t.RetryCallState] = {}
    attempts = []

    def wait(state: t.RetryCallState) -> float:
        seen[id(state)] = state
        attempts.append(state.attempt_number)
        return 1.0

    assert TenacityRetry(stop=t.stop_after_delay(100), wait=wait)(ERROR, 99) == 1.0
    assert attempts == [*range(1, 101)]
    assert len(seen) == 2


@given(st.integers(1, 12), st.integers(1, 5))
def test_delays_of_the_adapter_are_those_of_tenacity_itself(attempts, step):
    slept: list[float] = []

    def fail() -> None:
        raise ERROR

    options = {
        "stop": t.stop_after_attempt(attempts) | t.stop_before_delay(60),
        "wait": t.wait_incrementing(start=step, increment=step),
    }
    # Tenacity's own clock does not move, because nothing is slept: so the attempts decide.
    options["stop"] = t.stop_after_attempt(attempts)
    with pytest.raises(t.RetryError):
        t.Retrying(sleep=slept.append, **options)(fail)
    policy = TenacityRetry(**options)
    assert [*slept, None] == asked(policy, attempts)
