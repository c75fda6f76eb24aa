"""Watchers that are added late to a cache's informers, while namespaces come and go."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import initialize, precondition, rule, run_state_machine_as_test

from appsdk_operator.cache import Event, ResourceAction
from appsdk_operator.resource import Object, ObjectKey
from appsdk_operator.runtime import Metrics
from appsdk_operator.watchers import InformerController, SimpleWatcher
from tests.cache.conftest import THING
from tests.cache.test_namespace_changes import EXAMPLES, NamespaceChanges, choices
from tests.hypothesis_profiles import scaled

CREATE, UPDATE, DELETE, _, _ = ResourceAction
Note = tuple[ResourceAction, str]
"""An action, and the version that it led to."""


class Late:
    """A watcher, and what it should be told: what was there, and what has happened since."""

    def __init__(self, before: list[Event]) -> None:
        self.told: dict[ObjectKey, list[Note]] = {}
        self.watcher: SimpleWatcher = SimpleWatcher(
            add=lambda obj: self._note(CREATE, obj),
            update=lambda _, obj: self._note(UPDATE, obj),
            delete=lambda obj: self._note(DELETE, obj),
        )
        self.count = len(before)
        self.present: dict[ObjectKey, Event] = {}
        for event in before:
            self.present[event.key] = Event(CREATE, event.object)
            if event.action is DELETE:
                del self.present[event.key]

    def _note(self, action: ResourceAction, obj: Object) -> None:
        self.told.setdefault(obj.key, []).append((action, obj.resource_version))

    def expected(self, events: list[Event]) -> dict[ObjectKey, list[Note]]:
        found: dict[ObjectKey, list[Note]] = {}
        for event in [*self.present.values(), *events[self.count :]]:
            if not event.is_unfollowed:
                note = event.action, event.object.resource_version
                found.setdefault(event.key, []).append(note)
        return found


class LateWatchers(NamespaceChanges):
    @initialize(choice=choices)
    def begin(self, choice: Any) -> None:  # type: ignore[override]
        super().begin(choice)
        self.controller = InformerController(clock=self.clock, metrics=Metrics())
        self.controller.add_cache(self.cache, THING, resync=0)
        self.controller.add_watcher(SimpleWatcher(), THING)
        self.late: list[Late] = []

    @rule(count=st.integers(1, 3))
    def handle(self, count: int) -> None:
        for _ in range(count):
            self.controller.process_next()

    @precondition(lambda self: len(self.late) < 3)
    @rule()
    def come_late(self) -> None:
        if self.controller._dispatcher._has_handled_event:
            self.late.append(Late(self.handlers[0][0].events))
            self.controller.add_watcher(self.late[-1].watcher, THING)

    def teardown(self) -> None:
        if not hasattr(self, "controller"):
            return
        super().teardown()
        while self.controller.process_next():
            pass
        for late in self.late:
            assert late.told == late.expected(self.handlers[0][0].events)
        assert all(each.not_shown is None for each in self.controller._dispatcher.registered())
        self.controller.close()


@pytest.mark.hypothesis
def test_they_are_told_of_what_is_there_and_of_what_happens_from_then_on():
    run_state_machine_as_test(
        LateWatchers,
        settings=settings(
            max_examples=scaled(EXAMPLES // 2),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
