"""What an idle operator takes: threads, modules and memory; fails where that has grown.

    python -m benchmarks.idle            # measures, compares; so does ``--guard``
    python -m benchmarks.idle --write    # takes what it finds into idle.json

The operator has a leader election, a metrics server, a health server and a controller of one kind.
The API server is in another process and has TLS. Threads and modules are counted, so a busy machine
has no part in them. No thread may be added, and no module of others; the kit's own may be 2 % more,
as one may be cut in two. Memory may grow by 8 %. The time from the start to the first reconcile is
printed and not compared. A commit that raises a figure says why.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from appsdk_operator import Client, MutableObject
from appsdk_operator.runtime import Metrics
from benchmarks._embedded import serving
from benchmarks._measures import WIDGET
from benchmarks._replay import ROOT
from hack import import_figures

__all__ = ["FILE", "is_kept", "measured", "raised"]

FILE: Final = Path(__file__).with_suffix(".json")
TOLERANCE: Final = 0.08
"""How much more memory passes: the same program takes up to 3 % more or less from run to run."""
_SECONDS: Final = 120.0
_MEMORY: Final = "bytes of its own"
"""Without what the processes of a machine share, such as the interpreter and OpenSSL."""


def measured() -> dict[str, Any]:
    """The figures of an idle operator in a process of its own."""
    # Compiling takes memory that stays: the second run finds all bytecode, as an image has it.
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(ROOT / "build/bytecode")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with serving(tls=True) as server:
        with Client(server.config(), metrics=Metrics()) as client:
            client.create(MutableObject.new(WIDGET, "w", namespace="default", spec={"size": 1}))
        command = [sys.executable, "-m", "benchmarks._idle_process"]
        for lease in ("first", "second"):
            asked = json.dumps({"url": server.url, "ca": server.ca, "lease": lease})
            done = subprocess.run(
                command,
                check=True,
                cwd=ROOT,
                env=environment,
                input=f"{asked}\n",
                stdout=subprocess.PIPE,
                text=True,
                timeout=_SECONDS,
            )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def raised(
    known: Mapping[str, Any], found: Mapping[str, Any], *, is_same_environment: bool = True
) -> list[str]:
    """What an idle operator takes more than the file says, as text.

    Args:
        known: the figures of the file.
        found: the figures now.
        is_same_environment: whether the interpreter and the packages are those of the file; without
            that only the threads and the kit's own modules are compared.
    """
    more = [f"thread {name}" for name in found["threads"] if name not in known["threads"]]
    bounds = {"modules": import_figures.bound(known["modules"])}
    if is_same_environment:
        bounds["other modules"] = known["other modules"]
        bounds[_MEMORY] = int(known[_MEMORY] * (1 + TOLERANCE))
    more += [
        f"{found[what]:,} {what}, at most {bound:,}"
        for what, bound in bounds.items()
        if found[what] > bound
    ]
    return more


def is_kept(
    tell: Callable[[str], object], *, measure: Callable[[], dict[str, Any]] = measured
) -> bool:
    """Whether an idle operator takes no more than the file says."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    is_same = not import_figures.differing(content["of"])
    found = measure()
    tell(
        f"idle operator: {len(found['threads'])} threads, {found['modules']} modules and "
        f"{found['other modules']} others, {found['bytes'] / 1e6:.1f} MB, of which "
        f"{found[_MEMORY] / 1e6:.1f} MB its own; {found['seconds to the first reconcile']:.3f} s "
        "to the first reconcile"
    )
    problems = raised(content["figures"], found, is_same_environment=is_same)
    for problem in problems:
        tell(f"idle operator: too much: {problem}")
    if problems:
        tell(
            "start and import what is needed when it is needed, or raise the figures with "
            "`python -m benchmarks.idle --write` in a commit that says why"
        )
    return not problems


def main() -> int:
    """Do what the arguments say; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.idle",
        description="Measures an idle operator, and compares it with the file.",
    )
    parser.add_argument("--write", action="store_true", help="take the figures into the file")
    if not parser.parse_args().write:
        return 0 if is_kept(print) else 1
    found = {
        name: value
        for name, value in measured().items()
        if name in ("threads", "modules", "other modules", _MEMORY)
    }
    content = {"of": import_figures.environment(), "figures": found}
    FILE.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
