"""The commands that deploy an operator, and take it away."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from appsdk_operator import cli, kinds
from appsdk_operator.apiserver import APIServer
from appsdk_operator.app import Permission
from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.project import dump_permissions
from appsdk_operator.resource import MutableObject
from appsdk_operator.testing import install_crds
from tests.project.operators import full

LEASE = kinds.coordination.v1.Lease


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an operator; the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    (tmp_path / "operator_of_buckets.py").write_text(
        "from tests.project.operators import full\napp = full()\n"
    )
    return tmp_path


def test_settings_of_the_project_hold_unless_they_are_overridden(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(
        '[tool.appsdk-operator.manifests]\nimage = "team/a:1"\nreplicas = 4\n'
        'priority-class = "high"\n'
    )
    assert cli.main(["manifests", "operator_of_buckets.py:app", "--replicas", "3"]) == 0
    text = (folder / "deploy" / "base" / "deployment.yaml").read_text()
    assert "image: team/a:1\n" in text
    assert "replicas: 3\n" in text
    assert "priorityClassName: high\n" in text
    assert "- operator_of_buckets.py:app\n" in text


def test_check_names_what_is_stale_and_edits_survive(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "operator_of_buckets.py:app"
    assert cli.main(["manifests", target]) == 0
    assert cli.main(["manifests", target, "--check"]) == 0
    assert cli.main(["manifests", target, "--check", "--replicas=7"]) == 1
    assert "base/deployment.yaml" in capsys.readouterr().out
    path = folder / "deploy" / "base" / "deployment.yaml"
    path.write_text(path.read_text().replace("- name: operator\n", "- name: operator  # ours\n"))
    assert cli.main(["manifests", target, "--replicas=7"]) == 0
    assert "# ours" in path.read_text()
    assert "replicas: 7" in path.read_text()
    # A chart is another set of files beside these.
    assert cli.main(["manifests", target, "--helm"]) == 0
    assert path.exists()
    assert (folder / "deploy" / "chart" / "values.schema.json").exists()


@pytest.mark.parametrize(
    ("setting", "error"),
    [
        ("replica = 3", "has the unknown setting replica: use"),
        ('image = "two words"', "is not an image"),
        ("replicas = 'many'", "replicas"),
        ('helm = "false"', "helm="),
        ("helm = true\nchart-version = 1", "version=1"),
        ("helm = true\nchart-version = ''", "version=''"),
        ("= 3", "pyproject.toml cannot be read"),
        ("cpu = 'fast'", "is not a quantity of CPU"),
        ("cpu = ''", "is not a quantity of CPU"),
        ("python = ''", "is not a version of Python"),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_it(
    folder: Path, setting: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(f"[tool.appsdk-operator.manifests]\n{setting}\n")
    assert cli.main(["manifests", "operator_of_buckets.py:app"]) == 1
    assert error in capsys.readouterr().err
    assert not (folder / "deploy").exists()


@pytest.mark.parametrize(
    "text", ["tool = 5", "[tool]\nappsdk-operator = 5", "[tool.appsdk-operator]\nmanifests = 5"]
)
def test_settings_that_are_no_table_are_an_error_that_names_it(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "pyproject.toml").write_text(text)
    assert cli.main(["manifests", "operator_of_buckets.py:app"]) == 1
    assert "tool.appsdk-operator.manifests is not a table" in capsys.readouterr().err


def test_a_file_outside_of_the_image_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["manifests", "../other.py:app"]) == 1
    assert "not below the current folder" in capsys.readouterr().err


def test_uninstall_asks_before_it_deletes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["uninstall", "operator_of_buckets.py:app", "--kubeconfig", "config"]
    with APIServer() as server:
        server.write_kubeconfig(folder / "config")
        with Client(ClientConfig(server=server.url)) as client:
            install_crds(client, full().crds(url="https://127.0.0.1:1"))
            lease = MutableObject.new(LEASE, "bucket-operator", namespace="bucket-operator")
            client.create(MutableObject.new(kinds.core.v1.Namespace, "bucket-operator"))
            client.create(lease)
            answers = iter([False, True])
            monkeypatch.setattr("click.confirm", lambda *_, **__: next(answers) or _abort())
            assert cli.main([*command, "--dry-run"]) == 0
            assert "4 steps; nothing was changed" in capsys.readouterr().out
            assert cli.main(command) == 130
            assert client.get(LEASE, "bucket-operator", namespace="bucket-operator")
            assert cli.main(command) == 0
            assert "delete   Lease bucket-operator/bucket-operator" in capsys.readouterr().out
            assert cli.main([*command, "--yes"]) == 0
            assert "nothing of bucket-operator is on" in capsys.readouterr().out


def test_uninstall_finds_the_roles_of_what_tests_needed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pods = Permission(groups=[""], resources=["pods"], verbs=["get"], namespace="elsewhere")
    (folder / "rbac-record.yaml").write_text(dump_permissions([pods]))
    command = ["uninstall", "operator_of_buckets.py:app", "--kubeconfig", "config", "--yes"]
    with APIServer() as server:
        server.write_kubeconfig(folder / "config")
        with Client(ClientConfig(server=server.url)) as client:
            client.create(MutableObject.new(kinds.core.v1.Namespace, "elsewhere"))
            labels = {"app.kubernetes.io/name": "bucket-operator"}
            role = MutableObject.new(
                kinds.rbac.v1.Role,
                "bucket-operator",
                namespace="elsewhere",
                metadata={"labels": labels},
            )
            client.create(role)
        assert cli.main(command) == 0
    assert "delete   Role elsewhere/bucket-operator" in capsys.readouterr().out


def _abort() -> None:
    raise click.Abort


def test_uninstall_says_what_is_wrong_with_the_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["uninstall", "operator_of_buckets.py:app", "--kubeconfig", "none"]
    assert cli.main(command) == 1
    assert "there is no kubeconfig at none" in capsys.readouterr().err
