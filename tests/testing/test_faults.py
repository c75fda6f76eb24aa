"""The rules of what goes wrong: which requests, how often, and what they say of themselves."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.apiserver._fault_rules import ActiveFaults, RequestFacts, combined
from appsdk_operator.resource import Kind, kinds
from appsdk_operator.testing import FaultRule, FaultSchedule

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
RULES = [
    FaultRule.answer(503),
    FaultRule.answer(429, retry_after=2, reason="Busy", message="later", times=3),
    FaultRule.drop(verb="create", kind=WIDGET),
    FaultRule.lose(kind=kinds.core.v1.ConfigMap, namespace="a*", name="b?"),
    FaultRule.cut(0, verb="watch"),
    FaultRule.cut(100, user_agent="kubectl"),
    FaultRule.delay(0.5, skip=2),
    FaultRule.hold(1.5, every=3),
    FaultRule.slow(1000.0, probability=0.25),
    FaultRule.stall(),
    FaultRule.stall(after=3, seconds=2.0, verb="watch"),
    FaultRule.duplicate(verb="create"),
    FaultRule.stale(1),
    FaultRule.stale(5, verb="list"),
    FaultRule.end_watch(),
    FaultRule.end_watch(410, after=2, message="gone"),
]


def facts(verb: str = "get", **details: str) -> RequestFacts:
    return RequestFacts(verb=verb, plural="widgets", group="example.com", **details)


def fired(schedule: FaultSchedule, count: int, verb: str = "get") -> list[int]:
    """The numbers of the requests, from 1, that something befalls."""
    state = ActiveFaults()
    state.add(schedule)
    return [number for number in range(1, count + 1) if state.take(facts(verb))]


@pytest.mark.parametrize("rule", RULES, ids=repr)
def test_a_rule_says_how_to_make_it_again(rule: FaultRule) -> None:
    assert eval(repr(rule), {"FaultRule": FaultRule}) == rule


def test_a_schedule_says_how_to_make_it_again() -> None:
    schedule = FaultSchedule(RULES, seed=11)
    names = {"FaultRule": FaultRule, "FaultSchedule": FaultSchedule}
    assert eval(repr(schedule), names) == schedule
    assert repr(FaultSchedule()) == "FaultSchedule([])"
    assert list(schedule) == RULES


def test_a_rule_is_for_all_requests_unless_it_says_otherwise() -> None:
    assert fired(FaultSchedule([FaultRule.drop()]), 3) == [1, 2, 3]


def test_requests_are_counted_before_the_first_between_and_until_the_last() -> None:
    rule = FaultRule.drop(skip=2, every=3, times=2)
    assert fired(FaultSchedule([rule]), 20) == [5, 8]


def test_the_same_seed_draws_the_same_chances() -> None:
    rules = [FaultRule.drop(probability=0.3)]
    first = fired(FaultSchedule(rules, seed=5), 200)
    assert 30 < len(first) < 90
    assert fired(FaultSchedule(rules, seed=5), 200) == first
    assert fired(FaultSchedule(rules, seed=6), 200) != first


@pytest.mark.parametrize(
    ("rule", "is_meant"),
    [
        (FaultRule.drop(kind="Widget"), True),
        (FaultRule.drop(kind="widgets"), True),
        (FaultRule.drop(kind="widgets.example.com"), True),
        (FaultRule.drop(kind=WIDGET), True),
        (FaultRule.drop(kind="widgets.example.org"), False),
        (FaultRule.drop(kind="Gadget"), False),
        (FaultRule.drop(kind=kinds.core.v1.ConfigMap), False),
        (FaultRule.drop(namespace="team-*"), True),
        (FaultRule.drop(namespace="team"), False),
        (FaultRule.drop(name="a"), True),
        (FaultRule.drop(name="?b"), False),
        (FaultRule.drop(user_agent="kubectl"), True),
        (FaultRule.drop(user_agent="lens"), False),
        (FaultRule.drop(verb="get"), True),
        (FaultRule.drop(verb="list"), False),
        (FaultRule.end_watch(), False),
    ],
)
def test_a_rule_is_for_what_it_names(rule: FaultRule, is_meant: bool) -> None:
    request = facts(namespace="team-a", name="a", user_agent="kubectl/v1.30")
    assert rule.matches(request) is is_meant
    known = facts(namespace="team-a", name="a", user_agent="kubectl/v1.30", kind="Widget")
    assert rule.matches(known) is is_meant


@pytest.mark.parametrize(
    ("plural", "kind"),
    [("ingresses", "Ingress"), ("policies", "Policy"), ("gateways", "Gateway"), ("pods", "Pod")],
)
def test_a_kinds_name_is_found_where_only_the_path_is_known(plural: str, kind: str) -> None:
    for name in (kind, kind.lower(), plural):
        rule = FaultRule.drop(kind=name)
        assert rule.matches(RequestFacts(verb="get", plural=plural))
        assert rule.matches(RequestFacts(verb="get", plural=plural, kind=kind))


def test_what_only_slows_down_adds_up_and_one_of_the_others_decides() -> None:
    slow, delay = FaultRule.slow(10.0), FaultRule.delay(1.0)
    once, always = FaultRule.answer(409, times=1), FaultRule.drop(skip=1)
    state = ActiveFaults()
    state.add(FaultSchedule([slow, once, always, delay]))
    assert state.take(facts()) == (slow, once, delay)
    # The first request did not count for the rule behind the one that decided.
    assert state.take(facts()) == (slow, delay)
    assert state.take(facts()) == (slow, always, delay)
    state.clear()
    assert state.take(facts()) == ()
    taken = combined([slow, delay, slow, FaultRule.delay(0.5), once])
    assert taken == {"slow": FaultRule.slow(5.0), "delay": FaultRule.delay(1.5), "answer": once}


def test_the_mishaps_of_watches_and_of_other_requests_are_told_apart() -> None:
    assert not FaultRule.duplicate().matches(facts("watch"))
    assert not FaultRule.lose().matches(facts("watch"))
    assert FaultRule.stall().matches(facts("watch"))
    assert not FaultRule.end_watch().matches(facts("list"))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: FaultRule.answer(200), "not an error"),
        (lambda: FaultRule.answer(600), "not an error"),
        (lambda: FaultRule.answer(503, verb="touch"), "verb='touch': use one of"),
        (lambda: FaultRule.answer(503, times=0), "times=0: use 1 or more"),
        (lambda: FaultRule.answer(503, retry_after=-1), "retry_after"),
        (lambda: FaultRule.answer(503, every=0), "every"),
        (lambda: FaultRule.answer(503, skip=-1), "skip"),
        (lambda: FaultRule.answer(503, probability=0), "probability"),
        (lambda: FaultRule.answer(503, probability=1.5), "probability"),
        (lambda: FaultRule.answer(503, kind=""), "kind"),
        (lambda: FaultRule.answer(503, name=""), "name"),
        (lambda: FaultRule.delay(0), "seconds"),
        (lambda: FaultRule.hold(float("inf")), "seconds"),
        (lambda: FaultRule.slow(-1), "bytes_per_second"),
        (lambda: FaultRule.cut(-1), "after"),
        (lambda: FaultRule.stale(0), "behind"),
        (lambda: FaultRule.lose(verb="watch"), "cannot apply"),
        (lambda: FaultRule.end_watch(verb="get"), "cannot apply"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()


def test_what_is_no_rule_is_refused() -> None:
    with pytest.raises(TypeError, match=r"is not a list: give \[FaultRule"):
        FaultSchedule(FaultRule.drop())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a FaultRule"):
        FaultSchedule(["drop"])  # type: ignore[list-item]
