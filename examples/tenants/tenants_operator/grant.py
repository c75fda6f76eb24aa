"""Grant: a user's role in a tenant's namespace, and his login with the tenant's account."""

from __future__ import annotations

from typing import Any, Final, Literal, TypeAlias

import attrs
from appsdk_operator import Kind, Object
from appsdk_operator.controllers import (
    Condition,
    ConditionStatus,
    Request,
    Result,
    finalizing,
    patch_conditions,
)
from appsdk_operator.resource import PrinterColumn

from tenants_operator.accounts import Login, NoAccountError, UnavailableError
from tenants_operator.app import accounts, app
from tenants_operator.owned import (
    ROLE_BINDING,
    make_role_binding,
    namespace_of,
    tenant_uid_of,
)
from tenants_operator.tenant import CHECK_AFTER, TENANT

FINALIZER: Final = "tenants.example.com/login"


@attrs.frozen
class GrantSpec:
    """Who may do what."""

    user: str = attrs.field(validator=attrs.validators.min_len(1))
    """The name by which the cluster knows the user."""
    role: Literal["view", "edit", "admin"] = "view"
    """One of the roles that every cluster has."""


@attrs.frozen
class GrantStatus:
    """Whether it is done."""

    conditions: tuple[Condition, ...] = ()


GRANT: Kind[GrantSpec, GrantStatus | None] = app.own(
    Kind(
        group="tenants.example.com",
        version="v1alpha1",
        kind="Grant",
        spec=GrantSpec,
        status=GrantStatus,
        rename="camel",
    ),
    printer_columns=[
        PrinterColumn("User", ".spec.user"),
        PrinterColumn("Role", ".spec.role"),
        PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    ],
)
GrantObject: TypeAlias = Object[GrantSpec, GrantStatus | None]

app.uses(GRANT, verbs=["get", "patch"], reason="its finalizer stays until the login is removed")


def grants_of(tenant: Object[Any, Any]) -> list[Request]:
    """The grants that may have waited for a tenant."""
    found = app.client.list(GRANT, namespace=namespace_of(tenant.name))
    return [Request(grant.namespace, grant.name) for grant in found]


@app.object_reconciler(GRANT, owns=[ROLE_BINDING], watches={TENANT: grants_of})
def reconcile(grant: GrantObject) -> Result | None:
    """Let a user in, or shut him out before the grant goes."""
    outcome = finalizing(app.client, grant, FINALIZER, apply=admit, cleanup=expel)
    result: Result | None = outcome.value
    return result


def admit(grant: GrantObject) -> Result:
    """Give the user a login and a role."""
    spec = grant.spec
    try:
        # By uid: a namespace outlives its tenant a little, and the next one may have its name.
        accounts.put_login(Login(grant.uid, tenant_uid_of(grant.namespace), spec.user, spec.role))
    except NoAccountError:
        report(grant, "False", "NoTenant", "the namespace has no tenant with an account")
        return Result(requeue_after=CHECK_AFTER)  # or as soon as its tenant is ready
    except UnavailableError as error:
        report(grant, "False", "AccountsUnavailable", str(error))
        raise
    make_role_binding(grant, grant.namespace, f"grant-{grant.name}", spec.role, [spec.user])
    report(grant, "True", "Admitted")
    return Result(requeue_after=CHECK_AFTER)


def expel(grant: GrantObject) -> None:
    """Take the login away. The garbage collector takes the role, of which the grant is owner."""
    accounts.remove_login(grant.uid)


def report(grant: GrantObject, ready: ConditionStatus, reason: str, message: str = "") -> None:
    """Write the condition, if it says something new."""
    patch_conditions(app.client, grant, Condition("Ready", ready, reason, message))
