"""Classes whose fields are not read as they are written are refused, and only these."""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, Optional

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from appsdk_operator.resource import EncodeError, Kind, MergePatch, MutableObject, Object
from tests.hypothesis_profiles import scaled
from tests.resource.typed_objects import kind_of

pydantic = pytest.importorskip("pydantic")

ALIASES = st.none() | st.sampled_from(["size", "theSize", "other"])
READ_ALIASES = ALIASES | st.builds(
    pydantic.AliasChoices,
    st.sampled_from(["size", "theSize", pydantic.AliasPath("deep", "size")]),
    st.just("other"),
)
READ_ALIASES |= st.sampled_from([pydantic.AliasPath("theSize"), pydantic.AliasPath("deep", "size")])


@settings(max_examples=scaled(300), deadline=None)
@given(
    alias=ALIASES,
    read_alias=READ_ALIASES,
    write_alias=ALIASES,
    by_name=st.booleans(),
    rename=st.sampled_from([None, "camel"]),
)
def test_a_model_is_refused_if_and_only_if_pydantic_does_not_read_what_it_writes(
    alias: Any, read_alias: Any, write_alias: Any, by_name: bool, rename: Any
) -> None:
    field = pydantic.Field(
        default=1, alias=alias, validation_alias=read_alias, serialization_alias=write_alias
    )
    config = pydantic.ConfigDict(frozen=True, populate_by_name=by_name)
    model = pydantic.create_model("Spec", __config__=config, size=(int, field))
    value = model.model_construct(size=5)
    is_read = model.model_validate(value.model_dump(by_alias=True)) == value
    try:
        kind = Kind(group="example.com", version="v1", kind="W", spec=model, rename=rename)
    except ValueError:
        assert not is_read
        return
    assert is_read
    draft = MutableObject.new(kind, "w", spec=value)
    assert draft.spec == value == draft.freeze().spec


class Reads(pydantic.BaseModel, frozen=True):
    size: int = pydantic.Field(default=1, validation_alias="theSize")


class Writes(pydantic.BaseModel, frozen=True):
    size: int = pydantic.Field(default=1, serialization_alias="theSize")


@attrs.frozen
class Private:
    _size: int = 1


@attrs.frozen
class Outer:
    inner: tuple[Private, ...] = ()


CASES: list[tuple[Any, str]] = [
    (Reads, r"Reads\.size is written as 'size' and read as 'theSize': give it one alias"),
    (Writes, r"Writes\.size is written as 'theSize' and read as 'size': give it one alias"),
    (Private, r"Private\._size is not written: call it size"),
    (Outer, r"Private\._size is not written"),
    (dict[str, Optional[Outer]], r"Private\._size is not written"),  # noqa: UP045
]


@pytest.mark.parametrize(("view", "remedy"), CASES)
def test_a_class_that_would_not_read_what_it_writes_is_refused(view: Any, remedy: str) -> None:
    with pytest.raises(ValueError, match=remedy):
        kind_of(view)


@attrs.frozen
class Anything:
    free: Any = None


def test_a_value_of_such_a_class_within_anything_is_refused_when_it_is_written() -> None:
    with pytest.raises(EncodeError, match=r"Private\._size is not written"):
        MutableObject.new(kind_of(Anything), "w", spec=Anything(Private(2)))


def test_a_private_attribute_that_is_no_argument_is_not_part_of_the_value() -> None:
    @attrs.frozen
    class Cached:
        size: int = 1
        _seen: int = attrs.field(init=False, default=0, eq=False)

    @dataclasses.dataclass(frozen=True)
    class Data:
        _size: int = 1

    class Struct(msgspec.Struct, frozen=True):
        _size: int = 1

    for value in (Cached(3), Data(3), Struct(3)):
        assert MutableObject.new(kind_of(type(value)), "w", spec=value).spec == value


def revealed(value: Any) -> str:
    return str(value.get_secret_value())


class Secret(pydantic.BaseModel, frozen=True):
    password: pydantic.SecretStr


class Secrets(pydantic.BaseModel, frozen=True):
    all: dict[str, list[Secret | None]] = pydantic.Field(default={})


class Serialized(pydantic.BaseModel, frozen=True):
    password: pydantic.SecretStr

    @pydantic.field_serializer("password")
    def shown(self, value: Any) -> str:
        return revealed(value)


class Marked(pydantic.BaseModel, frozen=True):
    password: Annotated[pydantic.SecretStr, pydantic.PlainSerializer(revealed)]


class MarkedWithin(pydantic.BaseModel, frozen=True):
    password: list[Annotated[pydantic.SecretStr, pydantic.PlainSerializer(revealed)]]


class Whole(pydantic.BaseModel, frozen=True):
    password: pydantic.SecretStr

    @pydantic.model_serializer
    def shown(self) -> Any:
        return {"password": revealed(self.password)}


@pytest.mark.parametrize(
    "value",
    [
        Secret(password="new"),
        Secrets(all={"a": [Secret(password="new")]}),
        Anything(Secret(password="new")),
    ],
)
def test_a_secret_that_pydantic_masks_is_read_and_never_written(value: Any) -> None:
    kind = kind_of(type(value))
    with pytest.raises(EncodeError, match=r"Secret\.password as '\*+'.*@field_serializer"):
        MutableObject.new(kind, "w", spec=value)
    with pytest.raises(EncodeError, match="would be stored"):
        MergePatch({"spec": value}).body()
    stored = {"metadata": {"name": "w"}, "spec": {"password": "old", "all": {}}}
    draft = Object.from_dict(kind, stored).mutable_copy()
    with pytest.raises(EncodeError):
        draft.spec = value
    assert draft["spec"] == stored["spec"]


def test_a_secret_is_read() -> None:
    stored = {"metadata": {"name": "w"}, "spec": {"password": "old"}}
    assert Object.from_dict(kind_of(Secret), stored).spec == Secret(password="old")


@pytest.mark.parametrize("view", [Serialized, Marked, Whole])
def test_a_secret_with_a_serializer_of_its_own_is_written(view: Any) -> None:
    value = view(password="new")
    draft = MutableObject.new(kind_of(view), "w", spec=value)
    assert draft["spec"] == {"password": "new"}
    assert draft.spec == value


def test_secrets_in_a_list_may_have_a_serializer() -> None:
    value = MarkedWithin(password=["new"])
    assert MutableObject.new(kind_of(MarkedWithin), "w", spec=value).spec == value
