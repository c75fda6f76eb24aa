"""Paths, rules and errors of a kind whose fields have other names on the wire than in Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import attrs
import msgspec
import pytest

from appsdk_operator.app import App
from appsdk_operator.client import Invalid
from appsdk_operator.controllers import until
from appsdk_operator.resource import (
    FieldName,
    Kind,
    ListType,
    Object,
    PrinterColumn,
    Rule,
    Scale,
    custom_resource_definition,
    field,
)
from appsdk_operator.testing import World
from appsdk_operator.webhooks import WebhookRule


@attrs.frozen
class Port:
    host_port: int
    name_of_it: str = ""


@attrs.frozen
class Spec:
    max_size: int = 1
    pod_ip: Annotated[str, FieldName("podIP")] = ""
    more_ports: tuple[Port, ...] = ()
    ports_by_name: Mapping[str, Port] = attrs.field(factory=dict)


@attrs.frozen
class Status:
    ready_size: int = 0


class Own(msgspec.Struct, frozen=True, rename="camel"):
    max_size: int = 1


WIDGET = Kind(
    group="example.com", version="v1", kind="Widget", spec=Spec, status=Status, rename="camel"
)
OWN = Kind(group="example.com", version="v1", kind="Widget", spec=Own)
PATHS = [
    ("spec.max_size", "spec.maxSize"),
    ("spec.pod_ip", "spec.podIP"),
    ("spec.more_ports[0].host_port", "spec.morePorts[0].hostPort"),
    ("spec.ports_by_name['max_size'].host_port", "spec.portsByName['max_size'].hostPort"),
    ("status.ready_size", "status.readySize"),
]


def obj_of(kind: Kind[Any, Any] = WIDGET, size: int = 1, **status: Any) -> Object[Any, Any]:
    port = {"hostPort": size, "max_size": 0}
    spec = {
        "maxSize": size,
        "podIP": str(size),
        "morePorts": [port],
        "portsByName": {"max_size": port},
    }
    data = {"metadata": {"name": "a"}, "spec": spec, "status": {"readySize": size}}
    return Object.from_dict(kind, data)


@pytest.mark.parametrize("path", [one for pair in PATHS for one in pair])
def test_a_path_has_the_name_of_python_or_that_on_the_wire(path: str) -> None:
    changed = field(path).changed
    old, new = obj_of(size=1), obj_of(size=2)
    assert changed(old, new)
    assert not changed(old, obj_of(size=1))
    wanted = "2" if "od_" in path or "IP" in path else 2
    assert until.field_equals(path, wanted)(new)
    assert not until.field_equals(path, wanted)(old)


def test_a_class_that_names_its_own_fields_is_known_too() -> None:
    for path in ("spec.max_size", "spec.maxSize"):
        assert until.field_equals(path, 3)(obj_of(OWN, 3))


def test_updates_of_a_field_are_declared_by_either_name() -> None:
    seen: list[str] = []
    app = App("widgets")

    @app.on_update(WIDGET, when=field("spec.max_size").changed)
    def by_python(old: Object[Spec], new: Object[Spec]) -> None:
        seen.append("python")

    @app.on_update(WIDGET, when=field("spec.maxSize").changed)
    def by_wire(old: Object[Spec], new: Object[Spec]) -> None:
        seen.append("wire")

    with World(app) as world:
        world.create("a", {"maxSize": 1})
        world.settle()
        world.replace("a", {"maxSize": 2})
        world.settle()
        assert seen == ["python", "wire"]


def test_a_name_on_the_wire_wins_and_unknown_ones_stay() -> None:
    @attrs.frozen
    class Crossed:
        one: Annotated[int, FieldName("two")] = 0
        two: Annotated[int, FieldName("three")] = 0

    kind = Kind(group="example.com", version="v1", kind="Crossed", spec=Crossed, rename="camel")
    obj = Object.from_dict(
        kind, {"metadata": {"name": "a"}, "spec": {"two": 1, "three": 2, "not_known": 3}}
    )
    for path, value in (("spec.two", 1), ("spec.one", 1), ("spec.three", 2), ("spec.not_known", 3)):
        assert until.field_equals(path, value)(obj), path


def test_errors_of_fields_have_the_names_on_the_wire() -> None:
    errors = [
        field("spec", "max_size").invalid(3, "too large"),
        field("spec")["more_ports"][0]["host_port"].required(),
        field("spec")["ports_by_name"].key("max_size")["host_port"].required(),
        field("spec")["maxSize"].forbidden("no"),
        field("metadata", "labels").key("max_size").required(),
    ]
    refused = Invalid.of(WIDGET, "a", errors)
    assert [cause.field for cause in refused.causes] == [
        "spec.maxSize",
        "spec.morePorts[0].hostPort",
        "spec.portsByName[max_size].hostPort",
        "spec.maxSize",
        "metadata.labels[max_size]",
    ]
    assert "max_size:" not in str(refused)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"printer_columns": [PrinterColumn("Size", ".spec.max_size")]},
            r"printer_columns: '\.spec\.max_size' .* write '\.spec\.maxSize'",
        ),
        (
            {"printer_columns": [{"name": "A", "type": "string", "jsonPath": ".spec.pod_ip"}]},
            r"write '\.spec\.podIP'",
        ),
        ({"scale": Scale(replicas=".spec.max_size")}, r"scale: .* write '\.spec\.maxSize'"),
        (
            {"scale": Scale(replicas=".spec.maxSize", status_replicas=".status.ready_size")},
            r"write '\.status\.readySize'",
        ),
        ({"selectable_fields": ["spec.pod_ip"]}, r"selectable_fields: .* write '\.spec\.podIP'"),
        (
            {"rules": [Rule("self.spec.max_size > 0")]},
            r"rules: self\.spec\.max_size .* write self\.spec\.maxSize",
        ),
        (
            {"rules": [Rule("true", message_expression="'x' + self.spec.pod_ip")]},
            r"write self\.spec\.podIP",
        ),
    ],
    ids=str,
)
def test_a_crd_with_a_name_of_python_is_refused(options: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        custom_resource_definition(WIDGET, **options)
    with pytest.raises(ValueError, match=text):
        App("widgets").own(WIDGET, **options)


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (Rule("self.max_size > 0"), r"spec: self\.max_size .* write self\.maxSize"),
        (Rule("oldSelf.?max_size == 1"), r"write oldSelf\.maxSize"),
        (Rule("self.port.host_port > 0"), r"write self\.port\.hostPort"),
        (Rule("true", field_path=".max_size"), r"write self\.maxSize"),
        (Rule("self.maxSize > 0 && self.port.hostPort > 0"), None),
        (Rule("self.maxSize.max_size > 0 || 'self.max_size' == ''"), None),
    ],
    ids=str,
)
def test_a_rule_with_a_name_of_python_is_refused(rule: Rule, text: str | None) -> None:
    @rule
    @attrs.frozen
    class Ruled:
        max_size: int = 1
        port: Port | None = None

    kind = Kind(group="example.com", version="v1", kind="Ruled", spec=Ruled, rename="camel")
    if text is None:
        custom_resource_definition(kind)
        return
    with pytest.raises(ValueError, match=text):
        custom_resource_definition(kind)
    plain = Kind(group="example.com", version="v1", kind="Ruled", spec=Ruled)
    custom_resource_definition(plain)


def test_the_key_of_a_list_is_that_on_the_wire() -> None:
    @attrs.frozen
    class Listed:
        ports: Annotated[tuple[Port, ...], ListType.MAP("host_port")] = ()

    kind = Kind(group="example.com", version="v1", kind="Listed", spec=Listed, rename="camel")
    with pytest.raises(ValueError, match="names no field of its items: use one of hostPort"):
        custom_resource_definition(kind)


def test_a_condition_of_a_webhook_with_a_name_of_python_is_refused() -> None:
    def rule(expression: str) -> WebhookRule:
        return WebhookRule(
            type="validating", path="/x", kinds=(WIDGET,), match_conditions={"a": expression}
        )

    text = r"match_conditions\['a'\]: object\.spec\.max_size .* write object\.spec\.maxSize"
    with pytest.raises(ValueError, match=text):
        rule("object.spec.max_size > 3")
    rule("object.spec.maxSize > 3 && request.name != 'object.spec.max_size'")
