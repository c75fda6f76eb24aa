"""Test ids name the same test in each process and each run."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

_ADDRESS = " at 0x"
"""What the ``repr`` of an object has that has none of its own: it differs in each process."""


def check_ids(items: Iterable[pytest.Item]) -> None:
    """Refuse ids with which a test is not found again.

    Workers of pytest-xdist must find the same tests, and hack/lane.py runs a failed one again.

    Raises:
        UsageError: some have the address of an object.
    """
    wrong = [item.nodeid for item in items if _ADDRESS in item.nodeid]
    if wrong:
        raise pytest.UsageError(
            f"{len(wrong)} tests have the address of an object in their id, so that another "
            f"process does not find them: give parametrize their ids. The first is {wrong[0]}"
        )
