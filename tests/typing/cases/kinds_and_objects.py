"""What the types of a kind say of its objects. Read by type checkers, never run."""

from __future__ import annotations

from typing import Any, assert_type

import attrs

import appsdk_operator as op
from appsdk_operator.resource import (
    ListPage,
    WatchEvent,
    as_object,
    decode_list,
    decode_watch_event,
    kinds,
)


@attrs.frozen
class WidgetSpec:
    size: int = 0


@attrs.frozen
class WidgetStatus:
    ready: bool = False


@attrs.frozen
class OtherSpec:
    color: str = ""


UNTYPED = op.Kind(group="example.com", version="v1", kind="Widget")
SPEC = op.Kind(group="example.com", version="v1", kind="Widget", spec=WidgetSpec)
WIDGET = op.Kind(
    group="example.com", version="v1", kind="Widget", spec=WidgetSpec, status=WidgetStatus
)
HONEST: op.Kind[WidgetSpec, WidgetStatus | None] = op.Kind(
    group="example.com", version="v1", kind="Widget", spec=WidgetSpec, status=WidgetStatus
)


def kinds_have_types() -> None:
    assert_type(UNTYPED, op.Kind[Any, Any])
    assert_type(SPEC, op.Kind[WidgetSpec, Any])
    assert_type(WIDGET, op.Kind[WidgetSpec, WidgetStatus])
    assert_type(SPEC.typed(status=WidgetStatus), op.Kind[WidgetSpec, WidgetStatus])
    assert_type(WIDGET.typed(spec=OtherSpec), op.Kind[OtherSpec, WidgetStatus])
    assert_type(UNTYPED.typed(spec=OtherSpec), op.Kind[OtherSpec, Any])
    assert_type(
        UNTYPED.typed(spec=WidgetSpec, status=WidgetStatus), op.Kind[WidgetSpec, WidgetStatus]
    )
    assert_type(kinds.core.v1.ConfigMap, op.Kind[Any, Any])
    assert_type(kinds.apps.v1.Deployment.typed(spec=WidgetSpec).spec, type[WidgetSpec] | None)
    assert_type(SPEC, op.Kind[WidgetSpec])


def a_kind_that_is_not_there() -> None:
    kinds.core.v1.ConfigMp  # type: ignore[attr-defined]
    kinds.core.v2  # type: ignore[attr-defined]
    kinds.cor  # type: ignore[attr-defined]
    op.Clinet  # type: ignore[attr-defined]


def objects_have_the_types_of_their_kind(raw: bytes) -> None:
    widget = op.Object.from_json(WIDGET, raw)
    assert_type(widget, op.Object[WidgetSpec, WidgetStatus])
    assert_type(widget.spec, WidgetSpec)
    assert_type(widget.status, WidgetStatus)
    assert_type(widget.kind, op.Kind[WidgetSpec, WidgetStatus])
    assert_type(widget.spec.size, int)
    widget.spec.siez  # type: ignore[attr-defined]
    widget.status.redy  # type: ignore[attr-defined]
    assert_type(op.Object.from_dict(UNTYPED, {}).spec, Any)
    assert_type(op.Object.from_dict(UNTYPED, {}), op.Object[Any, Any])
    assert_type(widget.viewed_as(UNTYPED), op.Object[Any, Any])
    assert_type(widget.viewed_as(SPEC), op.Object[WidgetSpec, Any])
    assert_type(as_object(WIDGET, {}), op.Object[WidgetSpec, WidgetStatus])


def a_status_that_may_be_absent(widget: op.Object[WidgetSpec, WidgetStatus | None]) -> None:
    widget.status.ready  # type: ignore[union-attr]
    if widget.status is not None:
        assert_type(widget.status, WidgetStatus)
    assert_type(op.Object.from_dict(HONEST, {}), op.Object[WidgetSpec, WidgetStatus | None])


def objects_cannot_be_changed(widget: op.Object[WidgetSpec, WidgetStatus]) -> None:
    widget.spec = WidgetSpec()  # type: ignore[misc]
    widget.spec.size = 3  # type: ignore[misc]
    widget.metadata["labels"] = {}  # type: ignore[index, assignment]
    del widget.metadata["labels"]  # type: ignore[arg-type]


def drafts_have_types_too(widget: op.Object[WidgetSpec, WidgetStatus]) -> None:
    draft = widget.mutable_copy()
    assert_type(draft, op.MutableObject[WidgetSpec, WidgetStatus])
    assert_type(draft.spec, WidgetSpec)
    draft.spec = WidgetSpec(size=3)
    draft.spec = {"size": 3}
    draft.status = None
    draft.spec = OtherSpec()  # type: ignore[assignment]
    assert_type(draft.freeze(), op.Object[WidgetSpec, WidgetStatus])
    new = op.MutableObject.new(WIDGET, "web", namespace="default", spec=WidgetSpec(size=3))
    assert_type(new, op.MutableObject[WidgetSpec, WidgetStatus])
    assert_type(op.MutableObject(SPEC, {}), op.MutableObject[WidgetSpec, Any])
    op.MutableObject.new(UNTYPED, "web").spec["size"] = 3


def types_match_or_fail(
    typed: op.Object[WidgetSpec, WidgetStatus], other: op.Object[OtherSpec], bare: op.Object
) -> None:
    def takes_typed(widget: op.Object[WidgetSpec, WidgetStatus]) -> None: ...
    def takes_spec(widget: op.Object[WidgetSpec]) -> None: ...
    def takes_any(widget: op.Object) -> None: ...

    takes_typed(typed)
    takes_typed(bare)
    takes_typed(other)  # type: ignore[arg-type]
    takes_spec(typed)
    takes_spec(other)  # type: ignore[arg-type]
    takes_any(typed)
    takes_any(other)


def what_lists_and_watches_carry(body: bytes) -> None:
    page = decode_list(WIDGET, body)
    assert_type(page, ListPage[WidgetSpec, WidgetStatus])
    assert_type(page.items[0].spec, WidgetSpec)
    event = decode_watch_event(WIDGET, body)
    assert_type(event, WatchEvent[WidgetSpec, WidgetStatus])
    assert_type(event.object, op.Object[WidgetSpec, WidgetStatus] | None)
