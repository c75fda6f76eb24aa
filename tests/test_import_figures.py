"""What importing the kit loads does not grow unnoticed; see hack/import_figures.py."""

from __future__ import annotations

import json

import pytest

from hack import import_figures


def test_importing_loads_no_more_than_the_file_says() -> None:
    content = json.loads(import_figures.FILE.read_text())
    found = import_figures.measured()
    differing = import_figures.differing(content["of"])
    assert import_figures.raised(content["figures"], found, differing=differing) == []
    assert content["figures"].keys() == found.keys()


@pytest.mark.parametrize(
    ("now", "is_raised"), [(100, False), (102, False), (103, True), (1000, True), (50, False)]
)
def test_two_percent_are_let_pass(now: int, is_raised: bool) -> None:
    known, found = {"App": {"modules": 100}}, {"App": {"modules": now}}
    assert bool(import_figures.raised(known, found, differing=["python"])) is is_raised


@pytest.mark.parametrize(
    ("what", "differing", "is_compared"),
    [
        ("other modules", [], True),
        ("other modules", ["msgspec"], False),
        ("bytes of bytecode", ["msgspec"], True),
        ("bytes of bytecode", ["python"], False),
    ],
)
def test_what_depends_on_the_environment_counts_in_the_same_one_only(
    what: str, differing: list[str], is_compared: bool
) -> None:
    known, found = {"App": {what: 100}}, {"App": {what: 110}}
    said = import_figures.raised(known, found, differing=differing)
    assert said == ([f"importing App: 100 {what} were 110 now, at most 102"] if is_compared else [])
