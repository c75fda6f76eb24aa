"""Options of a cache: defaults, by kind, by namespace; metadata only; selectors of lists."""

from __future__ import annotations

import threading

import attrs
import pytest

from appsdk_operator import client as c
from appsdk_operator.cache import Cache, CacheOptions, NamespaceOptions, drop_managed_fields
from appsdk_operator.cache._informer.transforms import only_metadata, only_metadata_then
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.resource import MetadataOnlyError, MutableObject, kinds
from appsdk_operator.runtime import Metrics, StopSignal
from appsdk_operator.testing import APIServer
from tests.cache.conftest import PLACE, THING, ScriptedClient, thing

ConfigMap = kinds.core.v1.ConfigMap
N, K = NamespaceOptions, CacheOptions


def selections(kind, *, options=None, **cache_options):
    cache = Cache(ScriptedClient(), metrics=Metrics(), **cache_options)
    cache.add(kind, options)
    return cache._kind_caches[kind].routing.selections


def selectors(found):
    return {
        s.namespace: (str(s.label_selector or ""), str(s.sent_field_selector or "")) for s in found
    }


@pytest.mark.parametrize(
    ("cache", "options", "expected"),
    [
        ({}, None, {"": ("", "")}),
        ({"label_selector": "a=1"}, None, {"": ("a=1", "")}),
        ({"field_selector": "f=1"}, None, {"": ("", "f=1")}),
        ({"label_selector": "a=1"}, K(label_selector="b=2"), {"": ("b=2", "")}),
        ({"label_selector": "a=1"}, K(label_selector=""), {"": ("", "")}),
        ({"label_selector": "a=1"}, K(field_selector="f=1"), {"": ("a=1", "f=1")}),
        ({"namespaces": ["x"]}, None, {"x": ("", "")}),
        ({"namespaces": ["x"]}, K(namespaces=[]), {"": ("", "")}),
        ({"namespaces": ["x"]}, K(namespaces={}), {"": ("", "")}),
        ({"namespaces": ["x"]}, K(namespaces=["y"]), {"y": ("", "")}),
        ({"namespaces": ["x"], "label_selector": "a=1"}, None, {"x": ("a=1", "")}),
        ({"namespaces": {"x": N(label_selector="n=1")}}, None, {"x": ("n=1", "")}),
        (
            {"namespaces": {"x": N(label_selector="n=1")}, "label_selector": "a=1"},
            None,
            {"x": ("n=1", "")},
        ),
        (
            {"namespaces": {"x": N(), "y": N(field_selector="f=1")}, "label_selector": "a=1"},
            None,
            {"x": ("a=1", ""), "y": ("a=1", "f=1")},
        ),
        # The kind comes before the namespace of the cache.
        (
            {"namespaces": {"x": N(label_selector="n=1")}},
            K(label_selector="k=1"),
            {"x": ("k=1", "")},
        ),
        # The namespace of the kind comes before everything.
        (
            {"namespaces": {"x": N(label_selector="n=1")}, "label_selector": "a=1"},
            K(label_selector="k=1", namespaces={"x": N(label_selector="kn=1")}),
            {"x": ("kn=1", "")},
        ),
        (
            {"namespaces": {"x": N(label_selector="n=1")}, "label_selector": "a=1"},
            K(namespaces={"x": N(field_selector="f=1"), "y": N()}),
            {"x": ("n=1", "f=1"), "y": ("a=1", "")},
        ),
        ({"namespaces": {"": N()}}, None, {"": ("", "")}),
        ({"namespaces": {"": N(label_selector="n=1")}}, None, {"": ("n=1", "")}),
        (
            {"namespaces": {"b": N(), "a": N(label_selector="n=1"), "": N()}},
            None,
            {
                "b": ("", ""),
                "a": ("n=1", ""),
                "": ("", "metadata.namespace!=a,metadata.namespace!=b"),
            },
        ),
        (
            {"namespaces": {"a": N(), "": N(field_selector="f=1")}},
            None,
            {"a": ("", ""), "": ("", "f=1,metadata.namespace!=a")},
        ),
        (
            {"namespaces": {"a": N(), "": N()}, "field_selector": "f=1"},
            None,
            {"a": ("", "f=1"), "": ("", "f=1,metadata.namespace!=a")},
        ),
        (
            {"namespaces": {"a": N()}},
            K(namespaces={"b": N(), "": N(label_selector="n=1")}),
            {"b": ("", ""), "": ("n=1", "metadata.namespace!=b")},
        ),
    ],
)
def test_each_option_is_that_of_the_nearest_place(cache, options, expected):
    assert selectors(selections(THING, options=options, **cache)) == expected


