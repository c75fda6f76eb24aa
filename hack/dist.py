"""Builds the sdist and the wheel, and checks both as their users meet them.

Each is installed into a fresh environment in which the README is followed literally. The wheel
holds the package and nothing else; the sdist's own tests run from the unpacked archive.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
# What the README's walkthrough needs beside the distribution.
WALKTHROUGH = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "pyproject.toml",
    "docs",
    "examples",
    "tests",
)
RUNNERS = ("pytest>=8.2", "pytest-timeout>=2.3", "pytest-xdist>=3.6")


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a command; its failure is ours."""
    print("$", *command, flush=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([str(part) for part in command], cwd=cwd, env=environment, check=True)


def build() -> tuple[Path, Path]:
    """The sdist and the wheel, made anew."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ".")
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def check_metadata(sdist: Path, wheel: Path, version: str | None) -> None:
    """Whether an index would take them, and show the README."""
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    run(sys.executable, "-m", "check_wheel_contents", wheel)
    if version is not None and f"-{version}-" not in wheel.name:
        raise SystemExit(f"{wheel.name} is not of version {version}: set it in _version.py")


def check_changelog(version: str) -> None:
    """Whether the changelog has a dated section for a version, and nothing that is in none."""
    problem = problem_of_changelog((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    if problem is not None:
        raise SystemExit(f"CHANGELOG.md {problem}")


def problem_of_changelog(text: str, version: str) -> str | None:
    """What keeps a changelog from being that of a release, or None."""
    sections = dict(re.findall(r"^## (\[.*?)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    if sections.get("[Unreleased]", "").strip():
        return f"has lines under Unreleased: move them to a section for {version}"
    released = re.compile(rf"\[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d")
    for heading, lines in sections.items():
        if released.fullmatch(heading):
            return None if lines.strip() else f"says nothing about {version}"
    return f"has no heading '## [{version}] - YYYY-MM-DD'"


def check_contents(sdist: Path, wheel: Path) -> None:
    """Whether the wheel holds each file of the package, and nothing else."""
    listed = subprocess.run(
        ["git", "ls-files", "appsdk_operator"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    wanted = set(listed.stdout.split())
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    if held != wanted:
        raise SystemExit(
            f"{wheel.name}: missing {sorted(wanted - held)}, too many {sorted(held - wanted)}"
        )
    with tarfile.open(sdist) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "tests"):
        if needed not in top:
            raise SystemExit(f"{sdist.name} has no {needed}")


def fresh(folder: Path, distribution: Path) -> Path:
    """A fresh environment with nothing but a distribution, and what runs the tests; its bin."""
    venv.create(folder, with_pip=True)
    scripts = folder / "bin"
    run(scripts / "pip", "install", "--quiet", f"{distribution}[cli,testing]", *RUNNERS)
    return scripts


def follow_the_readme(distribution: Path) -> None:
    """Do what the README says, with nothing of the checkout on the path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scripts = fresh(folder / "venv", distribution)
        for part in WALKTHROUGH:
            source, target = ROOT / part, folder / "pages" / part
            if source.is_dir():
                shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                target.parent.mkdir(exist_ok=True)
                shutil.copy(source, target)
        # The script and not `python -m`, which puts the current folder on the path.
        run(
            scripts / "pytest",
            "tests/docs/test_walkthroughs.py",
            "-k",
            "readme",
            cwd=folder / "pages",
        )


def run_the_tests_of(sdist: Path) -> None:
    """The sdist's own tests, from the unpacked archive."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        (unpacked,) = (path for path in folder.iterdir() if path.is_dir())
        run("make", "test", "ARGS=-m 'not real and not stress'", cwd=unpacked)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--version", help="the version that they have to be of")
    parser.add_argument("--without-tests", action="store_true", help="do not run the sdist's tests")
    options = parser.parse_args()
    if options.version is not None:
        check_changelog(options.version)
    sdist, wheel = build()
    check_metadata(sdist, wheel, options.version)
    check_contents(sdist, wheel)
    for distribution in (wheel, sdist):
        follow_the_readme(distribution)
    if not options.without_tests:
        run_the_tests_of(sdist)
    print(f"{sdist.name} and {wheel.name} are as they should be, in {DIST}")


if __name__ == "__main__":
    main()
