"""What is read has the types of the kind it was asked for with. Never run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any, assert_type

from kinds_and_objects import UNTYPED, WIDGET, OtherSpec, WidgetSpec, WidgetStatus

import appsdk_operator as op
from appsdk_operator.cache import Cache, CachedClient, Informer, Lister, Store, drop_managed_fields
from appsdk_operator.client import (
    ClientLike,
    DryRunClient,
    FieldOwnerClient,
    NamespacedClient,
    ObjectStore,
    Reader,
    SpecStore,
    WatchStream,
)
from appsdk_operator.resource import ListPage, ObjectKey

Widget = op.Object[WidgetSpec, WidgetStatus]
Draft = op.MutableObject[WidgetSpec, WidgetStatus]


def a_client(client: op.Client, draft: Draft, widget: Widget) -> None:
    assert_type(client.get(WIDGET, "web").spec, WidgetSpec)
    assert_type(client.get(WIDGET, "web").status.ready, bool)
    client.get(WIDGET, "web").spec.siez  # type: ignore[attr-defined]
    assert_type(client.get(UNTYPED, "web").spec, Any)
    assert_type(client.list(WIDGET), Iterator[Widget])
    assert_type(client.list_page(WIDGET), ListPage[WidgetSpec, WidgetStatus])
    assert_type(client.create(draft), Widget)
    assert_type(client.update(widget), Widget)
    assert_type(client.apply(draft, field_manager="me"), Widget)
    assert_type(client.patch(WIDGET, "web", op.MergePatch({})), Widget)
    assert_type(client.delete(WIDGET, "web"), Widget | None)
    assert_type(client.status.update(draft), Widget)
    assert_type(client.status.patch(WIDGET, "web", op.MergePatch({})), Widget)
    assert_type(client.status.get(WIDGET, "web"), Widget)
    with client.watch(WIDGET) as stream:
        assert_type(stream, WatchStream[WidgetSpec, WidgetStatus])
        for event in stream.events():
            assert_type(event.object, Widget | None)


async def its_coroutines(client: op.Client, cached: CachedClient, draft: Draft) -> None:
    assert_type((await client.aio.get(WIDGET, "web")).spec, WidgetSpec)
    assert_type(client.aio.list(WIDGET), AsyncGenerator[Widget, None])
    assert_type([obj async for obj in cached.aio.list(WIDGET, limit=5)], list[Widget])
    assert_type(await client.aio.create(draft, dry_run=True), Widget)
    assert_type(await client.aio.delete(WIDGET, "web"), Widget | None)
    assert_type(await client.aio.status.patch(WIDGET, "web", op.MergePatch({})), Widget)
    async with client.aio.watch(WIDGET) as stream:
        async for event in stream:
            assert_type(event.object, Widget | None)
    await client.aio.get(WIDGET, "web", namespac="a")  # type: ignore[call-arg]


def its_changes(client: op.Client, like: ClientLike, app: op.App, widget: Widget) -> None:
    def change(draft: Draft) -> None:
        assert_type(draft.spec, WidgetSpec)

    assert_type(client.modify(WIDGET, "web", change), Widget)
    assert_type(like.modify(WIDGET, "web", lambda draft: draft.labels.clear()), Widget)
    with app.edit(widget) as draft:
        assert_type(draft, Draft)


def its_wrappers(
    wrapped: NamespacedClient,
    dry: DryRunClient,
    owned: FieldOwnerClient,
    cached: CachedClient,
    reader: Reader,
    like: ClientLike,
    draft: Draft,
) -> None:
    assert_type(wrapped.get(WIDGET, "web"), Widget)
    assert_type(wrapped.list(WIDGET), Iterator[Widget])
    assert_type(dry.create(draft), Widget)
    assert_type(owned.patch(WIDGET, "web", op.MergePatch({})), Widget)
    assert_type(cached.get(WIDGET, "web"), Widget)
    assert_type(cached.by_index(WIDGET, "owner", "me"), list[Widget])
    assert_type(reader.get(WIDGET, "web"), Widget)
    assert_type(like.status.update(draft), Widget)


def a_manager(manager: op.Manager) -> None:
    assert_type(manager.client.get(WIDGET, "web").spec, WidgetSpec)


def stores(client: op.Client, draft: Draft, key: ObjectKey) -> None:
    store = ObjectStore(client, WIDGET)
    assert_type(store, ObjectStore[WidgetSpec, WidgetStatus])
    assert_type(store.get(key).spec, WidgetSpec)
    assert_type(store.upsert(draft), Widget)
    assert_type(store.list(), Iterator[Widget])
    specs = SpecStore(client, WIDGET)
    assert_type(specs, SpecStore[WidgetSpec])
    assert_type(specs.get(key), WidgetSpec)
    specs.update(key, OtherSpec())  # type: ignore[arg-type]
    statuses = SpecStore(client, WIDGET, part="status")
    assert_type(statuses, SpecStore[WidgetStatus])
    assert_type(dict(statuses.list()), dict[ObjectKey, WidgetStatus])


def by_size(widget: Widget) -> list[str]:
    return [str(widget.spec.size)]


def by_color(other: op.Object[OtherSpec]) -> list[str]:
    return [other.spec.color]


class Handler:
    def on_add(self, obj: Widget, *, is_initial: bool) -> None: ...
    def on_update(self, old: Widget, new: Widget) -> None: ...
    def on_delete(self, obj: Widget, *, is_final_state_unknown: bool) -> None: ...


class OtherHandler:
    def on_add(self, obj: op.Object[OtherSpec], *, is_initial: bool) -> None: ...
    def on_update(self, old: op.Object[OtherSpec], new: op.Object[OtherSpec]) -> None: ...
    def on_delete(self, obj: op.Object[OtherSpec], *, is_final_state_unknown: bool) -> None: ...


def an_informer(client: op.Client) -> None:
    informer = Informer(WIDGET, client, indexes={"size": by_size})
    assert_type(informer, Informer[WidgetSpec, WidgetStatus])
    assert_type(informer.store, Lister[WidgetSpec, WidgetStatus])
    assert_type(informer.store.get("web"), Widget | None)
    assert_type(informer.store.list(), list[Widget])
    assert_type(informer.store.by_index("size", "3"), list[Widget])
    informer.add_event_handler(Handler())
    informer.add_event_handler(OtherHandler())  # type: ignore[arg-type]
    informer.add_index("size", by_size)
    informer.add_index("color", by_color)  # type: ignore[arg-type]
    resyncing = op.KubernetesInformer(WIDGET, client, resync=60.0)
    assert_type(resyncing, op.KubernetesInformer[WidgetSpec, WidgetStatus])
    assert_type(resyncing.store.get("web"), Widget | None)
    op.KubernetesInformer(WIDGET, client, label_selectors="app=web")  # type: ignore[call-arg]
    assert_type(Store(WIDGET).get("web"), Widget | None)
    informer.transform = drop_managed_fields


def a_cache(cache: Cache) -> None:
    assert_type(cache.get(WIDGET, "web"), Widget | None)
    assert_type(cache.list(WIDGET), list[Widget])
    assert_type(cache.by_index(WIDGET, "size", "3"), list[Widget])
    assert_type(cache.informers(WIDGET), Sequence[Informer[WidgetSpec, WidgetStatus]])
    cache.add_index(WIDGET, "size", by_size)
    cache.add_index(WIDGET, "color", by_color)  # type: ignore[arg-type]
    cache.add_event_handler(WIDGET, Handler())
    cache.add_event_handler(WIDGET, OtherHandler())  # type: ignore[misc]
