"""Runs jobs: each contestant in a fresh process, in turns, several rounds."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks._job import Case, Entry, Group, Job
from benchmarks._replay import ROOT, ReplayServer, Spec
from benchmarks._results import CaseResult, EntryResult

__all__ = ["RunError", "run_job"]

PATIENCE = 600.0
"""Seconds after which a contestant has failed."""


class RunError(Exception):
    """A contestant failed; the text says how."""


def run_job(
    job: Job,
    *,
    quick: bool = False,
    rounds: Callable[[Case, Entry], int] | None = None,
    is_wanted: Callable[[Case, Entry], bool] = lambda _case, _entry: True,
    tell: Callable[[str], None] = lambda _text: None,
) -> list[CaseResult]:
    """Every case of a job.

    Args:
        job: what to run.
        quick: its quick form.
        rounds: how often each entry is run; default: as the job says, once in the quick form.
        is_wanted: which entries take part; a case without any is left out.
        tell: is told what happens.
    """
    results = []
    for case in job.cases(quick):
        entries = [entry for entry in case.entries if is_wanted(case, entry)]
        if entries:
            usual = 1 if quick else job.rounds
            counts = [rounds(case, entry) if rounds else usual for entry in entries]
            results.append(_run_case(job, case, list(zip(entries, counts, strict=True)), tell))
    return results


def _run_case(
    job: Job, case: Case, entries: Sequence[tuple[Entry, int]], tell: Callable[[str], None]
) -> CaseResult:
    """Every entry as often as it says, in turns."""
    results = {entry.label: EntryResult(entry.label, entry.group) for entry, _ in entries}
    for entry, _ in entries:
        if entry.absent:
            results[entry.label].problem = entry.absent
            results[entry.label].is_absent = True
    title = f"{job.name} ({case.title})" if case.title else job.name
    with contextlib.ExitStack() as stack:
        servers = {
            spec: stack.enter_context(ReplayServer(spec))
            for spec in {entry.spec for entry, _ in entries if not entry.absent}
            if spec is not None
        }
        for number in range(max(rounds for _, rounds in entries)):
            present = [
                entry
                for entry, rounds in entries
                if number < rounds and not results[entry.label].problem
            ]
            # Nobody always runs right after the same one.
            shift = number % len(present) if present else 0
            for entry in [*present[shift:], *present[:shift]]:
                tell(f"{title}, round {number + 1}: {entry.label}")
                result = results[entry.label]
                try:
                    result.rounds.append({**case.facts, **_run_entry(entry, servers)})
                except RunError as error:
                    result.problem = str(error)
                    tell(f"{entry.label} failed: {error}")
    first = next((entry.label for entry, _ in entries if entry.group is Group.OURS), "")
    return CaseResult(job.name, case.title, list(results.values()), case.floor, case.ours or first)


def _run_entry(entry: Entry, servers: Mapping[Spec, ReplayServer]) -> dict[str, float]:
    """The numbers of one run.

    Raises:
        RunError: there are none.
    """
    options: dict[str, Any] = {}
    if entry.spec is not None:
        server = servers[entry.spec]
        options = {**asdict(entry.spec), "server": server.url, "ca": server.ca_file}
    options |= entry.options
    command = [*entry.command, entry.job, json.dumps(options)]
    # A path that leads somewhere else would have the process measure another checkout.
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            command,
            check=False,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    except subprocess.TimeoutExpired:
        raise RunError(f"it did not end within {PATIENCE:.0f} s") from None
    except OSError as error:
        raise RunError(f"it cannot be started: {error}") from error
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise RunError(f"exit status {done.returncode}: {last[:300]}")
    try:
        return {name: float(value) for name, value in json.loads(lines[-1]).items()}
    except (ValueError, AttributeError, TypeError):
        raise RunError(f"its last line is no JSON object of numbers: {lines[-1][:200]}") from None
