"""The property test of conversions finds planted defects, and shows them in few lines."""

from __future__ import annotations

import itertools
from typing import Annotated, Any

import attrs
import msgspec
import pytest
from hypothesis import strategies as st

from appsdk_operator.resource import (
    ConversionError,
    Kind,
    MutableObject,
    Object,
    Versions,
    convert_parts,
    custom_resource_definition,
)
from appsdk_operator.testing import BrokenPromise, check_conversion

GROUP = "example.com"
Number = Annotated[str, msgspec.Meta(pattern="^(0|[1-9][0-9]{0,3})$")]


@attrs.frozen
class Spec:
    size: Annotated[int, msgspec.Meta(ge=0, le=9999)] = 1
    low: int = 0
    high: int = 0
    color: str = "red"


@attrs.frozen
class Status:
    ready: bool = False
    phase: str = ""


@attrs.frozen
class OldStatus:
    state: str = ""
    ready: bool = False


@attrs.frozen
class Limits:
    low: int = 0
    high: int = 0


@attrs.frozen
class AlphaSpec:
    size: Number = "1"
    limits: Limits = Limits()
    color: str = "red"


V1 = Kind(group=GROUP, version="v1", kind="Widget", spec=Spec, status=Status)
ALPHA = Kind(group=GROUP, version="v1alpha1", kind="Widget", spec=AlphaSpec, status=OldStatus)
Hub = Object[Spec, Status]
Alpha = Object[AlphaSpec, OldStatus]


def up(old: Alpha, new: MutableObject[Spec, Status]) -> None:
    spec = old.spec
    new.spec = Spec(int(spec.size), spec.limits.low, spec.limits.high, spec.color)
    if old.status is not None:
        new.status = Status(old.status.ready, old.status.state)


def down(old: Hub, new: MutableObject[AlphaSpec, OldStatus]) -> None:
    spec = old.spec
    new.spec = AlphaSpec(str(spec.size), Limits(spec.low, spec.high), spec.color)
    if old.status is not None:
        new.status = OldStatus(old.status.phase, old.status.ready)


def versions(up: Any = up, down: Any = down, **options: Any) -> Versions:
    return Versions(V1).older(ALPHA, up=up, down=down, **options)


def failure(up: Any = up, down: Any = down, **options: Any) -> str:
    """What is wrong with these functions."""
    lossless = options.pop("lossless", False)
    options.setdefault("max_examples", 50)
    with pytest.raises(BrokenPromise) as caught:
        check_conversion(versions(up, down, lossless=lossless), **options)
    text = str(caught.value)
    assert len(text.splitlines()) <= 8, text
    return text


@pytest.mark.parametrize("lossless", [False, True])
def test_functions_that_lose_nothing_pass(lossless: bool) -> None:
    check_conversion(versions(lossless=lossless))


# -- Planted defects ----------------------------------------------------------------------------


def with_draft(function: Any, change: Any) -> Any:
    """The function, and a defect after it."""

    def convert(old: Any, new: Any) -> None:
        function(old, new)
        change(old, new)

    return convert


def dropped_field(old: Any, new: Any) -> None:
    new["spec"].pop("color")


def dropped_status(old: Any, new: Any) -> None:
    new.pop("status", None)


def swapped(old: Any, new: Any) -> None:
    new["spec"]["low"], new["spec"]["high"] = new["spec"]["high"], new["spec"]["low"]


def clobbered(old: Any, new: Any) -> None:
    new.metadata["annotations"] = {"example.com/converted": "true"}


def dropped_labels(old: Any, new: Any) -> None:
    new.metadata.pop("labels", None)


def overwriting_default(old: Any, new: Any) -> None:
    new["spec"]["size"] = new["spec"]["size"] or 1


def rounded(old: Any, new: Any) -> None:
    new["spec"]["size"] = new["spec"]["size"] // 10 * 10


DEFECTS = {
    dropped_field: "/spec/color was ",
    dropped_status: "/status was ",
    swapped: "/spec/",
    clobbered: "/metadata/annotations",
    dropped_labels: "/metadata/labels was ",
    overwriting_default: "/spec/size was ",
    rounded: "/spec/size was ",
}


@pytest.mark.parametrize("lossless", [False, True], ids=["plain", "lossless"])
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: str(defect.__name__))
def test_a_defect_on_the_way_up_is_found(defect: Any, lossless: bool) -> None:
    text = failure(with_draft(up, defect), lossless=lossless)
    assert f"\n  {DEFECTS[defect]}" in text
    assert "\nthe object of v1" in text


def test_a_defect_on_the_way_down_is_found() -> None:
    def without_color(old: Any, new: Any) -> None:
        new["spec"].pop("color")

    def swapped_limits(old: Any, new: Any) -> None:
        limits = new["spec"]["limits"]
        limits["low"], limits["high"] = limits["high"], limits["low"]

    for defect in (without_color, swapped_limits, dropped_status, clobbered, dropped_labels):
        failure(up, with_draft(down, defect))
        failure(up, with_draft(down, defect), lossless=True)


