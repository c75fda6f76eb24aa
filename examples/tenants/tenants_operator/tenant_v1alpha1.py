"""Tenant in its first version, which had one owner and no quota of its own.

Its objects are converted when somebody reads or writes them in it; all else here knows v1 alone.
"""

from __future__ import annotations

from typing import Literal

import attrs
from appsdk_operator import Kind, MutableObject, Object
from appsdk_operator.resource import Scope

from tenants_operator.app import app
from tenants_operator.tenant import TENANT, Plan, TenantSpec, TenantStatus

Size = Literal["small", "medium", "large"]

_PLANS: dict[Size, Plan] = {"small": "free", "medium": "team", "large": "enterprise"}
_SIZES: dict[Plan, Size] = {plan: size for size, plan in _PLANS.items()}


@attrs.frozen
class TenantSpecV1alpha1:
    """A team that shares the cluster with others."""

    owner: str = ""
    """The user who administers the namespace; default: who creates the tenant."""
    size: Size = "small"
    """How much the tenant may use."""


TENANT_V1ALPHA1 = Kind(
    group=TENANT.group,
    version="v1alpha1",
    kind=TENANT.kind,
    scope=Scope.CLUSTER,
    spec=TenantSpecV1alpha1,
    status=TenantStatus,
    rename="camel",
)


# What the old version cannot hold (further owners, quota, protection) is kept in an annotation.
@app.convert(TENANT_V1ALPHA1, TENANT, deprecated="use tenants.example.com/v1", lossless=True)
def upgrade(
    old: Object[TenantSpecV1alpha1, TenantStatus],
    new: MutableObject[TenantSpec, TenantStatus | None],
) -> None:
    """Make a list of the owner."""
    owners = (old.spec.owner,) if old.spec.owner else ()
    new.spec = TenantSpec(owners=owners, plan=_PLANS[old.spec.size])


@app.convert(TENANT, TENANT_V1ALPHA1)
def downgrade(
    old: Object[TenantSpec, TenantStatus | None],
    new: MutableObject[TenantSpecV1alpha1, TenantStatus],
) -> None:
    """Take the first owner."""
    owner = next(iter(old.spec.owners), "")
    new.spec = TenantSpecV1alpha1(owner=owner, size=_SIZES[old.spec.plan])
