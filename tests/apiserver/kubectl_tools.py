"""Running kubectl in a test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml


def run_kubectl(
    config: Path, *arguments: str, stdin: Any = None, fails: bool = False, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run it with a kubeconfig, in that file's folder; it must fail if and only if it ``fails``."""
    done = subprocess.run(
        ["kubectl", *arguments],
        env={**os.environ, "HOME": str(config.parent), "KUBECONFIG": str(config), **environment},
        cwd=config.parent,
        input=yaml.safe_dump(stdin) if stdin is not None else None,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stderr
    return done
