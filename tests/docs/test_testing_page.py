"""The tests on the pages about tests and webhooks, saved and run as their readers do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ["pytester"]

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.programs
@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", ["testing.md", "webhooks.md"])
def test_the_tests_that_the_reader_saves_pass(
    name: str,
    blocks_of: Callable[[Path], list[Any]],
    pytester: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    blocks = blocks_of(DOCS / name)
    saved = [block for block in blocks if block.saved_as.endswith(".py")]
    tests = sum(len(re.findall(r"^def test_", block.text, re.MULTILINE)) for block in saved)
    assert tests
    for block in saved:
        (pytester.path / block.saved_as).write_text(block.text, encoding="utf-8")
    options = ("-p", "no:cacheprovider", "-p", "appsdk_operator.testing._pytest.plugin")
    # In this process its imports would be undone after the run, under the feet of other tests.
    pytester.runpytest_subprocess(*options).assert_outcomes(passed=tests)
