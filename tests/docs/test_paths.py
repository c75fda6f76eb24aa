"""The paths that the pages for contributors name exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PACKAGE = ROOT / "appsdk_operator"
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs/architecture.md",
    *sorted((ROOT / "docs/internals").glob("*.md")),
]
# Paths are written from the top or from the package; a page on one room leaves out the rest.
_BASES = [ROOT, _PACKAGE]
_PATH = re.compile(r"[\w.-]+(?:/[\w.*-]*)+|[\w-]+\.(?:py|md|toml|yaml)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_MADE = {".venv", "build"}
"""What the commands make, and a checkout has not."""


def paths(page: Path) -> Iterator[str]:
    """What stands in backticks, outside of code blocks, and is a path of this repository."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for found in re.findall(r"`([^`\n]+)`", text):
        first = found.split("/")[0]
        if not _PATH.fullmatch(found) or first in _MADE:
            continue
        if found.endswith((".py", ".md", ".toml", ".yaml", "/")) or exists(first):
            yield found


def exists(path: str) -> bool:
    """Whether there is such a file or folder, from a base or anywhere below."""
    pattern = path.rstrip("/")
    return any(any(base.glob(pattern)) for base in _BASES) or any(
        any(folder.rglob(pattern)) for folder in (_PACKAGE, ROOT / "tests/differential")
    )


@pytest.mark.parametrize("guide", PAGES, ids=lambda guide: guide.name)
def test_the_paths_that_a_guide_names_exist(guide: Path) -> None:
    named = list(paths(guide))
    assert named, "the page names no path"
    assert [path for path in named if not exists(path)] == []
