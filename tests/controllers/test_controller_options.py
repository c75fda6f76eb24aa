"""What is not said is inherited: the controller's options, the manager's, the built-in defaults."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from appsdk_operator.controllers import ControllerOptions, Result, RetryAfter
from appsdk_operator.controllers._options import ResolvedOptions
from appsdk_operator.resource import Kind
from appsdk_operator.runtime import (
    ConstantBackoff,
    ItemExponential,
    never_retry,
)

DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment")
POD = Kind(group="", version="v1", kind="Pod")


def slow_limiter() -> ItemExponential:
    return ItemExponential(base=9.0)


def other_limiter() -> ItemExponential:
    return ItemExponential(base=1.0)


# The built-in default, the manager's choice and the controller's choice of every option.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "max_concurrent_reconciles": (1, 4, 7),
    "cache_sync_timeout": (120.0, 60.0, 5.0),
    "reconcile_timeout": (0.0, 30.0, 2.5),
    "recover_exceptions": (True, False, True),
    "retry": (None, never_retry, ConstantBackoff(3.0)),
    "rate_limiter": (ItemExponential, slow_limiter, other_limiter),
    "needs_leader_election": (True, False, True),
    "warm_up": (False, True, False),
    "skip_name_validation": (False, True, False),
    "max_attempts": (0, 9, 3),
    "stop_timeout": (30.0, 10.0, 0.0),
    "kind_concurrency": ({}, {"Pod": 3}, {"Pod": 4}),
}


def test_no_option_is_forgotten_by_the_cases_of_this_file() -> None:
    names = set(attrs.fields_dict(ControllerOptions))
    assert set(CASES) == names
    assert set(ResolvedOptions.__struct_fields__) == names


@pytest.mark.parametrize("name", CASES)
def test_the_controller_goes_before_the_manager_and_that_before_the_default(name: str) -> None:
    default, managers, own = CASES[name]
    nothing = ControllerOptions()
    manager = ControllerOptions(**{name: managers})
    controller = ControllerOptions(**{name: own})
    assert getattr(nothing, name) is None
    assert getattr(ResolvedOptions.of(nothing), name) == default
    assert getattr(ResolvedOptions.of(nothing.over(manager)), name) == managers
    assert getattr(ResolvedOptions.of(controller.over(manager)), name) == own
    assert getattr(ResolvedOptions.of(controller.over(nothing)), name) == own


def test_zero_takes_a_limit_of_the_manager_away() -> None:
    manager = ControllerOptions(reconcile_timeout=30.0, max_attempts=5)
    settings = ResolvedOptions.of(
        ControllerOptions(reconcile_timeout=0, max_attempts=0).over(manager)
    )
    assert (settings.reconcile_timeout, settings.max_attempts) == (0, 0)


@pytest.mark.parametrize(
    ("kind", "own", "expected"),
    [
        pytest.param(DEPLOYMENT, None, 5, id="by kind and group"),
        pytest.param(POD, None, 10, id="a group without a name"),
        pytest.param(Kind(group="x.io", version="v1", kind="Pod"), None, 2, id="another group"),
        pytest.param(None, None, 2, id="no kind"),
        pytest.param(POD, 3, 3, id="the controller's own number goes first"),
    ],
)
def test_concurrency_by_kind_goes_before_the_managers_number_for_all(
    kind: Kind | None, own: int | None, expected: int
) -> None:
    manager = ControllerOptions(
        max_concurrent_reconciles=2, kind_concurrency={"Deployment.apps": 5, "Pod": 10}
    )
    options = ControllerOptions(max_concurrent_reconciles=own).over(manager, kind=kind)
    assert options.max_concurrent_reconciles == expected


def test_the_mapping_of_kinds_is_copied_and_cannot_be_changed() -> None:
    given = {"Pod": 3}
    options = ControllerOptions(kind_concurrency=given)
    given["Pod"] = 5
    assert options.kind_concurrency == {"Pod": 3}
    assert hash(options) == hash(ControllerOptions(kind_concurrency={"Pod": 3}))
    with pytest.raises(TypeError):
        options.kind_concurrency["Pod"] = 1  # type: ignore[index]


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("max_concurrent_reconciles", 0, "a whole number from 1 on"),
        ("max_concurrent_reconciles", 1.5, "a whole number from 1 on"),
        ("max_concurrent_reconciles", True, "a whole number from 1 on"),
        ("max_attempts", -1, "a whole number from 0 on"),
        ("cache_sync_timeout", 0, "more than 0 seconds"),
        ("cache_sync_timeout", -1.0, "seconds from 0 on"),
        ("reconcile_timeout", float("nan"), "seconds from 0 on"),
        ("reconcile_timeout", "5s", "seconds from 0 on"),
        ("stop_timeout", float("inf"), "seconds from 0 on"),
        ("stop_timeout", False, "seconds from 0 on"),
        ("recover_exceptions", 1, "True or False"),
        ("warm_up", "yes", "True or False"),
        ("needs_leader_election", 0, "True or False"),
        ("skip_name_validation", "", "True or False"),
        ("rate_limiter", ItemExponential(), "a function that makes one"),
        ("retry", 5.0, "is not a function of \\(error, attempt\\)"),
        ("retry", lambda error: 5.0, "is not a function of \\(error, attempt\\)"),
        ("kind_concurrency", {"apps/v1": 3}, "write Kind.group"),
        ("kind_concurrency", {"deployments.apps": 3}, "write Kind.group"),
        ("kind_concurrency", {"Pod": 0}, "a whole number from 1 on"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_the_remedy(
    name: str, value: Any, remedy: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=remedy) as caught:
        ControllerOptions(**{name: value})
    assert name in str(caught.value)


@pytest.mark.parametrize("make", [lambda s: Result(requeue_after=s), RetryAfter])
@pytest.mark.parametrize(
    ("seconds", "remedy"),
    [
        (dt.timedelta(minutes=1), r"seconds as a number, with \.total_seconds\(\)"),
        ("5", "a number"),
    ],
)
def test_seconds_are_a_number(make: Callable[[Any], object], seconds: Any, remedy: str) -> None:
    with pytest.raises(TypeError, match=remedy):
        make(seconds)


@pytest.mark.parametrize(
    ("others", "text"),
    [
        ({"max_attempts": 3}, "but so does max_attempts=: give one of them"),
        (
            {"rate_limiter": ItemExponential, "max_attempts": 0},
            "but so does rate_limiter= and max_attempts=: give one of them",
        ),
    ],
)
def test_a_retry_policy_takes_the_place_of_limiter_and_count(
    others: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        ControllerOptions(retry=never_retry, **others)


def test_a_controllers_own_way_of_retrying_goes_before_the_whole_of_the_managers() -> None:
    counted = ControllerOptions(max_attempts=3)
    policy = ControllerOptions(retry=never_retry)
    merged = policy.over(counted)
    assert (merged.retry, merged.max_attempts) == (never_retry, None)
    merged = counted.over(policy)
    assert (merged.retry, merged.max_attempts) == (None, 3)
    merged = ControllerOptions(warm_up=True).over(policy)
    assert merged.retry is never_retry
