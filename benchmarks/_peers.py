"""The peers that are written in Go: where their programs are, and how they are built.

Their source is a module in ``benchmarks/peers``, a program to a folder. With a Go toolchain they
are built when they are first needed, once for each state of the source, into the user's cache;
without one they are absent. ``python -m benchmarks._peers NAME JOB OPTIONS`` builds one and
becomes it.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks._job import Contestant, Group, Variant

__all__ = ["build", "contestants", "has_go"]

SOURCE = Path(__file__).parent / "peers"
"""The Go module."""

# A first build fetches modules and compiles all of client-go.
_PATIENCE = 500.0

_JOBS = ("watch", "list", "latency", "reconcile")
_SHARE = {"watch": 0.2, "reconcile": 0.3}


def contestants() -> Sequence[Contestant]:
    """All of them, built or not."""
    absent = "" if has_go() else "there is no Go toolchain"
    return (
        Contestant(
            name="client-go",
            group=Group.PEER,
            variants=(Variant(name="dynamic-informer", jobs=_JOBS, share=_SHARE),),
            command=_command("dynamic-informer"),
            version=_version("k8s.io/client-go"),
            absent=absent,
            text=_comment("dynamic-informer"),
        ),
        Contestant(
            name="controller-runtime",
            group=Group.PEER,
            variants=(
                Variant(name="typed", jobs=_JOBS, share=_SHARE),
                Variant(name="unstructured", jobs=_JOBS, share=_SHARE),
            ),
            command=_command("controller-runtime"),
            version=_version("sigs.k8s.io/controller-runtime"),
            absent=absent,
            text=_comment("controller-runtime"),
        ),
    )


def has_go() -> bool:
    """Whether they can be built."""
    return shutil.which("go") is not None


def build(name: str) -> Path:
    """The program of a peer, built if it has not been.

    Raises:
        RuntimeError: it cannot be built; the text is what the Go command says.
    """
    program = _program(name)
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        raise RuntimeError("there is no Go toolchain")
    program.parent.mkdir(parents=True, exist_ok=True)
    draft = program.with_name(f"{name}-draft-{os.getpid()}")
    command = [go, "build", "-trimpath", "-buildvcs=false", "-o", str(draft), f"./{name}"]
    done = subprocess.run(
        command, cwd=SOURCE, check=False, capture_output=True, text=True, timeout=_PATIENCE
    )
    if done.returncode:
        raise RuntimeError(f"{name} cannot be built: {done.stderr.strip()}")
    draft.replace(program)
    return program


def _command(name: str) -> tuple[str, ...]:
    program = _program(name)
    if program.exists():
        return (str(program),)
    return (sys.executable, "-m", "benchmarks._peers", name)


def _program(name: str) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "appsdk-operator" / "peers" / _state() / name


@functools.cache
def _state() -> str:
    """What tells one state of the source from the others, and one toolchain."""
    state = hashlib.sha256(_toolchain().encode())
    for path in sorted(SOURCE.rglob("*")):
        if path.suffix in (".go", ".mod", ".sum"):
            state.update(str(path.relative_to(SOURCE)).encode() + b"\0" + path.read_bytes())
    return state.hexdigest()[:16]


@functools.cache
def _toolchain() -> str:
    """The version of the Go toolchain, such as go1.26.0."""
    go = shutil.which("go")
    if go is None:
        return ""
    command = [go, "env", "GOVERSION"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _version(module: str) -> str:
    """The version of a module that the programs are built with, and of Go."""
    text = (SOURCE / "go.mod").read_text()
    found = re.search(rf"^\s+{re.escape(module)} v(\S+)", text, re.MULTILINE)
    return ", ".join(filter(None, (found[1] if found else "", _toolchain())))


def _comment(name: str) -> str:
    """What a program says of itself, at the top of its source."""
    lines = (SOURCE / name / "main.go").read_text().split("package main")[0].splitlines()
    text = "\n".join(line.removeprefix("//").strip() for line in lines)
    return text.removeprefix("A contestant: ").strip()


def main() -> None:
    """Build a peer and become it."""
    name, *arguments = sys.argv[1:]
    try:
        program = build(name)
    except RuntimeError as error:
        raise SystemExit(str(error)) from None
    os.execv(program, [str(program), *arguments])


if __name__ == "__main__":
    main()
