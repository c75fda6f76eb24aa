"""hack/user_types.py says at its end what is wrong: what its tools say before may be long."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from hack import user_types


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a tool that is run."""
    monkeypatch.setattr(user_types, "SCRIPTS", tmp_path)
    return tmp_path / "tool"


def write(tool: Path, text: str, status: int) -> None:
    """Have the tool say ``text`` and end with ``status``."""
    tool.write_text(f"#!{sys.executable}\nprint({text!r})\nraise SystemExit({status})\n")
    tool.chmod(0o755)


def test_a_tool_that_is_content_says_nothing(
    tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tool, "0 errors", 0)
    assert user_types.run("the pages", "tool", ".", cwd=tmp_path) == ""
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (
            "a.py:1:2 - error: no such name\n  b.py:3: error: none\nSymbols: 3\n",
            "a.py:1:2 - error: no such name, and 1 more",
        ),
        (
            "error: Type of parameter is unknown\nSymbols exported: 3\n",
            "error: Type of parameter is unknown",
        ),
        ("cannot start", "status 3"),
    ],
)
def test_what_is_wrong_is_told_in_a_line(
    tool: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: str, problem: str
) -> None:
    write(tool, said, 3)
    found = user_types.run("the pages", "tool", ".", cwd=tmp_path)
    assert found.startswith(f"the pages: {problem}")
    assert "\n" not in found
    assert said in capsys.readouterr().out


def test_the_last_line_has_all_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(what: str, *_: object, cwd: Path) -> str:
        return "" if "the cases" in what else f"{what}: wrong"

    monkeypatch.setattr(user_types, "run", run)
    assert user_types.main() == 1
    assert capsys.readouterr().out.splitlines()[-1] == (
        "types that users see: the public names: wrong; pyright: wrong; mypy, the pages: wrong"
    )
    monkeypatch.setattr(user_types, "run", lambda *_, **__: "")
    assert user_types.main() == 0
    assert capsys.readouterr().out.splitlines()[-1] == "types that users see: ok"
