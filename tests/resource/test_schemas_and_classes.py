"""What an API server accepts by the schema of a class, the class reads."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from typing import Annotated, Any, Literal, Optional

import attrs
import hypothesis.strategies as st
import msgspec
import pytest
from attrs import validators
from hypothesis import given, settings

from appsdk_operator import Client, ClientConfig
from appsdk_operator.client import Invalid
from appsdk_operator.resource import (
    DecodeError,
    Immutable,
    Kind,
    MutableObject,
    Object,
    Rule,
    Schema,
    custom_resource_definition,
)
from appsdk_operator.testing import APIServer, install_crds
from tests.hypothesis_profiles import scaled

Meta = msgspec.Meta


def class_with(view: Any, **options: Any) -> Any:
    # make_class of attrs 23.2 makes no annotations.
    body = {"__annotations__": {"it": view}, "it": attrs.field(**options)}
    return attrs.frozen(type("Spec", (), body))


def kind_of(view: Any) -> Kind[Any, Any]:
    return Kind(group="example.com", version="v1", kind="Widget", spec=view)


def schema_of(view: Any, *, strict: bool = False, **options: Any) -> Any:
    crd = custom_resource_definition(kind_of(class_with(view, **options)), strict=strict)
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return root["properties"]["spec"]["properties"]["it"]


CASES: list[tuple[Any, dict[str, Any]]] = [
    (Annotated[int, Meta(ge=1)] | Annotated[str, Meta(max_length=1)], {}),
    (int | Literal["a", "b.c"], {}),
    (Literal[1, 2, "a"], {}),
    (Literal["a", "b"], {"validator": validators.in_(["a", "ab"])}),
    (str, {"validator": [validators.in_(["a", "ab"]), validators.in_(["b", "ab"])]}),
    (int, {"validator": validators.in_(range(1, 4))}),
    (float, {"validator": validators.lt(float("inf"))}),
    (set[Optional[str]], {}),  # noqa: UP045
    (set[str], {}),
]
VALUES = (
    st.integers(-2, 13)
    | st.sampled_from(["", "a", "b", "ab", "abb", "aab", "b.c", "bxc", 0.5, None])
    | st.lists(st.sampled_from(["a", "b", None]), max_size=3)
)


@pytest.fixture(scope="module")
def clients() -> Any:
    listed = [
        custom_resource_definition(named(number, class_with(view, **options)), strict=True)
        for number, (view, options) in enumerate(CASES)
    ]
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, listed)
        yield client


def named(number: int, view: Any) -> Kind[Any, Any]:
    return Kind(group="example.com", version="v1", kind=f"W{number}", spec=view)


@pytest.mark.parametrize("number", range(len(CASES)))
@settings(max_examples=scaled(40), deadline=None)
@given(value=VALUES)
def test_a_server_accepts_what_the_class_reads_and_nothing_else(
    clients: Client, number: int, value: Any
) -> None:
    view, options = CASES[number]
    kind = named(number, class_with(view, **options))
    spec = {} if value is None else {"it": value}
    sent = Object.from_dict(kind, {"metadata": {"name": "w", "namespace": "default"}, "spec": spec})
    is_read = True
    try:
        _ = sent.spec
    except DecodeError:
        is_read = False
    if isinstance(value, list) and len(set(value)) < len(value):
        return  # a set reads what is there twice
    with contextlib.nullcontext() if is_read else pytest.raises(Invalid):
        clients.create(MutableObject(kind, sent.to_dict()), dry_run=True)


def test_of_several_constraints_of_one_name_all_hold() -> None:
    two = Annotated[int, Schema(multipleOf=2), Schema(multipleOf=3)]
    assert schema_of(two) == {"type": "integer", "multipleOf": 2, "allOf": [{"multipleOf": 3}]}
    three = Annotated[
        str, Schema(pattern="a"), Schema(pattern="b"), Schema(allOf=[{"maxLength": 3}])
    ]
    assert schema_of(three)["allOf"] == [{"pattern": "b"}, {"maxLength": 3}]


def test_strict_names_what_a_union_cannot_say() -> None:
    for view in (
        Annotated[int, Meta(ge=1)] | float,
        str | Literal[1, 2],
    ):
        with pytest.raises(ValueError, match=r"no schema can express spec\.it: "):
            schema_of(view, strict=True)
    with pytest.raises(ValueError, match="in_ validator with options 'abc'"):
        schema_of(str, strict=True, validator=validators.in_("abc"))


def test_a_range_is_no_list_of_its_numbers() -> None:
    assert schema_of(int, validator=validators.in_(range(1, 65536))) == {
        "type": "integer",
        "minimum": 1,
        "maximum": 65535,
    }


SCRIPT = """
from attrs import validators
from tests.resource.test_schemas_and_classes import schema_of
print(schema_of(str, validator=validators.in_({"a", "b", "c", "d", "e"}))["enum"])
"""


def test_the_values_of_a_set_are_sorted_whatever_their_hashes() -> None:
    found = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert found == ["['a', 'b', 'c', 'd', 'e']\n"] * 2


def test_computed_fields_of_models_are_in_the_schema_under_the_names_that_are_written() -> None:
    pydantic = pytest.importorskip("pydantic")

    def twice_the_size(self: Any) -> int:
        return 2 * int(self.size)

    body = {
        "__module__": __name__,
        "__annotations__": {"size": int},
        "model_config": {"frozen": True},
        "twice_the_size": pydantic.computed_field(property(twice_the_size)),
    }
    model: Any = type(pydantic.BaseModel)("Model", (pydantic.BaseModel,), body)
    kind: Kind[Any, Any] = Kind(
        group="example.com", version="v1", kind="Widget", spec=model, rename="camel"
    )
    draft = MutableObject.new(kind, "w", spec=model(size=2))
    assert draft["spec"] == {"size": 2, "twiceTheSize": 4}
    crd = custom_resource_definition(kind)
    spec = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["properties"]["twiceTheSize"] == {"type": "integer"}
    assert spec["required"] == ["size"]


@Rule("self.size > 0 // A comment.", message="size must be positive")
class Sized(msgspec.Struct, frozen=True, tag="sized"):
    size: int
    owner: Annotated[str, Immutable] = ""


@Rule("self.names == oldSelf.names", message="names stay")
@Schema(minProperties=3)
class Named(msgspec.Struct, frozen=True, tag="named"):
    names: Annotated[str, Meta(max_length=9)] = ""
    other: int = 0


def test_a_union_keeps_the_rules_of_each_of_its_classes() -> None:
    kind = named(90, class_with(Sized | Named))
    with APIServer() as server, Client(ClientConfig(server=server.url)) as client:
        install_crds(client, [custom_resource_definition(kind, strict=True)])

        def put(name: str, **fields: Any) -> Any:
            new = MutableObject.new(kind, name, namespace="default", spec={"it": fields})
            return client.create(new)

        def change(found: Any, **fields: Any) -> Any:
            return client.update(MutableObject(kind, {**found.to_dict(), "spec": {"it": fields}}))

        sized = put("a", type="sized", size=1, owner="me")
        texts = put("b", type="named", names="x", other=1)
        with pytest.raises(Invalid, match="size must be positive"):
            put("c", type="sized", size=0)
        with pytest.raises(Invalid, match="must validate one and only one schema"):
            put("c", type="named", other=1)
        with pytest.raises(Invalid, match="names stay"):
            change(texts, type="named", names="y", other=1)
        with pytest.raises(Invalid, match="owner is immutable"):
            change(sized, type="named", names="y", other=1)
        change(texts, type="sized", size=1)


def test_strict_names_a_rule_of_one_class_of_a_union_without_a_tag() -> None:
    pydantic = pytest.importorskip("pydantic")

    frozen = {"__config__": {"frozen": True}}
    left = Rule("self.left > 0")(pydantic.create_model("Left", left=(int, ...), **frozen))
    right = pydantic.create_model("Right", right=(int, ...), **frozen)
    holder = pydantic.create_model("Spec", it=(left | right, ...), **frozen)
    with pytest.raises(ValueError, match=r"spec\.it: rule 'self\.left > 0' of one class"):
        custom_resource_definition(kind_of(holder), strict=True)
