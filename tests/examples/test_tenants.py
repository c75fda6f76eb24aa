"""The operator in examples/tenants, which is a project of its own: its tests, and how it starts."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from appsdk_operator import Client, ClientConfig, Kind, MutableObject, cli
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.resource import Scope

PROJECT = Path(__file__).parents[2] / "examples/tenants"
TENANT = Kind(group="tenants.example.com", version="v1", kind="Tenant", scope=Scope.CLUSTER)


@pytest.fixture
def _in_the_project(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The project's folder as the current one; its modules are forgotten afterwards."""
    monkeypatch.chdir(PROJECT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.partition(".")[0] == "tenants_operator":
            del sys.modules[name]


def its_tests(*options: str) -> None:
    """Run the tests of the project as its README says."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=PROJECT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    assert re.search(r"^\d+ passed\b", done.stdout, re.MULTILINE)


@pytest.mark.programs
@pytest.mark.long
@pytest.mark.timeout(400)
def test_its_tests_pass() -> None:
    its_tests()


@pytest.mark.real
@pytest.mark.programs
@pytest.mark.long
@pytest.mark.timeout(400)
def test_its_tests_pass_on_a_real_control_plane() -> None:
    its_tests("--kube=control-plane", "--deselect=tests/test_promise.py")  # it needs no server


@pytest.mark.usefixtures("_in_the_project")
def test_its_manifests_are_current_and_its_role_suffices() -> None:
    # Otherwise run `appsdk-operator manifests tenants_operator:app` there, and commit the changes.
    assert cli.main(["check", "tenants_operator:app"]) == 0


@pytest.mark.programs
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("overlay", ["development", "production"])
def test_kubectl_makes_its_manifests(overlay: str) -> None:
    done = subprocess.run(
        ["kubectl", "kustomize", PROJECT / "deploy/overlays" / overlay],
        check=True,
        capture_output=True,
        text=True,
    )
    found = {each["kind"]: each for each in yaml.safe_load_all(done.stdout)}
    (volume,) = [
        each["persistentVolumeClaim"]["claimName"]
        for each in found["Deployment"]["spec"]["template"]["spec"]["volumes"]
        if "persistentVolumeClaim" in each
    ]
    assert volume == found["PersistentVolumeClaim"]["metadata"]["name"]


@pytest.mark.programs
def test_it_runs_in_dev_mode_and_its_samples_are_taken(tmp_path: Path) -> None:
    environment = {name: v for name, v in os.environ.items() if not name.startswith("KUBE")}
    with subprocess.Popen(
        [sys.executable, "-m", "appsdk_operator", "run", "tenants_operator:app", "--dev"],
        cwd=PROJECT,
        env={**environment, "TENANTS_ACCOUNTS": str(tmp_path / "accounts.sqlite")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            kubeconfig = ""
            for line in process.stdout:
                kubeconfig = line.partition("KUBECONFIG=")[2].strip() or kubeconfig
                if "tenants-operator has started" in line:
                    break
            with Client(ClientConfig.from_kubeconfig(kubeconfig)) as client:
                for name in ("tenant", "grant"):
                    sample = yaml.safe_load((PROJECT / f"samples/{name}.yaml").read_text())
                    kind = client.discovery.kind_for(
                        sample["kind"], api_version=sample["apiVersion"]
                    )
                    made = client.create(MutableObject(kind, sample))
                    wait_for(
                        client,
                        kind,
                        made.name,
                        until.condition_true("Ready"),
                        namespace=made.namespace,
                    )
                client.delete(TENANT, "red")
                wait_for(client, TENANT, "red", until.deleted())
            process.send_signal(signal.SIGINT)
            said = process.stdout.read()
        finally:
            process.kill()
    assert process.returncode == 0, said
    assert "Traceback" not in said
