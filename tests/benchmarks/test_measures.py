"""Jobs without a replay server: their entries, and one of them from end to end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks._job import Group
from benchmarks._measures import Figures, one_case, percentiles
from benchmarks.jobs import (
    api_server,
    cpu_bound,
    informers,
    leaders,
    no_op,
    queue,
    retries,
    start_up,
    watchers,
    webhooks,
)

ROOT = Path(__file__).parents[2]


def nothing() -> Figures:
    return {}


MEASURES = {"floor": nothing, "ours": nothing, "theirs": nothing}


def test_a_case_tells_floors_from_ours_and_from_peers() -> None:
    peers = {"theirs": "no-such-distribution"}
    (case,) = one_case("module", MEASURES, {"count": 1}, floor="floor", peers=peers)(False)
    assert [entry.group for entry in case.entries] == [Group.FLOOR, Group.OURS, Group.PEER]
    assert [entry.absent for entry in case.entries] == [
        "",
        "",
        "no-such-distribution is not installed",
    ]
    assert not any(entry.options for entry in case.entries)


def test_the_quick_form_does_less_of_fewer() -> None:
    (case,) = one_case("module", MEASURES, {"count": 1}, in_quick=["ours"])(True)
    (entry,) = case.entries
    assert (entry.label, entry.options) == ("ours", {"count": 1})


def test_percentiles_are_of_the_values_themselves() -> None:
    found = percentiles([float(number) for number in range(1001)])
    assert found == {"p50": 500.0, "p99": 990.0, "p999": 999.0, "longest": 1000.0}


@pytest.mark.parametrize(
    "module",
    [
        api_server,
        cpu_bound,
        informers,
        leaders,
        no_op,
        queue,
        retries,
        start_up,
        watchers,
        webhooks,
    ],
)
def test_each_entry_of_a_job_is_one_of_its_measurements(module: object) -> None:
    job, measures = module.JOB, module.MEASURES  # type: ignore[attr-defined]
    for is_quick in (True, False):
        for case in job.cases(is_quick):
            assert case.entries
            assert {entry.job for entry in case.entries} <= set(measures)
            assert len({entry.label for entry in case.entries}) == len(case.entries)


@pytest.mark.programs
def test_a_measurement_prints_its_figures() -> None:
    command = [sys.executable, "-m", "benchmarks.jobs.queue", "delayed", '{"count": 100}']
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    figures = json.loads(done.stdout)
    assert set(figures) == {"adds_per_second", "gets_per_second", "bytes_per_key"}
    assert figures["gets_per_second"] > 0
