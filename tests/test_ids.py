"""A test whose id has the address of an object is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.ids import check_ids


def item(parameter: object) -> Any:
    return SimpleNamespace(nodeid=f"tests/test_a.py::test_it[{parameter}]")


def test_an_address_is_refused_with_the_remedy() -> None:
    with pytest.raises(
        pytest.UsageError, match=r"^1 tests .* give parametrize their ids"
    ) as raised:
        check_ids([item("a"), item(object())])
    assert "tests/test_a.py::test_it[<object object at 0x" in str(raised.value)


def test_others_are_taken() -> None:
    check_ids([item("a"), item("0x12"), item("look at 1")])


def test_this_run_is_checked(request: pytest.FixtureRequest) -> None:
    check_ids(request.session.items)
