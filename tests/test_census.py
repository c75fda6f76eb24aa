"""The census of the package counts what is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.census import census, main

MODULE = '''"""Two lines
of docstring."""

import os  # a comment


class LimitOptions:
    """One line."""

    text = """not
a docstring"""
    # A comment.
'''


@pytest.fixture
def package(tmp_path: Path) -> Path:
    room = tmp_path / "appsdk_operator" / "cache"
    room.mkdir(parents=True)
    (room / "_limits.py").write_text(MODULE)
    (room / "__init__.pyi").write_text(
        'from a import (\n    B as B,\n    C as C,\n)\n\n"""Others."""\n\nfrom a import D as D\n'
    )
    return tmp_path


def test_lines_code_docstrings_names_and_options_are_counted(package: Path) -> None:
    assert census(package / "appsdk_operator")["cache"] == {
        "files": 1,
        "lines": 12,
        "code": 4,
        "docstrings": 3,
        "options": 1,
        "public names": 2,
    }


def test_the_table_has_a_line_for_each_room_and_one_for_all(
    package: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main([f"{package}"])
    head, room, total = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["room", "files"]
    assert room.split() == ["cache", "1", "12", "4", "3", "2", "1"]
    assert total.split() == ["all", "1", "12", "4", "3", "2", "1"]