def test_the_smallest_object_is_shown_with_the_difference() -> None:
    first, difference, shown, converted, remedy = failure(
        with_draft(up, dropped_field)
    ).splitlines()
    assert first == "Widget changes v1 → v1alpha1 → v1"
    assert difference == '  /spec/color was "", and is "red"'
    # Without the size or with it: how far a failure is made smaller depends on Hypothesis.
    assert shown in (
        'the object of v1: {"spec": {"color": ""}}',
        'the object of v1: {"spec": {"size": 0, "color": ""}}',
    )
    assert converted.startswith('in v1alpha1: {"spec": {"color": "", "limits": {"high": 0')
    assert remedy == (
        "if v1alpha1 cannot hold it, give lossless=True for v1alpha1, or name it in lossy="
    )


def test_an_annotation_does_not_hide_a_defect() -> None:
    text = failure(with_draft(up, swapped), lossless=True)
    assert "Widget changes v1alpha1 → v1 → v1alpha1" in text
    assert "an annotation hides the loss from readers of v1alpha1" in text


def test_a_function_that_fails_is_shown() -> None:
    def crash(old: Alpha, new: Any) -> None:
        up(old, new)
        if old.spec.color > "m":
            raise KeyError("color")

    assert failure(crash).startswith("Widget fails v1alpha1 → v1 with KeyError: 'color'")


def test_the_text_of_an_error_keeps_no_needless_field(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appsdk_operator.testing._conversion_check._MOST_SHRINKS", 0)
    seen = itertools.count()

    def crash(old: Hub, new: Any) -> None:
        if old.spec.color != "red":
            raise ValueError(f"call {next(seen)}")
        down(old, new)

    for seed in range(4):
        shown = failure(down=crash, seed=seed).splitlines()[1]
        assert "color" in shown
        assert not any(name in shown for name in ("size", "low", "high")), shown


def test_a_result_that_is_refused_on_the_way_back_is_a_failure() -> None:
    def picky(old: Alpha, new: Any) -> None:
        if old.spec.size == "0":
            raise ConversionError("size is 0")
        up(old, new)

    text = failure(picky)
    assert "fails v1alpha1 → v1: Widget default/a from v1alpha1 to v1: size is 0" in text


def test_a_result_that_does_not_fit_its_types_is_a_failure() -> None:
    def negative(old: Alpha, new: Any) -> None:
        new.spec = Spec(size=-1)

    assert "does not fit Spec" in failure(negative)


def test_a_conversion_with_a_memory_of_its_own_is_found() -> None:
    counter = itertools.count()

    def count(old: Alpha, new: Any) -> None:
        up(old, new)
        new.labels["count"] = str(next(counter))

    assert "something else each time" in failure(count, lossy=[ALPHA])


def test_metadata_that_must_not_change_is_found() -> None:
    def rename(old: Alpha, new: Any) -> None:
        up(old, new)
        new.metadata["generation"] = 7

    assert "the function changed metadata.generation" in failure(rename)


# -- Options ------------------------------------------------------------------------------------


@attrs.frozen
class Small:
    size: Number = "1"


SMALL = Kind(group=GROUP, version="v1beta1", kind="Widget", spec=Small, status=Status)


def small_up(old: Object[Small, Status], new: MutableObject[Spec, Status]) -> None:
    new.spec = Spec(size=int(old.spec.size))


def small_down(old: Hub, new: MutableObject[Small, Status]) -> None:
    new.spec = Small(size=str(old.spec.size))


def test_a_version_that_cannot_hold_all_needs_an_annotation_or_is_called_lossy() -> None:
    lossy = Versions(V1).older(SMALL, up=small_up, down=small_down)
    with pytest.raises(BrokenPromise, match="if v1beta1 cannot hold it, give lossless=True"):
        check_conversion(lossy)
    check_conversion(lossy, lossy=[SMALL])
    check_conversion(Versions(V1).older(SMALL, up=small_up, down=small_down, lossless=True))


PLAIN = Kind(group=GROUP, version="v1", kind="Gadget")
OLD = Kind(group=GROUP, version="v1beta1", kind="Gadget")
GADGETS = Versions(PLAIN).older(
    OLD,
    up=convert_parts(spec=lambda spec: {"size": int(spec["size"])}),
    down=convert_parts(spec=lambda spec: {"size": str(spec["size"])}),
)


def test_plain_kinds_take_strategies_or_a_schema() -> None:
    with pytest.raises(ValueError, match="has no type and no schema"):
        check_conversion(GADGETS)
    sizes = st.integers(0, 99)
    specs = {
        PLAIN: st.fixed_dictionaries({"size": sizes}),
        OLD: st.fixed_dictionaries({"size": sizes.map(str)}),
    }
    check_conversion(GADGETS, specs=specs, statuses={PLAIN: st.just({"ready": True})})

    def schema(size: dict[str, Any]) -> dict[str, Any]:
        spec = {"type": "object", "properties": {"size": size}, "required": ["size"]}
        return {"type": "object", "properties": {"spec": spec}}

    text = {"type": "string", "pattern": "^(0|[1-9][0-9]?)$"}
    crd = custom_resource_definition(
        GADGETS, schema={"v1": schema({"type": "integer"}), "v1beta1": schema(text)}
    )
    check_conversion(GADGETS, crd=crd)
    with pytest.raises(BrokenPromise, match=r"size was .*007"):
        check_conversion(GADGETS, specs={**specs, OLD: st.just({"size": "007"})})


def test_objects_that_are_refused_do_not_count_unless_all_are() -> None:
    def picky(old: Alpha, new: Any) -> None:
        if old.spec.size == "13":
            raise ConversionError("an unlucky size")
        up(old, new)

    check_conversion(versions(picky), lossy=[ALPHA])

    def refuse(old: Alpha, new: Any) -> None:
        raise ConversionError("not today")

    with pytest.raises(ValueError, match=r"every Widget was refused.*not today. Give specs="):
        check_conversion(versions(refuse), lossy=[ALPHA])


def test_arguments_are_checked() -> None:
    with pytest.raises(TypeError, match="is not of type Versions"):
        check_conversion(V1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="has no other version"):
        check_conversion(Versions(V1))
    with pytest.raises(ValueError, match="max_examples=0"):
        check_conversion(versions(), max_examples=0)
    for name in ("specs", "statuses"):
        given: dict[str, Any] = {name: {PLAIN: st.none()}}
        with pytest.raises(ValueError, match=f"{name} has gadgets.v1.example.com, which is none"):
            check_conversion(versions(), **given)
    with pytest.raises(ValueError, match="lossy has gadgets"):
        check_conversion(versions(), lossy=[PLAIN])


def test_a_seed_gives_the_same_failure() -> None:
    one = failure(with_draft(up, rounded), seed=3)
    assert one == failure(with_draft(up, rounded), seed=3)


# -- Nulls --------------------------------------------------------------------------------------

PLAIN_V1: Kind[Any, Any] = Kind(group=GROUP, version="v1", kind="Widget")
PLAIN_ALPHA: Kind[Any, Any] = Kind(group=GROUP, version="v1alpha1", kind="Widget")


def crd_with(**fields: Any) -> Any:
    """A CRD with the same schema of the spec in both versions."""
    spec = {"type": "object", "properties": {"a": {"type": "integer", **fields}}}
    for name, items in (("map", "additionalProperties"), ("list", "items")):
        kind = "object" if name == "map" else "array"
        spec["properties"][name] = {"type": kind, items: {"type": "integer"}}
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    spec["properties"]["free"] = free
    definition = custom_resource_definition(Versions(V1).older(ALPHA, up=up, down=down)).to_dict()
    for version in definition["spec"]["versions"]:
        version["schema"]["openAPIV3Schema"]["properties"] = {"spec": spec}
    return definition


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value if item is not None]
    return value


