"""Caches and the client that reads from one, against both servers."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from appsdk_operator.cache import Cache, CachedClient, CacheOptions, NamespaceOptions
from appsdk_operator.client import MergePatch, NotFound
from appsdk_operator.resource import MetadataOnlyError, MutableObject
from appsdk_operator.runtime import Metrics, StopSignal
from tests.conformance.conftest import CONFIG_MAP, TIMEOUT, World
from tests.waiting import eventually


@pytest.fixture
def stop() -> Iterator[StopSignal]:
    threads = set(threading.enumerate())
    signal = StopSignal()
    yield signal
    signal.set()
    for thread in set(threading.enumerate()) - threads:
        thread.join(TIMEOUT)


def run(cache: Cache, stop: StopSignal) -> None:
    threading.Thread(target=cache.run, args=(stop,)).start()
    assert cache.wait_for_sync(stop, TIMEOUT)


def draft(world: World, name: str, **labels: str) -> MutableObject:
    made = MutableObject.new(CONFIG_MAP, name, namespace=world.namespace, data={"a": "b" * 3000})
    made.labels.update(labels)
    return made


def test_the_metadata_alone_is_listed_and_watched(world: World, stop: StopSignal) -> None:
    world.client.create(draft(world, "first", tier="web"))
    cache = Cache(world.client, namespaces=[world.namespace], metrics=Metrics())
    cache.add(CONFIG_MAP, CacheOptions(metadata_only=True))
    run(cache, stop)
    world.client.create(draft(world, "second", tier="web"))
    assert eventually(lambda: cache.get(CONFIG_MAP, "second", namespace=world.namespace))
    for obj in cache.list(CONFIG_MAP, label_selector={"tier": "web"}):
        assert obj.is_metadata_only
        assert len(obj.raw) < 1500
        with pytest.raises(MetadataOnlyError):
            obj.get("data")
    world.client.delete(CONFIG_MAP, "second", namespace=world.namespace)
    assert eventually(lambda: cache.get(CONFIG_MAP, "second", namespace=world.namespace) is None)


def test_all_the_others_are_all_but_the_named_ones(world: World, stop: StopSignal) -> None:
    world.client.create(draft(world, "in", tier="web"))
    world.client.create(draft(world, "out", tier="db"))
    own = NamespaceOptions(label_selector="tier=web")
    cache = Cache(
        world.client, namespaces={world.namespace: own, "": NamespaceOptions()}, metrics=Metrics()
    )
    cache.add(CONFIG_MAP)
    run(cache, stop)
    named, others = cache.informers(CONFIG_MAP)
    assert [obj.name for obj in named.store.list() if obj.labels] == ["in"]
    assert world.namespace not in {obj.namespace for obj in others.store.list()}
    cache.set_namespaces([])
    assert cache.wait_for_sync(stop, TIMEOUT)
    found = cache.list(CONFIG_MAP, namespace=world.namespace)
    assert {"in", "out"} <= {obj.name for obj in found}


def test_own_writes_are_read_at_once(world: World, stop: StopSignal) -> None:
    cache = Cache(world.client, namespaces=[world.namespace], metrics=Metrics())
    cache.add(CONFIG_MAP)
    run(cache, stop)
    client, where = CachedClient(world.client, cache), world.namespace
    for number in range(10):
        name = f"o{number}"
        made = client.create(draft(world, name))
        assert client.get(CONFIG_MAP, name, namespace=where).resource_version == (
            made.resource_version
        )
        patch = MergePatch({"data": {"a": "c"}, "metadata": {"finalizers": ["example.com/f"]}})
        made = client.patch(CONFIG_MAP, name, patch, namespace=where)
        assert client.get(CONFIG_MAP, name, namespace=where)["data"] == {"a": "c"}
        client.delete(CONFIG_MAP, name, namespace=where, uid=made.uid)
        assert client.get(CONFIG_MAP, name, namespace=where).is_deleting
        release = MergePatch({"metadata": {"finalizers": None}})
        client.patch(CONFIG_MAP, name, release, namespace=where)
        with pytest.raises(NotFound):
            client.get(CONFIG_MAP, name, namespace=where)
        assert name not in [obj.name for obj in client.list(CONFIG_MAP, namespace=where)]
    client.create(draft(world, "last"))
    client.delete_collection(CONFIG_MAP, namespace=where)
    assert "last" not in [obj.name for obj in client.list(CONFIG_MAP, namespace=where)]
