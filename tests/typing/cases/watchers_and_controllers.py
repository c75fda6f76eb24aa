"""What callbacks are given has the types of the kind. Never run."""

from __future__ import annotations

from typing import Any, Never, assert_type

from clients_and_caches import Draft, Widget
from kinds_and_objects import UNTYPED, WIDGET, OtherSpec, WidgetSpec, WidgetStatus

import appsdk_operator as op
from appsdk_operator.cache import Cache, Event
from appsdk_operator.controllers import (
    FinalizingOutcome,
    Handler,
    HandlerFunctions,
    KindSource,
    ObjectReconciler,
    Predicate,
    RequestQueue,
    Written,
    all_of,
    as_reconciler,
    create_or_patch,
    finalizing,
    generation_changed,
    map_objects,
    patch_conditions,
    put_finalizer,
    until,
    wait_for,
)
from appsdk_operator.watchers import (
    OpinionatedReconciler,
    ReconcileRequest,
    ResourceReconciler,
    SimpleReconciler,
)

Gadget = op.Object[OtherSpec]


def seen(widget: Widget) -> None:
    assert_type(widget.spec.size, int)


def changed(old: Widget, new: Widget) -> None: ...
def gadget_seen(gadget: Gadget) -> None: ...


class WidgetWatcher:
    def add(self, obj: Widget) -> None: ...
    def update(self, old: Widget, new: Widget) -> None: ...
    def delete(self, obj: Widget) -> None: ...


class Named(op.ResourceWatcher[WidgetSpec, WidgetStatus]):
    def add(self, obj: Widget) -> None:
        obj.spec.siez  # type: ignore[attr-defined]


def watchers(controller: op.InformerController, client: op.Client) -> None:
    simple = op.SimpleWatcher(add=seen, update=changed)
    assert_type(simple, op.SimpleWatcher[WidgetSpec, WidgetStatus])
    controller.add_watcher(simple, WIDGET)
    controller.add_watcher(simple, "widgets")
    controller.add_watcher(WidgetWatcher(), WIDGET)
    controller.add_watcher(WidgetWatcher(), UNTYPED)
    controller.add_watcher(op.SimpleWatcher(add=lambda obj: print(obj.name)), WIDGET)
    controller.add_watcher(op.SimpleWatcher(add=gadget_seen), WIDGET)  # type: ignore[misc]
    op.SimpleWatcher(AddFunc=seen)  # type: ignore[call-arg]
    careful = op.OpinionatedWatcher(WIDGET, client, add=seen, update=changed)
    assert_type(careful, op.OpinionatedWatcher[WidgetSpec, WidgetStatus])
    controller.add_watcher(careful, WIDGET)
    op.OpinionatedWatcher(WIDGET, client, add=gadget_seen)  # type: ignore[arg-type]
    wrapped = op.OpinionatedWatcher.wrap(WidgetWatcher(), WIDGET, client)
    assert_type(wrapped, op.OpinionatedWatcher[WidgetSpec, WidgetStatus])
    fits: op.ResourceWatcher[WidgetSpec, WidgetStatus] = careful
    del fits


def reconciled(request: ReconcileRequest[WidgetSpec, WidgetStatus]) -> op.Result | None:
    assert_type(request.object, Widget)
    assert_type(request.old, Widget | None)
    return None


def gadget_reconciled(request: ReconcileRequest[OtherSpec]) -> None: ...


def reconcilers_of_an_informer_controller(
    controller: op.InformerController, client: op.Client
) -> None:
    simple = SimpleReconciler(reconciled)
    assert_type(simple, SimpleReconciler[WidgetSpec, WidgetStatus])
    controller.add_reconciler(simple, WIDGET)
    other = SimpleReconciler(gadget_reconciled)
    controller.add_reconciler(other, WIDGET)  # type: ignore[misc]
    careful = OpinionatedReconciler(simple, WIDGET, client)
    assert_type(careful, OpinionatedReconciler[WidgetSpec, WidgetStatus])
    fits: ResourceReconciler[WidgetSpec, WidgetStatus] = careful
    controller.add_reconciler(fits, WIDGET)


def is_large(event: Event[WidgetSpec, WidgetStatus]) -> bool:
    assert_type(event.object, Widget)
    assert_type(event.old, Widget | None)
    return event.object.spec.size > 3


def is_red(event: Event[OtherSpec]) -> bool:
    return event.object.spec.color == "red"


def nodes_of(widget: Widget) -> list[op.Request]:
    return [op.Request("", str(widget.spec.size))]


