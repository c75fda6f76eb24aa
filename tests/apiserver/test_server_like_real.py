"""kubectl explain, unknown kinds, OpenAPI v2 and refused WebSockets: as at the real server."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import yaml

from appsdk_operator.apiserver import APIServer
from appsdk_operator.testing import ControlPlane
from tests.apiserver.kubectl_tools import run_kubectl
from tests.definitions import widget_definition
from tests.waiting import eventually

pytestmark = pytest.mark.real
needs_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl on PATH")

GROUP = "beside.example.com"
# Servers before 1.24 have no document of version 3, so kubectl would print each in another form.
AS_V2 = (f"--api-version={GROUP}/v1", "--output=plaintext-openapiv2")
SCHEMA = {
    "description": "A widget.",
    "properties": {
        "spec": {
            "description": "What is wanted.",
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "integer", "description": "How large."},
                "parts": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"name": {"type": "string"}}},
                },
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            },
        },
    },
}


def definition() -> dict[str, Any]:
    made = widget_definition(SCHEMA)
    made["metadata"]["name"] = f"widgets.{GROUP}"
    made["spec"]["group"] = GROUP
    return made


@attrs.frozen
class Both:
    """The kubeconfigs of an embedded server and of the real one, with the same CRD."""

    ours: Path
    theirs: Path

    def said(self, *arguments: str, stdin: Any = None, fails: bool = False) -> list[str]:
        """What kubectl prints with each, on standard error if it fails."""
        found = []
        for config in (self.ours, self.theirs):
            done = run_kubectl(config, *arguments, stdin=stdin, fails=fails)
            found.append(done.stderr if fails else done.stdout)
        return found


@pytest.fixture(scope="module")
def both(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folders = [tmp_path_factory.mktemp(name) for name in ("ours", "theirs")]
    configs = Both(*(folder / "config" for folder in folders))
    with APIServer(tls=True, token="let-me-in", crds=[definition()]) as server:
        server.write_kubeconfig(configs.ours)
        configs.theirs.write_text(yaml.safe_dump(control_plane.kubeconfig()), encoding="utf-8")
        run_kubectl(configs.theirs, "apply", "-f", "-", stdin=definition())

        def is_published() -> bool:
            document = run_kubectl(configs.theirs, "get", "--raw", "/openapi/v2").stdout
            return "com.example.beside.v1.Widget" in document

        assert eventually(is_published)
        try:
            yield configs
        finally:
            run_kubectl(configs.theirs, "delete", "crd", f"widgets.{GROUP}")


@needs_kubectl
@pytest.mark.parametrize(
    "path",
    [
        *("widgets.spec", "widgets.spec.size", "widgets.spec.parts", "widgets.spec.parts.name"),
        *("widgets.spec.labels", "widgets.spec.any", "widgets.spec.size.unit"),
    ],
)
def test_kubectl_explains_the_fields_of_a_custom_kind_alike(both: Both, path: str) -> None:
    ours, theirs = both.said("explain", path, *AS_V2)
    assert ours == theirs


@needs_kubectl
def test_kubectl_explains_a_custom_kind_alike_but_for_the_words_about_built_in_fields(
    both: Both,
) -> None:
    ours, theirs = (
        [line for line in text.splitlines() if "\t<" in line or "A widget." in line]
        for text in both.said("explain", "widgets", *AS_V2)
    )
    assert ours == theirs
    assert len(ours) == 5


@needs_kubectl
def test_kubectl_explains_no_field_that_is_not_there(both: Both) -> None:
    ours, theirs = both.said("explain", "widgets.spec.sise", *AS_V2, fails=True)
    assert ours == theirs


@needs_kubectl
@pytest.mark.parametrize(
    ("version", "kind"),
    [(f"{GROUP}/v1", "Gadget"), (f"{GROUP}/v2", "Widget"), ("none.example.com/v1", "Widget")],
)
@pytest.mark.parametrize("verb", ["create", "apply"])
def test_kubectl_is_refused_an_unknown_kind_alike(
    both: Both, verb: str, version: str, kind: str
) -> None:
    obj = {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}, "spec": {"size": 1}}
    ours, theirs = both.said(verb, "-f", "-", stdin=obj, fails=True)
    assert ours == theirs
    assert f'no matches for kind "{kind}" in version "{version}"' in ours


@needs_kubectl
def test_the_document_of_version_2_describes_a_custom_kind_alike(both: Both) -> None:
    found = [yaml.safe_load(text) for text in both.said("get", "--raw", "/openapi/v2")]
    ours, theirs = (
        {
            name: each
            for name, each in document["definitions"].items()
            if name.startswith("com.example.beside.")
        }
        for document in found
    )
    assert set(ours) == set(theirs)
    name = "com.example.beside.v1.Widget"
    assert ours[name]["properties"]["spec"] == theirs[name]["properties"]["spec"]
    for key in ("description", "type", "x-kubernetes-group-version-kind"):
        assert ours[name].get(key) == theirs[name].get(key), key
    paths = [
        {
            path: set(each) - {"parameters"}
            for path, each in document["paths"].items()
            if GROUP in path
        }
        for document in found
    ]
    assert paths[0] == paths[1]


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, "watch=true"),
        ({"Origin": "http://here"}, "watch=true&resourceVersion=abc"),
        ({"Origin": "http://here", "Sec-WebSocket-Version": "5"}, "watch=true"),
    ],
)
def test_a_websocket_is_refused_with_the_same_status(
    api: Any, real_api: Any, headers: dict[str, str], query: str
) -> None:
    handshake = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    }
    ours, theirs = (
        each.get(f"{each.maps}?{query}", **{**handshake, **headers}) for each in (api, real_api)
    )
    assert ours.status == theirs.status


@pytest.mark.parametrize(
    "accept",
    ["text/html", "application/yaml", "", "*/*", "application/*", "text/html, application/json"],
)
def test_the_document_of_version_2_is_refused_to_the_same_clients(
    api: Any, real_api: Any, accept: str
) -> None:
    ours, theirs = (each.get("/openapi/v2", Accept=accept) for each in (api, real_api))
    assert ours.status == theirs.status
