"""Two servers' answers to one case: the same, or different as documented, or not as they should."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import attrs

from tests.differential.paths import differences, split, without
from tests.differential.scripts import Case, Difference, known_differences

_SHOWN = 12


@attrs.frozen
class Verdict:
    """What comparing came to."""

    case: Case
    problem: str = ""
    """Why it is no agreement; empty when it is one."""
    reasons: tuple[str, ...] = ()
    """The documented differences that there are."""


def compare(
    case: Case,
    ours: Sequence[dict[str, Any]] | Exception,
    theirs: Sequence[dict[str, Any]] | Exception,
    version: tuple[int, int],
) -> Verdict:
    """Compare the embedded server's answers with those of a server of ``version``."""
    for answers in (ours, theirs):
        if isinstance(answers, Exception):
            notes = "\n".join(getattr(answers, "__notes__", ()))
            return Verdict(case, f"{type(answers).__name__}: {answers}\n{notes}")
    assert not isinstance(ours, Exception)
    assert not isinstance(theirs, Exception)
    if len(ours) != len(theirs):
        return Verdict(case, f"{len(ours)} answers, and {len(theirs)} from the real server")
    reasons: dict[str, None] = {}
    problems: list[str] = []
    for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
        ignored, documented = _rules(case, number)
        one, other = without(our, ignored), without(their, ignored)
        for rule in known_differences():
            if rule.applies(version):
                patterns = [split(path) for path in rule.paths]
                before = list(differences(one, other))
                one, other = (_replaced(without(v, patterns), rule.replace) for v in (one, other))
                if before != list(differences(one, other)):
                    reasons[rule.reason] = None
        for rule in documented:
            patterns = [split(path) for path in rule.paths]
            less, other_less = without(one, patterns), without(other, patterns)
            if list(differences(one, other)) != list(differences(less, other_less)):
                reasons[rule.reason] = None
            one, other = less, other_less
        found = list(differences(one, other))
        if found and (gist := _gist(one)) != (real_gist := _gist(other)):
            # Answers of two kinds have nothing in common: the rest would say no more.
            found = [("answer", gist, real_gist)]
        for path, mine, real in found[:_SHOWN]:
            problems.append(
                f"step {number + 1}, {our['step']}\n  {path}\n"
                f"    embedded: {_shown(mine)}\n    real:     {_shown(real)}"
            )
        if len(found) > _SHOWN:
            problems.append(f"  … and {len(found) - _SHOWN} more")
    if not problems:
        stale = [rule.reason for rule in _all_documented(case) if rule.reason not in reasons]
        if stale:
            problems.append(f"there is no such difference any more, take it out: {stale}")
    return Verdict(case, "\n".join(problems), tuple(reasons))


def _gist(answer: dict[str, Any]) -> str:
    body = answer.get("body")
    if not isinstance(body, dict):
        return f"{answer.get('status')} {body}"
    gist = body.get("message") if body.get("kind") == "Status" else body.get("kind")
    return f"{answer.get('status')} {gist}"


def _spread(case: Case) -> list[dict[str, Any]]:
    """The steps that have an answer, as often as they are carried out."""
    found: list[dict[str, Any]] = []
    for step in case.steps:
        if "close" not in step:
            found += [step] * len(step.get("each", [None]))
    return found


def _rules(case: Case, number: int) -> tuple[list[tuple[str, ...]], list[Difference]]:
    step = _spread(case)[number]
    ignored = step.get("ignore", ())
    paths = [ignored] if isinstance(ignored, str) else list(ignored)
    own = [Difference.read(each) for each in step.get("differs", ())]
    return [split(path) for path in paths], [*case.differs, *own]


def _all_documented(case: Case) -> list[Difference]:
    own = [Difference.read(each) for step in case.steps for each in step.get("differs", ())]
    return [*case.differs, *own]


def _replaced(value: Any, rules: Sequence[tuple[str, str]]) -> Any:
    if not rules:
        return value
    if isinstance(value, dict):
        return {key: _replaced(item, rules) for key, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, rules) for item in value]
    if isinstance(value, str):
        for pattern, text in rules:
            value = re.sub(pattern, text, value)
    return value


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list, str, bool, int, float)) or value is None:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
        return text if len(text) <= 1500 else f"{text[:1500]}…"
    return repr(value)
