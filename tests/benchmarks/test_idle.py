"""What an idle operator takes is compared with the file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from benchmarks import idle

KNOWN: dict[str, Any] = {
    "threads": ["MainThread", "worker"],
    "modules": 100,
    "other modules": 100,
    "bytes of its own": 1000,
}
FOUND = {**KNOWN, "bytes": 2000, "seconds to the first reconcile": 0.2}


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({}, None),
        ({"threads": ["MainThread"], "modules": 50, "bytes of its own": 10}, None),
        ({"bytes of its own": 1080}, None),
        ({"bytes of its own": 1081}, "1,081 bytes of its own, at most 1,080"),
        ({"threads": ["MainThread", "worker", "extra"]}, "thread extra"),
        ({"modules": 102}, None),
        ({"modules": 103}, "103 modules, at most 102"),
        ({"other modules": 101}, "101 other modules, at most 100"),
    ],
)
def test_nothing_may_be_added(changes: dict[str, Any], problem: str | None) -> None:
    assert idle.raised(KNOWN, {**FOUND, **changes}) == ([problem] if problem else [])


def test_in_another_environment_only_what_is_the_kits_own_is_compared() -> None:
    more = {"other modules": 500, "bytes of its own": 5000, "modules": 103}
    found = idle.raised(KNOWN, {**FOUND, **more}, is_same_environment=False)
    assert found == ["103 modules, at most 102"]


def test_an_idle_operator_takes_no_more_than_the_file_says() -> None:
    told: list[str] = []
    found = idle.measured()
    # Memory differs where tests are measured for coverage, and from one C library to another.
    found["bytes of its own"] = 0
    assert idle.is_kept(told.append, measure=lambda: found), told
    [summary] = told
    assert f"{len(found['threads'])} threads" in summary


def test_what_is_too_much_is_told_with_a_remedy() -> None:
    told: list[str] = []
    content = json.loads(idle.FILE.read_text(encoding="utf-8"))
    found = {**FOUND, **content["figures"], "threads": ["one more"]}
    assert not idle.is_kept(told.append, measure=lambda: found)
    assert told[1] == "idle operator: too much: thread one more"
    assert "--write" in told[2]
