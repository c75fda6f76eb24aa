"""Tenant, on an API server: what it gets, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from appsdk_operator import Client, MutableObject
from appsdk_operator.controllers import (
    Condition,
    controller_of,
    get_condition,
    until,
    wait_for,
)
from appsdk_operator.runtime import default_metrics

from tenants_operator.accounts import Account
from tenants_operator.app import accounts
from tenants_operator.owned import NAMESPACE, RESOURCE_QUOTA, ROLE_BINDING, namespace_of
from tenants_operator.tenant import TENANT, Quota, TenantObject, TenantSpec

pytestmark = pytest.mark.usefixtures("operator")
IS_READY = until.condition_true("Ready")


def create(client: Client, name: str, spec: TenantSpec) -> TenantObject:
    """Create a tenant, and wait until it is ready."""
    client.create(MutableObject.new(TENANT, name, spec=spec))
    return wait_for(client, TENANT, name, IS_READY)


def test_a_tenant_gets_a_namespace_a_quota_its_owners_and_an_account(
    kube_client: Client, name: str
) -> None:
    made = create(kube_client, name, TenantSpec(owners=("ann", "ben"), plan="team"))
    assert made.status is not None
    assert (made.status.namespace, made.status.account) == (f"tenant-{name}", made.uid)

    namespace = kube_client.get(NAMESPACE, f"tenant-{name}")
    owner = controller_of(namespace)
    assert owner is not None
    assert owner.uid == made.uid
    quota = kube_client.get(RESOURCE_QUOTA, "tenant", namespace=namespace.name)
    assert quota["spec"]["hard"] == {"requests.cpu": "16", "requests.memory": "64Gi"}
    binding = kube_client.get(ROLE_BINDING, "tenant-owners", namespace=namespace.name)
    assert [subject["name"] for subject in binding["subjects"]] == ["ann", "ben"]
    assert accounts.accounts() == {Account(made.uid, name, 200)}


def test_a_change_reaches_the_cluster_and_the_account(kube_client: Client, name: str) -> None:
    made = create(kube_client, name, TenantSpec(owners=("ann",)))
    draft = made.mutable_copy()
    draft.spec = attrs.evolve(made.spec, plan="team", quota=Quota(8, 32, 100))
    kube_client.update(draft)
    wait_for(
        kube_client,
        RESOURCE_QUOTA,
        "tenant",
        until.field_equals("spec.hard", {"requests.cpu": "8", "requests.memory": "32Gi"}),
        namespace=f"tenant-{name}",
    )
    wait_for(kube_client, TENANT, name, has_observed(2))
    assert accounts.accounts() == {Account(made.uid, name, 100)}


def test_what_somebody_deletes_is_made_again(kube_client: Client, name: str) -> None:
    create(kube_client, name, TenantSpec(owners=("ann",)))
    namespace = f"tenant-{name}"
    gone = kube_client.get(ROLE_BINDING, "tenant-owners", namespace=namespace)
    kube_client.delete(ROLE_BINDING, "tenant-owners", namespace=namespace)
    wait_for(
        kube_client,
        ROLE_BINDING,
        "tenant-owners",
        lambda found: found.uid != gone.uid,
        namespace=namespace,
    )


def test_a_tenant_goes_when_its_account_is_closed(
    kube_client: Client, name: str, outages: list[str]
) -> None:
    create(kube_client, name, TenantSpec(owners=("ann",)))
    outages += ["down", "answer lost"]
    kube_client.delete(TENANT, name)
    wait_for(kube_client, TENANT, name, until.deleted())
    assert accounts.accounts() == set()
    assert not outages


def test_the_status_says_that_the_service_is_down_and_that_it_is_back(
    kube_client: Client, name: str, outages: list[str]
) -> None:
    outages += ["down"] * 100
    kube_client.create(MutableObject.new(TENANT, name, spec=TenantSpec(owners=("ann",))))
    wait_for(kube_client, TENANT, name, has_reason("AccountsUnavailable"))
    outages.clear()
    wait_for(kube_client, TENANT, name, IS_READY)
    assert len(accounts.accounts()) == 1


def test_a_full_service_is_no_failure(
    kube_client: Client, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "capacity_gib", 5)
    failures = default_metrics().value(
        "tenants_account_calls_total", operation="put_account", outcome="NoCapacityError"
    )
    kube_client.create(MutableObject.new(TENANT, name, spec=TenantSpec(owners=("ann",))))
    found = wait_for(kube_client, TENANT, name, has_reason("NoCapacity"))
    ready = ready_of(found)
    assert ready is not None
    assert ready.message == "10 GiB were asked for, 5 are left"
    counted = default_metrics().value(
        "tenants_account_calls_total", operation="put_account", outcome="NoCapacityError"
    )
    assert counted is not None
    assert counted > (failures or 0.0)


def test_a_namespace_of_somebody_else_is_left_alone(kube_client: Client, name: str) -> None:
    theirs = kube_client.create(MutableObject.new(NAMESPACE, namespace_of(name)))
    kube_client.create(MutableObject.new(TENANT, name, spec=TenantSpec(owners=("ann",))))
    wait_for(kube_client, TENANT, name, has_reason("NamespaceTaken"))
    assert accounts.accounts() == set()
    found = kube_client.get(NAMESPACE, namespace_of(name))
    assert found.resource_version == theirs.resource_version


def ready_of(tenant: TenantObject) -> Condition | None:
    """The condition Ready."""
    return get_condition(tenant, "Ready")


def has_reason(reason: str) -> Callable[[TenantObject], bool]:
    """Whether the condition Ready has a reason."""
    return lambda found: getattr(ready_of(found), "reason", "") == reason


def has_observed(generation: int) -> Callable[[TenantObject], bool]:
    """Whether the condition Ready is about a generation."""
    return lambda found: getattr(ready_of(found), "observed_generation", 0) == generation
