"""Grant, on an API server: who is let in, and who is shut out."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from appsdk_operator import Client, Invalid, MutableObject
from appsdk_operator.controllers import is_condition_true, until, wait_for

from tenants_operator.accounts import Login
from tenants_operator.app import accounts
from tenants_operator.grant import GRANT, GrantObject, GrantSpec
from tenants_operator.grant_webhooks import GRANTED_BY
from tenants_operator.owned import ROLE_BINDING, namespace_of
from tenants_operator.tenant import TENANT, TenantSpec

pytestmark = pytest.mark.usefixtures("operator")


@pytest.fixture
def namespace(kube_client: Client, name: str, operator: object) -> str:
    """The namespace of a tenant that is ready."""
    kube_client.create(MutableObject.new(TENANT, name, spec=TenantSpec(owners=("ann",))))
    wait_for(kube_client, TENANT, name, until.condition_true("Ready"))
    return namespace_of(name)


def grant(client: Client, namespace: str, spec: GrantSpec) -> GrantObject:
    """Create a grant, and wait until the user is let in."""
    client.create(MutableObject.new(GRANT, "ben", namespace=namespace, spec=spec))
    return wait_for(client, GRANT, "ben", until.condition_true("Ready"), namespace=namespace)


def test_a_user_gets_a_role_and_a_login(kube_client: Client, namespace: str, name: str) -> None:
    made = grant(kube_client, namespace, GrantSpec("ben", "edit"))
    binding = kube_client.get(ROLE_BINDING, "grant-ben", namespace=namespace)
    assert binding["roleRef"]["name"] == "edit"
    assert [subject["name"] for subject in binding["subjects"]] == ["ben"]
    tenant = kube_client.get(TENANT, name)
    assert accounts.logins() == {Login(made.uid, tenant.uid, "ben", "edit")}
    assert made.annotations[GRANTED_BY]


def test_another_role_is_another_binding_as_nobody_can_change_its_role(
    kube_client: Client, namespace: str
) -> None:
    made = grant(kube_client, namespace, GrantSpec("ben"))
    draft = made.mutable_copy()
    draft.spec = attrs.evolve(made.spec, role="admin")
    kube_client.update(draft)
    wait_for(
        kube_client,
        ROLE_BINDING,
        "grant-ben",
        until.field_equals("roleRef.name", "admin"),
        namespace=namespace,
    )
    wait_for(kube_client, GRANT, "ben", is_ready_again(2), namespace=namespace)
    assert [login.role for login in accounts.logins()] == ["admin"]


def test_a_user_is_shut_out_before_the_grant_goes(kube_client: Client, namespace: str) -> None:
    grant(kube_client, namespace, GrantSpec("ben"))
    kube_client.delete(GRANT, "ben", namespace=namespace)
    wait_for(kube_client, GRANT, "ben", until.deleted(), namespace=namespace)
    assert accounts.logins() == set()


def test_the_logins_go_with_the_account(kube_client: Client, namespace: str, name: str) -> None:
    grant(kube_client, namespace, GrantSpec("ben"))
    kube_client.delete(TENANT, name)
    wait_for(kube_client, TENANT, name, until.deleted())
    assert (accounts.accounts(), accounts.logins()) == (set(), set())


def test_a_grant_without_a_tenant_is_refused(kube_client: Client, kube_namespace: str) -> None:
    draft = MutableObject.new(GRANT, "ben", namespace=kube_namespace, spec=GrantSpec("ben"))
    with pytest.raises(Invalid, match="is no namespace of a tenant"):
        kube_client.create(draft)


def is_ready_again(generation: int) -> Callable[[GrantObject], bool]:
    """Whether a grant is ready in a later generation."""
    return lambda found: (
        is_condition_true(found, "Ready")
        and found.status is not None
        and found.status.conditions[0].observed_generation == generation
    )
