"""Versions of kinds for the tests of conversions."""

from __future__ import annotations

import attrs

from appsdk_operator.resource import Kind, MutableObject, Object, Versions

GROUP = "example.com"


@attrs.frozen
class Range:
    """What v1 has in place of v1alpha1's text."""

    low: int = 0
    high: int = 0


@attrs.frozen
class Spec:
    """The spec of v1; v1alpha1 has no note."""

    size: int = 1
    range: Range = Range()
    note: str = ""


@attrs.frozen
class Status:
    """The status of all versions."""

    ready: bool = False


@attrs.frozen
class AlphaSpec:
    """The spec of v1alpha1, with sizes and ranges as text."""

    size: str = "1"
    range: str = "0-0"


V1 = Kind(group=GROUP, version="v1", kind="Widget", spec=Spec, status=Status)
V1Alpha1 = Kind(group=GROUP, version="v1alpha1", kind="Widget", spec=AlphaSpec, status=Status)
V2 = Kind(group=GROUP, version="v2", kind="Widget")
"""Plain: its spec calls the size ``width`` and holds all others as v1 does."""


def up(old: Object[AlphaSpec, Status], new: MutableObject[Spec, Status]) -> None:
    low, _, high = old.spec.range.partition("-")
    new.spec = Spec(size=int(old.spec.size), range=Range(int(low), int(high)))


def down(old: Object[Spec, Status], new: MutableObject[AlphaSpec, Status]) -> None:
    spec = old.spec
    new.spec = AlphaSpec(size=str(spec.size), range=f"{spec.range.low}-{spec.range.high}")


def to_v2(old: Object[Spec, Status], new: MutableObject) -> None:
    if "spec" in new:
        new.spec["width"] = new.spec.pop("size", 1)


def from_v2(old: Object, new: MutableObject[Spec, Status]) -> None:
    spec = old.get("spec")
    if spec is not None:
        new["spec"] = {("size" if k == "width" else k): v for k, v in spec.items()}


def widgets(lossless: str | bool = True) -> Versions[Spec, Status]:
    """v1 as the hub, an older and a newer version."""
    return (
        Versions(V1)
        .older(V1Alpha1, up=up, down=down, deprecated="use example.com/v1", lossless=lossless)
        .newer(V2, up=to_v2, down=from_v2)
    )


def widget(kind: Kind, spec: object, **metadata: object) -> Object:
    data = {"metadata": {"name": "web", "namespace": "default", **metadata}, "spec": spec}
    return Object.from_dict(kind, data)
