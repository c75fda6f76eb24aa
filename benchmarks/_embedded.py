"""The embedded API server in a process of its own, for jobs that need more than replies."""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final

from appsdk_operator import ClientConfig

CRD: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "widgets.example.com"},
    "spec": {
        "group": "example.com",
        "scope": "Namespaced",
        "names": {"plural": "widgets", "kind": "Widget"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "required": ["size"],
                                "properties": {
                                    "size": {"type": "integer", "minimum": 0},
                                    "color": {"type": "string", "enum": ["red", "blue"]},
                                    "text": {"type": "string", "maxLength": 10_000},
                                },
                            }
                        },
                    }
                },
            }
        ],
    },
}
"""A kind with a schema, as nearly all have one."""


@final
class Server:
    """The server's process, and what it uses."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        said = json.loads(self._line())
        self.url: str = said["url"]
        self.ca: str | None = said["ca"]
        """The authority's certificate as PEM text; None without TLS."""

    def config(self) -> ClientConfig:
        """How clients get there."""
        return ClientConfig(server=self.url, ca_data=self.ca.encode() if self.ca else None)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.partition("//")[2].partition(":")
        return host, int(port)

    def cpu(self) -> float:
        """Seconds of CPU time that it has used, in steps of a clock tick."""
        path = Path(f"/proc/{self.process.pid}/stat")
        fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> int:
        """Bytes of memory that it holds."""
        pages = Path(f"/proc/{self.process.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * resource.getpagesize()

    def change(self, count: int) -> None:
        """Have it change its first Widget so often, as fast as it can; returns at once."""
        self._tell(f"change {count}")

    def requests(self) -> int:
        """How many requests it has had."""
        self._tell("requests")
        return int(self._line())

    def _tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()


@contextmanager
def serving(*, tls: bool = False) -> Iterator[Server]:
    """Run a server with the kind Widget of ``example.com/v1``."""
    command = [sys.executable, "-m", "benchmarks._embedded"] + (["--tls"] if tls else [])
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Server(process)
        finally:
            process.terminate()


def _serve() -> None:
    from appsdk_operator.testing import APIServer

    parser = argparse.ArgumentParser()
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    with APIServer(crds=[CRD], tls=options.tls, request_log=1_000_000) as server:
        ca = server.ca_data.decode() or None
        print(json.dumps({"url": server.url, "ca": ca}), flush=True)
        for line in sys.stdin:
            word, _, number = line.strip().partition(" ")
            if word == "requests":
                print(len(server.requests), flush=True)
            else:
                threading.Thread(target=_change, args=(server, int(number)), daemon=True).start()


def _change(server: Any, count: int) -> None:
    """Past all requests: what is measured is the watches."""
    core = server._core  # noqa: SLF001
    records = core.served("example.com", "v1", "widgets").resource.collection
    key, record = next(iter(records.records.items()))
    obj = record.decode()

    def write() -> None:
        for _ in range(50):
            core.storage.put(records, key, {**obj, "metadata": dict(obj["metadata"])})

    for _ in range(count // 50):
        server._call(write)  # noqa: SLF001


if __name__ == "__main__":
    _serve()
