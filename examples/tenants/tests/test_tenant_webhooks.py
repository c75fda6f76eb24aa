"""What a Tenant has by default, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from appsdk_operator import Client, Forbidden, Invalid, MergePatch, MutableObject

from tenants_operator.tenant import TENANT, Quota, TenantSpec
from tenants_operator.tenant_v1alpha1 import TENANT_V1ALPHA1, TenantSpecV1alpha1

pytestmark = pytest.mark.usefixtures("operator")


def test_who_creates_a_tenant_is_its_owner(kube_client: Client, name: str) -> None:
    made = kube_client.create(MutableObject.new(TENANT, name, spec=TenantSpec()))
    assert len(made.spec.owners) == 1
    assert made.spec.plan == "free"


@pytest.mark.parametrize(
    ("ending", "spec", "said"),
    [
        ("x" * 60, {}, "at most 56"),
        (".b", {}, "lower-case letters"),
        ("", {"quota": {"cpus": 2, "memoryGib": 5, "storageGib": 11}}, "the plan free has 4"),
        ("", {"quota": {"cpus": 0, "memoryGib": 1, "storageGib": 1}}, r"spec\.quota\.cpus"),
        ("", {"plan": "gold"}, r"spec\.plan"),
    ],
)
def test_what_cannot_be_done_is_refused(
    kube_client: Client, name: str, ending: str, spec: dict[str, Any], said: str
) -> None:
    with pytest.raises(Invalid, match=said):
        kube_client.create(MutableObject.new(TENANT, name + ending, spec=spec))


def test_a_smaller_plan_has_to_fit_the_quota(kube_client: Client, name: str) -> None:
    spec = TenantSpec(plan="team", quota=Quota(8, 8, 8))
    kube_client.create(MutableObject.new(TENANT, name, spec=spec))
    with pytest.raises(Invalid, match="the plan free has 2"):
        kube_client.patch(TENANT, name, MergePatch({"spec": {"plan": "free"}}))


def test_a_protected_tenant_cannot_be_deleted(kube_client: Client, name: str) -> None:
    kube_client.create(MutableObject.new(TENANT, name, spec=TenantSpec(protected=True)))
    with pytest.raises(Forbidden, match="the tenant is protected"):
        kube_client.delete(TENANT, name)
    kube_client.patch(TENANT, name, MergePatch({"spec": {"protected": False}}))
    kube_client.delete(TENANT, name)


def test_the_first_version_is_served_and_loses_nothing(kube_client: Client, name: str) -> None:
    old = MutableObject.new(TENANT_V1ALPHA1, name, spec=TenantSpecV1alpha1(size="medium"))
    kube_client.create(old)
    made = kube_client.get(TENANT, name)
    assert made.spec.plan == "team"
    assert len(made.spec.owners) == 1  # the webhook of v1 completes the other version, too

    more = {"owners": [*made.spec.owners, "ben"], "protected": True}
    kube_client.patch(TENANT, name, MergePatch({"spec": more}))
    kube_client.patch(TENANT_V1ALPHA1, name, MergePatch({"spec": {"size": "large"}}))
    found = kube_client.get(TENANT, name).spec
    assert found == TenantSpec((made.spec.owners[0], "ben"), "enterprise", protected=True)
