"""Server-side apply with kubectl and with conversion and admission webhooks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from appsdk_operator.apiserver import APIServer

KUBECTL = shutil.which("kubectl")
APPLY = "application/apply-patch+yaml"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

Kubectl = Callable[..., subprocess.CompletedProcess[str]]


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data}


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """Run kubectl against a server of its own."""
    if KUBECTL is None:
        pytest.skip("kubectl is not on PATH")
    with APIServer() as server:
        config = tmp_path / "config"
        server.write_kubeconfig(config)
        environment = {**os.environ, "HOME": str(tmp_path), "KUBECONFIG": str(config)}

        def run(*arguments: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
            return subprocess.run(
                [str(KUBECTL), *arguments],
                env=environment,
                input=json.dumps(stdin) if stdin is not None else "",
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )

        yield run


def owners(kubectl: Kubectl) -> dict[str, str]:
    """The operation of each manager, as ``kubectl get --show-managed-fields`` shows them."""
    shown = kubectl("get", "configmap", "a", "-o", "json", "--show-managed-fields")
    entries = json.loads(shown.stdout)["metadata"]["managedFields"]
    return {entry["manager"]: entry["operation"] for entry in entries}


def test_kubectl_applies_on_the_server_and_is_told_of_conflicts(kubectl: Kubectl) -> None:
    server_side = ("apply", "--server-side", "-f", "-")
    made = kubectl(*server_side, stdin=config_map(a="1", b="2"))
    assert made.stdout == "configmap/a serverside-applied\n"
    assert owners(kubectl) == {"kubectl": "Apply"}
    other = (*server_side, "--field-manager=other")
    refused = kubectl(*other, stdin=config_map(b="3"))
    assert refused.returncode == 1
    assert 'Apply failed with 1 conflict: conflict with "kubectl": .data.b' in refused.stderr
    assert kubectl(*other, "--force-conflicts", stdin=config_map(b="3")).returncode == 0
    assert kubectl(*server_side, stdin=config_map(a="1")).returncode == 0
    assert kubectl("get", "configmap", "a", "-o", "jsonpath={.data}").stdout == '{"a":"1","b":"3"}'


def test_kubectl_shows_what_an_apply_on_the_server_would_change(kubectl: Kubectl) -> None:
    kubectl("apply", "--server-side", "-f", "-", stdin=config_map(a="1"))
    diff = ("diff", "--server-side", "-f", "-")
    assert kubectl(*diff, stdin=config_map(a="1")).returncode == 0
    shown = kubectl(*diff, stdin=config_map(a="2"))
    assert shown.returncode == 1
    assert '+  a: "2"' in shown.stdout
    assert kubectl("get", "configmap", "a", "-o", "jsonpath={.data.a}").stdout == "1"


def test_kubectl_moves_from_applying_itself_to_the_server(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=config_map(a="1", b="2"))
    assert owners(kubectl) == {"kubectl-client-side-apply": "Update"}
    moved = kubectl("apply", "--server-side", "-f", "-", stdin=config_map(a="2"))
    assert (moved.returncode, moved.stderr) == (0, "")
    read = kubectl("get", "configmap", "a", "-o", "json").stdout
    assert json.loads(read)["data"]["a"] == "2"
    assert json.loads(json.loads(read)["metadata"]["annotations"][LAST_APPLIED])["data"] == {
        "a": "2"
    }
    again = kubectl("apply", "-f", "-", stdin=config_map(a="3"))
    assert "configured" in again.stdout


def test_an_apply_that_loses_to_its_own_schema_says_so(api: Any) -> None:
    body = {**config_map(a="1"), "data": {"a": 1}}
    refused = api.patch(f"{api.maps}/a?fieldManager=me", body, APPLY)
    assert refused.status == 500
    assert refused["message"].endswith(
        ".data.a: expected string, got &value.valueUnstructured{Value:1}"
    )


def test_a_widget_changes_hands(api: Any) -> None:
    widget = {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"}}
    path = f"{api.widgets}/a?fieldManager="
    made = api.patch(f"{path}one", {**widget, "spec": {"size": 1}}, APPLY)
    assert made.status == 201
    refused = api.patch(f"{path}two", {**widget, "spec": {"size": 2}}, APPLY)
    assert (refused.status, refused["reason"]) == (409, "Conflict")
    assert refused["details"] == {
        "causes": [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "one"',
                "field": ".spec.size",
            }
        ]
    }
    forced = api.patch(f"{path}two&force=true", {**widget, "spec": {"size": 2}}, APPLY)
    assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == ["two"]
    gone = api.patch(f"{path}two", widget, APPLY)
    assert "managedFields" not in gone["metadata"]
    assert not gone.body.get("spec")
