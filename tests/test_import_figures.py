"""What importing the kit loads does not grow unnoticed; see hack/import_figures.py."""

from __future__ import annotations

import json

import pytest

from hack import import_figures


def test_importing_loads_no_more_than_the_file_says() -> None:
    content = json.loads(import_figures.FILE.read_text())
    found = import_figures.measured()
    same = content["of"] == import_figures.environment()
    assert import_figures.raised(content["figures"], found, in_same_environment=same) == []
    assert content["figures"].keys() == found.keys()


@pytest.mark.parametrize(
    ("now", "is_raised"), [(100, False), (102, False), (103, True), (1000, True), (50, False)]
)
def test_two_percent_are_let_pass(now: int, is_raised: bool) -> None:
    known, found = {"App": {"modules": 100}}, {"App": {"modules": now}}
    assert bool(import_figures.raised(known, found, in_same_environment=False)) is is_raised


def test_what_depends_on_the_environment_counts_in_the_same_one_only() -> None:
    known, found = {"App": {"other modules": 100}}, {"App": {"other modules": 110}}
    assert not import_figures.raised(known, found, in_same_environment=False)
    assert import_figures.raised(known, found, in_same_environment=True) == [
        "importing App: 100 other modules were 110 now, at most 102"
    ]
