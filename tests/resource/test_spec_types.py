"""What spec and status are read with: attrs, dataclasses and structs, and where errors lie."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import attrs
import msgspec
import pytest

from appsdk_operator import EncodeError, Kind, MutableObject
from tests.resource.typed_objects import kind_of, read, refusal


@attrs.frozen
class Inner:
    n: int = attrs.field(default=0, validator=attrs.validators.ge(0))


def _is_even(_: object, attribute: attrs.Attribute[int], value: int) -> None:
    if value % 2:
        raise ValueError(f"{value} is odd")


@attrs.frozen
class Attrs:
    size: int = attrs.field(default=0, validator=_is_even)
    inners: tuple[Inner, ...] = ()


@dataclasses.dataclass(frozen=True)
class Data:
    size: int = 0

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("size is negative")


class Struct(msgspec.Struct, frozen=True):
    size: int = 0


@pytest.mark.parametrize(
    ("view", "spec", "text"),
    [
        (Attrs, {"size": 3}, "$.spec.size does not fit Attrs: 3 is odd"),
        (
            Attrs,
            {"inners": [{"n": 1}, {"n": -5}]},
            "$.spec.inners[1].n does not fit Attrs: 'n' must",
        ),
        (Attrs, {"size": "3"}, "$.spec.size does not fit Attrs: Expected `int`, got `str`"),
        (Data, {"size": -1}, "$.spec does not fit Data: size is negative"),
        (Struct, {"size": "x"}, "$.spec.size does not fit Struct: Expected `int`, got `str`"),
    ],
)
def test_what_does_not_fit_is_named_with_its_path(view: Any, spec: Any, text: str) -> None:
    said = refusal(view, spec)
    assert said.startswith("Widget default/web: $.spec")
    assert text in said


@pytest.mark.parametrize("view", [Attrs, Data, Struct])
def test_each_is_read(view: Any) -> None:
    assert read(view, {"size": 2}) == view(size=2)


@pytest.mark.parametrize("present", [None, {}, {"unknown": 1}], ids=["none", "empty", "more"])
def test_a_value_that_could_not_be_read_again_is_not_written(present: Any) -> None:
    value = Struct(size="big")  # type: ignore[arg-type]
    draft = MutableObject.new(kind_of(Struct), "web")
    if present is not None:
        draft["spec"] = present
    with pytest.raises(EncodeError, match=r"Widget: \$\.spec\.size does not fit Struct: Expected"):
        draft.spec = value
    assert draft.get("spec") == present
    with pytest.raises(EncodeError):
        MutableObject.new(kind_of(Struct), "web", spec=value)


def test_attrs_validators_run_when_an_invalid_value_is_written() -> None:
    with attrs.validators.disabled():
        value = Attrs(inners=(Inner(-1),))
    with pytest.raises(EncodeError, match=r"\$\.spec\.inners\[0\]\.n does not fit Attrs"):
        MutableObject.new(kind_of(Attrs), "web").spec = value


def test_a_mapping_is_written_as_it_is_because_it_may_be_a_few_fields() -> None:
    draft = MutableObject.new(kind_of(Attrs), "web", spec={"size": -1})
    draft.spec = {"inners": "x"}
    assert draft["spec"] == {"inners": "x"}


class Nothing:
    """A class without fields that anybody could know."""


class PydanticOne:
    __fields__ = ()

    @classmethod
    def parse_obj(cls, _: Any) -> PydanticOne:
        return cls()


@pytest.mark.parametrize(
    ("view", "remedy"),
    [
        (Nothing, r"spec type Nothing has no fields .* @attrs\.frozen"),
        (PydanticOne, r"a model of pydantic 1: .* pydantic>=2"),
    ],
)
def test_a_class_that_cannot_be_is_refused_with_what_to_use(view: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        Kind(group="example.com", version="v1", kind="Widget", spec=view)


def test_pydantic_is_not_imported_by_the_kit() -> None:
    code = (
        "import sys, attrs\n"
        "from appsdk_operator import Kind, Object, MutableObject, custom_resource_definition\n"
        "@attrs.frozen\n"
        "class Spec:\n"
        "    size: int = 0\n"
        "kind = Kind(group='example.com', version='v1', kind='Widget', spec=Spec)\n"
        "assert Object.from_dict(kind, {'metadata': {}, 'spec': {'size': 3}}).spec.size == 3\n"
        "custom_resource_definition(kind)\n"
        "assert 'pydantic' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
