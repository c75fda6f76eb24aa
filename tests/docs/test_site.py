"""The site's order names every page, and its pictures are those of their texts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hack import diagrams, site, site_checks

DOCS = Path(__file__).parents[2] / "docs"
# From elsewhere, or made, by hack/site.py.
MADE = {
    "changelog",
    "contributing",
    "examples/index",
    "overview",
    "reference/index",
    "security",
}


def test_each_page_has_its_place_on_the_site() -> None:
    text = (DOCS / "index.md").read_text(encoding="utf-8")
    listed = set()
    for tree in re.findall(r"^:::\{toctree\}\n(.*?)^:::$", text, re.MULTILINE | re.DOTALL):
        lines = [line for line in tree.splitlines() if line and not line.startswith(":")]
        names = [line.rpartition("<")[2].removesuffix(">") for line in lines]
        for name in names:
            found = [page.relative_to(DOCS) for page in DOCS.glob(f"{name}.md")]
            assert found or name in MADE or "*" in name, name
            listed |= {page.with_suffix("").as_posix() for page in found}
    assert "tutorial/01-begin" in listed  # has the others below it
    listed |= {
        page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.glob("tutorial/*")
    }
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    assert sorted(pages - listed - {"index"}) == []


@pytest.mark.parametrize(
    "text", sorted((DOCS / "diagrams").glob("*.toml")), ids=lambda path: path.stem
)
def test_a_diagram_is_drawn_from_its_text(text: Path) -> None:
    picture = text.with_suffix(".svg").read_text(encoding="utf-8")
    assert picture == diagrams.drawing(text.read_text(encoding="utf-8")), "run hack/diagrams.py"


def test_the_site_shows_files_that_a_page_links_to_and_no_links_to_what_it_lacks(
    tmp_path: Path,
) -> None:
    stage = site.Stage(tmp_path, tmp_path)
    page = DOCS.parent / "examples/README.md"
    text = stage.with_links(page, "examples/index.md")
    assert "](app_hello.md)" in text
    assert stage.sources[page.parent / "app_hello.py"] == "examples/app_hello.md"
    assert "](overview.md#what-you-can-rely-on)" in stage.with_links(
        DOCS / "architecture.md", "architecture.md"
    )
    cronjob = page.parent / "cronjob/README.md"
    assert "tests/examples/cronjob)" in cronjob.read_text(encoding="utf-8")
    assert "tests/examples/cronjob)" not in stage.with_links(cronjob, "examples/cronjob/index.md")


def test_a_picture_for_each_theme_follows_the_theme_of_the_site(tmp_path: Path) -> None:
    stage = site.Stage(tmp_path, tmp_path)
    text = stage.with_links(DOCS.parent / "README.md", "overview.md")
    alt = "The live page of an operator: failures by cause, and what each controller does"
    for file, theme in (("debug-page.png", "light"), ("debug-page-dark.png", "dark")):
        assert f":::{{image}} {file}\n:alt: {alt}\n:class: only-{theme}\n:::\n" in text
        assert (DOCS / file).exists()
    assert "<picture>" not in text


def test_links_to_files_and_anchors_that_are_not_there_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here"><a href="#gone"><a href="b.html#top"><a href="b.html#gone">'
        '<img src="c.svg"><a href="https://example.com/"><a href="d%20e.html">',
        encoding="utf-8",
    )
    (tmp_path / "b.html").write_text('<h1 id="top">', encoding="utf-8")
    (tmp_path / "d e.html").write_text("", encoding="utf-8")
    assert site_checks.broken_links(tmp_path) == [
        "a.html: #gone",
        "a.html: b.html#gone",
        "a.html: c.svg",
    ]


def test_pages_of_one_title_are_found(tmp_path: Path) -> None:
    for name, title in (("a", "Retries"), ("b", "App"), ("c", "Retries\n")):
        (tmp_path / f"{name}.html").write_text(f"<title>{title}</title>", encoding="utf-8")
    assert site_checks.doubled_titles(tmp_path) == ["Retries: a.html, c.html"]


def test_the_newest_release_is_the_latest_whichever_is_built(tmp_path: Path) -> None:
    built = tmp_path / "built"
    built.mkdir()
    (built / "objects.inv").write_text("", encoding="utf-8")
    output = tmp_path / "site"
    for version in ("0.9.0", "0.10.0rc1", "0.10.0", "0.11.0rc1", "0.9.1"):
        (built / "index.html").write_text(version, encoding="utf-8")
        site.publish(built, output, version)
    listed = json.loads((output / "versions.json").read_text(encoding="utf-8"))
    assert listed["versions"] == ["0.11.0rc1", "0.10.0", "0.10.0rc1", "0.9.1", "0.9.0"]
    assert listed["latest"] == "0.10.0"
    assert (output / "latest/index.html").read_text(encoding="utf-8") == "0.10.0"
