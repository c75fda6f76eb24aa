"""Reads through the cached client while one informer takes over from another."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from appsdk_operator.cache import CachedClient
from appsdk_operator.resource import Object
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
def hand_over() -> Iterator[NamespaceChanges]:
    machine = NamespaceChanges()
    machine.begin([])
    yield machine
    machine.teardown()


@pytest.mark.parametrize("read", [get, listed, listed_in_one_namespace])
@pytest.mark.parametrize("drops", [False, True])
def test_a_read_that_another_informer_overtakes_is_not_older_than_own_writes(
    hand_over: NamespaceChanges, read: Callable[[CachedClient], Object], drops: bool
) -> None:
    machine = hand_over
    model, cache = machine.model, machine.cache
    client = CachedClient(model, cache)  # type: ignore[arg-type]
    model.write("x", "a", deletes=False)
    machine.step(0, 0)  # no streamed lists here, the fallback comes next
    machine.step(0, 0)
    cache.set_namespaces(["x"])
    machine.names = {"x"}
    model.write("x", "a", deletes=False)
    written = model.objects["x", "a"]
    client.note(THING, written, {})
    assert read(client) == written

    def overtaken(places: Callable[..., Any]) -> Callable[..., Any]:
        def look(*args: Any) -> Any:
            found = places(*args)
            if not cache.has_synced:
                machine.step(1, 0)
                machine.step(1, 0)
                assert cache.has_synced
                if drops:
                    # Another reader, for whom nothing needs to be laid over any more.
                    assert get(client) == written
                    assert client._overlay.counts() == {THING: 0}
            return found

        return look

    cache.places = overtaken(cache.places)  # type: ignore[method-assign]
    assert read(client) == written
