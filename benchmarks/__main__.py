"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import fnmatch
import importlib
import pkgutil
import sys

from benchmarks import jobs
from benchmarks._job import Job
from benchmarks._run import run_job, summary_of


def main() -> None:
    """Run jobs and print their tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="only show that it runs")
    parser.add_argument("--jobs", default="*", help="names or patterns, with commas")
    parser.add_argument("--contestants", default="*", help="labels or patterns, with commas")
    parser.add_argument("--rounds", type=int)
    options = parser.parse_args()

    def matches(name: str, patterns: str) -> bool:
        return any(fnmatch.fnmatch(name, pattern) for pattern in patterns.split(","))

    for module in pkgutil.iter_modules(jobs.__path__):
        job: Job = importlib.import_module(f"{jobs.__name__}.{module.name}").JOB
        if not matches(job.name, options.jobs):
            continue
        for case in run_job(
            job,
            quick=options.quick,
            rounds=options.rounds,
            is_wanted=lambda _, entry: matches(entry.label, options.contestants),
            tell=lambda text: print(text, file=sys.stderr),
        ):
            print(f"\n{job.title}: {case.title}")
            for entry in case.entries:
                print(f"  {entry.label:<30} {entry.problem}")
                for column in job.columns:
                    print(f"      {column.title}: {summary_of(entry, column)}")


if __name__ == "__main__":
    main()
