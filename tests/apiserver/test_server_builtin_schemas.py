"""The data file with the schemas of the built-in kinds, and its loader."""

from __future__ import annotations

from appsdk_operator.apiserver import builtin_schemas
from appsdk_operator.resource import kinds

# Found in discovery of older releases only, or made by the server itself.
_WITHOUT = {"Scale", "Binding"}


def test_every_kind_that_is_served_has_a_schema() -> None:
    missing = [
        entry.kind
        for entry in kinds.builtin_kinds()
        if builtin_schemas.schema(entry.kind.group, entry.kind.version, entry.kind.kind) is None
    ]
    assert missing == []


def test_references_are_resolved_and_shared() -> None:
    deployment = builtin_schemas.schema("apps", "v1", "Deployment")
    pod = builtin_schemas.schema("", "v1", "Pod")
    assert deployment is not None
    assert pod is not None
    template = deployment["properties"]["spec"]["properties"]["template"]
    spec = template["properties"]["spec"]
    assert spec is pod["properties"]["spec"]
    assert spec["properties"]["containers"]["x-kubernetes-list-map-keys"] == ["name"]
    assert spec["properties"]["containers"]["items"]["properties"]["image"] == {"type": "string"}
    assert builtin_schemas.schema("example.com", "v1", "Widget") is None


def test_what_has_no_fixed_shape_is_marked() -> None:
    deployment = builtin_schemas.schema("apps", "v1", "Deployment")
    assert deployment is not None
    rolling = deployment["properties"]["spec"]["properties"]["strategy"]["properties"][
        "rollingUpdate"
    ]
    assert rolling["properties"]["maxSurge"] == {"x-kubernetes-int-or-string": True}
    revision = builtin_schemas.schema("apps", "v1", "ControllerRevision")
    assert revision is not None
    assert revision["properties"]["data"] == {"x-kubernetes-preserve-unknown-fields": True}


def test_a_schema_may_contain_itself() -> None:
    crd = builtin_schemas.schema("apiextensions.k8s.io", "v1", "CustomResourceDefinition")
    assert crd is not None
    version = crd["properties"]["spec"]["properties"]["versions"]["items"]
    schema = version["properties"]["schema"]["properties"]["openAPIV3Schema"]
    assert schema["properties"]["properties"]["additionalProperties"] is schema


def test_the_data_file_tells_where_it_comes_from_and_stays_small() -> None:
    data = builtin_schemas.data()
    assert data.version.startswith("v1.")
    assert data.types["io.k8s.api.core.v1.PodSpec"]["restartPolicy"] == "ov1.RestartPolicy"
    assert data.kinds["", "v1", "Pod"] == "io.k8s.api.core.v1.Pod"
