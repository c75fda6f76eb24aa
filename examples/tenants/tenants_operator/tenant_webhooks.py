"""What a Tenant has by default, and what is refused.

Version v1 is enough: an API server converts objects of another version before it asks.
"""

from __future__ import annotations

import re
from typing import Final

import attrs
from appsdk_operator import MutableObject
from appsdk_operator.resource import FieldError, field
from appsdk_operator.webhooks import Denied, admission_request

from tenants_operator.app import app
from tenants_operator.tenant import (
    PLANS,
    TENANT,
    TenantObject,
    TenantSpec,
    TenantStatus,
    quota_of,
)

# With its prefix it is the name of a namespace.
_LONGEST_NAME: Final = 56
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@app.default(TENANT)
def complete(draft: MutableObject[TenantSpec, TenantStatus | None]) -> None:
    """Make who creates a tenant its owner."""
    request = admission_request()
    if request is not None and request.operation == "CREATE" and not draft.spec.owners:
        draft.spec = attrs.evolve(draft.spec, owners=(request.user.username,))


@app.validate(TENANT)
def check(tenant: TenantObject) -> list[FieldError]:
    """Everything that is wrong with a tenant, beyond what its schema says."""
    if tenant.is_deleting:
        return []  # its finalizer must come off, whatever is wrong
    errors: list[FieldError] = []
    if len(tenant.name) > _LONGEST_NAME or not _NAME.fullmatch(tenant.name):
        why = f"must be at most {_LONGEST_NAME} lower-case letters, digits and '-'"
        errors.append(field("metadata")["name"].invalid(tenant.name, why))
    if not tenant.spec.owners:
        errors.append(field("spec")["owners"].required("somebody has to administer it"))
    quota, limit = quota_of(tenant.spec), PLANS[tenant.spec.plan]
    for name, wire_name in (
        ("cpus", "cpus"),
        ("memory_gib", "memoryGib"),
        ("storage_gib", "storageGib"),
    ):
        asked, most = getattr(quota, name), getattr(limit, name)
        if asked > most:
            why = f"the plan {tenant.spec.plan} has {most}"
            errors.append(field("spec")["quota"][wire_name].invalid(asked, why))
    return errors


@app.validate(TENANT, on="delete")
def check_deletion(tenant: TenantObject) -> None:
    """Refuse to delete what is protected."""
    if tenant.spec.protected:
        raise Denied("the tenant is protected: set spec.protected to false before")
