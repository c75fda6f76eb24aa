"""CRDs made of classes: API servers accept them, and enforce what they say."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import uuid
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

import attrs
import pytest

from appsdk_operator.client import Client, Forbidden, Invalid
from appsdk_operator.controllers import Condition
from appsdk_operator.resource import (
    Duration,
    Int64,
    Kind,
    MutableObject,
    PrinterColumn,
    Quantity,
    Rule,
    Scale,
    Schema,
    custom_resource_definition,
)
from appsdk_operator.testing import install_crds
from tests.conformance.conftest import CRD, Server, World
from tests.resource.schema_kinds import CLASSES, AttrsSpec

RULES_SINCE = 25
SELECTORS_SINCE = 30

_PORT = {"name": "a", "number": 1}
_INVALID: list[tuple[str, Any]] = [
    ("spec.owner", {}),
    ("spec.owner", {"owner": "x" * 21}),
    ("spec.maxSize", {"owner": "me", "maxSize": 100}),
    ("spec.tier", {"owner": "me", "tier": "SMALL_ONE"}),
    ("spec.ports[1]", {"owner": "me", "ports": [_PORT, _PORT]}),
    ("spec.ports[0].number", {"owner": "me", "ports": [{"name": "a", "number": 0}]}),
    ("spec.ports", {"owner": "me", "ports": [{"name": str(n)} for n in range(6)]}),
    ("spec.target", {"owner": "me", "target": 1.5}),
    ("spec.color", {"owner": "me", "color": "Red"}),
]
_INVALID_ATTRS: list[tuple[str, Any]] = [
    ("spec.minSize", {"owner": "me", "minSize": -1}),
    ("spec.mode", {"owner": "me", "mode": "Other"}),
    ("spec.memory", {"owner": "me", "memory": "many"}),
    ("spec.timeout", {"owner": "me", "timeout": "soon"}),
    ("spec.since", {"owner": "me", "since": "today"}),
    ("spec.weights.a", {"owner": "me", "weights": {"a": 0}}),
    ("spec.tags[1]", {"owner": "me", "tags": ["a", "a"]}),
    ("spec.template.kind", {"owner": "me", "template": {"apiVersion": "v1"}}),
    ("spec.source", {"owner": "me", "source": {"from": "file", "variable": "x"}}),
    ("spec.source.from", {"owner": "me", "source": {"from": "net", "path": "x"}}),
    ("spec.address", {"owner": "me", "address": "x"}),
]


def _kind(name: str, view: Any) -> Kind[Any, Any]:
    return Kind(
        group="crds.example.com", version="v1", kind=name.capitalize(), spec=view, rename="camel"
    )


WIDGET = Kind(
    group="crds.example.com", version="v1", kind="Generated", spec=AttrsSpec, rename="camel"
)
OPTIONS: dict[str, Any] = {
    "short_names": ["gen"],
    "categories": ["all"],
    "printer_columns": [PrinterColumn("Size", ".spec.maxSize")],
    "scale": Scale(replicas=".spec.maxSize", status_replicas=".status.size"),
    "selectable_fields": [".spec.color"],
    "deprecated": "use v2",
    "description": "A widget that is made of classes.",
    "rules": [Rule("self.metadata.name != 'refused'", message="no widget has this name")],
}


class Level(enum.Enum):
    LOW = "low"
    HIGH = "high"


@attrs.frozen
class NullableSpec:
    mode: Literal["a", "b"] | None
    level: Level | None
    number: Literal[1, 2] | None
    checked: str | None = attrs.field(
        validator=attrs.validators.optional(attrs.validators.in_(["a"]))
    )
    modes: tuple[Literal["a", "b"] | None, ...] = ()
    other: Literal["a"] | None = "a"
    absent: Literal["a"] | None = None


KEY = uuid.UUID(int=5)


@attrs.frozen
class TypesSpec:
    at: dt.datetime
    span: dt.timedelta = dt.timedelta(days=2, seconds=90, milliseconds=5)
    day: dt.date = dt.date(2024, 1, 2)
    clock: dt.time = dt.time(3, 4, 5)
    key: uuid.UUID = KEY
    raw: bytes = b"\x00\xffabc"
    exact: decimal.Decimal = decimal.Decimal("1.50")
    tags: frozenset[str] = frozenset({"a", "b"})
    pair: tuple[int, int] = (1, 2)
    memory: Quantity = "100m"
    timeout: Duration = "1h"
    large: Int64 = 2**40
    ratio: float = 2.0
    by_name: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)
    asked: Annotated[str | None, Schema(nullable=True)] = None
    number: int | None = 5


@attrs.frozen
class TypesStatus:
    conditions: tuple[Condition, ...] = ()


TYPES = Kind(
    group="crds.example.com",
    version="v1",
    kind="Types",
    plural="types",
    spec=TypesSpec,
    status=TypesStatus,
    rename="camel",
)
NULLABLE = Kind(group="crds.example.com", version="v1", kind="Nullable", spec=NullableSpec)


@pytest.fixture(scope="module")
def kinds(server: Server) -> Iterator[dict[str, Kind[Any, Any]]]:
    made = {
        "attrs": WIDGET,
        "null": NULLABLE,
        "types": TYPES,
        **{name: _kind(name, view) for name, view in CLASSES.items()},
    }
    with Client(server.config()) as client:
        crds = [
            custom_resource_definition(kind, **(OPTIONS if kind is WIDGET else {}))
            for kind in made.values()
        ]
        install_crds(client, crds, timeout=100)
    return made


def _minor(world: World) -> int:
    return int(world.client.discovery.server_version().minor)


@pytest.mark.parametrize("name", ["attrs", *CLASSES])
def test_what_is_made_is_enforced(kinds: Any, world: World, name: str) -> None:
    kind = kinds[name]
    made = world.client.create(
        MutableObject.new(kind, "valid", namespace=world.namespace, spec={"owner": "me"})
    )
    assert made.spec == kind.spec(owner="me")
    for field, spec in [*_INVALID, *(_INVALID_ATTRS if name == "attrs" else [])]:
        draft = MutableObject.new(kind, "invalid", namespace=world.namespace, spec=spec)
        with pytest.raises(Invalid) as refused:
            world.client.create(draft)
        # Before 1.30 servers leave the index out.
        assert field.partition("[")[0] in str(refused.value)
    with pytest.raises(Invalid, match="spec"):
        world.client.create(MutableObject.new(kind, "invalid", namespace=world.namespace))


def test_a_full_value_is_accepted_and_read_back(kinds: Any, world: World) -> None:
    spec = {
        "owner": "me",
        "memory": "500Mi",
        "timeout": "1h30m",
        "since": "2024-05-01T10:00:00Z",
        "weights": {"a": 0.5},
        "ports": [{"name": "a"}, {"name": "b", "number": 9}],
        "tags": ["a", "b"],
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "more": [1]},
        "extra": {"name": "a", "number": 80, "unknown": 1},
        "anything": [{"x": 1}],
        "source": {"from": "env", "variable": "HOME", "isOptional": True},
        "address": "10.0.0.1",
        "unknown": 1,
    }
    draft = MutableObject.new(WIDGET, "full", namespace=world.namespace, spec=spec)
    made = world.client.create(draft)
    assert "unknown" not in made["spec"]
    for name in ("memory", "template", "extra", "anything", "source", "tags", "since"):
        assert made["spec"][name] == spec[name]
    assert made.spec.ports[1].number == 9
    changed = made.mutable_copy()
    changed.spec = attrs.evolve(made.spec, max_size=3)
    now = world.client.update(changed)
    assert now["spec"] == {**made["spec"], "maxSize": 3}


def test_rules_and_immutable_fields_are_enforced(kinds: Any, world: World) -> None:
    if _minor(world) < RULES_SINCE:
        return  # It has no rules.
    draft = MutableObject.new(
        WIDGET, "ruled", namespace=world.namespace, spec={"owner": "me", "minSize": 50}
    )
    with pytest.raises(Invalid, match="maxSize must be at least minSize"):
        world.client.create(draft)
    draft["spec"] = {"owner": "me", "region": "eu"}
    made = world.client.create(draft)
    for changes, text in (
        ({"owner": "you"}, "the field is immutable"),
        ({"region": "us"}, "the field is immutable"),
        ({"region": None}, "region is immutable: it cannot be removed"),
    ):
        changed = made.mutable_copy()
        changed["spec"].update(changes)
        changed["spec"] = {k: v for k, v in changed["spec"].items() if v is not None}
        with pytest.raises((Invalid, Forbidden), match=text):
            world.client.update(changed)


def test_a_description_and_rules_of_whole_objects_are_served(kinds: Any, world: World) -> None:
    crd = world.client.get(CRD, WIDGET.qualified_name)
    root = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert root["description"] == "A widget that is made of classes."
    if _minor(world) < RULES_SINCE:
        return  # It has no rules.
    draft = MutableObject.new(WIDGET, "refused", namespace=world.namespace, spec={"owner": "me"})
    with pytest.raises(Invalid, match="no widget has this name"):
        world.client.create(draft)


def test_null_is_a_value_of_an_enum_that_may_be_none(kinds: Any, world: World) -> None:
    spec = NullableSpec(None, None, None, None, modes=("a", None), other=None)
    plain: dict[str, Any] = {
        **dict.fromkeys(("mode", "level", "number", "checked", "other")),
        "modes": ["a", None],
    }
    draft = MutableObject.new(NULLABLE, "nulls", namespace=world.namespace, spec=plain)
    made = world.client.create(draft)
    assert made.spec == spec
    assert made["spec"] == plain
    draft = MutableObject.new(NULLABLE, "null", namespace=world.namespace)
    draft["spec"] = {**plain, "absent": None}
    assert world.client.create(draft).spec == spec
    for name in plain:
        wrong = [3] if name == "modes" else "z"
        draft = MutableObject.new(NULLABLE, "wrong", namespace=world.namespace)
        draft["spec"] = {**plain, name: wrong}
        with pytest.raises(Invalid, match=f"spec.{name}"):
            world.client.create(draft)


def test_values_of_each_type_come_back(kinds: Any, world: World) -> None:
    spec = TypesSpec(dt.datetime(2024, 1, 1, tzinfo=dt.UTC), by_name={"a_b": {"c_d": 1}})
    draft = MutableObject.new(TYPES, "types", namespace=world.namespace, spec=spec)
    made = world.client.create(draft)
    assert made.spec == spec
    # The defaults of the CRD are those of the class.
    draft = MutableObject.new(TYPES, "bare", namespace=world.namespace)
    draft["spec"] = {"at": "2024-01-01T00:00:00Z"}
    assert world.client.create(draft).spec == attrs.evolve(spec, by_name={})
    condition = Condition(
        type="Ready",
        status="True",
        reason="Ok",
        message="all is well",
        observed_generation=1,
        last_transition_time=dt.datetime(2024, 1, 1, 1, 2, 3, tzinfo=dt.UTC),
    )
    changed = made.mutable_copy()
    changed.status = TypesStatus((condition,))
    now = world.client.status.update(changed)
    assert now.status == TypesStatus((condition,))
    same = now.mutable_copy()
    same.status = now.status
    assert world.client.status.update(same).resource_version == now.resource_version


def test_selectable_fields_and_scale_are_served(kinds: Any, world: World) -> None:
    for name, color in (("one", "red"), ("two", "blue")):
        spec = {"owner": "me", "color": color}
        world.client.create(MutableObject.new(WIDGET, name, namespace=world.namespace, spec=spec))
    scale = world.client.subresource("scale").get(WIDGET, "one", namespace=world.namespace)
    assert scale["spec"]["replicas"] == 9
    if _minor(world) < SELECTORS_SINCE:
        return  # It has no selectable fields.
    found = world.client.list(WIDGET, namespace=world.namespace, field_selector="spec.color=blue")
    assert [obj.name for obj in found] == ["two"]
