"""Reports of tests that a worker can send to the process that prints them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """Escape what is no UTF-8: a worker that cannot send its report ends the whole run."""
    return sendable((yield))


def sendable(value: Any) -> Any:
    """The same with each text as UTF-8."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {sendable(key): sendable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(sendable, value))
    return value
