"""The mistakes of every day are found by the property test as it is, and nothing else is."""

from __future__ import annotations

import ast

import pytest

from appsdk_operator.testing import BrokenPromise, check_operator
from tests.hypothesis_profiles import scaled
from tests.testing.broken.everyday import EVERYDAY, Everyday
from tests.testing.broken.operators import WIDGET

SEEDS = (1,)
MISSED_AT_MOST = 3
RARE = {
    "gives_up_after_a_failure",
    "takes_a_conflict_for_done",
    "takes_a_failed_list_for_an_empty_one",
}
"""Mistakes that a seed may miss."""


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("one", EVERYDAY, ids=lambda one: one.make.__name__)
def test_a_mistake_is_found_and_its_mended_twin_is_not_blamed(one: Everyday, seed: int) -> None:
    try:
        check_operator(lambda each: one.make(each, False), WIDGET, seed=seed, **one.options)
    except BrokenPromise as error:
        told = str(error)
    else:
        assert one.make.__name__ in RARE
        return
    replay = ast.literal_eval(told.rpartition("replay=")[2].rstrip(")"))
    assert len(replay) <= 7, told
    check_operator(lambda each: one.make(each, True), WIDGET, replay=replay, **one.options)


@pytest.mark.long
@pytest.mark.parametrize("one", EVERYDAY, ids=lambda one: one.make.__name__)
def test_a_mended_operator_is_not_blamed(one: Everyday) -> None:
    check_operator(
        lambda each: one.make(each, True),
        WIDGET,
        seed=4,
        max_examples=scaled(25),
        **one.options,
    )


def test_twenty_mistakes_are_looked_for() -> None:
    assert len(EVERYDAY) == 20
    assert len(RARE) <= MISSED_AT_MOST
    assert {one.make.__name__ for one in EVERYDAY} > RARE
