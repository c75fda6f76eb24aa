"""The servers that cases run on, many at a time, and the answers that were recorded."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from appsdk_operator.runtime import system_clock
from appsdk_operator.testing import APIServer, ControlPlane
from tests.differential.conversation import Conversation, Server
from tests.differential.normal import normalised
from tests.differential.scripts import HERE, Case

RECORDED = HERE / "recorded"
_AT_ONCE = 8

Answers = list[dict[str, Any]]


class _StandingTime:
    """Waits as the system's clock does, and stands still otherwise."""

    def __init__(self) -> None:
        self.now = system_clock.time()

    def time(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return system_clock.monotonic()

    def wait(self, condition: threading.Condition, timeout: float | None = None) -> None:
        system_clock.wait(condition, timeout)


@contextlib.contextmanager
def embedded() -> Iterator[Server]:
    """The server inside the process, whose time stamps are of one second, after those of its start.

    A machine that is busy would otherwise order the managers of an object by their times.
    """
    clock = _StandingTime()
    with APIServer(
        token="differential", rbac=True, bookmark_interval=0.5, tls=True, clock=clock
    ) as server:
        clock.now += 1
        yield _ready(Server("embedded", server.url, "differential", server.ca_data))


@contextlib.contextmanager
def real() -> Iterator[Server]:
    """The servers of KUBEBUILDER_ASSETS."""
    with ControlPlane() as plane:
        yield on(plane)


def on(plane: ControlPlane) -> Server:
    """The server of a control plane that runs, and has nothing yet."""
    return _ready(Server("real", plane.url, plane.token, plane.ca_data))


def _ready(server: Server) -> Server:
    server.install()
    return server


def run(server: Server, cases: Iterable[Case]) -> dict[str, Answers | Exception]:
    """The normalised answers of a server by the cases' ids, or what went wrong."""
    cases = list(cases)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(lambda case: _one(server, case), cases))
    return {case.id: answers for case, answers in zip(cases, found, strict=True)}


def _one(server: Server, case: Case) -> Answers | Exception:
    try:
        conversation = Conversation(case, server)
        conversation.run()
        return normalised(conversation)
    except Exception as error:
        error.add_note(f"{case.id} on the {server.name} server")
        return error


def recorded(area: str) -> dict[str, Any]:
    """What the current server answered: ``{"server": …, "cases": {name: [digest, answers]}}``."""
    path = _file(area)
    if not path.exists():
        return {"server": "", "cases": {}}
    return json.loads(path.read_text(encoding="utf-8"))


def record(area: str, version: str, answers: dict[Case, Answers]) -> None:
    """Keep what a server answered; a line for each step, so that changes can be read."""
    RECORDED.mkdir(exist_ok=True)
    cases = []
    for case, steps in answers.items():
        lines = ",\n".join(f"  {_compact(step)}" for step in steps)
        cases.append(f"{_compact(case.name)}: [{_compact(case.digest)}, [\n{lines}\n]]")
    body = ",\n".join(cases)
    text = f'{{"server": {_compact(version)}, "cases": {{\n{body}\n}}}}\n'
    _file(area).write_text(text, encoding="utf-8")


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _file(area: str) -> Path:
    return RECORDED / f"{area}.json"
