"""The benchmark runs, from the command line to the JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._job import Case, Group, Job, python_entry
from benchmarks._results import Results
from benchmarks._run import run_job

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.programs, pytest.mark.long, pytest.mark.timeout(400)]


def test_a_quick_run_measures_floors_and_ours(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--without-peers", "--plain"]
    command += ["--jobs", "watch,list", "--json", str(path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = Results.read(path)
    assert results.is_quick
    assert {case.job for case in results.cases} == {"watch", "list"}
    for case in results.cases:
        assert case.of_group(Group.FLOOR)
        assert case.of_group(Group.OURS)
        assert not [entry.problem for entry in case.entries if entry.problem]
    assert "Watch events to a callback: widgets of 2 KB" in done.stdout


def test_a_contestant_that_fails_does_not_end_the_run() -> None:
    module = "benchmarks.contestants.floors"
    case = Case(
        entries=[
            python_entry("unknown", module, "no such job"),
            python_entry("missing", "benchmarks.no_such_module", "watch"),
            python_entry("absent", module, "watch", absent="it is not here"),
        ]
    )
    job = Job(name="test", title="Test", text="", columns=(), cases=lambda _: [case])
    (result,) = run_job(job)
    unknown, missing, absent = result.entries
    assert "KeyError" in unknown.problem
    assert "no_such_module" in missing.problem
    assert absent.is_absent
    assert absent.problem == "it is not here"
