"""``--one-case`` leaves one case of each parametrized test, and everything else as it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests import one_case


class Item:
    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


class Config:
    """A configuration with the option's values, which keeps what is deselected."""

    def __init__(self, *paths: str) -> None:
        self.option = self
        self.one_case = list(paths)
        self.hook = self
        self.deselected: list[str] = []

    def pytest_deselected(self, items: list[Item]) -> None:
        self.deselected += [item.nodeid for item in items]


FOUND = [
    "tests/app/test_a.py::test_one[a]",
    "tests/app/test_a.py::test_one[b::c]",
    "tests/app/test_a.py::test_two",
    "tests/app/test_a.py::TestCases::test_one[a]",
    "tests/app/test_a.py::test_one[c[0]]",
    "tests/app/test_b.py::test_one[a]",
    "tests/apps/test_a.py::test_one[a]",
    "tests/apps/test_a.py::test_one[b]",
    "tests/client/test_a.py::test_one[a]",
    "tests/client/test_a.py::test_one[b]",
    "tests/client/test_b.py::test_one[a]",
    "tests/client/test_b.py::test_one[b]",
]


@pytest.mark.parametrize(
    ("paths", "others"),
    [
        ([], []),
        (["tests/app"], [1, 4]),
        (["tests/app", "tests/client/test_b.py"], [1, 4, 11]),
    ],
)
def test_the_first_case_stays_in_each_test_of_the_paths(
    paths: list[str], others: list[int]
) -> None:
    items: list[Any] = [Item(nodeid) for nodeid in FOUND]
    config: Any = Config(*paths)
    one_case.leave_out_others(config, items)
    assert config.deselected == [FOUND[number] for number in others]
    assert [item.nodeid for item in items] == [
        nodeid for number, nodeid in enumerate(FOUND) if number not in others
    ]