def test_a_cluster_scoped_kind_has_one_scope_whatever_the_namespaces():
    namespaces = {"x": N(label_selector="n=1"), "": N(label_selector="m=1")}
    found = selections(PLACE, namespaces=namespaces, label_selector="a=1")
    assert selectors(found) == {"": ("a=1", "")}
    assert not found[0].excluded
    own = selections(PLACE, options=K(label_selector="k=1"), namespaces=["x"])
    assert selectors(own) == {"": ("k=1", "")}


def test_transform_and_resync_are_inherited_too():
    def other(obj):
        return obj

    cache = Cache(ScriptedClient(), transform=drop_managed_fields, resync=5.0, metrics=Metrics())
    cache.add(THING)
    cache.add(PLACE, K(transform=other, resync=0.0))
    (informer,), (of_place,) = cache.informers(THING), cache.informers(PLACE)
    assert (informer.transform, informer.resync) == (drop_managed_fields, 5.0)
    assert (of_place.transform, of_place.resync) == (other, 0.0)


def test_a_transform_need_not_be_hashable():
    @attrs.define
    class Drops:
        field: str

        def __call__(self, obj):
            return obj

    for options in ({"transform": Drops("a")}, {"namespaces": {"x": N(transform=Drops("a"))}}):
        cache = Cache(ScriptedClient(), metrics=Metrics(), **options)
        cache.add(THING)
        before = cache.informers(THING)
        cache.set_namespaces(options.get("namespaces", []))
        assert cache.informers(THING) == before


def test_options_by_kind_wait_for_the_kind_to_be_added():
    cache = Cache(
        ScriptedClient(), by_kind={THING: K(label_selector="a=1")}, lazy=True, metrics=Metrics()
    )
    assert list(cache.kinds) == []
    cache.add(THING)
    assert str(cache.informers(THING)[0].label_selector) == "a=1"
    cache.add(THING)
    other = Cache(ScriptedClient(), by_kind={THING: K(label_selector="a=1")}, metrics=Metrics())
    other.add(THING, K())
    assert other.informers(THING)[0].label_selector is None


def test_options_that_cannot_be_are_refused_where_they_are_given():
    with pytest.raises(ValueError, match="cluster-scoped"):
        Cache(ScriptedClient(), by_kind={PLACE: K(namespaces=["x"])}, metrics=Metrics())
    with pytest.raises(TypeError, match="give NamespaceOptions by name"):
        Cache(ScriptedClient(), namespaces={"x": "a=b"}, metrics=Metrics())
    with pytest.raises(TypeError, match="give NamespaceOptions by name"):
        K(namespaces={"x": None})
    with pytest.raises(ValueError, match="resync=-1"):
        Cache(ScriptedClient(), resync=-1.0, metrics=Metrics())
    cache = Cache(ScriptedClient(), metrics=Metrics())
    cache.add(PLACE)
    with pytest.raises(ValueError, match="cluster-scoped"):
        cache.set_namespaces(["x"], kind=PLACE)
    with pytest.raises(ValueError, match="give names, or an empty list"):
        cache.set_namespaces(None)


# Metadata alone.


def test_metadata_serves_where_the_whole_is_kept_but_not_the_other_way_round():
    cache = Cache(ScriptedClient(), metrics=Metrics())
    cache.add(THING, K(label_selector="a=1"))
    cache.add(THING, K(label_selector="a=1", metadata_only=True))
    assert len(cache.informers(THING)) == 1
    with pytest.raises(ValueError, match="with other options"):
        cache.add(THING, K(metadata_only=True))
    cache.add(PLACE, K(metadata_only=True))
    cache.add(PLACE)
    cache.add(PLACE, K(metadata_only=True))
    with pytest.raises(
        ValueError, match=r"holds only the metadata of .*, and all users share one copy"
    ):
        cache.add(PLACE, K())


@pytest.fixture
def client():
    server = APIServer().start()
    try:
        with Client(ClientConfig(server=server.url)) as client:
            yield client
    finally:
        server.stop()


@pytest.fixture
def run():
    running = []

    def run(cache):
        stop = StopSignal()
        thread = threading.Thread(target=cache.run, args=(stop,))
        thread.start()
        running.append((stop, thread))
        assert cache.wait_for_sync(stop, 20)
        return stop

    yield run
    for stop, thread in running:
        stop.set()
        thread.join()


