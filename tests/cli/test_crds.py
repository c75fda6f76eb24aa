"""``appsdk-operator crds``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from appsdk_operator.cli import _frame
from appsdk_operator.resource import load_yaml

APP = """
import attrs
from appsdk_operator import App, Kind

@attrs.frozen
class Spec:
    max_size: int = {default}

WIDGET = Kind(
    group="crds.example.com", version="v1", kind="Widget", spec=Spec, rename="camel"
)
app = App("widgets")
app.own(WIDGET)
"""


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def crds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, default: int = 0) -> tuple[int, str]:
        name = f"app_of_{default}.py"
        Path(name).write_text(APP.format(default=default))
        status = _frame.run(["crds", f"./{name}:app", *arguments])
        captured = capsys.readouterr()
        return status, captured.out + captured.err

    return run


def test_crds_are_written_printed_and_checked(crds: Run) -> None:
    assert crds("--check")[0] == 1
    assert crds()[0] == 0
    text = Path("deploy/crds/widgets.crds.example.com.yaml").read_text()
    assert text.startswith("---\n"), "several files can be put after one another"
    assert "maxSize:" in text
    assert crds("-o", "-") == (0, text)
    assert crds("--check")[0] == 0


def test_kinds_that_do_not_fit_are_an_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    more = """
OTHER = Kind(group="crds.example.com", version="v2", kind="Widget", spec=Spec)
app.on_add(OTHER)(lambda obj: None)
"""
    Path("app_that_does_not_fit.py").write_text(APP.format(default=0) + more)
    assert _frame.run(["crds", "app_that_does_not_fit.py:app"]) == 1
    assert "is handled in v1 and in v2" in capsys.readouterr().err


def test_what_breaks_is_printed_with_the_status_1(crds: Run) -> None:
    crds("-o", "old")
    assert crds("--check", "old") == (0, "nothing breaks\n")
    status, said = crds("--check", "old/widgets.crds.example.com.yaml", default=3)
    assert status == 1
    assert "spec.maxSize: its default changed from 0 to 3, which breaks clients" in said


@pytest.mark.parametrize(
    ("name", "other"), [("widgets", "gadgets"), ("crds.example.com", "former.example.com")]
)
@pytest.mark.parametrize("is_in_list", [False, True])
def test_a_kind_that_the_app_no_longer_has_is_reported(
    crds: Run, name: str, other: str, is_in_list: bool
) -> None:
    crds("-o", "old")
    path = Path("old/widgets.crds.example.com.yaml")
    text = path.read_text().replace(name, other)
    if is_in_list:
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(load_yaml(text))})
    path.write_text(text)
    status, said = crds("--check", "old")
    assert status == 1
    assert "the App does not have this kind" in said


def test_a_folder_without_crds_is_an_error(crds: Run) -> None:
    Path("empty").mkdir()
    status, said = crds("--check", "empty")
    assert status == 1
    assert "has no CustomResourceDefinition: give" in said
