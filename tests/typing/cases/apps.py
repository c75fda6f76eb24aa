"""What the decorators of an App say of their functions. Read by type checkers, never run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any, assert_type

from clients_and_caches import Draft, Widget
from kinds_and_objects import UNTYPED, WIDGET, OtherSpec, WidgetSpec, WidgetStatus
from watchers_and_controllers import Gadget, WidgetWatcher, gadget_seen

import appsdk_operator as op
from appsdk_operator.app import Filtered, Permission
from appsdk_operator.client import ClientLike
from appsdk_operator.controllers import generation_changed
from appsdk_operator.manager import EventRecorder
from appsdk_operator.resource import ChangeFilter, Filter, Versions
from appsdk_operator.runtime import Metrics
from appsdk_operator.webhooks import Webhooks

app = op.App("widget-operator", leader_election=True, workers=4, health_server=None)
op.App("widget-operator", helth_server=None)  # type: ignore[call-arg]
assert_type(app.own(WIDGET, short_names=["w"]), op.Kind[WidgetSpec, WidgetStatus])
OLD = op.Kind(group="example.com", version="v1alpha1", kind="Widget", spec=OtherSpec)


@app.on_add(WIDGET)
def make(widget: Widget) -> int:
    assert_type(widget.spec.size, int)
    return widget.spec.size


@app.on_sync(WIDGET)
async def sync(widget: Widget) -> None: ...


@app.on_update(WIDGET, when=op.field("spec.size").changed)
def resize(old: Widget, new: Widget) -> None: ...


@app.on_update(WIDGET, when=lambda old, new: old.spec.size < new.spec.size)
def grow(old: Widget, new: Widget) -> None: ...


@app.on_update(WIDGET, where=op.labels("app=web") & (lambda widget: widget.spec.size > 3))
def update_large(old: Widget, new: Widget) -> None: ...


@app.every(60, WIDGET, where=~op.annotation("example.com/paused"))
def look_at_some(widget: Widget) -> None: ...


app.on_add(WIDGET, where=op.field("spec.size").changed)  # type: ignore[arg-type]
app.on_add(WIDGET, where=op.field("spec.size"))  # type: ignore[arg-type]
app.on_add(WIDGET, where=lambda widget: widget.spec.sise > 3)  # type: ignore[attr-defined]
app.on_update(WIDGET, when=op.field("spec.size"))  # type: ignore[arg-type]
app.on_update(WIDGET, when=op.labels("a") | op.field("spec.size").became(3))
assert_type(op.field("spec.size") == 3, Filter[Any, Any])
assert_type(op.annotation("a") == "b", Filter[Any, Any])
assert_type(op.field("a") == op.field("b"), bool)
assert_type(op.labels("a") & op.annotation("b"), Filter[Any, Any])
assert_type(op.labels("a") & op.field("spec.size").changed, ChangeFilter[Any, Any])
assert_type(~(op.field("spec.size").left(3) | op.labels("a")), ChangeFilter[Any, Any])


@app.on_delete(UNTYPED)
def remove(widget: op.Object) -> None: ...


@app.on_add(WIDGET)  # type: ignore[arg-type]
def gadget_made(gadget: Gadget) -> None: ...


@app.on_update(WIDGET)  # type: ignore[arg-type]
def with_one(widget: Widget) -> None: ...


app.on_add(WIDGET)(lambda widget: assert_type(widget.spec.size, int))
app.on_update(WIDGET)(lambda old, new: assert_type(new.spec.size - old.spec.size, int))


@app.reconciler(WIDGET, owns=[UNTYPED], watches={UNTYPED: lambda obj: [obj.key]})
def reconcile(request: op.Request) -> op.Result | None:
    return None


class WidgetReconciler:
    def reconcile(self, request: op.Request, /) -> op.Result | None:
        return None


assert_type(app.reconciler(WIDGET)(WidgetReconciler()), WidgetReconciler)


assert_type(
    Filtered(WIDGET, where=lambda widget: widget.spec.size > 3),
    Filtered[WidgetSpec, WidgetStatus],
)
Filtered(WIDGET, when=lambda old, new: old.spec.size > new.spec.size)
Filtered(WIDGET, where=lambda widget: widget.spec.sise > 3)  # type: ignore[attr-defined]


@app.object_reconciler(
    WIDGET,
    where=op.labels("a"),
    when=generation_changed,
    owns=[UNTYPED, Filtered(WIDGET, when=op.field("spec.size").changed)],
    watches={UNTYPED: lambda obj: [obj.key], Filtered(WIDGET): lambda obj: [obj.key]},
    predicates=[generation_changed],
)
def reconcile_object(widget: Widget) -> op.Result | None:
    return None


@app.every(60, WIDGET)
def look(widget: Widget) -> None: ...


@app.every(60)
def tick() -> None: ...


@app.every(60)  # type: ignore[arg-type]
def tick_of(widget: Widget) -> None: ...


@app.every(60, WIDGET)  # type: ignore[arg-type]
def look_at_nothing() -> None: ...


@app.background(WIDGET)
def follow(live: op.Live[WidgetSpec, WidgetStatus], stop: op.StopSignal) -> None:
    assert_type(live.object, Widget)


HONEST: op.Kind[WidgetSpec, WidgetStatus | None] = op.Kind(
    group="example.com", version="v1", kind="Honest", spec=WidgetSpec, status=WidgetStatus
)


@app.background(HONEST)
def follow_honest(live: op.Live[WidgetSpec, WidgetStatus | None], stop: op.StopSignal) -> None:
    """For an object of which the status may be missing."""


@app.background(WIDGET, where=lambda widget: widget.spec.size > 1)
async def follow_async(live: op.Live[WidgetSpec, WidgetStatus], stop: op.StopSignal) -> None:
    assert_type(await stop.wait_async(1.0), bool)


@app.background(WIDGET)  # type: ignore[arg-type]
def follow_nothing(widget: Widget) -> None: ...


@app.on_add(WIDGET, result="status.phase")
def phase(widget: Widget) -> str:
    return "made"


async def make_region(region: str) -> None: ...


async def make_regions() -> None:
    await op.each(["eu"], make_region)
    op.each(["eu"], len)
    op.each([1], lambda number: number + 1, key=str)
    numbers = [1]
    await op.each(numbers, make_region)  # type: ignore[arg-type]


@app.task
def poll(stop: op.StopSignal) -> None: ...


@app.task(every_replica=True)
async def poll_everywhere(stop: op.StopSignal) -> None: ...


@app.lifespan
def around() -> Iterator[None]:
    yield


@app.lifespan
async def around_async() -> AsyncIterator[None]:
    yield


@app.lifespan  # type: ignore[type-var]
def no_generator() -> None: ...


@app.check
def disk() -> bool:
    return True


@app.check(ready=True)
async def database() -> str | None:
    return None


@app.check  # type: ignore[type-var]
def check_of(widget: Widget) -> None: ...


app.index(WIDGET, "spec.size")
app.index(WIDGET, "size", lambda widget: [str(widget.spec.size)])
app.index(WIDGET, "size", lambda widget: [widget.spec.size])  # type: ignore[list-item]
app.index(WIDGET, "size", lambda widget: [str(widget.spec.sise)])  # type: ignore[attr-defined]


@app.default(WIDGET, failure_policy="Ignore")
def set_size(widget: Draft) -> None:
    widget.spec = WidgetSpec(size=3)


@app.validate(WIDGET)
def check(widget: Widget) -> str | None:
    return None


@app.validate(WIDGET, on="update")
def check_change(old: Widget, new: Widget) -> None: ...


@app.validate(WIDGET, on="update")  # type: ignore[arg-type]
def check_half(new: Widget) -> None: ...


@app.validate(WIDGET, on="remove")  # type: ignore[call-overload, untyped-decorator]
def check_misspelt(new: Widget) -> None: ...


@app.convert(OLD, WIDGET, lossless=True)
def upgrade(old: Gadget, new: Draft) -> None:
    assert_type(old.spec.color, str)


@app.convert(OLD, WIDGET)  # type: ignore[arg-type]
def downgrade(old: Widget, new: op.MutableObject[OtherSpec]) -> None: ...


def watchers(client: ClientLike) -> None:
    app.watch(WIDGET, WidgetWatcher())
    app.watch(WIDGET, op.SimpleWatcher(add=make))
    app.watch(WIDGET, lambda client: op.OpinionatedWatcher(WIDGET, client, add=make))
    app.watch(WIDGET, op.SimpleWatcher(add=gadget_seen))  # type: ignore[arg-type]
    app.watch(WIDGET, 3)  # type: ignore[arg-type]


def made(config: op.ClientConfig) -> None:
    assert_type(app.manager(config, metrics=Metrics()), op.Manager)
    assert_type(app.client, ClientLike)
    assert_type(app.events, EventRecorder)
    assert_type(app.kinds, tuple[op.Kind[Any, Any] | Versions[Any, Any], ...])
    assert_type(app.crds(service=("a", "b")), list[op.MutableObject])
    assert_type(app.webhooks, Webhooks)
    assert_type(app.permissions(), tuple[Permission, ...])
    # The functions are what they were.
    assert_type(make(None), int)  # type: ignore[arg-type]
