"""What the generators of data files share: a Go program that tells of types, and the file."""

from __future__ import annotations

import gzip
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "appsdk_operator/apiserver"
MODULES = ("client-go", "apiextensions-apiserver", "kube-aggregator", "api", "apimachinery")


def told_by(program: str, release: str) -> Any:
    """The JSON that ``PROGRAM/main.go`` prints, built with a release of Kubernetes' modules."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "main.go").write_bytes((HERE / program / "main.go").read_bytes())
        needed = "".join(f"\tk8s.io/{module} {release}\n" for module in MODULES)
        (folder / "go.mod").write_text(f"module types\n\ngo 1.24\n\nrequire (\n{needed})\n")
        for command in (["go", "mod", "tidy"], ["go", "build", "-o", "types", "."]):
            subprocess.run(command, cwd=folder, check=True)
        return json.loads(subprocess.check_output([folder / "types"]))


def write(target: Path, data: dict[str, Any], *, sort_keys: bool = False) -> None:
    """Write a data file; the same data gives the same bytes: no time stamp, no name."""
    packed = json.dumps(data, separators=(",", ":"), sort_keys=sort_keys).encode()
    target.write_bytes(gzip.compress(packed, mtime=0))
