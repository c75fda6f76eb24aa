"""The real kubectl against the server, unmodified."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from appsdk_operator.apiserver import APIServer
from tests.apiserver.kubectl_tools import run_kubectl

KUBECTL = shutil.which("kubectl")

pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH")

Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(tmp_path: Path, widget_crd: Any) -> Iterator[Kubectl]:
    """Run kubectl against a server with TLS and a token; what it printed."""
    with APIServer(tls=True, token="let-me-in") as server:
        config = tmp_path / "config"
        server.write_kubeconfig(config)
        (tmp_path / "crd.yaml").write_text(yaml.safe_dump(widget_crd))
        editor = "sed -i s/size:.2/size:\\ 5/"

        def run(*arguments: str, stdin: Any = None, fails: bool = False) -> str:
            done = run_kubectl(config, *arguments, stdin=stdin, fails=fails, KUBE_EDITOR=editor)
            return done.stderr if fails else done.stdout

        yield run


def test_custom_resources_from_definition_to_deletion(kubectl: Kubectl, new_widget: Any) -> None:
    kubectl("create", "-f", "crd.yaml")
    kubectl("wait", "--for=condition=established", "crd/widgets.example.com", "--timeout=60s")
    assert "wd" in kubectl("api-resources", "--api-group=example.com")
    assert "created" in kubectl("apply", "-f", "-", stdin=new_widget("a"))
    assert "configured" in kubectl("apply", "-f", "-", stdin=new_widget("a", size=2))
    assert "unchanged" in kubectl("apply", "-f", "-", stdin=new_widget("a", size=2))
    assert kubectl("get", "widgets").split() == ["NAME", "SIZE", "a", "2"]
    kubectl("edit", "wd", "a")
    assert kubectl("get", "wd", "a", "-o", "jsonpath={.spec.size}") == "5"
    kubectl("scale", "wd", "a", "--replicas=3")
    kubectl("patch", "wd", "a", "--type=merge", "-p", '{"spec":{"mode":"b"}}')
    kubectl("label", "wd", "a", "tier=web")
    kubectl("annotate", "wd", "a", "note=x")
    spec = kubectl("get", "wd", "-l", "tier=web", "-o", "jsonpath={.items[0].spec}")
    assert spec == '{"mode":"b","replicas":3,"size":5}'
    assert "size\t<integer>" in kubectl("explain", "widget.spec")
    refused = kubectl("create", "-f", "-", stdin=new_widget("b", junk=1), fails=True)
    assert 'unknown field "spec.junk"' in refused
    kubectl("delete", "crd", "widgets.example.com")
    assert "NotFound" in kubectl("get", "widgets", fails=True)


def test_built_in_kinds_are_applied_with_their_merge_keys(kubectl: Kubectl) -> None:
    containers = [{"name": "a", "image": "x"}, {"name": "b", "image": "z"}]
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": containers}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
    kubectl("apply", "-f", "-", stdin=deployment)
    containers.pop()
    containers[0]["image"] = "z"
    assert "configured" in kubectl("apply", "-f", "-", stdin=deployment)
    path = "jsonpath={range .spec.template.spec.containers[*]}{.name}={.image} {end}"
    assert kubectl("get", "deploy", "web", "-o", path) == "a=z "
    kubectl("scale", "deploy/web", "--replicas=4")
    assert kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "4"
    assert "deployment.apps/web" in kubectl("get", "all")
    assert "KIND:       Deployment" in kubectl("explain", "deployment")
    kubectl("delete", "deploy", "web")
    assert "NotFound" in kubectl("get", "deploy", "web", fails=True)


def test_namespaces_are_made_and_deleted_with_their_content(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "n")
    kubectl("create", "configmap", "m", "-n", "n", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "s", "-n", "n", "--from-literal=a=b")
    kubectl("create", "serviceaccount", "sa", "-n", "n")
    assert kubectl("get", "cm", "m", "-n", "n", "-o", "jsonpath={.data}") == '{"a":"b"}'
    assert kubectl("get", "secret", "s", "-n", "n", "-o", "jsonpath={.data}") == '{"a":"Yg=="}'
    kubectl("delete", "namespace", "n")
    assert "NotFound" in kubectl("get", "namespace", "n", fails=True)
    assert kubectl("auth", "can-i", "delete", "pods").strip() == "yes"


def test_a_server_without_tls_and_token_needs_no_credentials(tmp_path: Path) -> None:
    with APIServer() as server:
        config = tmp_path / "config"
        server.write_kubeconfig(config)
        done = subprocess.run(
            [str(KUBECTL), "get", "namespaces", "-o", "name"],
            env={**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(config)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        assert "namespace/default" in done.stdout