def gadgets_of(gadget: Gadget) -> list[op.Request]:
    return [gadget.key]


def enqueue(event: Event[WidgetSpec, WidgetStatus], queue: RequestQueue[op.Request]) -> None: ...


def controllers(manager: op.Manager, cache: Cache, request: op.Request) -> None:
    large = Predicate(is_large)
    assert_type(large, Predicate[WidgetSpec, WidgetStatus])
    assert_type(large & generation_changed, Predicate[WidgetSpec, WidgetStatus])
    assert_type(~large, Predicate[WidgetSpec, WidgetStatus])
    assert_type(all_of(large, is_large), Predicate[WidgetSpec, WidgetStatus])
    assert_type(op.labels("a") & large, Predicate[WidgetSpec, WidgetStatus])
    assert_type(large & op.field("spec.size").changed, Predicate[WidgetSpec, WidgetStatus])
    mapped = map_objects(nodes_of)
    assert_type(mapped, Handler[op.Request, WidgetSpec, WidgetStatus])
    functions = HandlerFunctions(create=enqueue)
    builder = op.controller_for(manager)
    builder.for_(WIDGET, predicates=[large, generation_changed, is_large])
    builder.for_(WIDGET, predicates=[op.labels("a"), op.field("spec.size") == 3, op.labels])  # type: ignore[list-item]
    builder.owns(WIDGET, predicates=[op.labels("a") & generation_changed])
    builder.for_(WIDGET, predicates=[is_red])  # type: ignore[list-item]
    builder.owns(WIDGET, predicates=[large])
    builder.for_(WIDGET, where=lambda widget: widget.spec.size > 3, when=generation_changed)
    builder.owns(WIDGET, where=large)  # type: ignore[arg-type]
    builder.owns(WIDGET, when=lambda old, new: old.spec.size > new.spec.size)
    builder.watches(WIDGET, nodes_of)
    builder.watches(WIDGET, mapped, predicates=[large])
    builder.watches(WIDGET, functions)
    builder.watches(WIDGET, gadgets_of)  # type: ignore[arg-type]
    KindSource(cache, WIDGET, mapped, [large])
    KindSource(cache, WIDGET, map_objects(gadgets_of))  # type: ignore[misc]


class ByObject:
    def reconcile_object(self, obj: Widget) -> None: ...


def helpers(client: op.Client, widget: Widget, draft: Draft) -> None:
    as_reconciler(client, WIDGET, seen)
    as_reconciler(client, WIDGET, ByObject())
    as_reconciler(client, WIDGET, gadget_seen)  # type: ignore[arg-type]
    fits: ObjectReconciler[WidgetSpec, WidgetStatus] = ByObject()
    del fits

    def shape(draft: Draft) -> None:
        draft.spec = WidgetSpec(size=3)

    def shape_gadget(draft: op.MutableObject[OtherSpec]) -> None: ...

    written = op.create_or_update(client, draft, shape)
    assert_type(written, Written[WidgetSpec, WidgetStatus])
    assert_type(written.object.spec, WidgetSpec)
    assert_type(create_or_patch(client, widget, shape).object, Widget)
    op.create_or_update(client, draft, lambda draft: None)
    op.create_or_update(client, draft, shape_gadget)  # type: ignore[arg-type]
    done = finalizing(client, widget, "example.com/x", apply=seen, cleanup=seen)
    assert_type(done, FinalizingOutcome[WidgetSpec, WidgetStatus])
    assert_type(done.object, Widget | None)
    assert_type(put_finalizer(client, widget, "example.com/x"), Widget | None)
    assert_type(patch_conditions(client, widget), Widget | None)


def waiting(client: op.Client) -> None:
    ready = until.condition_true("Ready")
    assert_type(ready, until.Until[Never])
    assert_type(wait_for(client, WIDGET, "web", ready), Widget)
    assert_type(wait_for(client, WIDGET, "web", ready | until.exists()), Widget)
    assert_type(wait_for(client, WIDGET, "web", ready & until.exists()), Widget)
    assert_type(wait_for(client, WIDGET, "web", until.deleted()), Widget | None)
    assert_type(wait_for(client, WIDGET, "web", ready | until.deleted()), Widget | None)
    assert_type(wait_for(client, WIDGET, "web", ~ready), Widget | None)
    assert_type(wait_for(client, WIDGET, "web", ~until.deleted() & ready), Widget)
    assert_type(wait_for(client, WIDGET, "web", lambda obj: obj.spec.size > 3), Widget)
    assert_type(wait_for(client, UNTYPED, "web", ready), op.Object[Any, Any])
