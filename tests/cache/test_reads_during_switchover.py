"""Reads through the cached client while one informer takes over from another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import CachedClient, NotCachedError, NotFollowedError, ResourceAction
from appsdk_operator.resource import Object
from appsdk_operator.runtime import StopSignal
from tests.cache.conftest import THING
from tests.cache.test_namespace_changes import NamespaceChanges


def get(client: CachedClient) -> Object:
    return client.get(THING, "a", namespace="x")


def listed(client: CachedClient) -> Object:
    (obj,) = client.list(THING)
    return obj


def listed_in_one_namespace(client: CachedClient) -> Object:
    (obj,) = client.list(THING, namespace="x")
    return obj


@pytest.fixture
def changes() -> Iterator[NamespaceChanges]:
    machine = NamespaceChanges()
    machine.begin([])
    try:
        yield machine
        machine.teardown()
    finally:
        machine.slow_registration.remove()


@pytest.mark.parametrize("read", [get, listed, listed_in_one_namespace])
@pytest.mark.parametrize("drops", [False, True])
def test_a_read_that_another_informer_overtakes_is_not_older_than_own_writes(
    changes: NamespaceChanges, read: Callable[[CachedClient], Object], drops: bool
) -> None:
    machine = changes
    model, cache = machine.model, machine.cache
    client = CachedClient(model, cache)  # type: ignore[arg-type]
    model.write("x", "a", deletes=False)
    machine.step(0, 0)  # no streamed lists here, the fallback comes next
    machine.step(0, 0)
    cache.set_namespaces(["x"])
    machine.names = {"x"}
    model.write("x", "a", deletes=False)
    written = model.objects["x", "a"]
    client._note(THING, written)
    assert read(client) == written

    looks = 1 if read is get else 2

    def overtaken(places: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any) -> Any:
            nonlocal looks
            found = places(*args)
            looks -= 1
            if not looks:
                machine.step(1, 0)
                machine.step(1, 0)
                assert cache.has_synced
                if drops:
                    # Another reader, for whom nothing needs to be laid over any more.
                    assert get(client) == written
                    assert client._overlay.counts() == {THING: 0}
            return found

        return look

    cache.read_targets = overtaken(cache.read_targets)  # type: ignore[method-assign]
    assert read(client) == written


@pytest.mark.parametrize("read", [get, listed, listed_in_one_namespace])
def test_what_was_written_while_a_namespace_was_away_is_read_when_its_informer_is_called_back(
    changes: NamespaceChanges, read: Callable[[CachedClient], Object]
) -> None:
    model, cache = changes.model, changes.cache
    client = CachedClient(model, cache)  # type: ignore[arg-type]
    model.write("x", "a", deletes=False)
    changes.step(0, 0)  # no streamed lists here, the fallback comes next
    changes.step(0, 0)
    (informer,) = cache.informers(THING)
    changes.set_namespaces(["y"])
    model.write("x", "a", deletes=False)
    written = model.objects["x", "a"]
    client._note(THING, written)
    client._overlay.sweep()
    with pytest.raises(NotFollowedError):
        client.wait_until_seen(written, changes.cache._stop or StopSignal())
    changes.set_namespaces([])
    assert cache.informers(THING) == [informer]
    assert read(client) == written


def test_what_has_synced_is_not_read_before_it_takes_over() -> None:
    """From two namespaces to all of them: the new informer is behind one of the old ones."""
    machine = NamespaceChanges()
    machine.begin(["x", "y"])
    try:
        client = CachedClient(machine.model, machine.cache)  # type: ignore[arg-type]
        machine.model.write("x", "a", deletes=False)
        for number in (0, 0, 1, 1):
            machine.step(number, 0)
        machine.set_namespaces([])
        new = machine.kind_cache.routing.active[-1].informer
        new._access.on_synced = lambda: None
        machine.step(2, 0)
        machine.step(2, 0)
        assert new.has_synced
        with pytest.raises(NotCachedError, match=r"handed over.*wait_for_sync"):
            client.list(THING)
        machine.cache._is_lazy, machine.cache._sync_timeout = True, 0.0
        with pytest.raises(TimeoutError, match="handed over"):
            machine.cache.list(THING)
        machine.cache._is_lazy = False
        machine.cache._synced(machine.kind_cache)
        assert [obj.name for obj in client.list(THING)] == ["a"]
        machine.teardown()
    finally:
        machine.slow_registration.remove()


def test_what_only_the_new_informer_follows_comes_as_initial_and_the_old_one_is_done() -> None:
    machine = NamespaceChanges()
    machine.begin(["x"])
    try:
        machine.model.write("y", "b", deletes=False)
        machine.step(0, 0)
        machine.step(0, 0)
        (old,) = machine.kind_cache.routing.active
        machine.set_namespaces([])
        machine.step(1, 0)
        machine.step(1, 0)
        machine.model.write("x", "a", deletes=False)
        machine.model.budget = 5
        assert old.stop is not None
        old.informer.step(old.stop)
        assert old.informer.store.list() == []
        ((recorder, _),) = machine.handlers
        assert [(e.object.name, e.is_initial) for e in recorder.events] == [("b", True)]
        machine.teardown()
    finally:
        machine.slow_registration.remove()


def test_an_object_recreated_during_a_switchover_comes_as_a_deletion_and_an_addition(
    changes: NamespaceChanges,
) -> None:
    model = changes.model
    for name in ("a", "b"):
        model.write("x", name, deletes=False)
    changes.step(0, 0)  # no streamed lists here, the fallback comes next
    changes.step(0, 0)
    ((recorder, _),) = changes.handlers
    told = len(recorder.events)
    changes.set_namespaces(["x"])
    for deletes in (True, False):
        model.write("x", "a", deletes=deletes)
    model.write("x", "new", deletes=False)
    for _ in range(2):
        changes.step(1, 0)
    assert changes.cache.has_synced
    assert [(e.action, e.object.name, e.is_initial) for e in recorder.events[told:]] == [
        (ResourceAction.DELETE, "a", False),
        (ResourceAction.CREATE, "a", False),
        (ResourceAction.CREATE, "new", False),
    ]


@pytest.mark.parametrize("names", [["x", "y"], [], ["x"]])
def test_while_what_lags_is_listed_again_the_old_copy_serves_and_nobody_is_told_of_deletions(
    changes: NamespaceChanges, names: list[str]
) -> None:
    model, cache = changes.model, changes.cache
    model.write("x", "a", deletes=False)
    changes.step(0, 0)  # no streamed lists here, the fallback comes next
    changes.step(0, 0)
    changes.set_namespaces(["x", "y"])
    old, of_x, of_y = changes.kind_cache.routing.active
    for _ in range(2):
        of_x.informer.step(of_x.stop)
    model.write("x", "a", deletes=False)
    model.budget = 5
    old.informer.step(old.stop)
    for _ in range(2):
        of_y.informer.step(of_y.stop)
    assert old.is_frozen
    assert of_x.is_frozen
    assert cache.get(THING, "a", namespace="x") == model.objects["x", "a"]
    changes.set_namespaces(names)
    assert cache.get(THING, "a", namespace="x") == model.objects["x", "a"]
    changes.teardown()
    assert not any(each.is_frozen for each in changes.kind_cache.routing.current)
    ((recorder, _),) = changes.handlers
    assert [event.action for event in recorder.events] == [
        ResourceAction.CREATE,
        ResourceAction.UPDATE,
    ]


def test_a_cache_that_is_stopped_during_a_switchover_sends_no_events_of_it() -> None:
    """One of the new informers has ended when the last one has synced."""
    machine = NamespaceChanges()
    machine.begin([])
    machine.model.write("x", "a", deletes=False)
    machine.step(0, 0)
    machine.step(0, 0)
    machine.cache.set_namespaces(["x", "y"])
    machine.names = {"x", "y"}
    _, of_x, of_y = machine.kind_cache.routing.active
    for _ in range(2):
        of_x.informer.step(of_x.stop)
    of_x.stop.set()
    of_x.informer.run(of_x.stop)
    assert of_x.informer.health().text.endswith("stopped")
    for _ in range(2):
        of_y.informer.step(of_y.stop)
    assert machine.kind_cache.routing.current == (of_x, of_y)
    machine.slow_registration.remove()
