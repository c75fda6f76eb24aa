"""Runs pytest once, and finds out whether one to three failures of it are rare.

    python hack/lane.py [--flaky-file FILE] [ARGUMENTS OF PYTEST]

Each test that failed runs again by itself, in a process of its own, up to eleven times. If it fails
there, so does the lane. If it passes each time, the lane passes and says so in a line
``== FLAKY: ID (1 of 12)`` with the seed and the first traceback; ``--flaky-file`` gets the same
lines appended. Such a line is to be taken for a defect of the product until shown otherwise.

More than three failures, a test that cannot be collected, something left behind, a warning and a
worker that ended say more than the rare failure of one test: the lane fails at once.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]

RARE = 3
"""So many failures may be rare ones; more have a cause in common."""
REPEATS = 11
"""How often a test that failed has to pass by itself: once, and ten times more."""

# As `python -m pytest`, with the plugin. PYTHONPATH would reach the programs that tests start, too.
PYTEST = (
    "import os, sys; sys.path[:1] = [os.getcwd(), sys.argv.pop(1)]; "
    "import pytest; sys.exit(pytest.main())"
)

SEED = re.compile(r"reproduce_failure\(|\bseed\b|\breplay=", re.IGNORECASE)
"""Lines of Hypothesis and of the kit's own checks that say how to see a failure again."""

Report = dict[str, Any]


def main() -> int:
    """See the module."""
    arguments = sys.argv[1:]
    flaky_file = None
    if arguments[:1] == ["--flaky-file"]:
        flaky_file, arguments = Path(arguments[1]), arguments[2:]
    status, report, _ = run(arguments)
    if status == 0 and not report["errors"]:
        return 0
    failed = {failure["id"]: failure["text"] for failure in reversed(report["failures"])}
    reason = beyond_rare(status, failed, report["errors"])
    if reason:
        print(f"== no rare failure: {reason}")
        return status or 1
    rest = without_paths(arguments, report["paths"])
    if not all(passes_alone(rest, test) for test in reversed(failed)):
        return status
    lines = "".join(flaky_lines(test, failed[test]) for test in reversed(failed))
    print(lines, end="")
    if flaky_file is not None:
        flaky_file.parent.mkdir(parents=True, exist_ok=True)
        with flaky_file.open("a", encoding="utf-8") as file:
            file.write(lines)
    return 0


def run(arguments: Sequence[str], *, is_shown: bool = True) -> tuple[int, Report, str]:
    """The status of pytest, what went wrong, and what it wrote if that was not shown."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-c", PYTEST, str(ROOT), "-p", "hack.lane_report"]
        command += [f"--lane-report={file}", *arguments]
        sys.stdout.flush()
        done = subprocess.run(
            command,
            check=False,
            stdout=None if is_shown else subprocess.PIPE,
            stderr=None if is_shown else subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
        )
        try:
            report = json.loads(file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            report = {"passed": 0, "failures": [], "errors": ["pytest ended early"], "paths": []}
    return done.returncode, report, done.stdout or ""


def beyond_rare(status: int, failed: dict[str, str], errors: Sequence[str]) -> str:
    """Why the failures of a run need no second look, or nothing if they do."""
    if errors:
        return "; ".join(errors[:RARE])
    if status != 1 or not failed:
        return f"pytest ended with status {status}"
    if len(failed) > RARE:
        return f"{len(failed)} tests failed, which is more than {RARE}"
    return ""


def without_paths(arguments: Sequence[str], paths: Sequence[str]) -> list[str]:
    """The options of a run, without what it was to collect."""
    rest = list(arguments)
    for path in reversed(paths):
        # From the end: the value of an option may read as a path does.
        del rest[len(rest) - 1 - rest[::-1].index(path)]
    return rest


def passes_alone(options: Sequence[str], test: str) -> bool:
    """Whether a test passes by itself each time."""
    for attempt in range(1, REPEATS + 1):
        status, report, output = run([*options, "-n", "0", test], is_shown=False)
        if status or not report["passed"] or report["errors"]:
            texts = [failure["text"] for failure in report["failures"]]
            print(f"== {test} fails by itself as well, in run {attempt} of {REPEATS}:")
            print(textwrap.indent("\n".join(texts) or output, "   "))
            return False
    return True


def flaky_lines(test: str, text: str) -> str:
    """What is said of a rare failure."""
    seeds = dict.fromkeys(line.strip("E |\t") for line in text.splitlines() if SEED.search(line))
    seed = ", ".join(seeds) or "no seed"
    return (
        f"== FLAKY: {test} (1 of {REPEATS + 1}), {seed}\n{textwrap.indent(text.rstrip(), '   ')}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
