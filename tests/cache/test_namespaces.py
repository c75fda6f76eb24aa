"""Which namespaces are watched, where a selector chooses them: the state machine, and a model."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from appsdk_operator.cache._cache.namespaces import NamespaceChange, SelectedNamespaces
from appsdk_operator.resource import LabelSelector, NamespaceSelector
from tests.hypothesis_profiles import scaled

TEAM = NamespaceSelector(["team-*", "!team-x"])
BY_LABEL = NamespaceSelector(labels=LabelSelector.parse("team=a"))
NAMES = ("team-a", "team-b", "team-x", "default")


def never(_: str) -> bool:
    return False


def always(_: str) -> bool:
    return True


def test_a_namespace_that_begins_to_match_is_watched_and_one_that_ceases_is_left() -> None:
    selected = SelectedNamespaces(BY_LABEL)
    assert not selected.update({"one": {}, "two": {"team": "b"}}, never)
    change = selected.update({"one": {"team": "a"}, "two": {"team": "b"}}, never)
    assert (change, selected.watched) == (NamespaceChange(begun=("one",)), {"one"})
    # It holds objects, and they are not ours any more.
    change = selected.update({"one": {"team": "b"}, "two": {"team": "a"}}, never)
    assert change == NamespaceChange(begun=("two",), left=("one",))
    assert not selected.has_ended("one", "9")


def test_a_deleted_namespace_is_watched_until_its_last_object_is_gone() -> None:
    selected = SelectedNamespaces(TEAM)
    selected.update({"team-a": {}, "team-b": {}}, never)
    assert not selected.update({"team-b": {}}, never)
    assert selected.watched == {"team-a", "team-b"}
    assert not selected.has_ended("team-a", "9")
    assert selected.update({"team-b": {}}, always) == NamespaceChange(ended=("team-a",))
    assert selected.has_ended("team-a", "9")
    assert not selected.has_ended("team-b", "9")
    assert selected.update({"team-a": {}, "team-b": {}}, never) == NamespaceChange(
        begun=("team-a",)
    )
    assert not selected.has_ended("team-a", "9")


def test_a_namespace_that_was_made_anew_before_its_end_was_noticed_stays_watched() -> None:
    selected = SelectedNamespaces(TEAM)
    selected.update({"team-a": {}}, never)
    assert not selected.update({}, never)
    assert not selected.update({"team-a": {}}, always)
    assert selected.watched == {"team-a"}


def test_only_the_last_ended_namespaces_are_known() -> None:
    selected = SelectedNamespaces(TEAM)
    for number in range(1002):
        selected.update({f"team-{number}": {}}, always)
    selected.update({}, always)
    assert [selected.has_ended(f"team-{number}", "9") for number in (0, 1, 2, 1001)] == [
        False,
        False,
        True,
        True,
    ]


def test_what_was_written_later_was_written_to_a_new_namespace() -> None:
    selected = SelectedNamespaces(TEAM)
    selected.update({"team-a": {}, "team-b": {}}, never)
    selected.note_written("team-a", "12")
    selected.note_written("team-a", "11")
    selected.note_written("team-b", "not-a-number")
    selected.update({}, always)
    assert [selected.has_ended("team-a", version) for version in ("11", "12")] == [False, True]
    assert selected.has_ended("team-b", "1")


class Histories(RuleBasedStateMachine):
    """Namespaces come, go and change, seen late or not at all; objects go at their own pace.

    The model keeps for each namespace why it is watched, as a person would say it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.selected = SelectedNamespaces(TEAM)
        self.selector = TEAM
        self.present: dict[str, dict[str, str]] = {}
        self.terminating: set[str] = set()
        # The objects in the local copies: of watched namespaces alone.
        self.objects: dict[str, int] = {}
        self.begun: list[str] = []
        self.parted: list[str] = []
        self.torn: set[str] = set()

    @rule(by_label=st.booleans())
    def restart(self, by_label: bool) -> None:
        """Another process begins with what there is now."""
        self.selector = BY_LABEL if by_label else TEAM
        self.selected = SelectedNamespaces(self.selector)
        self.objects, self.begun, self.parted = {}, [], []
        self.look()

    @rule(name=st.sampled_from(NAMES), labels=st.sampled_from([{}, {"team": "a"}, {"team": "b"}]))
    def create_or_label(self, name: str, labels: dict[str, str]) -> None:
        self.present[name] = labels

    @rule(name=st.sampled_from(NAMES))
    def terminate(self, name: str) -> None:
        if name in self.present:
            self.terminating.add(name)

    @rule(name=st.sampled_from(NAMES))
    def finish(self, name: str) -> None:
        if name in self.terminating:
            self.terminating.discard(name)
            del self.present[name]

    @rule(name=st.sampled_from(NAMES))
    def an_object_comes(self, name: str) -> None:
        if name in self.selected.watched and name in self.present:
            self.objects[name] = self.objects.get(name, 0) + 1

    @rule(name=st.sampled_from(NAMES))
    def an_object_goes(self, name: str) -> None:
        if self.objects.get(name):
            self.objects[name] -= 1

    @rule()
    def look(self) -> None:
        before = self.selected.watched
        held = {name for name in before if self.objects.get(name)}
        change = self.selected.update(dict(self.present), lambda name: name not in held)
        wanted = {
            name
            for name in NAMES
            if (name in self.present and self.selector.matches(name, self.present[name]))
            or (name in before and name in held and name not in self.present)
        }
        assert self.selected.watched == wanted
        assert set(change.begun) == wanted - before
        assert set(change.left) | set(change.ended) == before - wanted
        # Objects that somebody holds are given up only where the namespace is not ours any more.
        assert {name for name in before - wanted if name in held} <= set(change.left)
        assert all(name in self.present for name in change.left)
        assert all(name not in self.present for name in change.ended)
        for name in (*change.left, *change.ended):
            self.objects.pop(name, None)
        self.torn = (self.torn | set(change.ended)) - set(self.present)

    @invariant()
    def what_has_ended_was_watched_and_is_not_there(self) -> None:
        for name in NAMES:
            if self.selected.has_ended(name, "9") and name in self.present:
                continue  # not looked at yet
            if self.selected.has_ended(name, "9"):
                assert name not in self.selected.watched
                assert name in self.torn


def test_the_watched_namespaces_are_those_of_the_model() -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        Histories, settings=settings(max_examples=scaled(300), stateful_step_count=40)
    )
