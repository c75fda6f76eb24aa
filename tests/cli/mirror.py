"""Archives of binaries, and an index of them, as a mirror has them."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

import yaml

PROGRAMS = ("etcd", "kube-apiserver", "kubectl")


def archive(version: str, programs: Iterable[str] = PROGRAMS) -> bytes:
    """An archive whose programs print their version."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        for name in programs:
            content = f"#!/bin/sh\necho {name} {version}\n".encode()
            member = tarfile.TarInfo(f"controller-tools/envtest/{name}")
            member.size, member.mode = len(content), 0o755
            packed.addfile(member, io.BytesIO(content))
        link = tarfile.TarInfo("controller-tools/envtest/link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        packed.addfile(link)
    return file.getvalue()


def write_mirror(folder: Path, versions: Iterable[str], platform: str) -> None:
    """Write an index, and the archives beside it."""
    folder.mkdir(exist_ok=True)
    releases = {}
    for version in versions:
        name = f"envtest-v{version}-{platform}.tar.gz"
        content = archive(version)
        (folder / name).write_bytes(content)
        entry = {"hash": hashlib.sha512(content).hexdigest(), "selfLink": name}
        releases[f"v{version}"] = {name: entry, "notes.txt": entry}
    (folder / "envtest-releases.yaml").write_text(yaml.safe_dump({"releases": releases}))
