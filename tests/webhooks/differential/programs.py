"""The servers of webhooks that are compared: one of controller-runtime, one of the kit."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from appsdk_operator.serving import SelfSigned
from tests.webhooks.differential.scripts import Where

SOURCE = Path(__file__).parents[3] / "hack" / "webhooks-go"
_PATIENCE = 600.0

Table = list[dict[str, Any]]


class NoGoError(Exception):
    """There is no Go toolchain to build the program with."""


@contextlib.contextmanager
def controller_runtime(table: Table, folder: Path) -> Iterator[Where]:
    """Webhooks of controller-runtime, in a process of their own.

    Raises:
        NoGoError: it is not built and cannot be.
    """
    program = build()
    certificates = SelfSigned()
    pair = certificates.pair()
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    (folder / "table.json").write_text(json.dumps(table), encoding="utf-8")
    command = [str(program), "--table", str(folder / "table.json"), "--certificates", str(folder)]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise RuntimeError(f"the program ended: {(folder / 'log').read_text()[-2000:]}")
        yield _where(json.loads(line)["port"], certificates)
        process.communicate("", timeout=30)


@contextlib.contextmanager
def kit(table: Table) -> Iterator[Where]:
    """Webhooks of the kit, in this process."""
    from tests.webhooks.differential.kit import serving

    certificates = SelfSigned()
    with serving(table, certificates) as port:
        yield _where(port, certificates)


def _where(port: int, certificates: SelfSigned) -> Where:
    return Where(
        port=port,
        authority=base64.b64encode(certificates.pem),
        other_authority=base64.b64encode(SelfSigned().pem),
    )


def build() -> Path:
    """The program of controller-runtime, built once for each state of its source.

    Raises:
        NoGoError: there is nothing to build it with.
    """
    sources = sorted(path for path in SOURCE.iterdir() if path.suffix in (".go", ".mod", ".sum"))
    state = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    program = cache / "appsdk-operator" / "webhooks-go" / state / "webhooks"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise NoGoError("there is no Go toolchain")
    program.parent.mkdir(parents=True, exist_ok=True)
    draft = program.with_name(f"draft-{os.getpid()}")
    command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(draft), "."]
    subprocess.run(command, cwd=SOURCE, check=True, capture_output=True, timeout=_PATIENCE)
    draft.replace(program)
    return program
