"""Reconcilers that compute: how much a second worker helps, with the interpreter's lock or without.

A free-threaded interpreter is looked for on the path and among pyenv's versions; it has to have the
kit's dependencies.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from appsdk_operator import Request
from appsdk_operator.controllers import Controller, ControllerOptions
from appsdk_operator.runtime import Metrics, system_clock
from benchmarks._job import Case, Job, Unit
from benchmarks._measures import Figures, Measure, column, one_case, own_cpu, run
from benchmarks._replay import ROOT
from benchmarks.jobs.no_op import Count, Feed, requests

_WORKERS: Final = (1, 2, 4)
_STEPS: Final = 20_000
"""Of the loop in each reconcile: about a millisecond."""
_FREE: Final = tuple(f"python3.{minor}t" for minor in (13, 14, 15))
_ASK: Final = """\
import sys
import msgspec, attrs, yaml, prometheus_client
print(sys._is_gil_enabled())
"""


class Computes(Count):
    """A reconciler that computes, in plain Python."""

    def reconcile(self, _: Any) -> None:
        """Sum up something, then count."""
        total = 0
        for number in range(_STEPS):
            total += number & 3
        super().reconcile(total)


def reconciles(*, workers: int, count: int = 4_000) -> Figures:
    """From the first one to the last one; all are queued before."""
    end = Computes(count)
    subject: Controller[Request] = Controller(
        "benchmark",
        end.reconcile,
        options=ControllerOptions(max_concurrent_reconciles=workers),
        metrics=Metrics(),
    )
    feed = Feed(requests(count), is_live=False)
    subject.watch(feed)
    used = own_cpu()
    subject.run(end.stop)
    used = own_cpu() - used
    seconds = end.ended - feed.began
    return {"reconciles_per_second": count / seconds, "cores": used / seconds}


def alone(*, count: int = 4_000) -> Figures:
    """The same work without a controller, in one thread."""
    end = Computes(count)
    began, used = system_clock.monotonic(), own_cpu()
    for _ in range(count):
        end.reconcile(None)
    seconds = end.ended - began
    return {"reconciles_per_second": count / seconds, "cores": (own_cpu() - used) / seconds}


def _free_threaded() -> tuple[str, str]:
    """The command of a free-threaded interpreter that can run this, or why there is none."""
    problem = f"no free-threaded interpreter ({', '.join(_FREE)}) on the path or with pyenv"
    for command in _candidates():
        try:
            done = subprocess.run(
                [command, "-c", _ASK], check=False, capture_output=True, text=True, cwd=ROOT
            )
        except OSError:
            continue
        answer = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1:]
        if answer == ["False"]:
            return command, ""
        problem = f"{Path(command).name} cannot be used: {' '.join(answer)}"
        if answer == ["True"]:
            problem = f"{Path(command).name}: a dependency switches the interpreter's lock on"
    return "", problem


def _candidates() -> Iterator[str]:
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        yield sys.executable
    for name in _FREE:
        found = shutil.which(name)
        if found:
            yield found
    pyenv = shutil.which("pyenv")
    if pyenv:
        root = subprocess.run([pyenv, "root"], check=False, capture_output=True, text=True)
        for folder in sorted(Path(root.stdout.strip()).glob("versions/3.*t"), reverse=True):
            yield str(folder / "bin" / "python")


MEASURES: dict[str, Measure] = {
    "no controller": alone,
    **{
        f"{workers} worker{'s' if workers > 1 else ''}": functools.partial(
            reconciles, workers=workers
        )
        for workers in _WORKERS
    },
}
_QUICK: Final[Mapping[str, Any]] = {"count": 100}


def _cases(quick: bool) -> Sequence[Case]:
    (usual,) = one_case("benchmarks.jobs.cpu_bound", MEASURES, _QUICK, floor="no controller")(quick)
    command, problem = _free_threaded()
    free = (
        [replace(usual.entries[0], label="free-threaded Python", absent=problem)]
        if problem
        else [replace(one, command=(command, *one.command[1:])) for one in usual.entries]
    )
    return [
        replace(usual, title=f"Python {sys.version_info.major}.{sys.version_info.minor}"),
        replace(usual, title="free-threaded Python", entries=free),
    ]


JOB = Job(
    name="cpu_bound",
    title="Reconcilers that compute",
    text=(
        "Each reconcile computes for about a millisecond, in plain Python. With the interpreter's "
        "lock more workers cannot be faster than one; without it they can be, up to the number of "
        "cores."
    ),
    columns=(
        column("reconciles/s", "reconciles_per_second", Unit.RATE),
        column("cores used", "cores"),
    ),
    cases=_cases,
    rounds=3,
)

if __name__ == "__main__":
    run(MEASURES)