def drop_nulls(old: Any, new: Any) -> None:
    new["spec"] = without_nulls(old.to_dict()["spec"])


def write_null(old: Any, new: Any) -> None:
    new["spec"] = {"a": None, **old.to_dict()["spec"]}


def write_default(old: Any, new: Any) -> None:
    spec = old.to_dict()["spec"]
    new["spec"] = {**spec, "a": 1} if "a" in spec and spec["a"] is None else spec


@pytest.mark.parametrize(
    ("spec", "field", "function", "is_loss"),
    [
        ({"a": None}, {}, drop_nulls, False),
        ({}, {}, write_null, False),
        ({"a": None}, {"nullable": True}, drop_nulls, True),
        ({}, {"nullable": True}, write_null, True),
        ({"a": None}, {"default": 1}, write_default, False),
        ({"a": None}, {"default": 2}, write_default, True),
        ({"a": None}, {"default": 1}, drop_nulls, True),
        ({"map": {"x": None}}, {}, drop_nulls, False),
        ({"free": {"x": None}}, {}, drop_nulls, True),
        ({"free": None}, {}, drop_nulls, False),
        ({"other": None}, {}, drop_nulls, True),
        ({"list": [None, 1]}, {}, drop_nulls, True),
    ],
)
def test_a_null_counts_as_an_api_server_counts_it(
    spec: Any, field: Any, function: Any, is_loss: bool
) -> None:
    both = Versions(PLAIN_V1).older(PLAIN_ALPHA, up=function, down=function)
    options: dict[str, Any] = {
        "specs": {kind: st.just(spec) for kind in both.kinds},
        "crd": crd_with(**field),
        "max_examples": 1,
    }
    if is_loss:
        with pytest.raises(BrokenPromise):
            check_conversion(both, **options)
    else:
        check_conversion(both, **options)


@attrs.frozen
class Optionals:
    note: str | None = None
    count: int | None = 3
    labels: dict[str, str | None] = attrs.field(factory=dict)


def test_a_null_that_a_class_reads_as_an_absent_field_is_no_loss() -> None:
    hub = Kind(group=GROUP, version="v1", kind="Widget", spec=Optionals)
    other = Kind(group=GROUP, version="v1alpha1", kind="Widget", spec=Optionals)
    same = convert_parts(spec=lambda spec: spec)
    specs = {hub: st.just({"note": None, "labels": {"a": None}})}
    check_conversion(Versions(hub).older(other, up=same, down=same), specs=specs, max_examples=5)
