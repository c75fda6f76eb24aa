"""Functions that convert have the types of the versions they are given for. Never run."""

from __future__ import annotations

from typing import Any, assert_type

from kinds_and_objects import UNTYPED, WIDGET, OtherSpec, WidgetSpec, WidgetStatus

from appsdk_operator.resource import (
    Kind,
    MutableObject,
    Object,
    Versions,
    convert_parts,
    custom_resource_definition,
)

Widget = Object[WidgetSpec, WidgetStatus]
Draft = MutableObject[WidgetSpec, WidgetStatus]
OLD = Kind(group="example.com", version="v1alpha1", kind="Widget", spec=OtherSpec)


def up(old: Object[OtherSpec], new: Draft) -> None: ...
def down(old: Widget, new: MutableObject[OtherSpec]) -> None: ...
def anew(old: Widget, new: MutableObject[OtherSpec]) -> MutableObject[OtherSpec]:
    return new


def plain(old: Object, new: MutableObject) -> None: ...
def spec_up(spec: OtherSpec) -> WidgetSpec:
    return WidgetSpec(size=len(str(spec)))


def spec_down(spec: WidgetSpec) -> OtherSpec:
    return OtherSpec(color=str(spec.size))


def functions(draft: Draft, old: Object[OtherSpec]) -> None:
    versions = Versions(WIDGET).older(OLD, up=up, down=down)
    assert_type(versions, Versions[WidgetSpec, WidgetStatus])
    versions.older(OLD, up=up, down=anew)
    versions.older(OLD, up=plain, down=plain)
    versions.older(UNTYPED, up=plain, down=plain)
    versions.newer(OLD, up=down, down=up)
    versions.older(OLD, up=down, down=up)  # type: ignore[arg-type]
    versions.older(OLD, up=up, down=up)  # type: ignore[arg-type]
    versions.older(OLD, up=lambda old, new: None, down=lambda old, new: None)
    versions.older(OLD, up=convert_parts(spec=spec_up), down=convert_parts(spec=spec_down))
    assert_type(versions.hub, Kind[WidgetSpec, WidgetStatus])
    assert_type(versions.convert(old, WIDGET).spec, WidgetSpec)
    assert_type(versions.convert(draft, OLD), MutableObject[OtherSpec, Any])
    versions.convert({}, WIDGET)  # type: ignore[call-overload]


def definitions(versions: Versions[WidgetSpec, WidgetStatus]) -> None:
    custom_resource_definition(versions, storage=OLD, service=("default", "hooks"))
    custom_resource_definition(versions, schema={"v1": {}}, printer_columns={"v1": [{}]})
    custom_resource_definition(WIDGET, printer_columns=[{}])
    custom_resource_definition(WIDGET, storage=OLD)  # type: ignore[call-overload]
