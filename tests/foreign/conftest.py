"""Other people's clients, each in a process of its own, against the embedded server."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from appsdk_operator.client import Client, ClientConfig
from appsdk_operator.testing import APIServer

PATIENCE = 60.0
PROGRAMS = Path(__file__).parent / "programs"
CLIENT_GO = Path(__file__).parents[2] / "hack" / "clientgo"


def definition(group: str, plural: str, kind: str) -> dict[str, Any]:
    """A CRD whose objects have a size, and a status that keeps everything."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    properties = {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer", "minimum": 0}},
        },
        "status": anything,
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version],
        },
    }


class Program:
    """A process that tells what it does, a JSON object per line."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._changed = threading.Condition()
        self.told: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._is_over = False
        self._readers = [
            threading.Thread(target=self._read, name="program-output"),
            threading.Thread(target=self._read_errors, name="program-errors"),
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._changed:
                self.told.append(json.loads(line))
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors.extend(self._process.stderr)

    def ask(self, **words: Any) -> None:
        """Write a JSON object to it, in a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()

    def until(self, what: str, is_it: Callable[[Any], bool] = lambda _: True) -> Any:
        """Wait until it told this, and say what it told of it."""

        def found() -> list[Any]:
            return [line[what] for line in self.told if what in line and is_it(line[what])]

        with self._changed:
            self._changed.wait_for(lambda: found() or self._is_over, PATIENCE)
            if not found():
                raise AssertionError(f"no {what}: {self.told[-20:]}\n{''.join(self.errors[-50:])}")
            return found()[-1]

    def all_of(self, what: str) -> list[Any]:
        """Everything it has told of this."""
        with self._changed:
            return [line[what] for line in self.told if what in line]

    def finish(self) -> None:
        """Wait until it ends by itself, with success."""
        code = self._process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        assert code == 0, "".join(self.errors[-50:])

    def stop(self) -> None:
        """Ask it to end, and wait until it has."""
        self._process.terminate()
        self._process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()

    def end(self) -> None:
        """End it, if it has not, and close what it wrote to."""
        self._process.kill()
        self._process.wait(PATIENCE)
        for reader in self._readers:
            reader.join()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


class Start(Protocol):
    """Start a program against the server."""

    def __call__(self, *command: str) -> Program: ...


@pytest.fixture
def server() -> Iterator[APIServer]:
    crds = [
        definition("example.com", "widgets", "Widget"),
        definition("kopf.dev", "kopfexamples", "KopfExample"),
    ]
    with APIServer(tls=True, token="let-me-in", crds=crds) as server:
        yield server


@pytest.fixture
def client(kubeconfig: Path) -> Iterator[Client]:
    with Client(ClientConfig.from_kubeconfig(kubeconfig)) as client:
        yield client


@pytest.fixture
def kubeconfig(server: APIServer, tmp_path: Path) -> Path:
    path = tmp_path / "kubeconfig"
    server.write_kubeconfig(path)
    return path


@pytest.fixture
def start(kubeconfig: Path, tmp_path: Path) -> Iterator[Start]:
    """Start a program; at the end of the test it is ended."""
    programs: list[Program] = []
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)}

    def start(*command: str) -> Program:
        programs.append(Program(list(command), environment))
        return programs[-1]

    yield start
    for program in programs:
        program.end()


@pytest.fixture
def run_python(start: Start) -> Callable[[str], Program]:
    """Run one of the programs beside this file."""
    return lambda name: start(sys.executable, "-u", str(PROGRAMS / name))


@pytest.fixture(scope="session")
def client_go_operator() -> Path:
    """The operator written with client-go, built once for each state of its source."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("there is no Go toolchain")
    source = b"".join(path.read_bytes() for path in sorted(CLIENT_GO.iterdir()) if path.is_file())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "appsdk-operator" / "client-go" / hashlib.sha256(source).hexdigest()[:16]
    program = folder / "operator"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = folder / f"draft-{os.getpid()}"
        command = [go, "build", "-trimpath", "-o", str(draft), "."]
        subprocess.run(command, cwd=CLIENT_GO, check=True, capture_output=True, timeout=500)
        draft.replace(program)
    return program
