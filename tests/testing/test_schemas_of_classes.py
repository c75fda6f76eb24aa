"""An API server accepts the objects that a class decodes, and no others."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Annotated, Any, Literal

import attrs
import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from appsdk_operator.client import Invalid
from appsdk_operator.resource import (
    DecodeError,
    Kind,
    MutableObject,
    custom_resource_definition,
)
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer
from tests.hypothesis_profiles import scaled

EXAMPLES = 15
DRAWS = 8


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class One(msgspec.Struct, frozen=True, tag="one", tag_field="kindOf"):
    some_size: int


class Two(msgspec.Struct, frozen=True, tag="two", tag_field="kindOf"):
    some_text: str = ""


@attrs.frozen
class Inner:
    own_name: str
    own_size: int = attrs.field(default=1, validator=attrs.validators.ge(0))


_INNER: list[Any] = [
    {"ownName": "a"},
    {"ownName": "a", "ownSize": 0},
    {"ownName": "a", "ownSize": -1},
    {"own_name": "a"},
]
# Types whose values a schema can say exactly, with values around their limits.
TYPES: list[tuple[Any, list[Any]]] = [
    (int, [0, "1", 1.5]),
    (bool, [True, 0]),
    (str, ["", 1]),
    (Annotated[int, msgspec.Meta(ge=1, lt=5)], [0, 1, 4, 5]),
    (Annotated[int, msgspec.Meta(gt=1, le=5)], [1, 2, 5, 6]),
    (Annotated[str, msgspec.Meta(min_length=1, max_length=3)], ["", "a", "abc", "abcd"]),
    (Annotated[str, msgspec.Meta(pattern="^a+$")], ["", "aa", "ab"]),
    (Annotated[list[int], msgspec.Meta(max_length=2)], [[], [1, 2], [1, 2, 3], ["a"]]),
    (
        Annotated[dict[str, Annotated[int, msgspec.Meta(le=3)]], msgspec.Meta(max_length=1)],
        [{}, {"a": 3}, {"a": 4}, {"a": 1, "b": 2}],
    ),
    (Color, ["red", "RED"]),
    (Literal["x", "y"], ["y", "z"]),
    (Literal[1, 2], [2, 3, "1"]),
    (int | str, [1, "a", 1.5, True]),
    (Inner, _INNER),
    (list[Inner], [[value] for value in _INNER]),
    (dict[str, Inner], [{"k": value} for value in _INNER]),
    (
        One | Two,
        [
            {"kindOf": "one", "someSize": 1},
            {"kindOf": "one"},
            {"kindOf": "two"},
            {"kindOf": "two", "someText": 1},
            {"kindOf": "three"},
            {"someSize": 1},
        ],
    ),
    (Any, [1, {"a": [1]}]),
]
JSON = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-2, 6),
        st.sampled_from(["", "aa", "red"]),
        st.just(1.5),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(["ownName", "ownSize", "kindOf", "someSize", "someText", "own_name"]),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=4,
)


@st.composite
def classes(draw: Callable[..., Any]) -> tuple[Any, dict[str, list[Any]]]:
    """An attrs class or a struct, and values to try by the fields' names on the wire."""
    types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=4))
    optional = draw(st.lists(st.booleans(), min_size=len(types), max_size=len(types)))
    fields = [
        (f"field_{number}", kind | None if is_optional else kind, is_optional)
        for number, ((kind, _), is_optional) in enumerate(zip(types, optional, strict=True))
    ]
    values = {f"field{number}": tried for number, (_, tried) in enumerate(types)}
    if draw(st.booleans()):
        required = [(name, kind) for name, kind, is_optional in fields if not is_optional]
        others = [(name, kind, None) for name, kind, is_optional in fields if is_optional]
        return msgspec.defstruct("Spec", [*required, *others], frozen=True), values
    made = attrs.make_class(
        "Spec",
        {
            name: attrs.field(default=None if is_optional else attrs.NOTHING, kw_only=True)
            for name, _, is_optional in fields
        },
        frozen=True,
    )
    made.__annotations__ = {name: kind for name, kind, _ in fields}
    return made, values


# A failure is small as it is.
@settings(max_examples=scaled(EXAMPLES), phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(classes(), st.data())
def test_a_server_accepts_what_the_class_decodes(made: Any, data: st.DataObject) -> None:
    view, values = made
    kind = Kind(group="example.com", version="v1", kind="Widget", spec=view, rename="camel")
    crd = custom_resource_definition(kind, strict=True)
    fitting = {name: st.sampled_from(tried) for name, tried in values.items()}
    odd = {name: st.sampled_from(tried) | JSON for name, tried in values.items()}
    specs = st.fixed_dictionaries(fitting) | st.fixed_dictionaries({}, optional=odd)
    with MemoryServer(crds=[crd]) as server, server.client(metrics=Metrics()) as client:
        for number, spec in enumerate(data.draw(st.lists(specs, min_size=DRAWS, max_size=DRAWS))):
            draft = MutableObject.new(kind, f"w{number}", namespace="default", spec=spec)
            try:
                expected = draft.freeze().spec
            except DecodeError:
                with pytest.raises(Invalid):
                    client.create(draft)
            else:
                assert client.create(draft).spec == expected
