"""The source distribution has what its tests need, and a changelog of its version."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

import appsdk_operator
from hack import dist

ROOT = Path(__file__).parents[1]


def _included() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    # hatchling adds the project's file by itself.
    return {name.removeprefix("/") for name in listed} | {"pyproject.toml"}


def _needed(source: str) -> set[str]:
    """What of the repository's root a test imports or reads."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            # Paths such as "hack/build.sh", and "Makefile".
            word = re.match(r"([\w.-]+)(/[\w./-]+)?\Z", node.value)
            if word is not None and (word[2] or "." in word[1] or word[1][0].isupper()):
                found.add(word[1])
    return found


def test_whatever_the_tests_import_or_read_is_part_of_it() -> None:
    # Of these the tests name only those that other projects have, and the site if it was built.
    foreign = {".git", ".github", ".gitignore", ".venv", ".ci", "build"}
    there = {path.name for path in ROOT.iterdir()} - foreign
    needed: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        needed |= _needed(path.read_text(encoding="utf-8"))
    assert needed & there <= _included()
    assert {"benchmarks", "hack", "Makefile"} <= needed


def test_the_changelog_has_a_section_for_the_version() -> None:
    version = re.escape(appsdk_operator.__version__)
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{version}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE)


UNRELEASED, RELEASED = "## [Unreleased]\n\n", "## [1.2.0] - 2026-01-31\n\n"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (UNRELEASED + RELEASED + "- A line.\n", None),
        (RELEASED + "### Added\n\n- A line.\n\n## [1.1.0] - 2026-01-01\n\n- Another.\n", None),
        (UNRELEASED + "- A line.\n\n" + RELEASED + "- A line.\n", "has lines under Unreleased"),
        (UNRELEASED + RELEASED, "says nothing about 1.2.0"),
        (UNRELEASED + "## [1.2.0]\n\n- A line.\n", "has no heading"),
        (UNRELEASED + RELEASED.replace(".", "x") + "- A line.\n", "has no heading"),
        ("# Changelog\n", "has no heading"),
    ],
)
def test_a_release_needs_its_section_of_the_changelog(text: str, problem: str | None) -> None:
    found = dist.problem_of_changelog("# Changelog\n\n" + text, "1.2.0")
    assert found is problem or (problem is not None and found is not None and problem in found)