def make(client, name, **labels):
    draft = MutableObject.new(ConfigMap, name, namespace="default", data={"big": "x" * 5000})
    draft.labels.update(labels)
    return client.create(draft)


def test_of_a_kind_whose_metadata_is_kept_nothing_else_is(client, run):
    made = make(client, "a", tier="web")
    cache = Cache(client, metrics=Metrics())
    cache.add(ConfigMap, K(metadata_only=True))
    run(cache)
    obj = cache.get(ConfigMap, "a", namespace="default")
    assert obj.is_metadata_only
    assert (obj.uid, obj.labels, obj.kind) == (made.uid, {"tier": "web"}, ConfigMap)
    assert cache.informers(ConfigMap)[0].store.json_bytes < 1500
    for read in (
        lambda: obj["data"],
        lambda: obj.get("data"),
        lambda: obj.spec,
        lambda: obj.status,
        lambda: "data" in obj,
    ):
        with pytest.raises(MetadataOnlyError, match=r"only its metadata was read.*metadata_only"):
            read()
    with pytest.raises(ValueError, match="cannot update using only metadata, did you mean to pa"):
        client.update(obj)
    with pytest.raises(ValueError, match="cannot create using only metadata"):
        client.create(obj.mutable_copy())
    with pytest.raises(ValueError, match="cannot update using only metadata"):
        client.status.update(obj)
    client.patch(ConfigMap, "a", c.MergePatch({"data": {"b": "c"}}), namespace="default")


def test_metadata_follows_the_watch_and_a_client_that_sends_more_is_cut_short():
    whole = thing("a", 5, spec={"big": "x"})
    cut = only_metadata(whole)
    assert cut.is_metadata_only
    assert (cut.uid, cut.resource_version) == (whole.uid, "5")
    assert only_metadata(cut) is cut
    assert only_metadata_then(drop_managed_fields)(whole).is_metadata_only


# Lists.


@attrs.frozen
class LeaseSpec:
    lease_duration_seconds: int = 0


def test_an_index_of_a_field_has_its_name_in_python_or_on_the_wire(client, run):
    lease = kinds.coordination.v1.Lease.typed(spec=LeaseSpec, rename="camel")
    spec = LeaseSpec(lease_duration_seconds=3)
    client.create(MutableObject.new(lease, "a", namespace="default", spec=spec))
    cache = Cache(client, metrics=Metrics())
    cache.add(lease)
    paths = ("spec.leaseDurationSeconds", "spec.lease_duration_seconds")
    for path in paths:
        cache.index_field(lease, path)
    run(cache)
    for path in paths:
        assert [obj.name for obj in cache.list(lease, field_selector=f"{path}=3")] == ["a"]


def test_lists_take_field_selectors_that_an_index_answers(client, run):
    make(client, "b", tier="web")
    make(client, "a", tier="web")
    make(client, "c", tier="db")
    cache = Cache(client, metrics=Metrics())
    cache.add(ConfigMap, K(indexes={"field:tier": lambda obj: [obj.labels.get("tier", "")]}))
    cache.index_field(ConfigMap, "metadata.labels.tier")
    run(cache)

    def names(**options):
        return [obj.name for obj in cache.list(ConfigMap, namespace="default", **options)]

    assert names() == sorted(names())
    assert names(field_selector="tier=web") == ["a", "b"]
    assert names(field_selector={"metadata.labels.tier": "web", "metadata.name": "b"}) == ["b"]
    assert names(field_selector="tier=web,metadata.labels.tier=db") == []
    assert names(field_selector="metadata.name=c") == ["c"]
    assert names(field_selector="metadata.name=c,metadata.name=a") == []
    assert names(field_selector="metadata.namespace=other") == []
    assert names(label_selector={"tier": "web"}, limit=1) == ["a"]
    everywhere = cache.list(ConfigMap, field_selector="metadata.namespace=default,tier=db")
    assert [obj.name for obj in everywhere] == ["c"]
    with pytest.raises(ValueError, match=r"index_field\(kind, 'spec.x'\)"):
        names(field_selector="spec.x=1")
    with pytest.raises(ValueError, match="path=value only"):
        names(field_selector="tier!=web")
    with pytest.raises(ValueError, match="limit=-1"):
        names(limit=-1)
    with pytest.raises(ValueError, match="has an index 'field:tier' already"):
        cache.index_field(ConfigMap, "tier")
    with pytest.raises(ValueError, match="write names with dots"):
        cache.index_field(ConfigMap, "a..b")
