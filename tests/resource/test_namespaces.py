"""Patterns and labels that select namespaces."""

from __future__ import annotations

import re

import pytest

from appsdk_operator import annotation
from appsdk_operator import labels as labels_filter
from appsdk_operator.resource import LabelSelector, NamespaceSelector, namespace_selector_of


@pytest.mark.parametrize(
    ("patterns", "matching", "others"),
    [
        (["team-*"], ["team-a", "team-"], ["teams", "a-team-b", "team"]),
        (["team-*", "!team-x"], ["team-a", "team-xy"], ["team-x", "default"]),
        (["!kube-*"], ["default", "kube"], ["kube-system"]),
        (["!*-pr-*", "web-pr-1"], ["default", "web-pr-1"], ["web-pr-2"]),
        (["infra", "team-?"], ["infra", "team-a"], ["team-ab", "infra-2"]),
        (["team-[ab]", "shard-[!0-9]"], ["team-a", "shard-x"], ["team-c", "shard-1"]),
        (["*", "!team-*", "team-a"], ["default", "team-a"], ["team-b"]),
    ],
)
def test_the_last_pattern_that_matches_a_name_decides(
    patterns: list[str], matching: list[str], others: list[str]
) -> None:
    selector = NamespaceSelector(patterns)
    assert [name for name in (*matching, *others) if selector.matches(name)] == matching


def test_labels_select_namespaces_by_those_of_their_objects() -> None:
    selector = NamespaceSelector(labels=LabelSelector.parse("team=a,!old"))
    assert selector.matches("any", {"team": "a"})
    assert not selector.matches("any", {"team": "a", "old": ""})
    assert not selector.matches("any")
    assert str(selector) == "with labels !old,team=a"


@pytest.mark.parametrize(
    ("patterns", "problem"),
    [
        (["Team-*"], "'Team-*', which no name matches"),
        (["team-[ab"], "'team-[ab', which no name matches"),
        (["team_*"], "'team_*', which no name matches"),
        (["! team-*"], "'! team-*', which no name matches"),
        (["!"], "'!', which no name matches"),
        (["team-*", ""], "'', which no name matches"),
        (["!Team"], "'Team', which is not a valid name"),
        (["team-a", "!team-a"], "selects none"),
        (["team-*", "!*"], "selects none"),
        (["!*"], "selects none"),
        (["team-*", "!team-*"], "selects none"),
        (["team-*", "*"], "'*' selects all namespaces"),
        ([], "by patterns of their names, or by their labels"),
    ],
)
def test_patterns_that_select_nothing_or_say_nothing_are_refused(
    patterns: list[str], problem: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        NamespaceSelector(patterns)


def test_patterns_and_labels_are_not_mixed() -> None:
    with pytest.raises(ValueError, match="or by their labels"):
        NamespaceSelector(["a-*"], LabelSelector.parse("a=b"))


def test_names_alone_need_no_selector() -> None:
    assert namespace_selector_of(["a", "b"]) is None
    assert namespace_selector_of("a-*") is None
    assert namespace_selector_of(5) is None
    assert namespace_selector_of(["a", "b-*"]) == NamespaceSelector(["a", "b-*"])
    labels = LabelSelector.parse("a=b")
    assert namespace_selector_of(labels) == NamespaceSelector(labels=labels)
    assert namespace_selector_of(labels_filter("a=b")) == NamespaceSelector(labels=labels)
    assert namespace_selector_of(annotation("a")) is None


def test_what_is_no_text_is_no_pattern() -> None:
    with pytest.raises(TypeError, match=re.escape("write ['team-*']")):
        NamespaceSelector("team-*")
    with pytest.raises(TypeError, match="labels"):
        NamespaceSelector(labels="team=a")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="give names as text"):
        namespace_selector_of(["a-*", 5])
