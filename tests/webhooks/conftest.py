"""Tools that the tests of webhooks share."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(scope="session")
def assets() -> None:
    """Skip a test of a real control plane where there is none."""
    names = ("KUBEBUILDER_ASSETS", "TEST_ASSET_ETCD", "TEST_ASSET_KUBE_APISERVER")
    if not any(os.environ.get(name) for name in names):
        pytest.skip("KUBEBUILDER_ASSETS is not set")
