"""Tools that the tests of webhooks share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.shared_plane import SharedPlane
from tests.webhooks.conversion_parts import Lane, embedded, lane_of


@pytest.fixture(scope="session")
def embedded_server() -> Iterator[Any]:
    """The embedded server."""
    with embedded() as server:
        yield server


@pytest.fixture(scope="module")
def real_server(shared_plane: SharedPlane) -> Iterator[Any]:
    """A real control plane."""
    with shared_plane.lent() as plane:
        yield plane


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def each_server(request: pytest.FixtureRequest) -> Any:
    """Either."""
    return request.getfixturevalue(f"{request.param}_server")


@pytest.fixture
def lane(each_server: Any) -> Iterator[Lane]:
    """Either server, with a conversion webhook and a client of the test's own."""
    with lane_of(each_server) as lane:
        yield lane


@pytest.fixture
def embedded_lane(embedded_server: Any) -> Iterator[Lane]:
    """The embedded server, with a conversion webhook and a client of the test's own."""
    with lane_of(embedded_server) as lane:
        yield lane
