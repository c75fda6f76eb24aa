"""What spec and status are read with: attrs, dataclasses and structs, and where errors lie."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import attrs
import msgspec
import pytest
from attrs import validators

from appsdk_operator import DecodeError, Kind, MutableObject, Object
from appsdk_operator.resource import EncodeError
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


@pytest.mark.parametrize("rename", [None, "camel"])
@pytest.mark.parametrize(
    ("validator", "problem"),
    [
        (validators.in_(["a", "b"]), "'the_mode' must be in ['a', 'b'] (got 'x')"),
        (validators.matches_re("a+"), "'the_mode' must match regex 'a+' ('x' doesn't)"),
        (validators.max_len(0), "Length of 'the_mode' must be <= 0: 1"),
        (validators.min_len(2), "Length of 'the_mode' must be >= 2: 1"),
        (validators.ge("y"), "'the_mode' must be >= y: x"),
        (validators.instance_of(int), "'the_mode' must be <class 'int'> (got 'x'"),
        (validators.is_callable(), "'the_mode' must be callable (got 'x'"),
        (validators.not_(validators.max_len(9)), "not_ validator child"),
        (validators.optional(validators.in_("ab")), "'the_mode' must be in 'ab' (got 'x')"),
        (validators.deep_iterable(validators.in_("ab")), "'the_mode' must be in 'ab' (got 'x')"),
        pytest.param(
            *(
                getattr(validators, "or_", validators.and_)(validators.in_("ab")),
                "None of (<in_ validator",
            ),
            marks=pytest.mark.skipif(not hasattr(validators, "or_"), reason="attrs 24.1 has it"),
        ),
    ],
)
def test_the_text_of_each_validator_of_attrs_is_all_that_is_shown(
    validator: Any, problem: str, rename: Any
) -> None:
    @attrs.frozen
    class Spec:
        the_mode: str = attrs.field(default="a", validator=validator)

    name = "theMode" if rename else "the_mode"
    obj = Object.from_dict(
        Kind(group="e.com", version="v1", kind="W", spec=Spec, rename=rename),
        {"metadata": {"name": "w"}, "spec": {name: "x"}},
    )
    with pytest.raises(DecodeError) as refused:
        _ = obj.spec
    text = str(refused.value)
    assert text.startswith(f"W w: $.spec.{name} does not fit {Spec.__qualname__}: {problem}")
    assert "Attribute(" not in text


@pytest.mark.parametrize("rename", [None, "camel"])
def test_a_key_that_does_not_fit_is_named_with_its_mapping(rename: Any) -> None:
    @attrs.frozen
    class Spec:
        by_number: dict[int, str] = attrs.field(factory=dict)

    name = "byNumber" if rename else "by_number"
    obj = Object.from_dict(
        Kind(group="e.com", version="v1", kind="W", spec=Spec, rename=rename),
        {"metadata": {"name": "w"}, "spec": {name: {"x": "y"}}},
    )
    with pytest.raises(DecodeError, match=r"Expected `int`, got `str` as a key$") as refused:
        _ = obj.spec
    assert f"$.spec.{name} does not fit" in str(refused.value)


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
