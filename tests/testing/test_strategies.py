"""What the strategies make is what a server takes."""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable
from typing import Any

import attrs
import pytest
from hypothesis import HealthCheck, Phase, assume, find, given, settings
from hypothesis import strategies as st

from appsdk_operator.client import Client
from appsdk_operator.resource import Kind, MutableObject, custom_resource_definition, kinds
from appsdk_operator.runtime import ManualClock, Metrics
from appsdk_operator.testing import MemoryServer, strategies
from tests.hypothesis_profiles import scaled

GADGET = Kind(group="example.com", version="v1", kind="Gadget")
SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["spec"],
    "properties": {
        "spec": {
            "type": "object",
            "required": ["size", "mode"],
            "properties": {
                "size": {"type": "integer", "minimum": 2, "maximum": 90, "multipleOf": 2},
                "small": {"type": "integer", "format": "int32"},
                "ratio": {"type": "number", "minimum": 0.5},
                "mode": {"type": "string", "enum": ["fast", "safe"]},
                "code": {"type": "string", "pattern": "^[A-Z]{2,4}$"},
                "note": {"type": "string", "minLength": 2, "maxLength": 5, "nullable": True},
                "since": {"type": "string", "format": "date-time"},
                "address": {"type": "string", "format": "ipv4"},
                "share": {"x-kubernetes-int-or-string": True},
                "on": {"type": "boolean"},
                "tags": {
                    "type": "array",
                    "maxItems": 2,
                    "items": {"type": "string"},
                    "x-kubernetes-list-type": "set",
                },
                "ports": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}, "port": {"type": "integer"}},
                    },
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                },
                "limits": {"type": "object", "additionalProperties": {"type": "integer"}},
                "rest": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}},
    },
}
CRD = custom_resource_definition(GADGET, schema=SCHEMA).to_dict()


@attrs.frozen
class Spec:
    size: int
    label: str = ""
    colours: tuple[str, ...] = ()
    wait: dt.timedelta = dt.timedelta(seconds=1)
    at: dt.time = dt.time(1)
    price: decimal.Decimal = decimal.Decimal(1)
    mark: str = attrs.field(default="a", validator=attrs.validators.matches_re(r"\S\D[^\w\s]|a"))


TYPED = Kind(group="example.com", version="v1", kind="Typed", spec=Spec)

quick = settings(max_examples=scaled(40), deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def client() -> Any:
    clock = ManualClock()
    crds = [CRD, custom_resource_definition(TYPED).to_dict()]
    with MemoryServer(clock=clock, crds=crds) as server:
        yield server.client(metrics=Metrics())


@quick
@given(obj=strategies.objects(GADGET, crds=[CRD]))
def test_objects_of_a_crds_schema_are_taken(client: Client, obj: Any) -> None:
    made = client.create(MutableObject(GADGET, obj), dry_run=True, field_validation="Strict")
    assert made.get("spec")["mode"] in ("fast", "safe")


@quick
@given(obj=strategies.objects(TYPED))
def test_objects_of_a_typed_kind_are_taken_and_can_be_read(client: Client, obj: Any) -> None:
    made = client.create(MutableObject(TYPED, obj), dry_run=True, field_validation="Strict")
    if "spec" in obj:
        assert made.spec.size == obj["spec"]["size"]


@quick
@given(obj=strategies.objects(kinds.core.v1.ConfigMap))
def test_plain_built_in_objects_are_taken(client: Client, obj: Any) -> None:
    # A rule that is in no schema.
    assume(not set(obj.get("data", ())) & set(obj.get("binaryData", ())))
    client.create(MutableObject(kinds.core.v1.ConfigMap, obj), dry_run=True)


def test_fields_that_nobody_knows_edges_and_names_that_meet_again_are_among_them() -> None:
    def drawn(strategy: st.SearchStrategy[Any], wanted: Callable[[Any], bool]) -> Any:
        # Found, and not made small: that takes longer than all the rest.
        few = settings(max_examples=500, phases=[Phase.generate], database=None)
        return find(strategy, wanted, settings=few)

    part = SCHEMA["properties"]["spec"]["properties"]
    assert drawn(strategies.values(part["rest"]), bool)
    assert drawn(strategies.values(part["size"]), lambda size: size == 90)
    assert drawn(strategies.annotation_maps(), lambda found: not str(found).isascii())
    assert drawn(strategies.names(few=False), lambda name: len(name) == 253)
    assert drawn(st.tuples(strategies.names(), strategies.names()), lambda two: two[0] == two[1])


def test_what_is_asked_for_is_the_spec_or_all_there_is() -> None:
    assert strategies.part_of(GADGET) == "spec"
    assert strategies.part_of(kinds.core.v1.ConfigMap) == ""
    assert find(strategies.specs(GADGET, crds=[CRD]), lambda _: True)["mode"] == "fast"
    assert find(strategies.specs(Kind(group="a.b", version="v1", kind="Open")), lambda _: True) == {
        "size": 0
    }


@pytest.mark.parametrize(
    ("schema", "fits"),
    [
        ({"type": "number", "minimum": 2e6}, lambda value: value >= 2e6),
        ({"type": "number", "maximum": -2e6}, lambda value: value <= -2e6),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, lambda value: value > 0),
        ({"type": "integer", "minimum": 0.5}, lambda value: value >= 1),
        ({"type": "integer", "maximum": -0.5}, lambda value: value <= -1),
    ],
    ids=["large", "small", "exclusive", "above", "below"],
)
def test_limits_of_numbers_are_kept(schema: Any, fits: Callable[[Any], bool]) -> None:
    @settings(max_examples=scaled(50), database=None)
    @given(strategies.values(schema))
    def check(value: Any) -> None:
        assert fits(value)

    check()


def test_a_value_that_a_test_changes_is_in_no_other_value() -> None:
    schema = {
        "type": "object",
        "required": ["chosen", "any"],
        "properties": {"chosen": {"type": "object", "enum": [{}]}, "any": {}},
    }

    @settings(max_examples=scaled(20), database=None)
    @given(strategies.values(schema))
    def change(value: Any) -> None:
        assert value["chosen"] == {}
        value["chosen"]["changed"] = True
        if isinstance(value["any"], dict):
            assert "changed" not in value["any"]
            value["any"]["changed"] = True

    change()
    assert schema["properties"]["chosen"]["enum"] == [{}]  # type: ignore[index]
