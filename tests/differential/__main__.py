"""The report: ``python -m tests.differential`` with KUBEBUILDER_ASSETS; README.md tells more."""

from __future__ import annotations

import argparse
import sys

from appsdk_operator.runtime import system_clock
from tests.differential import lanes, report
from tests.differential.scripts import Case, all_cases, areas
from tests.differential.verdicts import Verdict, compare


def main(arguments: list[str]) -> int:
    """Run the cases on both servers and print how they compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.differential", description=__doc__)
    parser.add_argument("words", nargs="*", help="only cases whose area or name has one of these")
    parser.add_argument(
        "--record",
        action="store_true",
        help="keep the real server's answers for the lanes without one",
    )
    parser.add_argument("--show", action="store_true", help="print the real server's answers")
    parser.add_argument("--write", action="store_true", help="write docs/fidelity.md and no more")
    options = parser.parse_args(arguments)
    if options.write:
        report.write()
        return 0
    cases = [case for case in all_cases() if not options.words or _meant(case, options.words)]
    with lanes.embedded() as ours, lanes.real() as theirs:
        version = theirs.version
        new_enough = [case for case in cases if not report.older(case, version)]
        began = system_clock.monotonic()
        real = lanes.run(theirs, new_enough)
        took = system_clock.monotonic() - began
        mine = lanes.run(ours, new_enough)
    verdicts = [compare(case, mine[case.id], real[case.id], version) for case in new_enough]
    verdicts += [
        Verdict(case, reasons=(why,)) for case in cases if (why := report.older(case, version))
    ]
    if options.show:
        report.show(real)
    if options.record:
        _record(version, real)
    print(report.text(verdicts, version))  # noqa: T201
    print(f"The real server took {took:.1f} s.")  # noqa: T201
    return 1 if any(verdict.problem for verdict in verdicts) else 0


def _meant(case: Case, words: list[str]) -> bool:
    return any(word == case.area or word in case.name for word in words)


def _record(version: tuple[int, int], real: dict[str, lanes.Answers | Exception]) -> None:
    for area in areas():
        kept = lanes.recorded(area.key)["cases"]
        answers = {}
        for case in area.cases:
            found = real.get(case.id)
            if isinstance(found, list):
                answers[case] = found
            elif case.name in kept and kept[case.name][0] == case.digest:
                answers[case] = kept[case.name][1]
        lanes.record(area.key, f"v{version[0]}.{version[1]}", answers)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
