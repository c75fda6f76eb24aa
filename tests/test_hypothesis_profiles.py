"""The number of examples of each property test follows the profile of the run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.hypothesis_profiles import DEFAULT, histories_of, scaled

TESTS = Path(__file__).parent

UNSCALED = {
    # It has to find a value.
    "testing/test_strategies.py": 500,
    # They have to find a planted defect.
    "app/test_background_refusals.py": 100,
    "app/test_background_state.py": 3000,
    "app/test_due.py": 1000,
    "cache/test_read_your_writes.py": 1000,
    "watchers/test_transitions.py": 8000,
}


@pytest.fixture(params=["repeatable", "hunt", "quick"])
def profile(request: pytest.FixtureRequest) -> Iterator[str]:
    settings.load_profile(request.param)
    yield request.param
    settings.load_profile(request.config.getoption("--hypothesis-profile") or "repeatable")


def test_quick_tries_a_fifth_and_never_less_than_five(profile: str) -> None:
    tried = [settings().max_examples, *map(scaled, (300, 25, 8, 3))]
    assert tried == ([20, 60, 5, 5, 3] if profile == "quick" else [DEFAULT, 300, 25, 8, 3])


def test_the_hunt_alone_looks_at_other_histories(profile: str) -> None:
    assert histories_of(7) == (None if profile == "hunt" else 7)


def unscaled(source: str) -> Iterator[object]:
    """The numbers of examples that a test gives Hypothesis as they are."""
    if "max_examples" not in source:  # most files: to parse all takes seconds
        return
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        for keyword in node.keywords:
            if keyword.arg != "max_examples":
                continue
            text = ast.unparse(keyword.value)
            is_setting = ast.unparse(node.func).split(".")[-1] == "settings"
            if is_setting and not text.startswith("scaled("):
                yield ast.literal_eval(text) if text.isdigit() else text


def test_each_test_scales_its_number() -> None:
    assert [*unscaled("settings(max_examples=9)\nhypothesis.settings(max_examples=N)")] == [9, "N"]
    assert not [*unscaled("settings(max_examples=scaled(9))\ncheck_operator(max_examples=9)")]
    found = {
        str(path.relative_to(TESTS)): number
        for path in TESTS.rglob("*.py")
        for number in unscaled(path.read_text(encoding="utf-8"))
    }
    assert found == UNSCALED, "give max_examples=scaled(N), from tests/hypothesis_profiles.py"
