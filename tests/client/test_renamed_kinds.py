"""Kinds with ``rename``: what a client and its helpers write has the names on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from appsdk_operator.client import Client, JsonPatch, MergePatch
from appsdk_operator.controllers import create_or_patch, create_or_update
from appsdk_operator.resource import Kind, MutableObject, custom_resource_definition
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import MemoryServer


@attrs.frozen
class Port:
    host_port: int = 80
    own_name: str | None = None


@attrs.frozen
class Spec:
    max_size: int = 0
    main_port: Port = Port()


WIDGET = Kind(group="example.com", version="v1", kind="Widget", spec=Spec, rename="camel")


@pytest.fixture
def client() -> Iterator[Client]:
    crd = custom_resource_definition(WIDGET)
    with MemoryServer(crds=[crd]) as server, server.client(metrics=Metrics()) as made:
        yield made


def draft_of(spec: Any) -> MutableObject[Any, Any]:
    return MutableObject.new(WIDGET, "web", namespace="default", spec=spec)


def test_patches_write_typed_values_by_the_kind(client: Client) -> None:
    client.create(draft_of(Spec(max_size=1)))
    patched = client.patch(
        WIDGET, "web", MergePatch({"spec": {"mainPort": Port(5)}}), namespace="default"
    )
    assert patched.spec == Spec(1, Port(5))
    operation = {"op": "replace", "path": "/spec/mainPort", "value": Port(6, "a")}
    patched = client.patch(WIDGET, "web", JsonPatch([operation]), namespace="default")
    assert patched["spec"]["mainPort"] == {"hostPort": 6, "ownName": "a"}
    after = patched.mutable_copy()
    after.spec = Spec(max_size=9)
    assert MergePatch.between(patched, after).fields == {
        "spec": {"maxSize": 9, "mainPort": {"hostPort": 80, "ownName": None}}
    }


def test_a_typed_value_within_plain_ones_is_compared_and_written(client: Client) -> None:
    client.create(draft_of(Spec()))

    def mutate(draft: MutableObject[Any, Any]) -> None:
        draft["spec"]["mainPort"] = Port(7)

    for write in (create_or_update, create_or_patch):
        write(client, draft_of(None), mutate)
        found = client.get(WIDGET, "web", namespace="default")
        assert found.spec.main_port == Port(7)
        again = write(client, draft_of(None), mutate)
        assert again.object.resource_version == found.resource_version
