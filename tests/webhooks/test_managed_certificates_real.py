"""Managed certificates on a real control plane: permissions, mutual TLS, a rotation."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from appsdk_operator.apiserver import Authority, write_kubeconfig
from appsdk_operator.client import Client, Forbidden, InternalError
from appsdk_operator.manager import HTTPServer
from appsdk_operator.resource import MutableObject, kinds
from appsdk_operator.runtime import Metrics, system_clock
from appsdk_operator.serving import TLSOptions
from appsdk_operator.testing import ControlPlane, running
from tests.waiting import eventually
from tests.webhooks.certificate_parts import (
    CRD,
    NAMESPACE,
    SECRET,
    APIService,
    ConfigMap,
    Mutating,
    Secret,
    Validating,
    bundle_of,
    configuration,
    create_namespace,
    gadgets,
    hooks_server,
    managed,
    metrics_service,
    webhook,
)

pytestmark = pytest.mark.real
REVIEW = kinds.authorization.v1.SelfSubjectAccessReview
_REFUSED = r"certificate required|bad certificate|EOF|reset|broken pipe"
INJECTED = [
    (Validating, "widgets"),
    (Mutating, "widgets"),
    (CRD, "gadgets.test.example"),
    (APIService, "v1.metrics.test"),
]


@attrs.define
class Plane:
    """A control plane whose API server has a client certificate for webhooks."""

    plane: ControlPlane
    client: Client
    authority: Path
    """The file of the authority of that client certificate."""


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ControlPlane, Path]]:
    folder = tmp_path_factory.mktemp("apiserver")
    authority = Authority(system_clock.time())
    certificate, key = authority.client("kube-apiserver", ["system:masters"])
    (folder / "ca.crt").write_bytes(authority.certificate)
    user = {
        "client-certificate-data": base64.b64encode(certificate).decode(),
        "client-key-data": base64.b64encode(key).decode(),
    }
    write_kubeconfig(
        folder / "webhooks",
        {"apiVersion": "v1", "kind": "Config", "users": [{"name": "*", "user": user}]},
    )
    group = "apiserver.config.k8s.io/v1"
    plugin = {
        "name": "ValidatingAdmissionWebhook",
        "configuration": {
            "apiVersion": group,
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(folder / "webhooks"),
        },
    }
    (folder / "admission.json").write_text(
        json.dumps({"apiVersion": group, "kind": "AdmissionConfiguration", "plugins": [plugin]})
    )
    flags = {"admission-control-config-file": str(folder / "admission.json")}
    with ControlPlane(flags=flags) as control, Client(control.client_config()) as client:
        create_namespace(client)
        yield control, folder / "ca.crt"


@pytest.fixture
def plane(control: tuple[ControlPlane, Path]) -> Iterator[Plane]:
    with Client(control[0].client_config()) as client:
        yield Plane(control[0], client, control[1])
        for kind, name in INJECTED:
            if any(obj.name == name for obj in client.list(kind)):
                client.delete(kind, name)
        if has_secret(client):
            client.delete(Secret, SECRET, namespace=NAMESPACE)


def grant(client: Client, user: str, rules: Any, cluster_rules: Any) -> None:
    """Grant ``user`` these rules and nothing else."""
    rbac = kinds.rbac.v1
    group = "rbac.authorization.k8s.io"
    for kind, binding, granted, where in (
        (rbac.Role, rbac.RoleBinding, rules, {"namespace": NAMESPACE}),
        (rbac.ClusterRole, rbac.ClusterRoleBinding, cluster_rules, {}),
    ):
        name = {"name": user, **where}
        client.create(MutableObject.new(kind, user, metadata=name, rules=granted))
        client.create(
            MutableObject.new(
                binding,
                user,
                metadata=name,
                roleRef={"apiGroup": group, "kind": kind.kind, "name": user},
                subjects=[{"kind": "User", "name": user, "apiGroup": group}],
            )
        )


def is_allowed(client: Client, rules: Any, namespace: str = "") -> bool:
    """Whether the client's user may do all that the rules say."""
    for rule in rules:
        parts = (rule["apiGroups"], rule["resources"], rule["verbs"])
        names = rule.get("resourceNames", [""])
        for group, resource, verb, name in itertools.product(*parts, names):
            asked = {
                "group": group,
                "resource": resource,
                "verb": verb,
                "name": name,
                "namespace": namespace,
            }
            review = MutableObject.new(REVIEW, spec={"resourceAttributes": asked})
            if not client.create(review).to_dict()["status"]["allowed"]:
                return False
    return True


