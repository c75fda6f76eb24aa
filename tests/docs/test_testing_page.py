"""The tests on the page of tests, saved and run as its reader does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

PAGE = Path(__file__).parents[2] / "docs/testing.md"


@pytest.mark.programs
def test_the_tests_that_the_reader_saves_pass(
    blocks_of: Callable[[Path], list[Any]],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    saved = [block for block in blocks_of(PAGE) if block.saved_as]
    assert saved
    for block in saved:
        (pytester.path / block.saved_as).write_text(block.text, encoding="utf-8")
    options = ("-p", "no:cacheprovider", "-p", "appsdk_operator.testing._pytest.plugin")
    # In this process its imports would be undone after the run, under the feet of other tests.
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=len(saved))
