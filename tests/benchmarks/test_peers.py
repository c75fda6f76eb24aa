"""The peers take part: they are found without being imported, and do what they say they can."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import _contestants, _peers
from benchmarks._contestants import entries_for
from benchmarks._job import Case, Contestant, Entry, Group, Job, Variant
from benchmarks._replay import Spec
from benchmarks._run import run_job
from benchmarks.jobs import webhooks

ROOT = Path(__file__).parents[2]
SPECS = {
    "watch": Spec(objects=20, events=60, tls=True, pause=0.1),
    "latency": Spec(objects=20, events=60, rate=300, pause=0.1),
    "reconcile": Spec(objects=0, events=20, added=True, call_ms=1.0, pause=0.1),
}
NAMES = ("kopf", "kr8s", "kubernetes", "kubernetes-asyncio", "lightkube")
DONE = [("kopf", "reconcile"), *((name, job) for name in NAMES for job in ("watch", "latency"))]


def entries(name: str, job: str) -> list[Entry]:
    """A contestant's entries, each with all of the events."""
    spec = SPECS[job]
    return [
        dataclasses.replace(entry, options={**entry.options, "events": spec.events})
        for entry in entries_for(job, spec, workers=2)
        if entry.label.split()[0] == name
    ]


def failures(found: list[Entry]) -> list[str]:
    """What went wrong in one round of them."""
    job = Job(name="test", title="Test", text="", columns=(), cases=lambda _: [Case(entries=found)])
    (result,) = run_job(job, quick=True)
    return [f"{entry.label}: {entry.problem}" for entry in result.entries if entry.problem]


@pytest.mark.programs
@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("name", "job"), DONE)
def test_a_python_peer_does_its_jobs(name: str, job: str) -> None:
    found = entries(name, job)
    if found[0].absent:
        pytest.skip(found[0].absent)
    assert failures(found) == []


@pytest.mark.programs
def test_nobody_is_imported_to_be_found() -> None:
    code = """
import sys
from benchmarks._contestants import all_contestants
clients = {"kopf", "kr8s", "kubernetes", "kubernetes_asyncio", "lightkube"}
print(len(all_contestants()), *clients.intersection(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == ["9"]


@pytest.mark.programs
@pytest.mark.long
@pytest.mark.timeout(600)  # the first run builds the programs in Go
@pytest.mark.parametrize("label", ["appsdk", "appsdk typed", "controller-runtime", "kopf"])
def test_everybody_answers_the_reviews_of_webhooks(label: str) -> None:
    cases = [
        dataclasses.replace(case, entries=[e for e in case.entries if e.label == label])
        for case in webhooks.JOB.cases(True)
    ]
    for case in cases:
        for entry in case.entries:
            if entry.absent:
                pytest.skip(entry.absent)
    result = run_job(dataclasses.replace(webhooks.JOB, cases=lambda _: cases), quick=True)
    assert [entry.problem for case in result for entry in case.entries if entry.problem] == []


def test_go_programs_are_absent_without_a_toolchain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    _peers._toolchain.cache_clear()
    found = _peers.contestants()
    assert {one.absent for one in found} == {"there is no Go toolchain"}
    assert all(one.version for one in found)
    _peers._toolchain.cache_clear()
    _peers._state.cache_clear()


def test_who_needs_too_long_with_many_objects_lists_fewer_and_watches_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow = Variant(jobs=("list", "watch"), share={"list": 0.5}, most_objects=100)
    contestant = Contestant(name="slow", group=Group.PEER, variants=(slow,))
    monkeypatch.setattr(_contestants, "all_contestants", lambda: (contestant,))

    def objects(job: str, count: int) -> list[int]:
        found = entries_for(job, Spec(objects=count, events=1))
        return [entry.spec.objects for entry in found if entry.spec]

    assert objects("list", 100) == [50]
    assert objects("list", 1000) == [100]
    assert objects("watch", 100) == [100]
    assert objects("watch", 1000) == []


def test_who_takes_few_events_one_by_one_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = Variant(jobs=("watch",), share={"watch": 0.5}, most_events=80)
    contestant = Contestant(name="bounded", group=Group.OURS, variants=(bounded,))
    monkeypatch.setattr(_contestants, "all_contestants", lambda: (contestant,))
    counts = [
        entries_for("watch", Spec(events=events))[0].options["events"] for events in (100, 200)
    ]
    assert counts == [50, 80]