def test_the_rules_that_it_names_are_enough_for_everything(plane: Plane) -> None:
    admin = plane.client
    admin.create(configuration())
    admin.create(configuration(kind=Mutating))
    admin.create(gadgets())
    admin.create(metrics_service())
    metrics = Metrics()
    with Client(plane.plane.client_config("enough")) as client:
        source = managed(client, inject=INJECTED, metrics=metrics)
        grant(admin, "enough", source.role_rules(), source.cluster_role_rules())
        # The API server obeys roles some moments after they were written.
        eventually(lambda: is_allowed(client, source.role_rules(), NAMESPACE))
        eventually(lambda: is_allowed(client, source.cluster_role_rules()))
        with pytest.raises(Forbidden):
            client.list_page(Secret, namespace=NAMESPACE)
        with running(source):
            authority = source.ca_bundle()
            assert authority is not None
            assert bundle_of(admin) == bundle_of(admin, kind=Mutating) == authority
            spec = admin.get(CRD, "gadgets.test.example").to_dict()["spec"]
            found = spec["conversion"]["webhook"]["clientConfig"]["caBundle"]
            assert base64.b64decode(found) == authority
            spec = admin.get(APIService, "v1.metrics.test").to_dict()["spec"]
            assert base64.b64decode(spec["caBundle"]) == authority
            # Long before the next look: the watches work, each limited to a name.
            admin.delete(Validating, "widgets")
            admin.create(configuration())
            eventually(lambda: bundle_of(admin) == authority)
            pair = source.pair()
            admin.delete(Secret, SECRET, namespace=NAMESPACE)
            eventually(lambda: has_secret(admin))
            assert source.pair() == pair
    for operation in ("read", "store", "inject", "watch"):
        labels = {"secret": f"{NAMESPACE}/{SECRET}", "operation": operation}
        assert metrics.value("managed_certificates_errors_total", **labels) == 0.0


def has_secret(client: Client) -> bool:
    return any(each.name == SECRET for each in client.list(Secret, namespace=NAMESPACE))


@pytest.mark.parametrize(
    ("without", "said"),
    [
        ("create", "needs verb 'create' on secrets in namespace 'widgets'"),
        ("get", "needs verb 'get' on secrets in namespace 'widgets'"),
        ("patch", "needs verb 'patch' on validatingwebhookconfigurations"),
    ],
)
def test_a_missing_rule_is_named(plane: Plane, without: str, said: str) -> None:
    plane.client.create(configuration())
    user = f"without-{without}"
    with Client(plane.plane.client_config(user)) as client:
        source = managed(client)
        rules, cluster = source.role_rules(), source.cluster_role_rules()
        for rule in (*rules, *cluster):
            if without != "get" or rule["resources"] == ["secrets"]:
                rule["verbs"] = [verb for verb in rule["verbs"] if verb != without]
        rules = [rule for rule in rules if rule["verbs"]]
        grant(plane.client, user, rules, cluster)
        with running(source, wait=False):
            eventually(lambda: said in source.health().text)
            assert "role_rules()" in source.health().text
            assert not source.health().is_ready


def test_only_the_api_server_may_call_with_a_client_authority(plane: Plane) -> None:
    admin = plane.client
    source = managed(admin, names=["127.0.0.1"])
    tls = TLSOptions(client_ca_file=str(plane.authority))
    with Client(plane.plane.client_config()) as client:
        seen: list[Any] = []
        hooks = hooks_server(source, tls=tls, seen=seen)
        admin.create(configuration(called_at(hooks)))
        with running(hooks) as stop:
            assert source.wait_until_ready(stop, 60.0), source.health().text
            numbers = itertools.count()
            eventually(lambda: created(client, f"with-{next(numbers)}") and seen)
        assert ("commonName", "kube-apiserver") in itertools.chain(
            *seen[0].client_certificate["subject"]
        )
    # A mutating webhook gets no client certificate here, and so no answer.
    admin.delete(Validating, "widgets")
    # The one that is gone is asked for some moments.
    numbers = itertools.count()
    eventually(lambda: created(admin, f"between-{next(numbers)}"))
    source = managed(admin, names=["127.0.0.1"], inject=[(Mutating, "widgets")])
    hooks = hooks_server(source, tls=tls)
    admin.create(configuration(called_at(hooks), kind=Mutating))
    with running(hooks) as stop:
        assert source.wait_until_ready(stop, 60.0), source.health().text
        # The API server reads the configuration and the caBundle a moment later.
        numbers = itertools.count()
        with pytest.raises(InternalError, match=_REFUSED):
            eventually(lambda: not created(admin, f"without-{next(numbers)}") and False)


def called_at(server: HTTPServer) -> dict[str, Any]:
    return webhook(clientConfig={"url": f"https://127.0.0.1:{server.port}/validate"})


def created(client: Client, name: str) -> bool:
    """Whether an object can be created.

    False while the API server has not read the caBundle, or asks a webhook that has ended.
    """
    try:
        client.create(MutableObject.new(ConfigMap, name, namespace=NAMESPACE))
    except InternalError as error:
        if any(text in str(error) for text in ("unknown authority", "connection refused")):
            return False
        raise
    return True


def test_a_service_that_moves_to_a_new_authority_is_called_all_the_time(plane: Plane) -> None:
    admin = plane.client
    source = managed(admin, names=["127.0.0.1"], propagation=1.0)
    seen: list[Any] = []
    hooks = hooks_server(source, seen=seen)
    admin.create(configuration(called_at(hooks)))
    with running(hooks) as stop:
        assert source.wait_until_ready(stop, 60.0), source.health().text
        numbers = itertools.count()
        eventually(lambda: created(admin, f"before-{next(numbers)}") and seen)
        pair = source.pair()
        source.rotate()
        count = 0
        while source.pair() == pair or count < 10:
            count += 1
            assert created(admin, f"during-{count}")
        assert len(seen) > count
        assert bundle_of(admin).count(b"BEGIN") == 2
