"""A plugin of pytest that writes what went wrong in a run as JSON, for ``hack/lane.py``.

With pytest-xdist the reports of all workers come to the process that writes.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.reports import pytest_report_to_serializable, sendable

__all__ = [
    "pytest_addoption",
    "pytest_configure",
    "pytest_report_to_serializable",
    "pytest_runtest_makereport",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the file."""
    parser.addoption("--lane-report", metavar="FILE", help="write what went wrong as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, in the process that gets all reports."""
    if config.option.lane_report and not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Recorder(config))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Mark the report of a test that a warning has failed; a worker sends the mark along."""
    report = yield
    if call.excinfo is not None and _holds_a_warning(call.excinfo.value):
        report.raised_warning = True  # type: ignore[attr-defined]
    return report


def _holds_a_warning(error: BaseException | None) -> bool:
    if error is None:
        return False
    if isinstance(error, BaseExceptionGroup):
        return any(map(_holds_a_warning, error.exceptions))
    return isinstance(error, Warning)


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._passed = 0
        self._failures: list[dict[str, Any]] = []
        self._errors: list[str] = []
        """What cannot be the rare failure of one test."""

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._errors.append(f"{report.nodeid} cannot be collected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when == "call":
            self._passed += 1
        if not report.failed:
            return
        if getattr(report, "raised_warning", False):
            self._errors.append(f"{report.nodeid} gives a warning")
        elif report.when == "teardown":
            self._errors.append(f"{report.nodeid} leaves something behind, or cannot be torn down")
        elif report.when not in ("setup", "call"):
            self._errors.append(f"{report.nodeid} has ended its worker")
        sections = [text for title, text in report.sections if title == "Hypothesis"]
        text = "\n".join([report.longreprtext, *sections])
        self._failures.append({"id": report.nodeid, "text": text})

    def pytest_warning_recorded(self, warning_message: Any, nodeid: str) -> None:
        self._errors.append(f"{nodeid or 'the run'} gives a warning: {warning_message.message}")

    def pytest_internalerror(self, excrepr: Any) -> None:
        self._errors.append(f"pytest itself failed: {excrepr}")

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        if error:
            self._errors.append(f"worker {node.gateway.id} has ended: {error}")

    def pytest_unconfigure(self) -> None:
        told = {
            "passed": self._passed,
            "failures": self._failures,
            "errors": self._errors,
            "paths": list(self._config.option.file_or_dir),
        }
        target = Path(self._config.option.lane_report)
        target.write_text(json.dumps(sendable(told)), encoding="utf-8")
