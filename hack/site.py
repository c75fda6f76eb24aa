"""Builds the documentation site, and checks it as its readers meet it.

python hack/site.py                    # into build/docs/site, a folder per version and `latest`
python hack/site.py --output FOLDER    # the folder that is published, with the versions before
python hack/site.py --external         # asks the servers of others whether links lead somewhere
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from appsdk_operator import __version__  # noqa: E402
from hack import site_checks  # noqa: E402

BUILD = ROOT / "build/docs"

NEIGHBOURS = {
    "README.md": "overview.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}
"""Pages beside docs/, and what they are called on the site."""

SOURCES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".json": "json"}
"""Files that are shown as a page of their own where a page links to them, and their language."""

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
PICTURE = re.compile(
    r"""<picture>
<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">
<img alt="([^"]+)" src="([^"]+)"(?: width="\d+")?>
</picture>"""
)
"""A picture for each theme, as forges show it."""
FENCE = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


class Stage:
    """The folder that Sphinx reads: the repository's pages, each where its address is to be."""

    def __init__(self, folder: Path, built: Path) -> None:
        self.folder = folder
        self.built = built
        self.pages = {ROOT / name: page for name, page in NEIGHBOURS.items()}
        for page in sorted((ROOT / "docs").rglob("*.md")):
            self.pages[page] = page.relative_to(ROOT / "docs").as_posix()
        examples = ROOT / "examples"
        for page in (examples / "README.md", *sorted(examples.glob("*/README.md"))):
            folder_name = page.parent.relative_to(ROOT).as_posix()
            self.pages[page] = f"{folder_name}/index.md"
        self.sources: dict[Path, str] = {}
        self.written: set[Path] = set()

    def fill(self) -> None:
        """Write all pages, and take away what an earlier build left."""
        for page, name in self.pages.items():
            self.write(name, self.with_links(page, name) + self.menu_below(name))
        for source, name in self.sources.items():
            self.write(name, source_page(source))
        from hack import reference

        made = reference.reference()
        for name, text in made.pages.items():
            self.write(f"reference/{name}", text)
        self.write("reference/aliases.json", json.dumps(made.aliases))
        for other in sorted((ROOT / "docs").rglob("*")):
            if other.is_file() and other.suffix not in {".md", ".toml", ".pyc"}:
                name = other.relative_to(ROOT / "docs").as_posix()
                self.write(name, other.read_bytes())
        for left in sorted(self.folder.rglob("*")):
            if left.is_file() and left not in self.written:
                left.unlink()
                name = left.relative_to(self.folder).with_suffix(".html")
                (self.built / name).unlink(missing_ok=True)

    def menu_below(self, name: str) -> str:
        """The pages that the menu folds under this one: those of the tutorial under its first."""
        folder, _, file = name.rpartition("/")
        if file != "01-begin.md":
            return ""
        others = sorted(page for page in self.pages.values() if page.startswith(f"{folder}/"))
        names = "\n".join(f"/{page.removesuffix('.md')}" for page in others if page != name)
        return f"\n:::{{toctree}}\n:hidden:\n\n{names}\n:::\n"

    def write(self, name: str, content: str | bytes) -> None:
        """Write a file if it is another one: Sphinx reads again what is newer."""
        data = content.encode() if isinstance(content, str) else content
        path = self.folder / name
        self.written.add(path)
        if not path.exists() or path.read_bytes() != data:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def with_links(self, page: Path, name: str) -> str:
        """A page's text, with links that lead to where the site has their targets."""
        parts = FENCE.split(page.read_text(encoding="utf-8"))
        for number in range(0, len(parts), 2):
            parts[number] = PICTURE.sub(lambda found: self.themed(found, page, name), parts[number])
            parts[number] = LINK.sub(lambda found: self.link(found, page, name), parts[number])
        return "".join(parts)

    def themed(self, found: re.Match[str], page: Path, name: str) -> str:
        """A picture for each theme of the site, which may be another than the system's."""
        dark, text, light = found[1], found[2], found[3]
        pictures = []
        for picture, theme in ((light, "light"), (dark, "dark")):
            staged = (page.parent / picture).resolve().relative_to(ROOT / "docs").as_posix()
            path = os.path.relpath(staged, Path(name).parent)
            pictures.append(f":::{{image}} {path}\n:alt: {text}\n:class: only-{theme}\n:::\n")
        return "\n".join(pictures)

    def link(self, found: re.Match[str], page: Path, name: str) -> str:
        """A link of a page, as the site has it."""
        sign, text, target = found[1], found[2], found[3]
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        path, hash_sign, anchor = target.partition("#")
        file = (page.parent / path).resolve()
        if file.is_dir():
            file /= "README.md"
        staged = self.pages.get(file)
        if staged is None and file.suffix in SOURCES and file.is_file():
            staged = self.sources.setdefault(file, f"{file.relative_to(ROOT).with_suffix('')}.md")
        if staged is None and (ROOT / "docs") in file.parents:  # a picture
            staged = file.relative_to(ROOT / "docs").as_posix()
        if staged is None:  # no part of the site, such as a folder of tests
            return text
        return f"{sign}[{text}]({os.path.relpath(staged, Path(name).parent)}{hash_sign}{anchor})"


def source_page(source: Path) -> str:
    """A page that shows a file."""
    language = SOURCES[source.suffix]
    code = source.read_text(encoding="utf-8")
    name = source.relative_to(ROOT)
    return f"---\norphan: true\n---\n# {source.name}\n\n`{name}`\n\n````{language}\n{code}````\n"


def build(source: Path, output: Path, *, builder: str = "html") -> None:
    """Run Sphinx; a warning fails."""
    from sphinx.cmd.build import build_main

    command = ["-b", builder, "-W", "--keep-going", "-n", "-q", "-d", str(BUILD / "doctrees")]
    status = build_main([*command, str(source), str(output)])
    if status:
        raise SystemExit(
            "the site has warnings: see above; the files are those of build/docs/source"
        )


def publish(built: Path, output: Path, version: str) -> None:
    """Put a built version beside those that are there, and let `latest` be the newest release."""
    shutil.rmtree(output / version, ignore_errors=True)
    shutil.copytree(
        built, output / version, ignore=shutil.ignore_patterns(".buildinfo*", ".doctrees")
    )
    versions = sorted(
        (path.name for path in output.iterdir() if (path / "objects.inv").exists()),
        key=release_order,
        reverse=True,
    )
    versions = [name for name in versions if name != "latest"]
    latest = next((name for name in versions if is_release(name)), versions[0])
    shutil.rmtree(output / "latest", ignore_errors=True)
    shutil.copytree(output / latest, output / "latest")
    listed = {"latest": latest, "versions": versions}
    (output / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (output / "index.html").write_text(TO_LATEST, encoding="utf-8")


TO_LATEST = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>appsdk_operator</title>
<meta http-equiv="refresh" content="0; url=latest/index.html">
<link rel="canonical" href="latest/index.html">
<a href="latest/index.html">The documentation of the newest release</a>
</html>
"""


def release_order(version: str) -> tuple[tuple[int, ...], bool, str]:
    """Releases by number; a pre-release comes before its release."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    numbers = tuple(map(int, found[0].split("."))) if found else ()
    rest = version[found.end() :] if found else version
    return numbers, not rest, rest


def is_release(version: str) -> bool:
    """Whether it is no pre-release."""
    return release_order(version)[1]


def main() -> None:
    """Build and check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=BUILD / "site", help="the published folder")
    parser.add_argument("--version", default=__version__, help="the folder's name")
    parser.add_argument("--external", action="store_true", help="check links to other servers")
    options = parser.parse_args()
    began = time.monotonic()
    source, built = BUILD / "source", BUILD / "html"
    Stage(source, built).fill()
    if options.external:
        build(source, BUILD / "links", builder="linkcheck")
        return
    build(source, built)
    site_checks.check(built)
    publish(built, options.output, options.version)
    print(f"{options.output / 'index.html'} in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
