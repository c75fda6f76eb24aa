"""Who reads plain JSON like an object is told how to read it."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from appsdk_operator import Object, kinds

SPEC = {"size": 3, "maxSize": 4, "inner": {"n": 1}, "items": [1]}
OBJ = Object.from_dict(kinds.core.v1.Pod, {"metadata": {"name": "web"}, "spec": SPEC})


@pytest.mark.parametrize(
    ("name", "instead"), [("size", "size"), ("max_size", "maxSize"), ("absent", "absent")]
)
def test_an_attribute_of_plain_json_is_refused_with_the_key(name: str, instead: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(OBJ.spec, name)
    said = str(refused.value)
    assert said.startswith(f"'FrozenDict' object has no attribute '{name}': ")
    assert f'write ["{instead}"] instead of .{name}; ' in said
    assert "Kind(…, spec=YourSpec)" in said
    assert refused.value.name == name


def test_what_is_inside_says_so_too() -> None:
    with pytest.raises(AttributeError, match=r'write \["n"\] instead of \.n'):
        _ = OBJ.spec["inner"].n


@pytest.mark.parametrize("part", [OBJ.metadata, OBJ.labels, OBJ["spec"]])
def test_the_remedy_fits_wherever_the_dict_hangs(part: Any) -> None:
    with pytest.raises(AttributeError, match=r'write \["name"\] instead of \.name') as refused:
        _ = part.name
    assert "obj.spec" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "key"), [("data", "data"), ("binary_data", "binaryData"), ("rules", "rules")]
)
def test_an_attribute_of_an_object_is_refused_with_the_key(name: str, key: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(OBJ, name)
    said = str(refused.value)
    assert said.startswith(f"'Object' object has no attribute '{name}': ")
    assert f'write obj["{key}"]' in said
    assert refused.value.name == name
    assert refused.value.obj is OBJ


def test_an_object_goes_on_without_these() -> None:
    assert not hasattr(OBJ, "data")
    assert getattr(OBJ, "data", 5) == 5
    assert "data" not in OBJ.__struct_fields__
    assert copy.deepcopy(OBJ) == OBJ
    with pytest.raises(AttributeError, match=r"no attribute 'absent'$"):
        _ = OBJ.absent  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="mutable_copy"):
        OBJ.data = {}  # type: ignore[misc]


def test_a_dict_goes_on_being_one() -> None:
    assert not hasattr(OBJ.spec, "size")
    assert getattr(OBJ.spec, "size", 5) == 5
    assert copy.deepcopy(OBJ.spec) == SPEC
    assert pickle.loads(pickle.dumps(OBJ.spec)) == SPEC
    with pytest.raises(
        AttributeError, match=r"^'FrozenDict' object has no attribute '__nothing__'$"
    ):
        _ = OBJ.spec.__nothing__
