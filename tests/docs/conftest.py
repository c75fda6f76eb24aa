"""What the tests of the documentation share: its pages, taken apart."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_SAVED = re.compile(r"[Ss]ave\s(?:this|it)\sas\s`([\w./]+)`[^\n]*\n+\Z")
_EDITED = {
    "end": re.compile(r"Add\sthis\sto\sthe\send\sof\s`([\w./]+)`():\n+\Z"),
    "imports": re.compile(r"Add\sthis\sto\sthe\simports\sof\s`([\w./]+)`():\n+\Z"),
    "name": re.compile(r"[Ii]n\s`([\w./]+)`,\sput\sthis\sin\splace\sof\s`(\w+)`:\n+\Z"),
}


@attrs.frozen
class Edit:
    """What the reader is told to do to a file with a block."""

    where: str
    """``end``, ``imports``, or ``name``: in place of the top-level statement of that name."""
    file: str
    name: str


@attrs.frozen
class Block:
    """A fenced block of a page."""

    page: Path
    language: str
    text: str
    line: int
    """The line of the page on which its text begins, from 1."""
    saved_as: str
    """The file that the reader is told to make of it; empty: none."""
    edit: Edit | None = None
    """What the reader is told to do to a file with it."""

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands of a console block, each with the output that the page shows."""
        found: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                found.append((line[2:], []))
            elif line.strip():
                found[-1][1].append(line)
        return found

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def taken_apart(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    blocks = []
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        saved = _SAVED.search(before)
        edits = [
            Edit(where, edited[1], edited[2])
            for where, pattern in _EDITED.items()
            if (edited := pattern.search(before))
        ]
        line = before.count("\n") + 2
        file, edit = saved[1] if saved else "", edits[0] if edits else None
        blocks.append(Block(page, found[1], found[2], line, file, edit))
    return blocks


def edited(text: str, edit: Edit, new: str) -> str:
    """The text of a file after an edit."""
    lines = text.splitlines(keepends=True)
    if edit.where == "end":
        return f"{text}\n\n{new}"
    statements = ast.parse(text).body
    if edit.where == "imports":
        imports = [each for each in statements if isinstance(each, ast.Import | ast.ImportFrom)]
        after = imports[-1].end_lineno
        return "".join([*lines[:after], new, *lines[after:]])
    (old,) = [each for each in statements if edit.name in names_of(each)]
    decorators = getattr(old, "decorator_list", [])
    first = min([old.lineno, *(each.lineno for each in decorators)])
    return "".join([*lines[: first - 1], new, *lines[old.end_lineno :]])


def names_of(statement: ast.stmt) -> set[str]:
    """The names that a statement gives something."""
    if isinstance(statement, ast.Assign):
        return {each.id for each in statement.targets if isinstance(each, ast.Name)}
    return {getattr(statement, "name", "")}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``page`` is each page in turn."""
    if "page" in metafunc.fixturenames:
        metafunc.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@pytest.fixture
def blocks_of() -> Callable[[Path], list[Block]]:
    """Takes a page apart."""
    return taken_apart


@pytest.fixture
def blocks(page: Path) -> list[Block]:
    """The blocks of the page."""
    return taken_apart(page)
