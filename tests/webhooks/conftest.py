"""Tools that the tests of webhooks share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import attrs
import pytest

from tests.webhooks.conversion_parts import Lane, lane_of


@pytest.fixture(scope="session")
def assets() -> None:
    """Skip a test of a real control plane where there is none."""
    names = ("KUBEBUILDER_ASSETS", "TEST_ASSET_ETCD", "TEST_ASSET_KUBE_APISERVER")
    if not any(os.environ.get(name) for name in names):
        pytest.skip("KUBEBUILDER_ASSETS is not set")


@pytest.fixture(scope="session")
def embedded_lane() -> Iterator[Lane]:
    """The embedded server with a conversion webhook."""
    with lane_of("embedded") as lane:
        yield lane


@pytest.fixture(scope="session")
def real_lane(assets: None) -> Iterator[Lane]:
    """A real control plane with a conversion webhook."""
    with lane_of("real") as lane:
        yield lane


@pytest.fixture(scope="session", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def each_lane(request: pytest.FixtureRequest) -> Lane:
    """Either."""
    found: Lane = request.getfixturevalue(f"{request.param}_lane")
    return found


@pytest.fixture
def lane(each_lane: Lane) -> Iterator[Lane]:
    """Either, with a client of the test's own."""
    with each_lane.new_client() as client:
        yield attrs.evolve(each_lane, client=client)
