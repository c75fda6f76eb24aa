"""What comparing came to, for the terminal and for docs/fidelity.md."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.differential.scripts import (
    HERE,
    Case,
    all_cases,
    areas,
    known_differences,
    older_differences,
)
from tests.differential.verdicts import Verdict

PAGE = HERE.parents[1] / "docs/fidelity.md"

_HEAD = """# How faithful the embedded server is

The same requests are sent to the embedded server (`APIServer`) and to a real kube-apiserver, and
the answers are compared: status, headers and body, after identities, times, versions and generated
names were replaced by what they have in common. `make fidelity` does it with the servers that
`KUBEBUILDER_ASSETS` names; every run of the tests does it with the recorded answers of Kubernetes
{current}. Where releases differ, the embedded server follows that one. The cases are data, in
`tests/differential`; its README says how to add one.

## Cases

| area | cases | agree | with documented differences |
|---|---|---|---|
"""


def older(case: Case, version: tuple[int, int]) -> str:
    """Why a case is not compared with a server of that version; empty when it is."""
    if case.since > version:
        return f"since {case.since[0]}.{case.since[1]}: {case.because}"
    named = older_differences()
    if version < named.until and case.id in named.cases:
        return named.reason
    return ""


def show(answers: dict[str, Any]) -> None:
    """Print answers, for those who write a case."""
    for name, found in answers.items():
        print(f"== {name}")  # noqa: T201
        for answer in found if isinstance(found, list) else [repr(found)]:
            print(json.dumps(answer, indent=1, ensure_ascii=False))  # noqa: T201


def text(verdicts: Sequence[Verdict], version: tuple[int, int]) -> str:
    """The report for the terminal."""
    lines = [f"{verdict.case.id}\n{verdict.problem}\n" for verdict in verdicts if verdict.problem]
    lines.append(f"Compared with kube-apiserver {version[0]}.{version[1]}:\n")
    lines.append(f"{'area':<28}{'cases':>7}{'agree':>7}{'documented':>12}{'differ':>8}")
    for area in areas():
        own = [verdict for verdict in verdicts if verdict.case.area == area.key]
        if own:
            lines.append(_row(area.key, own))
    lines.append(_row("all", verdicts))
    reasons = Counter(reason for verdict in verdicts for reason in verdict.reasons)
    if reasons:
        lines.append("\nDocumented differences, by the number of cases:")
        lines += [f"{count:>5}  {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def _row(name: str, verdicts: Iterable[Verdict]) -> str:
    kinds = Counter(
        "differ" if verdict.problem else "documented" if verdict.reasons else "agree"
        for verdict in verdicts
    )
    return (
        f"{name:<28}{sum(kinds.values()):>7}{kinds['agree']:>7}{kinds['documented']:>12}"
        f"{kinds['differ']:>8}"
    )


def page() -> str:
    """docs/fidelity.md, as the cases have it: that they agree is what the tests are for."""
    lines, total, total_documented = [], 0, 0
    for area in areas():
        documented = sum(bool(_reasons(case)) for case in area.cases)
        count = len(area.cases)
        lines.append(f"| {area.title} | {count} | {count - documented} | {documented} |")
        total += count
        total_documented += documented
    lines.append(f"| all | {total} | {total - total_documented} | {total_documented} |")
    return "\n".join([_HEAD.format(current=_current()) + "\n".join(lines), "", *_documented(), ""])


def _documented() -> list[str]:
    lines = ["## Documented differences", "", "| cases | difference |", "|---|---|"]
    lines += [f"| all | {rule.reason} |" for rule in known_differences() if rule.until is None]
    reasons = Counter(reason for case in all_cases() for reason in _reasons(case))
    lines += [f"| {count} | {reason} |" for reason, count in reasons.most_common()]
    lines += [
        "",
        "## Where older servers differ",
        "",
        "These cases are compared with servers from the release on that is named.",
        "",
        "| cases | since | difference |",
        "|---|---|---|",
    ]
    lines += [
        f"| all | {rule.until[0]}.{rule.until[1]} | {rule.reason} |"
        for rule in known_differences()
        if rule.until is not None
    ]
    named = older_differences()
    until = f"{named.until[0]}.{named.until[1]}"
    lines.append(f"| {len(named.cases)} | {until} | {named.reason} |")
    older = Counter((case.since, case.because) for case in all_cases() if case.because)
    lines += [
        f"| {count} | {version[0]}.{version[1]} | {because} |"
        for (version, because), count in sorted(older.items())
    ]
    return lines


def _reasons(case: Case) -> list[str]:
    steps = [each["reason"] for step in case.steps for each in step.get("differs", ())]
    return list(dict.fromkeys([*(each.reason for each in case.differs), *steps]))


def _current() -> str:
    from tests.differential.lanes import recorded

    return max((recorded(area.key)["server"] for area in areas()), default="").removeprefix("v")


def write() -> None:
    """Write docs/fidelity.md."""
    PAGE.write_text(page(), encoding="utf-8")
