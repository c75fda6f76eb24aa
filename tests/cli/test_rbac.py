"""The command that makes, records and checks roles."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from appsdk_operator import cli
from appsdk_operator.app import Permission
from appsdk_operator.project import dump_permissions, load_permissions
from appsdk_operator.resource import load_yaml

PROGRAM = """
from appsdk_operator import App, Kind

app = App("bucket-operator")


@app.on_add(Kind(group="example.com", version="v1", kind="Bucket"))
def make(bucket):
    pass
"""
WEBHOOK = """

@app.validate(Kind(group="example.com", version="v1", kind="Bucket"))
def refuse(bucket):
    pass
"""
SECRETS = Permission(groups=[""], resources=["secrets"], verbs=["get"], reasons=["test_it"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an operator whose tests needed a secret."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "buckets.py").write_text(PROGRAM)
    (tmp_path / "rbac-record.yaml").write_text(dump_permissions([SECRETS]))
    return tmp_path


def test_the_roles_have_what_is_declared_and_what_was_recorded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rbac", "buckets.py", "-o", "deploy", "-n", "storage"]) == 0
    (role,) = (
        each
        for each in load_yaml((folder / "deploy/role.yaml").read_text())
        if each["kind"] == "ClusterRole"
    )
    assert {"buckets", "secrets"} <= {each["resources"][0] for each in role["rules"]}
    assert "get recorded in test_it" in (folder / "deploy/role.yaml").read_text()
    assert "namespace: storage" in (folder / "deploy/service_account.yaml").read_text()
    assert "created" in capsys.readouterr().out
    assert (
        cli.main(["rbac", "roles", "buckets.py", "-o", "deploy", "-n", "storage", "--check"]) == 0
    )


def test_roles_that_were_made_are_enough(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["rbac", "buckets.py", "-o", "deploy"]) == 0
    assert cli.main(["rbac", "check", "buckets.py", "--strict"]) == 0
    said = capsys.readouterr().out
    assert "the roles allow all" in said
    assert " on buckets.example.com, by ClusterRole bucket-operator; declared: watchers get" in said
    assert folder.exists()


def test_what_the_roles_lack_fails_the_check_with_the_test_that_needs_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rbac", "buckets.py", "-o", "deploy"]) == 0
    both = Permission(
        groups=[""], resources=["secrets"], verbs=["get", "delete"], reasons=["test_b"]
    )
    (folder / "rbac-record.yaml").write_text(dump_permissions([both]))
    assert cli.main(["rbac", "check", "buckets.py"]) == 1
    assert "missing: delete on secrets" in capsys.readouterr().out


def test_strict_refuses_what_nothing_needs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rbac", "buckets.py", "-o", "deploy"]) == 0
    (folder / "rbac-record.yaml").write_text(dump_permissions([]))
    assert cli.main(["rbac", "check", "buckets.py"]) == 0
    assert cli.main(["rbac", "check", "buckets.py", "--strict"]) == 1
    assert "unused:  get on secrets, by ClusterRole" in capsys.readouterr().out


def test_what_the_manifests_add_is_needed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "buckets.py").write_text(PROGRAM + WEBHOOK)
    (folder / "rbac-record.yaml").write_text(dump_permissions([]))
    options = ["--certificates", "managed", "--leader-election"]
    assert cli.main(["manifests", "buckets.py", "-o", "deploy", *options]) == 0
    assert cli.main(["rbac", "check", "buckets.py", "--strict"]) == 0
    said = capsys.readouterr().out
    assert "declared: the leader election of bucket-operator" in said
    assert "declared: its Secret has the certificates of the webhooks" in said


@pytest.mark.parametrize(
    ("removed", "error"),
    [("rbac-record.yaml", "appsdk-operator rbac record"), ("deploy", "no ClusterRole and no Role")],
)
def test_what_is_not_there_is_named_with_the_command_that_makes_it(
    removed: str, error: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "deploy").mkdir()
    if removed != "deploy":
        (folder / removed).unlink()
    assert cli.main(["rbac", "check", "buckets.py"]) == 1
    assert error in capsys.readouterr().err


@pytest.mark.programs
@pytest.mark.timeout(400)
def test_tests_are_run_and_recorded(folder: Path) -> None:
    (folder / "test_it.py").write_text(
        "from appsdk_operator import Client, kinds\n"
        "def test_it(kube_config, kube_namespace):\n"
        "    with Client(kube_config) as client:\n"
        "        client.list_page(kinds.core.v1.Pod, namespace=kube_namespace)\n"
    )
    status = cli.main(["rbac", "record", "--", sys.executable, "-m", "pytest", "-q", "test_it.py"])
    assert status == 0
    (found,) = load_permissions(folder / "rbac-record.yaml")
    assert (found.resources, found.verbs, found.reasons) == (("pods",), ("list",), ("test_it",))


def test_a_command_that_records_nothing_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["rbac", "record", "--", "true"]) == 1
    assert "did not write rbac-record.yaml" in capsys.readouterr().err
    assert cli.main(["rbac", "record", "--", "no-such-program"]) == 1
    assert "cannot be run" in capsys.readouterr().err
    assert load_permissions(folder / "rbac-record.yaml") == (SECRETS,)
