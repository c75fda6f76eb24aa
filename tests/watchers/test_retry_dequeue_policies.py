"""The default retry policy of watchers, and whether a new event ends a retry."""

from __future__ import annotations

from itertools import pairwise

import pytest

from appsdk_operator.cache import ResourceAction
from appsdk_operator.watchers import (
    default_retry_policy,
    keep_all_retries,
    opinionated_retry_dequeue_policy,
)

ERROR = ConnectionError("reset")


def test_the_default_doubles_from_5_seconds_six_times_and_gives_up():
    delays = [default_retry_policy()(ERROR, attempt) for attempt in range(8)]
    assert delays == [5, 10, 20, 40, 80, 160, None, None]


CREATE, UPDATE, DELETE, RESYNC, _ = ResourceAction
TABLE = [
    (new, retry, same, new is DELETE or (new is retry and not same))
    for new in (CREATE, UPDATE, DELETE)
    for retry in (CREATE, UPDATE, DELETE)
    for same in (True, False)
]


@pytest.mark.parametrize(("new", "retry", "same_generation", "drops"), TABLE)
def test_the_opinionated_dequeue_policy_is_the_table(widget, new, retry, same_generation, drops):
    now, then = widget(generation=1 if same_generation else 2), widget(generation=1)
    assert opinionated_retry_dequeue_policy(new, now, retry, then, ERROR) is drops


def test_the_opinionated_table_in_words(widget):
    one, two = widget(generation=1), widget(generation=2)
    policy = opinionated_retry_dequeue_policy
    assert policy(DELETE, one, CREATE, one, ERROR), "a deletion ends every retry"
    assert not policy(UPDATE, two, CREATE, one, ERROR), "another action: kept"
    assert not policy(UPDATE, one, UPDATE, one, ERROR), "nothing new: kept"
    assert policy(UPDATE, two, UPDATE, one, ERROR), "a new generation: dropped"


def test_keep_all_keeps_all(widget):
    for new, retry in pairwise([*ResourceAction, *reversed(ResourceAction)]):
        assert not keep_all_retries(new, widget(), retry, widget(), ERROR)
