"""The command check: what it finds, what it skips, and how it ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from appsdk_operator import cli
from appsdk_operator.app import Permission
from appsdk_operator.project import dump_permissions

APP = """
from appsdk_operator import App, Kind, custom_resource_definition
import attrs

@attrs.frozen
class Spec:
    size: int = 1

app = App("checked-operator")
KIND = Kind(group="example.com", version="v1", kind="Widget", spec=Spec)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("checked_")]:
        del sys.modules[name]


def test_a_good_operator_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "checked_one.py").write_text(APP + "app.own(KIND)\n")
    assert cli.main(["check", "checked_one:app"]) == 0
    said = capsys.readouterr().out
    assert "ok       declarations" in said
    assert "ok       schemas" in said
    assert "skipped  deploy: deploy has no files of 'appsdk-operator manifests'" in said


def test_declarations_that_do_not_fit_are_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = """
OTHER = Kind(group="example.com", version="v2", kind="Widget", spec=Spec)
app.on_add(KIND)(lambda obj: None)
app.object_reconciler(OTHER)(lambda obj: None)
"""
    (folder / "checked_two.py").write_text(APP + more)
    assert cli.main(["check", "checked_two:app"]) == 1
    said = capsys.readouterr().out
    assert "FAILED   declarations" in said
    assert "its CRDs: " in said


def test_a_schema_that_no_server_takes_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "checked_three.py").write_text(APP + "app.own(KIND)\n")
    from appsdk_operator.app import App

    made = App.crds

    def broken(app: App, **options: object) -> list[object]:
        crds = made(app)
        del crds[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["type"]
        return list(crds)

    monkeypatch.setattr(App, "crds", broken)
    assert cli.main(["check", "checked_three:app"]) == 1
    said = capsys.readouterr().out
    assert "FAILED   schemas" in said
    assert "type: Required value" in said


def test_generated_files_that_are_not_current_are_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "checked_four.py").write_text(APP + "app.own(KIND)\n")
    assert cli.main(["manifests", "checked_four:app"]) == 0
    assert cli.main(["crds", "checked_four:app"]) == 0
    assert cli.main(["check", "checked_four:app"]) == 0
    assert cli.main(["check", "checked_four.py"]) == 0  # the same in other words
    del sys.modules["checked_four"]
    (folder / "checked_four.py").write_text(APP + "app.own(KIND, short_names=['wd'])\n")
    capsys.readouterr()
    assert cli.main(["check", "checked_four:app"]) == 1
    said = capsys.readouterr().out
    assert "FAILED   deploy\n         run 'appsdk-operator manifests checked_four:app'" in said
    assert "updated   deploy/base/crds.yaml" in said
    assert "FAILED   crds" in said


def test_a_kustomization_that_names_a_missing_file_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "checked_six.py").write_text(APP + "app.own(KIND)\n")
    assert cli.main(["manifests", "checked_six:app"]) == 0
    base = folder / "deploy/base"
    (base / "network_policy.yaml").unlink()
    assert cli.main(["manifests", "checked_six:app"]) == 0
    assert cli.main(["check", "checked_six:app"]) == 1
    assert "kustomization.yaml names the file network_policy.yaml" in capsys.readouterr().out
    path = base / "kustomization.yaml"
    remote = "- https://example.com/more.yaml\n"
    path.write_text(path.read_text().replace("- network_policy.yaml\n", remote))
    assert cli.main(["check", "checked_six:app"]) == 0
    path.write_text("resources: 5\n")
    assert cli.main(["check", "checked_six:app"]) == 1
    assert "kustomization.yaml cannot be read" in capsys.readouterr().out


def test_what_the_tests_needed_and_the_roles_lack_is_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "checked_six.py").write_text(APP + "app.own(KIND)\n")
    assert cli.main(["check", "checked_six:app"]) == 0
    assert "skipped  roles: there is no folder deploy" in capsys.readouterr().out
    (folder / "deploy").mkdir()
    assert cli.main(["check", "checked_six:app"]) == 0
    assert "skipped  roles: deploy: there is no ClusterRole" in capsys.readouterr().out
    needed = Permission(groups=[""], resources=["secrets"], verbs=["get"], reasons=["test_it"])
    (folder / "rbac-record.yaml").write_text(dump_permissions([needed]))
    assert cli.main(["rbac", "checked_six:app", "-o", "deploy/rbac"]) == 0
    assert cli.main(["check", "checked_six:app"]) == 0
    assert "ok       roles" in capsys.readouterr().out
    more = attrs.evolve(needed, verbs=["get", "delete"])
    (folder / "rbac-record.yaml").write_text(dump_permissions([more]))
    assert cli.main(["check", "checked_six:app"]) == 1
    said = capsys.readouterr().out
    assert "FAILED   roles\n         the roles in deploy lack delete on secrets: " in said
    assert "recorded in test_it" in said
    (folder / "rbac-record.yaml").write_text("{}")
    assert cli.main(["check", "checked_six:app"]) == 1
    assert "is not a record of permissions" in capsys.readouterr().out


def test_without_the_extra_for_tests_schemas_are_skipped(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "checked_five.py").write_text(APP)
    monkeypatch.setitem(sys.modules, "appsdk_operator.testing", None)
    assert cli.main(["check", "checked_five:app"]) == 0
    assert "skipped  schemas" in capsys.readouterr().out
