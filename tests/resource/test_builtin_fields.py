"""Paths of built-in kinds, against the schemas of the embedded API server."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from appsdk_operator.apiserver import builtin_schemas
from appsdk_operator.resource import Kind, check_fields, field, kinds
from hack import builtin_fields as script

DEPLOYMENT = Kind(group="apps", version="v1", kind="Deployment")


@pytest.mark.parametrize(
    ("kind", "path", "problem"),
    [
        (DEPLOYMENT, "spec.replcas", "no field 'replcas', did you mean 'replicas'? There are"),
        (DEPLOYMENT, "spce", "deployments.v1.apps has no field 'spce', did you mean 'spec'?"),
        (
            DEPLOYMENT,
            "spec.template.spec.containers[0].imgae",
            "spec.template.spec.containers[0] has no field 'imgae', did you mean 'image'?",
        ),
        (DEPLOYMENT, "spec.template.metadata.label", "did you mean 'labels'?"),
        (DEPLOYMENT, "spec.replicas.count", "spec.replicas has no field 'count'"),
        (DEPLOYMENT, "spec[0]", "spec of deployments.v1.apps is not a list: leave out [0]"),
        (DEPLOYMENT, "spec.template.spec.containers.image", "It is not an object"),
        (kinds.core.v1.ConfigMap, "dta.key", "did you mean 'data'?"),
        (kinds.core.v1.ConfigMap, "data.key.more", "data.key has no field 'more'"),
        (kinds.core.v1.Secret, "stringDta", "did you mean 'stringData'?"),
        (kinds.core.v1.Pod, "metadata.label", "did you mean 'labels'?"),
        (kinds.core.v1.Pod, "status.phase.name", "It is not an object. These are the fields of"),
    ],
)
def test_a_misspelt_field_of_a_built_in_kind_is_refused(
    kind: Kind[Any, Any], path: str, problem: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_fields("where", field(path).exists, kind)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (DEPLOYMENT, "apiVersion"),
        (DEPLOYMENT, "spec.template.spec.containers[0].resources.limits['example.com/gpu']"),
        (DEPLOYMENT, "spec.template.spec.nodeSelector['a.b/c']"),
        (DEPLOYMENT, "spec.selector.matchLabels.app"),
        (DEPLOYMENT, "spec.strategy.rollingUpdate.maxSurge"),
        (kinds.core.v1.Pod, "metadata.labels.anything"),
        (kinds.core.v1.ConfigMap, "data['a.conf']"),
        (kinds.core.v1.Secret, "stringData.key"),
        (kinds.core.v1.Secret, "data.key"),
        (kinds.apps.v1.ControllerRevision, "data.spec.template"),
        (
            kinds.apiextensions.v1.CustomResourceDefinition,
            "spec.versions[0].schema.openAPIV3Schema.properties.a.properties.b.default.c",
        ),
        # Kinds that the kit does not know.
        (Kind(group="apps", version="v1beta2", kind="Deployment"), "spec.replcas"),
        (Kind(group="gateway.networking.k8s.io", version="v1", kind="Gateway"), "spec.lsteners"),
    ],
)
def test_a_field_that_a_built_in_kind_has_or_leaves_open_is_accepted(
    kind: Kind[Any, Any], path: str
) -> None:
    check_fields("where", field(path).exists, kind)


class NewerDeployment(msgspec.Struct, frozen=True):
    new_field: str = ""


def test_the_class_of_a_built_in_kind_has_fields_of_other_releases() -> None:
    newer = DEPLOYMENT.typed(spec=NewerDeployment, rename="camel")
    for path in ("spec.newField", "spec.new_field", "spec.replicas"):
        check_fields("where", field(path).exists, newer)
    for path in ("spec.newFeild", "status.newField", "newField"):
        with pytest.raises(ValueError, match=r"for a field of another release .* Kind\.typed"):
            check_fields("where", field(path).exists, newer)
    unclear = DEPLOYMENT.typed(spec=dict[str, Any])
    check_fields("where", field("spec.anything").exists, unclear)


def test_the_names_of_the_fields_of_built_in_kinds_are_those_of_their_schemas() -> None:
    assert zlib.decompress(script.packed(), 31) == zlib.decompress(
        script.TARGET.read_bytes(), 31
    ), "run hack/builtin_fields.py"


def test_each_path_of_the_schemas_is_accepted_and_none_beside_it() -> None:
    known = builtin_schemas.data()
    for group, version, name in known.kinds:
        schema = builtin_schemas.schema(group, version, name)
        assert schema is not None
        if name.endswith("List") or "metadata" not in schema["properties"]:
            continue
        kind = Kind(group=group, version=version, kind=name)
        for steps in paths_of(schema, depth=3):
            path = field(*steps)
            check_fields("where", path.exists, kind)
            if isinstance(steps[-1], str) and steps[-1] != "free":
                with pytest.raises(ValueError, match="has no field"):
                    check_fields("where", field(*steps[:-1], f"{steps[-1]}X").exists, kind)


def paths_of(
    schema: Mapping[str, Any], depth: int, above: tuple[Any, ...] = ()
) -> Iterator[tuple[Any, ...]]:
    """Paths in a schema; ``free`` stands for the key of a map."""
    for name, below in schema.get("properties", {}).items() if depth else ():
        if above or name != "metadata":
            yield (*above, name)
            yield from paths_of(below, depth - 1, (*above, name))
    if "items" in schema:
        yield (*above, 0)
        yield from paths_of(schema["items"], depth, (*above, 0))
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield (*above, "free")
        yield from paths_of(schema["additionalProperties"], depth, (*above, "free"))
