"""Tenant: a team's namespace, what it may use there, who administers it, and its account."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import attrs
from appsdk_operator import Kind, Object, kinds
from appsdk_operator.controllers import (
    Condition,
    ConditionStatus,
    Result,
    finalizing,
    set_condition,
)
from appsdk_operator.resource import ListType, PrinterColumn, Scope

from tenants_operator.accounts import Account, NoCapacityError, UnavailableError
from tenants_operator.app import accounts, app
from tenants_operator.owned import (
    NAMESPACE,
    RESOURCE_QUOTA,
    ROLE_BINDING,
    NamespaceTakenError,
    make_namespace,
    make_quota,
    make_role_binding,
    namespace_of,
)

FINALIZER: Final = "tenants.example.com/account"
CHECK_AFTER: Final = 600.0
"""Seconds until all is compared again: nobody reports changes at the account service."""
NO_CAPACITY_AFTER: Final = 60.0
"""Seconds until an account is asked for again."""

Plan = Literal["free", "team", "enterprise"]


@attrs.frozen
class Quota:
    """What may be used at most."""

    cpus: int = attrs.field(validator=attrs.validators.ge(1))
    """What all pods may request together."""
    memory_gib: int = attrs.field(validator=attrs.validators.ge(1))
    """The same for memory."""
    storage_gib: int = attrs.field(validator=attrs.validators.ge(1))
    """The storage of the account."""


PLANS: Final[Mapping[Plan, Quota]] = {
    "free": Quota(cpus=2, memory_gib=4, storage_gib=10),
    "team": Quota(cpus=16, memory_gib=64, storage_gib=200),
    # An API server writes 1024Gi as 1Ti, and would be corrected at each reconcile.
    "enterprise": Quota(cpus=256, memory_gib=1000, storage_gib=5000),
}


@attrs.frozen
class TenantSpec:
    """A team that shares the cluster with others."""

    owners: Annotated[tuple[str, ...], ListType.SET] = ()
    """The users who administer the namespace; default: who creates the tenant."""
    plan: Plan = "free"
    """What was booked; it limits the quota."""
    quota: Quota | None = None
    """What the tenant may use; default: all that the plan has."""
    protected: bool = False
    """Whether nobody can delete the tenant."""


@attrs.frozen
class TenantStatus:
    """What the tenant has."""

    namespace: str = ""
    """Its namespace."""
    account: str = ""
    """The id of its account."""
    conditions: tuple[Condition, ...] = ()


TENANT: Kind[TenantSpec, TenantStatus | None] = app.own(
    Kind(
        group="tenants.example.com",
        version="v1",
        kind="Tenant",
        scope=Scope.CLUSTER,
        spec=TenantSpec,
        status=TenantStatus,
        rename="camel",
    ),
    short_names=["tn"],
    printer_columns=[
        PrinterColumn("Plan", ".spec.plan"),
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
        PrinterColumn("Age", ".metadata.creationTimestamp"),
    ],
)
TenantObject: TypeAlias = Object[TenantSpec, TenantStatus | None]

app.uses(TENANT, verbs=["get", "patch"], reason="its finalizer stays until the account is closed")
app.uses(
    kinds.rbac.v1.ClusterRole,
    verbs=["bind"],
    names=["admin", "edit", "view"],
    reason="it gives these roles to people, and may itself do less than they",
)


def quota_of(spec: TenantSpec) -> Quota:
    """What a tenant may use."""
    return spec.quota or PLANS[spec.plan]


@app.object_reconciler(TENANT, owns=[NAMESPACE, RESOURCE_QUOTA, ROLE_BINDING])
def reconcile(tenant: TenantObject) -> Result | None:
    """Give a tenant what it lacks, or close its account before it goes."""
    outcome = finalizing(app.client, tenant, FINALIZER, apply=provide, cleanup=close)
    result: Result | None = outcome.value
    return result


def provide(tenant: TenantObject) -> Result:
    """Make all that a tenant has, and say in the status how far that came."""
    quota = quota_of(tenant.spec)
    hard = {"requests.cpu": str(quota.cpus), "requests.memory": f"{quota.memory_gib}Gi"}
    namespace = namespace_of(tenant.name)
    try:
        make_namespace(tenant)
        make_quota(tenant, hard)
        make_role_binding(tenant, namespace, "tenant-owners", "admin", tenant.spec.owners)
        is_new = accounts.put_account(Account(tenant.uid, tenant.name, quota.storage_gib))
    except NamespaceTakenError as error:
        report(tenant, "False", "NamespaceTaken", str(error))
        return Result(requeue_after=CHECK_AFTER)  # or as soon as that namespace is gone
    except NoCapacityError as error:
        report(tenant, "False", "NoCapacity", str(error))
        return Result(requeue_after=NO_CAPACITY_AFTER)
    except UnavailableError as error:
        report(tenant, "False", "AccountsUnavailable", str(error))
        raise  # it is called again, after growing delays
    if is_new:
        app.events.event(tenant, "Normal", "AccountOpened", "OpenAccount", f"id {tenant.uid}")
    report(tenant, "True", "Provided")
    return Result(requeue_after=CHECK_AFTER)


def close(tenant: TenantObject) -> None:
    """Close the account, and with it all logins."""
    accounts.close_account(tenant.uid)


def report(tenant: TenantObject, ready: ConditionStatus, reason: str, message: str = "") -> None:
    """Write the status, if there is anything new in it."""
    with app.edit(tenant) as draft:
        status = draft.status or TenantStatus()
        if ready == "True":
            status = attrs.evolve(status, namespace=namespace_of(tenant.name), account=tenant.uid)
        draft.status = status
        generation = tenant.generation  # the draft may be newer
        set_condition(draft, "Ready", ready, reason, message, observed_generation=generation)
