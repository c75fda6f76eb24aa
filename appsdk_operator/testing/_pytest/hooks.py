"""The hooks of the pytest plugin, registered when a test first uses one of its fixtures."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from appsdk_operator.testing._pytest.kube_test import KubeTest


STATE: Final = pytest.StashKey[Any]()
"""On a test item: its :class:`KubeTest`."""
PLANE: Final = pytest.StashKey[Any]()
"""On the config: the control plane that the processes of pytest-xdist share."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Stop what ``kube_run`` started when the test function returns; its errors fail the test."""
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
    """Add requests, events, operator state and errors to the report of a failed test."""
    report = yield
    test: KubeTest | None = item.stash.get(STATE, None)
    if test is not None and report.failed:
        report.sections.extend(test.sections())
    return report
