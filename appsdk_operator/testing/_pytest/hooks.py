"""The hooks of the pytest plugin, registered for the first test that uses a fixture of it."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from appsdk_operator.testing._pytest.kube_test import KubeTest

__all__ = ["PLANE", "STATE"]

STATE: Final = pytest.StashKey[Any]()
"""Of a test: what the plugin holds for it."""
PLANE: Final = pytest.StashKey[Any]()
"""Of a run: the control plane that its processes share."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What ran beside the test ends with it, and fails it where it failed itself."""
    test: KubeTest | None = item.stash.get(STATE, None)
    if test is None:
        return (yield)
    try:
        result = yield
    except BaseException as error:
        test.observe()
        test.end_runs(error)
        raise
    test.end_runs()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
    call: pytest.CallInfo[None],  # noqa: ARG001 - named by pytest
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test tells what the server saw and what the operator did."""
    report = yield
    test: KubeTest | None = item.stash.get(STATE, None)
    if test is not None and report.failed:
        report.sections.extend(test.sections())
    return report
