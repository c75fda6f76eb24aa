"""An OpinionatedWatcher whose server's history goes back, as after a restore."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.resource import Kind, Object
from appsdk_operator.watchers import OpinionatedWatcher

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
FINALIZER = "example.com/operator.v1.Widget"


def widget(version: int, *finalizers: str, generation: int = 1, size: int = 1) -> Object:
    metadata = {
        "name": "w",
        "uid": "u",
        "resourceVersion": str(version),
        "generation": generation,
        "finalizers": list(finalizers),
    }
    return Object.from_dict(WIDGET, {"metadata": metadata, "spec": size})


def deleted(obj: Object) -> Object:
    data = obj.to_dict()
    data["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return Object.from_dict(WIDGET, data)


class OneWidget:
    """A server with one widget, of which only the finalizers can be written."""

    def __init__(self, widget: Object) -> None:
        self.widget = widget

    def get(self, *_: Any, **__: Any) -> Object:
        return self.widget

    def patch(self, _kind: Kind, _name: str, patch: Any, **__: Any) -> Object:
        now = self.widget
        values = [one["value"] for one in patch.operations if one["op"] in ("add", "replace")]
        finalizers = values[0] if values and isinstance(values[0], list) else values
        self.widget = widget(
            int(now.resource_version) + 1,
            *finalizers,
            generation=now.generation,
            size=now.spec,
        )
        return self.widget


@pytest.fixture
def server() -> OneWidget:
    return OneWidget(widget(99))


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def watcher(server: OneWidget, told: list[str]) -> OpinionatedWatcher:
    made = OpinionatedWatcher(
        WIDGET,
        server,
        add=lambda obj: told.append(f"add {obj.spec}"),
        update=lambda _, obj: told.append(f"update {obj.spec}"),
        sync=lambda obj: told.append(f"sync {obj.spec}"),
        delete=lambda obj: told.append(f"delete {obj.spec}"),
    )
    made.add(server.widget)
    return made


def update(watcher: OpinionatedWatcher, old: Object, new: Object) -> None:
    """As a controller does it."""
    if watcher.concerns(old, new):
        watcher.update(old, new)


@pytest.mark.parametrize("generation", [1, 2], ids=["the same generation", "another one"])
@pytest.mark.parametrize("has_caught_up", [True, False])
def test_what_was_restored_without_the_finalizer_gets_it_again(
    watcher: OpinionatedWatcher,
    server: OneWidget,
    told: list[str],
    generation: int,
    has_caught_up: bool,
) -> None:
    ours = server.widget
    assert ours.finalizers == (FINALIZER,)
    before = widget(100)
    if has_caught_up:
        update(watcher, before, ours)
        before = ours
    server.widget = restored = widget(50, generation=generation, size=2)
    update(watcher, before, restored)
    assert server.widget.finalizers == (FINALIZER,)
    assert told == ["add 1", "add 2", "update 2"]


def test_what_a_restore_brings_back_during_its_deletion_is_cleaned_up_again(
    watcher: OpinionatedWatcher, server: OneWidget, told: list[str]
) -> None:
    ours = server.widget
    update(watcher, ours, deleted(ours))
    server.widget = back = widget(200, FINALIZER)
    update(watcher, deleted(ours), back)
    update(watcher, back, deleted(back))
    assert told == ["add 1", "delete 1", "update 1", "delete 1"]


def test_news_of_before_the_own_write_begin_nothing_again(
    watcher: OpinionatedWatcher, server: OneWidget, told: list[str]
) -> None:
    ours = server.widget
    update(watcher, widget(99), widget(100, generation=2, size=2))
    assert server.widget is ours
    assert told == ["add 1", "update 2"]


def test_nothing_is_remembered_once_the_events_have_caught_up(
    watcher: OpinionatedWatcher, server: OneWidget
) -> None:
    assert watcher._finalizer_lifecycle._records
    update(watcher, widget(99), server.widget)
    assert not watcher._finalizer_lifecycle._records
