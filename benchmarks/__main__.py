"""The command line: ``python -m benchmarks``."""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks import _guard, _page, _plots, idle, instructions
from benchmarks._contestants import all_contestants
from benchmarks._environment import environment, versions
from benchmarks._job import Case, Entry, Group, Job
from benchmarks._replay import ROOT
from benchmarks._report import as_text
from benchmarks._results import CaseResult, Results, all_jobs
from benchmarks._run import run_job
from hack import import_figures

DOCS = ROOT / "docs"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Speed and size of the kit, measured beside its peers.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="small amounts and one round: shows that it runs")
    add("--jobs", default="*", metavar="NAMES", help="which; patterns and commas are understood")
    add("--contestants", default="*", metavar="LABELS", help="which, by their label in the tables")
    add("--without-peers", action="store_true", help="floors and ours only")
    add("--rounds", type=int, help="how often each is run; default: as the job says")
    network = parser.add_mutually_exclusive_group()
    network.add_argument("--plain", action="store_true", help="only cases without TLS")
    network.add_argument("--tls", action="store_true", help="only cases with TLS")
    add("--json", type=Path, metavar="FILE", help="write the numbers there")
    add(
        "--read",
        type=Path,
        metavar="FILE",
        action="append",
        help="measure nothing, take the numbers from there; of several, the last has a job's",
    )
    add("--plots", type=Path, metavar="DIR", help="draw what can be drawn there")
    add(
        "--write",
        action="store_true",
        help="write docs/performance.md, docs/measurements.md and plots",
    )
    add(
        "--guard",
        action="store_true",
        help="status 1 where a hot path has become much slower, or takes 2 %% more instructions, "
        "an import loads 2 %% more, or an idle operator takes more threads, modules or memory",
    )
    add("--list", action="store_true", help="print the jobs and contestants, and do nothing")
    return parser


def _matches(name: str, patterns: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern.strip()) for pattern in patterns.split(","))


def _filter(options: argparse.Namespace) -> Callable[[Case, Entry], bool]:
    def is_wanted(case: Case, entry: Entry) -> bool:
        has_tls = entry.spec is not None and entry.spec.tls
        if (options.plain and has_tls) or (options.tls and not has_tls):
            return False
        if options.without_peers and entry.group is Group.PEER:
            return False
        # Ratios need what they are made of.
        is_floor = entry.label == case.floor
        return is_floor or _matches(entry.label, options.contestants)

    return is_wanted


def _print_list() -> None:
    print("Jobs:")
    for job in all_jobs():
        print(f"  {job.name:<16} {job.title}")
    print("Contestants:")
    for one in all_contestants():
        variants = ", ".join(variant.name for variant in one.variants if variant.name)
        print(f"  {one.name:<20} {one.absent or one.version}  {variants}")


def _measure(options: argparse.Namespace, jobs: Sequence[Job]) -> Results:
    results = Results(environment(), versions(), is_quick=options.quick)
    if options.without_peers:
        for one in all_contestants():
            if one.group is Group.PEER:
                results.versions[one.name] = "absent: peers were not asked for"
    began = time.monotonic()
    for job in jobs:
        results.cases += _run(options, job)
        results.seconds = time.monotonic() - began
        if options.json:
            # After each job, so that a run that is cut short is not lost.
            results.write(options.json)
    return results


def _read(paths: Sequence[Path]) -> Results:
    """What several runs found."""
    first, *others = map(Results.read, paths)
    for other in others:
        first.replace(other)
    return first


def _run(options: argparse.Namespace, job: Job) -> list[CaseResult]:
    def rounds(case: Case, entry: Entry) -> int:
        usual = 1 if options.quick else job.rounds
        if options.guard and _guard.is_watched(job, case, entry):
            usual = max(usual, _guard.ROUNDS)
        given: int | None = options.rounds
        return given or usual

    return run_job(
        job,
        quick=options.quick,
        rounds=rounds,
        is_wanted=_filter(options),
        tell=lambda text: print(text, file=sys.stderr, flush=True),
    )


def _is_guarded(options: argparse.Namespace, results: Results) -> bool:
    """Whether the hot paths are as fast, and the kit as light, as ever."""
    kept = [_are_times_kept(options, results)]
    if not options.read:
        kept.append(instructions.is_kept(print))
        kept.append(import_figures.is_kept(lambda text: print(f"guard: {text}")))
        kept.append(idle.is_kept(lambda text: print(f"guard: {text}")))
    return all(kept)


def _are_times_kept(options: argparse.Namespace, results: Results) -> bool:
    bad = {bound.job for bound in _guard.failing(results, print)}
    if not bad or options.read:
        return not bad
    print("guard: measured once more, in case the machine was busy")
    for job in all_jobs():
        if job.name in bad:
            results.cases = [case for case in results.cases if case.job != job.name]
            results.cases += _run(options, job)
    return not _guard.failing(results, print)


def main() -> int:
    """Do what the arguments say; the exit status."""
    options = _parser().parse_args()
    if options.list:
        _print_list()
        return 0
    jobs = [job for job in all_jobs() if _matches(job.name, options.jobs)]
    if not jobs:
        print(f"no job is called {options.jobs}: see --list", file=sys.stderr)
        return 2
    results = _read(options.read) if options.read else _measure(options, jobs)
    print(as_text(results, jobs))
    if options.plots or options.write:
        folder = options.plots or DOCS
        folder.mkdir(parents=True, exist_ok=True)
        print(_plots.draw(results, folder))
    if options.write:
        for name, write in (("performance", _page.page), ("measurements", _page.measurements)):
            (DOCS / f"{name}.md").write_text(write(results, all_jobs()), encoding="utf-8")
    failed = [
        f"{case.job} ({case.title}): {entry.label}: {entry.problem}"
        for case in results.cases
        for entry in case.entries
        if entry.problem and not entry.is_absent
    ]
    for text in failed:
        print(f"FAILED {text}", file=sys.stderr)
    if options.guard and not _is_guarded(options, results):
        return 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
