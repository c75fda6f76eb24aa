"""How long it takes to import the kit and its peers, and from the start of a process to an event.

Every process finds the bytecode of all modules compiled, as it does from its second start on.

The time of an import is taken inside of the process; what the first use of names loads counts, as
``import appsdk_operator`` alone loads next to nothing.
"""

from __future__ import annotations

import functools
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from appsdk_operator import Client, MutableObject
from appsdk_operator.runtime import Metrics, system_clock
from benchmarks._embedded import serving
from benchmarks._job import Column, Job, Unit
from benchmarks._measures import WIDGET, Figures, Measure, column, one_case, run

_IMPORTS: Final = {
    "import appsdk_operator": "import appsdk_operator",
    "import of watchers": (
        "from appsdk_operator import Client, ClientConfig, InformerController, Kind, "
        "OpinionatedWatcher, SimpleWatcher, StopSignal"
    ),
    "import of a manager": (
        "from appsdk_operator import Client, Kind, Manager, Object, Request, Result, controller_for"
    ),
    "import of everything": "from appsdk_operator import *",
    "import kubernetes": "import kubernetes",
    "import kopf": "import kopf",
    "import lightkube": "import lightkube",
    "import kr8s": "import kr8s",
    "import kubernetes_asyncio": "import kubernetes_asyncio",
}
_TIMED: Final = """\
import time
began = time.monotonic()
{statement}
seconds = time.monotonic() - began
import sys
print(seconds, len(sys.modules))
"""
_LINE: Final = re.compile(r"import time: +(\d+) \| +\d+ \| +([\w.]+)")


def _environment() -> dict[str, str]:
    """The variables of processes whose bytecode is kept, in a folder of their own."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(cache) / "appsdk-operator" / "benchmarks-bytecode"
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(folder)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def imports(statement: str, *, rounds: int = 10) -> Figures:
    """The time of an import inside of a process, and where it goes."""
    timed = [sys.executable, "-c", _TIMED.format(statement=statement)]
    environment = _environment()

    def run_once(command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, check=True, env=environment, capture_output=True, text=True)

    run_once(timed)
    outputs = [run_once(timed).stdout.split() for _ in range(rounds)]
    listed = run_once([sys.executable, "-X", "importtime", "-c", statement]).stderr
    seconds = [float(output[0]) for output in outputs]
    own = {match[2]: int(match[1]) for match in _LINE.finditer(listed)}
    package = statement.split()[1]
    inside = sum(time for name, time in own.items() if name.split(".")[0] == package)
    return {
        "seconds": statistics.median(seconds),
        "shortest": min(seconds),
        "modules": float(outputs[0][1]),
        "share_of_the_package": inside / max(1, sum(own.values())),
    }


def first_event(program: str, *, rounds: int = 10) -> Figures:
    """From the start of a process to its first event."""
    times = []
    environment = _environment()
    with serving() as server:
        with Client(server.config(), metrics=Metrics()) as client:
            client.create(MutableObject.new(WIDGET, "w", namespace="default", spec={"size": 1}))
        command = [sys.executable, "-m", "benchmarks._first_event", program, server.url]
        for number in range(rounds + 1):
            began = system_clock.monotonic()
            done = subprocess.run(
                command, check=True, env=environment, capture_output=True, text=True
            )
            if number:
                times.append(float(done.stdout.split()[0]) - began)
    return {"seconds": statistics.median(times), "shortest": min(times)}


_IMPORT_MEASURES: dict[str, Measure] = {
    label: functools.partial(imports, statement) for label, statement in _IMPORTS.items()
}
_EVENT_MEASURES: dict[str, Measure] = {
    f"first event, {program}": functools.partial(first_event, program)
    for program in ("watchers", "manager", "kubernetes", "kopf")
}
MEASURES = _IMPORT_MEASURES | _EVENT_MEASURES
_PEERS: Final = {
    "import kubernetes": "kubernetes",
    "import kopf": "kopf",
    "import lightkube": "lightkube",
    "import kr8s": "kr8s",
    "import kubernetes_asyncio": "kubernetes-asyncio",
    "first event, kubernetes": "kubernetes",
    "first event, kopf": "kopf",
}
_QUICK: Final = {"rounds": 1}

_imports = one_case(
    "benchmarks.jobs.start_up",
    _IMPORT_MEASURES,
    _QUICK,
    title="imports",
    ours="import of everything",
    peers=_PEERS,
    in_quick=["import appsdk_operator", "import of watchers"],
)
_events = one_case(
    "benchmarks.jobs.start_up",
    _EVENT_MEASURES,
    _QUICK,
    title="first event",
    peers=_PEERS,
    in_quick=["first event, watchers"],
)

JOB = Job(
    name="start_up",
    title="Start-up",
    text=(
        "How long an import takes, and how long it is from the start of a process to the first "
        "callback, on the embedded API server, which holds one object; each the median of ten "
        "processes that find all bytecode compiled. `import appsdk_operator` loads nothing until a "
        "name is used; `watchers` and `manager` are the names that operators of either sort use, "
        "and peers are compared with all names together."
    ),
    columns=(
        column("seconds", "seconds", Unit.SECONDS),
        column("shortest", "shortest", Unit.SECONDS),
        column("modules", "modules"),
        Column(
            title="share of the package's own modules",
            value=lambda numbers: numbers["share_of_the_package"],
            more_is_better=None,
        ),
    ),
    cases=lambda quick: [*_imports(quick), *_events(quick)],
    rounds=1,
)

if __name__ == "__main__":
    run(MEASURES)
