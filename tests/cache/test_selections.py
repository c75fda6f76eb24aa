"""What a cache selects by fields, beside the lists of a server."""

from __future__ import annotations

from typing import Any

import pytest

from appsdk_operator.cache._cache.selection import Selection
from appsdk_operator.client import Client
from appsdk_operator.resource import FieldSelector, MutableObject, kinds
from appsdk_operator.testing import APIServer

CORE, BATCH = kinds.core.v1, kinds.batch.v1
POD = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"spec": {**POD, "restartPolicy": "Never"}}
REFERENCE = {"kind": "Node", "name": "n", "namespace": "default"}

CASES: list[tuple[Any, list[dict[str, Any]], list[str]]] = [
    (
        CORE.Node,
        [{}, {"spec": {"unschedulable": True}}, {"spec": {"unschedulable": False}}],
        ["spec.unschedulable=false", "spec.unschedulable=true", "spec.unschedulable!=false"],
    ),
    (
        CORE.Pod,
        [{"spec": POD}, {"spec": {**POD, "hostNetwork": True, "nodeName": "n"}}],
        [
            *("spec.hostNetwork=false", "spec.hostNetwork=true", "spec.host=n", "spec.host="),
            *("spec.nodeName=n", "spec.nodeName=", "status.phase=Pending", "status.podIPs="),
            *("spec.restartPolicy=Always", "metadata.name=o0", "metadata.namespace!=default"),
        ],
    ),
    (
        BATCH.Job,
        [{"spec": {"template": TEMPLATE}}],
        ["status.successful=0", "status.successful=1", "status.successful!=0"],
    ),
    (
        CORE.Event,
        [
            {"involvedObject": REFERENCE, "source": {"component": "me"}},
            {"involvedObject": REFERENCE},
        ],
        ["source=me", "source=", "source!=me", "involvedObject.name=n", "reason="],
    ),
    (
        CORE.ReplicationController,
        [
            {
                "spec": {
                    "selector": {"a": "b"},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD},
                }
            }
        ],
        ["status.replicas=0", "status.replicas!=0"],
    ),
]


@pytest.mark.parametrize(
    ("kind", "contents", "selectors"), CASES, ids=[kind.kind for kind, *_ in CASES]
)
def test_a_cache_selects_by_fields_what_a_server_lists(
    kind: Any, contents: list[dict[str, Any]], selectors: list[str]
) -> None:
    namespace = "default" if kind.is_namespaced else ""
    with APIServer() as server, Client(server.client_config()) as client:
        for number, content in enumerate(contents):
            client.create(MutableObject.new(kind, f"o{number}", namespace=namespace, **content))
        for text in selectors:
            selection = Selection(namespace="", field_selector=FieldSelector.parse(text))
            listed = {obj.name for obj in client.list(kind, field_selector=text)}
            found = {obj.name for obj in client.list(kind) if selection.selects(obj)}
            assert found == listed, text


def test_selections_with_transforms_that_cannot_be_hashed_are_keys() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, obj: Any) -> Any:
            return obj

    first, second = (Selection(namespace="a", transform=Unhashable()) for _ in range(2))
    assert {first: 1, second: 2}[second] == 2
