"""The conversion between the versions of Tenant, without a server."""

from __future__ import annotations

from appsdk_operator.resource import Versions
from appsdk_operator.testing import check_conversion

from tenants_operator.app import app


def test_nothing_is_lost_between_the_versions() -> None:
    (versions,) = [each for each in app.kinds if isinstance(each, Versions)]
    check_conversion(versions, max_examples=20)
