"""CRDs become classes, and these the same CRDs, which API servers accept, with the same objects."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.client import Client, Invalid
from appsdk_operator.project import models
from appsdk_operator.resource import MutableObject, Object
from appsdk_operator.testing import install_crds
from tests.conformance.conftest import CRD, Server, World
from tests.project.model_tools import again, imported, kinds_of, lost
from tests.project.synthetic_crds import CRDS, EXAMPLES

RULES_SINCE = 25


@pytest.fixture(scope="module")
def kinds(server: Server, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The kinds of the classes, whose CRDs are installed."""
    folder = tmp_path_factory.mktemp("models")
    found: dict[str, Any] = {}
    made = []
    for crd in CRDS.values():
        module = imported(models([crd]), folder)
        found |= {kind.kind: kind for kind in kinds_of(module).values() if kind.version == "v1"}
        made.append(MutableObject(CRD, again(crd, module)))
    with Client(server.config()) as client:
        install_crds(client, made, timeout=100)
    return found


@pytest.mark.parametrize("style", ["attrs", "dataclass", "msgspec", "pydantic"])
@pytest.mark.parametrize("name", CRDS)
def test_the_classes_of_a_crd_are_stable(name: str, style: Any, tmp_path: Path) -> None:
    if style == "pydantic":
        pytest.importorskip("pydantic")
    crd = CRDS[name]
    text = models([crd], style=style)
    assert models([again(crd, imported(text, tmp_path))], style=style) == text


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_object_is_read_and_written_without_loss(kinds: Any, world: World, name: str) -> None:
    kind, spec = kinds[name], EXAMPLES[name]
    namespace = world.namespace if kind.is_namespaced else ""
    draft = MutableObject.new(kind, f"{world.namespace}-a", namespace=namespace)
    draft["spec"] = copy.deepcopy(spec)
    made = world.client.create(draft)
    assert lost(spec, made["spec"]) == []
    written = made.mutable_copy()
    written.spec = made.spec
    assert written["spec"] == made["spec"]
    assert world.client.update(written)["spec"] == made["spec"]


def test_what_the_crd_refuses_is_refused_by_that_of_the_classes(kinds: Any, world: World) -> None:
    spec = EXAMPLES["Issuer"]
    minor = int(world.client.discovery.server_version().minor)
    wrong: list[tuple[str, Any]] = [
        ("spec.storeName", {"storeName": ""}),
        ("spec.issuer", {"issuer": {}}),
        ("spec.issuer", {"issuer": {"ca": {"storeName": "x"}, "selfSigned": {}}}),
        ("spec.target.weight", {"target": {"weight": 0}}),
        ("spec.target.priority", {"target": {"priority": 4}}),
        ("spec.resources.limits.cpu", {"resources": {"limits": {"cpu": "x"}}}),
        ("spec.names", {"names": {}}),
        ("spec.keys", {"keys": ["a", "a"]}),
        ("spec.ports", {"ports": [{"port": 80}, {"port": 80}]}),
        ("spec.choice", {"choice": {"b": "x"}}),
        ("spec.resource", {"resource": {"kind": "Pod"}}),
    ]
    if minor >= RULES_SINCE:
        wrong.append(("spec.target", {"target": {"minReplicas": 6, "maxReplicas": 2}}))
    for field, change in wrong:
        draft = MutableObject.new(kinds["Issuer"], "wrong", namespace=world.namespace)
        draft["spec"] = {**spec, **change}
        with pytest.raises(Invalid) as refused:
            world.client.create(draft)
        assert field in str(refused.value), (field, str(refused.value))
    draft = MutableObject.new(kinds["Issuer"], "main", namespace=world.namespace)
    draft["spec"] = copy.deepcopy(spec)
    if minor >= RULES_SINCE:
        with pytest.raises(Invalid, match="main is taken"):
            world.client.create(draft)
    assert isinstance(draft.freeze(), Object)
