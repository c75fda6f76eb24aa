"""The benchmark runs, from the command line to the JSON."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import _guard
from benchmarks._job import Case, Group, Job, python_entry
from benchmarks._results import Results, all_jobs
from benchmarks._run import run_job

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.programs, pytest.mark.long, pytest.mark.timeout(400)]


def test_a_quick_run_measures_ours_in_each_job(tmp_path: Path) -> None:
    # Those with bounds are measured while nothing else runs: `.ci/run` does it, with --guard.
    jobs = {job.name for job in all_jobs()} - {bound.job for bound in _guard.BOUNDS}
    path = tmp_path / "results.json"
    command = [sys.executable, "-m", "benchmarks", "--quick", "--without-peers"]
    command += ["--jobs", ",".join(sorted(jobs)), "--json", str(path)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    results = Results.read(path)
    assert results.is_quick
    assert {case.job for case in results.cases} == jobs
    for case in results.cases:
        present = [entry for entry in case.entries if not entry.is_absent]
        assert not [entry.problem for entry in present if entry.problem]
        assert case.of_group(Group.OURS) or not present
    assert "Latency from event to callback" in done.stdout


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
