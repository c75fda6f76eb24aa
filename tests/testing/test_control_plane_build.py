"""hack/control-plane/build.sh, with a stand-in for the Go toolchain."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "hack/control-plane/build.sh"

# Makes an empty program where -o says, and notes what it was called for.
GO = """#!/bin/sh
if [ "$1" = env ]; then echo "$2"; exit; fi
echo "$*" >> "$GO_LOG"
[ -z "$GO_FAILS" ] || exit 1
while [ "$1" != -o ]; do shift; done
touch "$2"; chmod +x "$2"
"""


_TOOLS = (
    *("sh", "dirname", "sed", "cat", "cksum", "cut", "mkdir", "mktemp", "rm", "mv"),
    *("nice", "chmod", "touch"),
)


class Builder:
    """The script, on a PATH of its own."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.cache, self.log = folder / "bin", folder / "cache", folder / "log"
        self.bin.mkdir()
        self.log.touch()
        for name in _TOOLS:
            path = shutil.which(name)
            assert path is not None
            (self.bin / name).symlink_to(path)

    def with_go(self) -> None:
        go = self.bin / "go"
        go.write_text(GO)
        go.chmod(0o755)

    def run(self, **environment: str) -> subprocess.CompletedProcess[str]:
        own = {"PATH": str(self.bin), "XDG_CACHE_HOME": str(self.cache), "GO_LOG": str(self.log)}
        return subprocess.run(
            [SCRIPT], env={**own, **environment}, capture_output=True, text=True, check=False
        )


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


def test_without_go_the_control_plane_is_not_built_and_what_to_install_is_said(
    builder: Builder,
) -> None:
    done = builder.run()
    assert done.returncode == 1
    assert "install Go 1." in done.stderr
    assert not done.stdout
    assert not builder.cache.exists()


def test_the_control_plane_is_built_once_and_the_folder_is_printed(builder: Builder) -> None:
    builder.with_go()
    first = builder.run()
    assert first.returncode == 0, first.stderr
    folder = Path(first.stdout.removesuffix("\n"))
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver"]
    assert "gitVersion=v1." in builder.log.read_text()
    built = builder.log.read_text()
    assert builder.run().stdout == first.stdout
    assert builder.log.read_text() == built
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_build_that_fails_leaves_nothing_that_looks_like_a_control_plane(
    builder: Builder,
) -> None:
    builder.with_go()
    done = builder.run(GO_FAILS="yes")
    assert done.returncode != 0
    assert not done.stdout
    assert not list(builder.cache.rglob("*/control-plane/*"))
