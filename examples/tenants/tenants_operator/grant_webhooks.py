"""What a Grant has by default, and what is refused."""

from __future__ import annotations

from typing import Final

from appsdk_operator import MutableObject
from appsdk_operator.resource import FieldError, field
from appsdk_operator.webhooks import admission_request

from tenants_operator.app import app
from tenants_operator.grant import GRANT, GrantObject, GrantSpec, GrantStatus
from tenants_operator.owned import tenant_uid_of

GRANTED_BY: Final = "tenants.example.com/granted-by"


@app.default(GRANT)
def complete(draft: MutableObject[GrantSpec, GrantStatus | None]) -> None:
    """Note who made the grant; nobody can claim to be another one."""
    request = admission_request()
    if request is not None and request.operation == "CREATE":
        draft.annotations[GRANTED_BY] = request.user.username


@app.validate(GRANT, on="create")
def check(grant: GrantObject) -> list[FieldError]:
    """Refuse a grant where it could do nothing."""
    if tenant_uid_of(grant.namespace):
        return []
    why = "is no namespace of a tenant"
    return [field("metadata")["namespace"].invalid(grant.namespace, why)]
