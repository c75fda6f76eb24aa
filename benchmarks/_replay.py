"""A server that plays back lists and watches far faster than any client takes them.

    with ReplayServer(Spec(objects=1000, events=100_000)) as server:
        ...  # clients of server.url, which trust server.ca_file where it speaks TLS

It is a process of its own, and what it sends is assembled before a client's clock begins, so that
it is the client that is measured. With TLS each event is a record of its own, as API servers send
them, encrypted before it is needed.

It answers what clients ask before they list (discovery, the version), lists page by page, watches
with the present objects first (or 422, as servers before 1.32), single objects, and it gives back
what is written. A kind that it does not hold has no objects, and its watches stay silent. Nothing
is checked and nothing is stored: it is no API server.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

__all__ = ["ROOT", "ReplayServer", "Spec"]

ROOT = Path(__file__).parents[1]
"""Where the packages are: programs of the benchmark are started there."""


@dataclass(frozen=True, kw_only=True)
class Spec:
    """What a server holds and sends."""

    kind: str = "widgets"
    """``widgets`` (example.com/v1, namespaced) or ``pods``."""
    size: int = 2000
    """The bytes of a widget's JSON: 500, 2,000 or 10,000."""
    objects: int = 1000
    """How many there are; each is named for its number, in the namespace ``default``."""
    events: int = 0
    """How many events each watch gets, after the present objects."""
    added: bool = False
    """Whether these are of new objects (ADDED), and not of the present ones, in turn (MODIFIED)."""
    rate: float = 0.0
    """Events a second; each one's resource version is the time at which it is sent, as
    CLOCK_MONOTONIC has it, in nanoseconds. 0: as fast as they are taken."""
    pause: float = 0.5
    """Seconds before the first event, in which clients become quiet."""
    call_ms: float = 0.0
    """How long the answer to a GET of one object takes."""
    streaming: bool = True
    """Whether watches can send the present objects first."""
    tls: bool = False
    """Whether it speaks TLS."""


class ReplayServer:
    """Runs a server as long as its ``with`` block."""

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.url = ""
        """Where it is."""
        self.ca_file: str | None = None
        """The file with the authority that signed its certificate; None without TLS."""
        self._resources = contextlib.ExitStack()

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "benchmarks._replay_process"]
        command.append(json.dumps(asdict(self.spec)))
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._resources.callback(_end, process)
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            self._resources.close()
            raise RuntimeError(f"the replay server ended before it served {self.spec}")
        ready = json.loads(line)
        self.url = ready["url"]
        if ready["authority"]:
            folder = self._resources.enter_context(tempfile.TemporaryDirectory())
            path = Path(folder) / "ca.pem"
            path.write_text(ready["authority"])
            self.ca_file = str(path)
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout):
        assert stream is not None
        stream.close()
