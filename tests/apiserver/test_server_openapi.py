"""OpenAPI documents, and what kubectl makes of them."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer
from tests.apiserver.kubectl_tools import run_kubectl

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")

Kubectl = Callable[..., str]


def test_every_group_has_a_document_of_its_own(api: Any) -> None:
    paths = api.get("/openapi/v3")["paths"]
    for prefix in ("api", "api/v1", "apis", "apis/apps", "apis/apps/v1", "apis/example.com/v1"):
        found = api.get(paths[prefix]["serverRelativeURL"])
        assert found["openapi"] == "3.0.0", prefix
        assert found.headers["Cache-Control"] == "public, immutable"
    assert api.get("/openapi/v3/apis/none.example.com/v1").status == 404


def test_a_document_is_sent_once_to_who_keeps_it(api: Any) -> None:
    first = api.get("/openapi/v3/apis/example.com/v1")
    tag = first.headers["ETag"]
    again = api("GET", "/openapi/v3/apis/example.com/v1", If_None_Match=tag)
    assert (again.status, again.body) == (304, "")
    link = api.get("/openapi/v3")["paths"]["apis/example.com/v1"]["serverRelativeURL"]
    assert tag.strip('"') in link


def test_a_changed_definition_changes_its_document_only(api: Any) -> None:
    before = api.get("/openapi/v3")["paths"]
    name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    definition = api.get(name).body
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["colour"] = {"type": "string"}
    assert api.update(name, definition).status == 200
    after = api.get("/openapi/v3")["paths"]
    assert {key for key in before if before[key] != after[key]} == {"apis/example.com/v1"}


def test_a_group_describes_all_that_its_kinds_are_made_of(api: Any) -> None:
    found = api.get("/openapi/v3/apis/apps/v1")
    schemas = found["components"]["schemas"]
    deployment = schemas["io.k8s.api.apps.v1.Deployment"]
    assert deployment["x-kubernetes-group-version-kind"] == [
        {"group": "apps", "kind": "Deployment", "version": "v1"}
    ]
    reference = {"$ref": "#/components/schemas/io.k8s.api.apps.v1.DeploymentSpec"}
    assert deployment["properties"]["spec"]["allOf"] == [reference]
    assert "io.k8s.api.core.v1.Container" in schemas
    assert "io.k8s.api.batch.v1.Job" not in schemas
    missing = [ref for ref in _references(found.body) if ref not in schemas]
    assert missing == []
    path = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
    patch = found["paths"][path]["patch"]
    assert patch["operationId"] == "patchAppsV1NamespacedDeployment"
    assert {"name": "fieldValidation", "in": "query"}.items() <= patch["parameters"][2].items()


def test_version_2_describes_everything_in_one_piece(api: Any) -> None:
    found = api.get("/openapi/v2")
    definitions = found["definitions"]
    assert [ref for ref in _references(found.body) if ref not in definitions] == []
    containers = definitions["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"] == {"$ref": "#/definitions/io.k8s.api.core.v1.Container"}
    assert definitions["io.k8s.apimachinery.pkg.api.resource.Quantity"] == {"type": "string"}
    widget = definitions["com.example.v1.Widget"]
    assert "size" in widget["properties"]["spec"]["properties"]


RBAC = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/{namespace}/ingresses"
SCALE = "/apis/apps/v1/namespaces/{namespace}/deployments/{name}/scale"
OPERATIONS = [
    (RBAC, "post", "createRbacAuthorizationV1ClusterRole", "create a ClusterRole"),
    (INGRESSES, "post", "createNetworkingV1NamespacedIngress", "create an Ingress"),
    (
        "/api/v1/namespaces/{namespace}/endpoints/{name}",
        *("delete", "deleteCoreV1NamespacedEndpoints", "delete Endpoints"),
    ),
    (
        INGRESSES,
        *(
            "delete",
            "deleteNetworkingV1CollectionNamespacedIngress",
            "delete collection of Ingress",
        ),
    ),
    (
        SCALE,
        *("patch", "patchAppsV1NamespacedDeploymentScale"),
        "partially update scale of the specified Deployment",
    ),
]


@pytest.mark.parametrize(("path", "method", "identity", "description"), OPERATIONS)
def test_operations_have_the_words_of_the_published_documents(
    api: Any, path: str, method: str, identity: str, description: str
) -> None:
    found = api.get("/openapi/v2")["paths"][path][method]
    assert (found["operationId"], found["description"]) == (identity, description)
    assert found["x-kubernetes-action"] == {"delete": "deletecollection"}.get(
        method if "Collection" in identity else "", method
    )


def test_what_cannot_be_written_has_no_operations_that_write(api: Any) -> None:
    found = api.get("/openapi/v2")["paths"]["/api/v1/componentstatuses/{name}"]
    assert set(found) == {"get", "parameters"}


@pytest.mark.real
def test_the_operations_of_the_real_server_have_the_same_words(api: Any, real_api: Any) -> None:
    if "1.36" not in real_api.get("/version")["gitVersion"]:
        return  # older servers have other kinds and descriptions
    ours, theirs = (each.get("/openapi/v2")["paths"] for each in (api, real_api))
    ignored = ("/api/v1/componentstatuses", "/api/v1/namespaces")
    for path in sorted(ours.keys() & theirs.keys() - set(ignored)):
        one, other = (
            {
                method: {key: value for key, value in each.items() if key != "parameters"}
                for method, each in paths[path].items()
                if method in ours[path] and method != "parameters"
            }
            for paths in (ours, theirs)
        )
        assert one == other, path
    assert len(ours.keys() & theirs.keys()) > 100


def _references(node: Any) -> set[str]:
    found: set[str] = set()
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref" and isinstance(value, str):
                found.add(value.rpartition("/")[2])
            else:
                found |= _references(value)
    elif isinstance(node, list):
        for item in node:
            found |= _references(item)
    return found


@pytest.fixture
def kubectl(tmp_path: Path, widget_crd: Any) -> Iterator[Kubectl]:
    """Run kubectl; what it printed, or complained of when it ``fails``."""
    with APIServer(tls=True, token="let-me-in", crds=[widget_crd]) as server:
        config = tmp_path / "config"
        server.write_kubeconfig(config)

        def run(*arguments: str, stdin: Any = None, fails: bool = False) -> str:
            done = run_kubectl(config, *arguments, stdin=stdin, fails=fails)
            return done.stderr if fails else done.stdout

        yield run


def test_version_2_keeps_all_names_of_fields_and_leaves_out_what_it_cannot_say(
    api: Any, widget_crd: Any
) -> None:
    text, inner = {"type": "string"}, {"type": "object", "properties": {"not": {"type": "string"}}}
    names = ("not", "nullable", "default", "oneOf", "x-kubernetes-validations")
    kept = {**dict.fromkeys(names, text), "inner": inner}
    cut = {
        "maybe": {"type": "object", "nullable": True, "properties": {"a": text}},
        "some": {"type": "array", "nullable": True, "items": text},
        "short": {"type": "string", "allOf": [{"maxLength": 3}], "default": "a"},
    }
    name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    definition = api.get(name).body
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"] = {**kept, **cut}
    schema["properties"]["spec"]["required"] = []
    assert api.update(name, definition).status == 200
    found = api.get("/openapi/v2")["definitions"]["com.example.v1.Widget"]["properties"]["spec"]
    assert found["properties"] == {**kept, "maybe": {}, "some": {}, "short": text}


def definitions_with(api: Any, changes: dict[str, Any], **root: Any) -> tuple[Any, Any]:
    """The definitions of version 2 and 3 of Widget, whose spec has other properties."""
    name = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com"
    definition = api.get(name).body
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"] = changes
    schema["properties"]["spec"]["required"] = []
    schema.update(root)
    assert api.update(name, definition).status == 200
    old = api.get("/openapi/v2")["definitions"]
    new = api.get("/openapi/v3/apis/example.com/v1")["components"]["schemas"]
    return old["com.example.v1.Widget"], new["com.example.v1.Widget"]


def test_values_in_a_schema_are_no_schemas(api: Any) -> None:
    value = {"nullable": True, "default": {"not": 1}, "properties": {"a": 1}}
    free = {"type": "object", "enum": [value], "example": value}
    for found in definitions_with(api, {"free": free}):
        assert found["properties"]["spec"]["properties"]["free"] == free


def test_an_embedded_object_has_the_fields_of_all_objects(api: Any) -> None:
    embedded = {"type": "object", "x-kubernetes-embedded-resource": True}
    text = {"type": "string"}
    known = {**embedded, "properties": {"spec": {"type": "object", "properties": {"a": text}}}}
    free = {**embedded, "x-kubernetes-preserve-unknown-fields": True}
    changes = {"known": known, "many": {"type": "array", "items": known}, "free": free}
    old, new = definitions_with(api, changes)
    meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
    for found, reference in (
        (old, {"$ref": f"#/definitions/{meta}"}),
        (new, {"allOf": [{"$ref": f"#/components/schemas/{meta}"}]}),
    ):
        fields = found["properties"]["spec"]["properties"]
        for one in (fields["known"], fields["many"]["items"]):
            assert list(one["properties"]) == ["spec", "apiVersion", "kind", "metadata"]
            assert reference.items() <= one["properties"]["metadata"].items()
            assert one["required"] == ["kind", "apiVersion"]
    # kubectl would refuse all other fields.
    assert "properties" not in old["properties"]["spec"]["properties"]["free"]
    assert "metadata" in new["properties"]["spec"]["properties"]["free"]["properties"]


def test_version_2_says_nothing_of_objects_with_unknown_fields(api: Any) -> None:
    root = {"x-kubernetes-preserve-unknown-fields": True, "required": ["spec"]}
    old, _ = definitions_with(api, {}, **root, description="A widget.")
    kind = {"group": "example.com", "kind": "Widget", "version": "v1"}
    assert old == {"type": "object", "x-kubernetes-group-version-kind": [kind]}


@needs_kubectl
def test_kubectl_explains_built_in_and_custom_kinds(kubectl: Kubectl) -> None:
    deployment = kubectl("explain", "deployment", "--recursive")
    assert "terminationGracePeriodSeconds\t<integer>" in deployment
    assert "enum: " in deployment
    assert "containers\t<[]Container> -required-" in deployment
    ports = kubectl("explain", "pod.spec.containers.ports")
    assert "protocol\t<string>" in ports
    widget = kubectl("explain", "widget", "--recursive")
    assert "size\t<integer> -required-" in widget


@needs_kubectl
def test_kubectl_is_told_of_unknown_fields_and_merges_lists(
    kubectl: Kubectl, new_widget: Any
) -> None:
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "nginx", "imagePulPolicy": "Never"}]},
    }
    told = kubectl("apply", "--validate=strict", "-f", "-", stdin=pod, fails=True)
    assert 'unknown field "spec.containers[0].imagePulPolicy"' in told
    del pod["spec"]["containers"][0]["imagePulPolicy"]
    kubectl("apply", "--validate=strict", "-f", "-", stdin=pod)
    kubectl("apply", "--validate=strict", "-f", "-", stdin=new_widget("w"))
    kubectl("set", "image", "pod/p", "c=nginx:2")
    path = "jsonpath={.spec.containers[0].image}"
    assert kubectl("get", "pod", "p", "-o", path) == "nginx:2"


V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
OLD_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (V2, V2),
        (OLD_V2, V2),
        (f"{OLD_V2}, application/json", V2),
        (f"application/json, {V2}", "application/json"),
        (f"*/*, {V2};q=0.9", "application/json"),
        (f"*/*, {V2}", V2),
        ("application/json", "application/json"),
    ],
)
def test_the_document_of_version_2_has_two_encodings(
    server: APIServer, accept: str, expected: str
) -> None:
    with contextlib.closing(HTTPConnection(server.url.removeprefix("http://"))) as connection:

        def get(**headers: str) -> HTTPResponse:
            sent = {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", "/openapi/v2", headers={"Accept": accept, **sent})
            return connection.getresponse()

        first = get()
        assert (first.status, first.headers["Content-Type"]) == (200, expected)
        assert first.headers["Vary"] == "Accept"
        # A JSON object, or the first field of a message: the version of the document.
        assert first.read().startswith(b'{"swagger":"2.0"' if "json" in expected else b"\n\x032.0")
        again = get(If_None_Match=first.headers["ETag"])
        assert (again.status, again.read()) == (304, b"")


@pytest.mark.parametrize("accept", ["text/html", "application/yaml", "application/xml;q=0.5"])
def test_the_document_of_version_2_has_no_other_encoding(api: Any, accept: str) -> None:
    refused = api.get("/openapi/v2", Accept=accept)
    assert (refused.status, refused.body) == (406, "")
    assert refused.headers["Vary"] == "Accept"


@pytest.mark.parametrize("accept", ["", "*/*", "application/*", "text/html, application/json"])
def test_the_document_of_version_2_is_json_for_any_who_accepts_it(api: Any, accept: str) -> None:
    found = api.get("/openapi/v2", Accept=accept)
    assert (found.status, found["swagger"]) == (200, "2.0")


@needs_kubectl
def test_kubectl_reads_the_document_of_version_2(tmp_path: Path, widget_crd: Any) -> None:
    """Its parser of protobuf is Go's."""
    unknown = {"apiVersion": "none.example.com/v1", "kind": "Nope", "metadata": {"name": "a"}}
    with APIServer(crds=[widget_crd]) as server:
        config = tmp_path / "config"
        server.write_kubeconfig(config)

        def run(*arguments: str, fails: bool = False, stdin: Any = None) -> str:
            done = run_kubectl(config, *arguments, fails=fails, stdin=stdin)
            return done.stderr if fails else done.stdout

        for command in ("create", "apply"):
            assert 'no matches for kind "Nope" in version "none.example.com/v1"' in run(
                command, "-f", "-", fails=True, stdin=unknown
            )
        shown = run("explain", "--output=plaintext-openapiv2", "widgets.spec")
        assert "size\t<integer> -required-" in shown
        assert "list\t<[]string>" in shown
        assert "counts\t<map[string]integer>" in shown
        shown = run("explain", "--output=plaintext-openapiv2", "pods.spec.containers.ports")
        assert "containerPort\t<integer> -required-" in shown
