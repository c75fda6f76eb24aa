"""What deploy/ has: an API server takes all of it, and it is all that the operator needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from appsdk_operator import Client, ClientConfig, Manager, MergePatch, MutableObject, kinds
from appsdk_operator.controllers import until, wait_for
from appsdk_operator.manager import LeaderElection
from appsdk_operator.resource import load_yaml
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import install_crds
from appsdk_operator.webhooks import ManagedCertificates, WebhookServerOptions

from tenants_operator.accounts import Login
from tenants_operator.app import accounts, app
from tenants_operator.grant import GRANT, GrantSpec
from tenants_operator.owned import ROLE_BINDING, namespace_of
from tenants_operator.tenant import TENANT, TenantSpec

BASE = Path(__file__).parents[1] / "deploy" / "base"
CRD = kinds.apiextensions.v1.CustomResourceDefinition
SERVICE = f"{app.name}-webhooks"


def shipped(client: Client, *files: str) -> Iterator[MutableObject[Any, Any]]:
    """The objects in files of deploy/base."""
    for file in files:
        for each in load_yaml((BASE / file).read_text(encoding="utf-8")):
            kind = client.discovery.kind_for(each["kind"], api_version=each["apiVersion"])
            yield MutableObject(kind, each)


def test_a_server_takes_all_of_it(kube_client: Client) -> None:
    (kustomization,) = load_yaml((BASE / "kustomization.yaml").read_text(encoding="utf-8"))
    files = [file for file in kustomization["resources"] if file != "namespace.yaml"]
    if kube_client.discovery.server_version().minor < 21:
        files.remove("disruption_budget.yaml")  # policy/v1 came with 1.21
    for each in shipped(kube_client, "namespace.yaml"):
        kube_client.apply(each, field_manager="deploy")
    for each in shipped(kube_client, *files):
        kube_client.apply(each, field_manager="deploy", dry_run=True)


@pytest.fixture
def deployed(
    kube_client: Client,
    kube_config: ClientConfig,
    kube_run: Callable[[Manager], Any],
    _no_tenants_are_left: None,
) -> Iterator[Manager]:
    """The operator as in its pod: its service account, its role, and certificates of its own."""
    account = ("namespace.yaml", "service_account.yaml", "role.yaml", "role_binding.yaml")
    for each in shipped(kube_client, *account):
        kube_client.apply(each, field_manager="deploy")
    configurations = list(shipped(kube_client, "webhooks.yaml"))
    certificates = ManagedCertificates(
        SERVICE,
        f"{SERVICE}-tls",
        namespace=app.name,
        names=["127.0.0.1"],
        inject=[*configurations, (CRD, TENANT.qualified_name)],
    )
    manager = app.manager(
        attrs.evolve(kube_config, token=token_of(kube_client), impersonate=None),
        leader_election=LeaderElection(id=app.name, namespace=app.name, release_on_cancel=True),
        metrics=Metrics(),
        webhook_server=WebhookServerOptions(address="127.0.0.1:0", certificates=certificates),
    )
    # Here nothing leads from a Service to a pod: the webhooks are called at their address.
    url = manager.webhook_server.url
    install_crds(kube_client, app.crds(), webhook_url=url)
    for configuration in configurations:
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"].pop("service")["path"]
            webhook["clientConfig"]["url"] = f"{url}{path}"
        kube_client.create(configuration)
    try:
        kube_run(manager)
        yield manager
    finally:
        for configuration in configurations:
            kube_client.delete(configuration.kind, configuration.name)


def token_of(client: Client) -> str:
    """A token of the operator's service account, as the pod has it."""
    answer = client.request(
        "POST",
        f"/api/v1/namespaces/{app.name}/serviceaccounts/{app.name}/token",
        body=b'{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}',
    )
    return str(json.loads(answer)["status"]["token"])


@pytest.mark.usefixtures("deployed")
def test_its_role_is_enough_for_all_that_it_does(
    kube_client: Client, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    namespace = namespace_of(name)
    is_ready = until.condition_true("Ready")
    kube_client.create(MutableObject.new(TENANT, name, spec=TenantSpec()))
    tenant = wait_for(kube_client, TENANT, name, is_ready)
    kube_client.patch(TENANT, name, MergePatch({"spec": {"plan": "team"}}))

    draft = MutableObject.new(GRANT, "ben", namespace=namespace, spec=GrantSpec("ben", "edit"))
    grant = kube_client.create(draft)
    wait_for(kube_client, GRANT, "ben", is_ready, namespace=namespace)
    assert accounts.logins() == {Login(grant.uid, tenant.uid, "ben", "edit")}
    role = MergePatch({"spec": {"role": "admin"}})
    kube_client.patch(GRANT, "ben", role, namespace=namespace)
    is_admin = until.field_equals("roleRef.name", "admin")
    wait_for(kube_client, ROLE_BINDING, "grant-ben", is_admin, namespace=namespace)

    kube_client.delete(GRANT, "ben", namespace=namespace)
    wait_for(kube_client, GRANT, "ben", until.deleted(), namespace=namespace)
    kube_client.delete(TENANT, name)
    wait_for(kube_client, TENANT, name, until.deleted())
    assert accounts.accounts() == set()
    assert not [text for text in caplog.messages if "forbidden" in text.lower()]
