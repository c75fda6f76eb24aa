"""JSON patches between two states, as servers apply them."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from appsdk_operator.resource import JsonPatch, MutableObject
from tests.conformance.conftest import WIDGET, World
from tests.hypothesis_profiles import scaled

KEYS = st.text("ab/~é", max_size=2) | st.sampled_from(["name", "-", "0", "01"])
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.sampled_from([0, 1, 1.5, -0.0, 2**63, 2**64, -(2**70), 1e300, 5e-324])
    | st.floats(-1e300, 1e300)
    | st.text("ab<&\u2028é😀\x00\x7f", max_size=3)
)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=10,
)
PAIRS_AT_ONCE = 20


@st.composite
def changes(draw: st.DrawFn) -> tuple[Any, Any]:
    """A value, and another that often has parts of it."""
    before = draw(JSON)
    after = copy.deepcopy(before)
    if isinstance(after, list):
        begin = draw(st.integers(0, len(after)))
        end = draw(st.integers(begin, len(after)))
        after[begin:end] = draw(st.lists(JSON, max_size=2))
    elif isinstance(after, dict):
        after[draw(KEYS | st.sampled_from([*after, "a"]))] = draw(JSON)
    else:
        after = draw(JSON)
    return before, after


def test_servers_make_of_a_patch_what_they_make_of_the_whole_object(world: World) -> None:
    """One object is patched, the other one updated: both are the same after that."""
    client = world.client
    world.create(WIDGET, "patched")
    world.create(WIDGET, "updated")

    def write(draft: MutableObject, status: dict[str, Any]) -> Any:
        draft["status"] = status
        return client.status.update(draft)

    @given(st.lists(changes(), min_size=PAIRS_AT_ONCE, max_size=PAIRS_AT_ONCE))
    @settings(max_examples=scaled(25), suppress_health_check=list(HealthCheck))
    def check(pairs: list[tuple[Any, Any]]) -> None:
        before = {str(n): {"value": one} for n, (one, _) in enumerate(pairs)}
        after = {str(n): {"value": other} for n, (_, other) in enumerate(pairs)}
        current = client.get(WIDGET, "patched", namespace=world.namespace)
        current = write(current.mutable_copy(), before)
        draft = current.mutable_copy()
        draft["status"] = after
        patch = JsonPatch.between(current, draft, optimistic_lock=True)
        result = client.status.patch(WIDGET, "patched", patch, namespace=world.namespace)
        other = client.get(WIDGET, "updated", namespace=world.namespace)
        expected = write(other.mutable_copy(), after)
        made, wanted = result["status"].copy(), expected["status"].copy()
        # With the types of numbers.
        assert repr(made) == repr(_in_order(wanted, made))

    check()


def _in_order(value: Any, model: Any) -> Any:
    """A plain copy with the keys of objects in the order of ``model``."""
    if isinstance(value, dict) and isinstance(model, dict):
        assert value.keys() == model.keys()
        return {key: _in_order(value[key], model[key]) for key in model}
    if isinstance(value, list):
        return [_in_order(item, other) for item, other in zip(value, model, strict=True)]
    return value
