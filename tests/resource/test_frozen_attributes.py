"""Who reads plain JSON like an object is told how to read it."""

from __future__ import annotations

import copy
import pickle

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
    assert f'write obj.spec["{instead}"], or say how to read them, Kind(…, spec=YourSpec)' in said
    assert refused.value.name == name


def test_what_is_inside_says_so_too() -> None:
    with pytest.raises(AttributeError, match=r'obj\.spec\["n"\]'):
        _ = OBJ.spec["inner"].n


def test_a_dict_goes_on_being_one() -> None:
    assert not hasattr(OBJ.spec, "size")
    assert getattr(OBJ.spec, "size", 5) == 5
    assert copy.deepcopy(OBJ.spec) == SPEC
    assert pickle.loads(pickle.dumps(OBJ.spec)) == SPEC
    with pytest.raises(
        AttributeError, match=r"^'FrozenDict' object has no attribute '__nothing__'$"
    ):
        _ = OBJ.spec.__nothing__
