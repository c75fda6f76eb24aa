"""All fields of a spec that do not fit its class, for the answers of webhooks."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appsdk_operator.resource import Kind, Object, PartError, every_part_error

Count = Annotated[int, msgspec.Meta(ge=0)]


class Mount(TypedDict):
    path: str
    mode: int


@attrs.frozen
class AttrsJob:
    job_name: str
    count: Count = 0
    mounts: list[Mount] = attrs.field(factory=list)
    labels: dict[str, Literal["a", "b"]] = attrs.field(factory=dict)
    either: int | str | None = None
    limit: Count | None = None


@dataclasses.dataclass(frozen=True)
class DataclassJob:
    job_name: str
    count: Count = 0
    mounts: list[Mount] = dataclasses.field(default_factory=list)
    labels: dict[str, Literal["a", "b"]] = dataclasses.field(default_factory=dict)
    either: int | str | None = None
    limit: Count | None = None
    made: int = dataclasses.field(init=False, default=0)


class StructJob(msgspec.Struct, frozen=True):
    job_name: str
    count: Count = 0
    mounts: list[Mount] = msgspec.field(default_factory=list)
    labels: dict[str, Literal["a", "b"]] = msgspec.field(default_factory=dict)
    either: int | str | None = None
    limit: Count | None = None


@attrs.frozen
class AttrsSpec:
    jobs: list[AttrsJob]
    size_limit: int
    pair: tuple[int, str] = (0, "")


@dataclasses.dataclass(frozen=True)
class DataclassSpec:
    jobs: list[DataclassJob]
    size_limit: int
    pair: tuple[int, str] = (0, "")


class StructSpec(msgspec.Struct, frozen=True):
    jobs: list[StructJob]
    size_limit: int
    pair: tuple[int, str] = (0, "")


CLASSES = pytest.mark.parametrize("view", [AttrsSpec, DataclassSpec, StructSpec])


def problems(
    view: Any, spec: Any, rename: Literal["camel"] | None = None, *, secret: bool = False
) -> list[tuple[str, str]]:
    kind: Kind[Any, Any] = Kind(
        group="example.com", version="v1", kind="Widget", spec=view, rename=rename, secret=secret
    )
    obj = Object.from_json(
        kind,
        json.dumps(
            {
                "apiVersion": "example.com/v1",
                "kind": "Widget",
                "metadata": {"name": "a"},
                "spec": spec,
            }
        ).encode(),
    )
    try:
        assert obj.spec is not None
    except PartError as error:
        return [(each.path, each.problem) for each in every_part_error(obj, error)]
    raise AssertionError("it fits")


WRONG: dict[str, Any] = {
    "jobs": [
        {"job_name": "a", "labels": {"x": "a"}},
        {
            "count": -1,
            "mounts": [{"path": 1, "mode": "x"}, {"path": "", "mode": 0}, {"mode": 0}],
            "labels": {"x": "c", "y": "b", "z": 1},
            "either": [],
            "limit": "x",
        },
        7,
    ],
    "pair": ["x", 1],
}
FOUND = [
    ("spec.jobs[1]", "Object missing required field `job_name`"),
    ("spec.jobs[1].count", "Expected `int` >= 0"),
    ("spec.jobs[1].mounts[0].path", "Expected `str`, got `int`"),
    ("spec.jobs[1].mounts[0].mode", "Expected `int`, got `str`"),
    ("spec.jobs[1].mounts[2]", "Object missing required field `path`"),
    ("spec.jobs[1].labels[x]", "Invalid enum value 'c'"),
    ("spec.jobs[1].labels[z]", "Expected `str`, got `int`"),
    ("spec.jobs[1].either", "Expected `int | str | null`, got `array`"),
    ("spec.jobs[1].limit", "Expected `int | null`, got `str`"),
    ("spec.jobs[2]", "Expected `object`, got `int`"),
    ("spec", "Object missing required field `size_limit`"),
    ("spec.pair[0]", "Expected `int`, got `str`"),
    ("spec.pair[1]", "Expected `str`, got `int`"),
]


@CLASSES
def test_all_wrong_fields_are_found_in_the_order_of_the_class(view: Any) -> None:
    assert problems(view, WRONG) == FOUND


@CLASSES
def test_wrong_fields_have_their_names_on_the_wire(view: Any) -> None:
    wrong = {**WRONG, "jobs": [{"jobName": "a"}, *WRONG["jobs"][1:]]}
    found = [
        (place, problem.replace("job_name", "jobName").replace("size_limit", "sizeLimit"))
        for place, problem in FOUND
    ]
    assert problems(view, wrong, "camel") == found


@pytest.mark.parametrize("rename", [None, "camel"])
def test_all_errors_of_models_are_found(rename: Literal["camel"] | None) -> None:
    pydantic = pytest.importorskip("pydantic")
    frozen = pydantic.ConfigDict(frozen=True)
    part = pydantic.create_model(
        "Part", __config__=frozen, part_size=(int, pydantic.Field(gt=0)), name=(str, ...)
    )
    model = pydantic.create_model(
        "Model", __config__=frozen, parts=(list.__class_getitem__(part), ...), mode=int
    )
    holder = attrs.make_class(
        "Holder", {"one": attrs.field(type=part), "two": attrs.field(type=int)}, frozen=True
    )
    size = "part_size" if rename is None else "partSize"
    assert problems(model, {"parts": [{size: 0}, {size: 1, "name": ""}, {}]}, rename) == [
        (f"spec.parts[0].{size}", "Input should be greater than 0"),
        ("spec.parts[0].name", "Field required"),
        (f"spec.parts[2].{size}", "Field required"),
        ("spec.parts[2].name", "Field required"),
        ("spec.mode", "Field required"),
    ]
    assert problems(holder, {"one": {size: "x"}, "two": "y"}, rename) == [
        (
            f"spec.one.{size}",
            "Input should be a valid integer, unable to parse string as an integer",
        ),
        ("spec.one.name", "Field required"),
        ("spec.two", "Expected `int`, got `str`"),
    ]


class Strict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


class Tagged(msgspec.Struct, frozen=True, tag="t", array_like=True):
    size: int


@attrs.frozen
class Limited:
    items: Annotated[list[int], msgspec.Meta(max_length=1)]


def test_what_is_wrong_with_the_fields_together_is_found_when_each_of_them_fits() -> None:
    assert problems(Strict, {"low": 2, "high": 1}) == [("spec", "low is above high")]
    assert problems(Strict, {"low": "x", "high": "y", "other": 1}) == [
        ("spec.low", "Expected `int`, got `str`"),
        ("spec.high", "Expected `int`, got `str`"),
    ]
    assert problems(Strict, {"low": 1, "high": 1, "other": 1}) == [
        ("spec", "Object contains unknown field `other`")
    ]
    assert problems(Tagged, ["t", "x"]) == [("spec[1]", "Expected `int`, got `str`")]
    assert problems(Limited, {"items": [1, 2]}) == [
        ("spec.items", "Expected `array` of length <= 1")
    ]


@attrs.frozen
class WithoutHash:
    size: Annotated[int, {"unit": "GB"}]
    other: int


def test_of_a_class_whose_parts_cannot_be_told_the_first_problem_is_found() -> None:
    spec = {"size": "x", "other": "y"}
    assert problems(WithoutHash, spec) == [("spec.size", "Expected `int`, got `str`")]


def test_the_problems_of_secrets_are_not_shown() -> None:
    hidden = "the reason is not shown, as Widget is a kind with secrets"
    assert problems(Strict, {"low": "x", "high": "y"}, secret=True) == [
        ("spec.low", hidden),
        ("spec.high", hidden),
    ]


def test_of_many_problems_a_hundred_are_found_and_of_a_large_spec_the_first() -> None:
    wrong = {"jobs": [{"job_name": 1}] * 2000, "size_limit": "x"}
    assert [place for place, _ in problems(StructSpec, wrong)] == [
        f"spec.jobs[{index}].job_name" for index in range(100)
    ]
    large = {"jobs": [{"job_name": "x" * 65536, "count": -1}], "size_limit": "x"}
    assert problems(StructSpec, large) == [("spec.jobs[0].count", "Expected `int` >= 0")]


def test_a_search_that_ends_early_has_the_first_problem() -> None:
    jobs = [*([{"job_name": "a"}] * 1100), {"job_name": 1}]
    assert problems(StructSpec, {"jobs": jobs, "size_limit": "x"})[0] == (
        "spec.jobs[1100].job_name",
        "Expected `str`, got `int`",
    )


GOOD: dict[str, Any] = {
    "jobs": [{"job_name": "a", "count": 1, "labels": {"k": "a"}, "either": 1}] * 2,
    "size_limit": 1,
    "pair": [1, "x"],
}
PLACES: list[tuple[tuple[Any, ...], str]] = [
    (("jobs", index, *steps), f"spec.jobs[{index}]{text}")
    for index in (0, 1)
    for steps, text in [
        (("job_name",), ".job_name"),
        (("count",), ".count"),
        (("labels", "k"), ".labels[k]"),
        (("either",), ".either"),
    ]
] + [(("size_limit",), "spec.size_limit"), (("pair", 0), "spec.pair[0]")]


@given(
    view=st.sampled_from([AttrsSpec, DataclassSpec, StructSpec]),
    chosen=st.sets(st.sampled_from(range(len(PLACES))), min_size=1),
)
def test_what_is_made_wrong_is_found_and_nothing_else(view: Any, chosen: set[int]) -> None:
    spec = json.loads(json.dumps(GOOD))
    for index in chosen:
        *above, last = PLACES[index][0]
        part = spec
        for step in above:
            part = part[step]
        part[last] = [{}]
    found = [place for place, _ in problems(view, spec)]
    assert found == [PLACES[index][1] for index in sorted(chosen)]
