from __future__ import annotations

import random

import pytest

from appsdk_operator import client as c
from appsdk_operator.client import Request, error_from_status
from appsdk_operator.client._transport.retry import RetryRules

GET = Request(method="GET", path="/", repeatable=True)
POST = Request(method="POST", path="/")
PUT = Request(method="PUT", path="/", repeatable=True)
RULES = RetryRules(max_retries=3, backoff=1.0, max_wait=30.0, rng=random.Random(1))


def wait(request, error, attempt=0):
    return RULES.wait_after(request, error, attempt)


def status(code, retry_after=None, **more):
    return error_from_status({"code": code, **more}, retry_after=retry_after)


@pytest.mark.parametrize(
    ("error", "read", "write"),
    [
        (status(429), True, True),
        (status(429, 2.0), True, True),
        (status(503), True, False),
        (status(503, 1.0), True, True),
        (status(502), True, False),
        (status(504), True, False),
        (status(500), False, False),
        (status(500, 1.0), True, False),
        (status(404), False, False),
        (status(409), False, False),
        (status(401), False, False),
        (c.ConnectFailed("refused"), True, True),
        (c.ProxyFailed("refused"), True, True),
        (c.TLSFailed("untrusted"), False, False),
        (c.ConnectionLost("reset"), True, False),
        (c.ReadTimeout("silent"), True, False),
        (c.BadResponse("junk"), False, False),
        (c.ResponseTooLarge("big"), False, False),
    ],
)
def test_only_what_does_no_harm_is_tried_again(error, read, write):
    assert (wait(GET, error) is not None) is read
    assert (wait(POST, error) is not None) is write


def test_a_guarded_write_is_tried_again_after_a_lost_connection():
    assert wait(PUT, c.ConnectionLost("reset")) is not None


def test_an_eviction_that_a_budget_forbids_is_not_tried_again():
    error = status(429, details={"causes": [{"reason": "DisruptionBudget"}]})
    assert wait(POST, error) is None


def test_waits_double_with_jitter_and_end():
    for attempt, base in ((0, 1.0), (1, 2.0), (2, 4.0)):
        for _ in range(20):
            delay = wait(GET, status(503), attempt)
            assert delay is not None
            assert base <= delay < 2 * base
    assert wait(GET, status(503), 3) is None


def test_retry_after_is_a_lower_bound():
    for _ in range(20):
        delay = wait(GET, status(429, 7.0))
        assert delay is not None
        assert 7.0 <= delay < 8.0


def test_a_server_that_wants_to_be_left_alone_for_long_is():
    assert wait(GET, status(429, 31.0)) is None


@pytest.mark.parametrize("attempt", [1, 2, 4000])
def test_the_longest_waits_differ_and_none_is_longer_than_allowed(attempt):
    rules = RetryRules(max_retries=5000, backoff=1.0, max_wait=3.0, rng=random.Random(1))
    delays = [rules.wait_after(GET, status(503), attempt) for _ in range(50)]
    assert len(set(delays)) == 50
    assert all(delay is not None and 1.5 <= delay < 3.0 for delay in delays)


def test_a_server_that_names_the_longest_wait_is_not_asked_by_all_at_once():
    delays = [wait(GET, status(429, 30.0)) for _ in range(50)]
    assert len(set(delays)) == 50
    assert all(delay is not None and 30.0 <= delay < 31.0 for delay in delays)


def test_callers_with_a_backoff_of_their_own_are_not_kept_waiting():
    assert wait(Request(method="GET", path="/", retry=False), status(429)) is None
