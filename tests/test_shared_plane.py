"""The control plane that modules share is as a new one for each of them."""

from __future__ import annotations

import pytest

from appsdk_operator import Client, Kind, MutableObject, kinds
from appsdk_operator.resource import Scope, custom_resource_definition
from appsdk_operator.runtime import Metrics
from appsdk_operator.testing import install_crds
from tests.shared_plane import SharedPlane, contents_of_new, is_cleared

pytestmark = pytest.mark.real

WIDGET = Kind(group="example.com", version="v1", kind="Widget")
ROCK = Kind(group="example.com", version="v1", kind="Rock", scope=Scope.CLUSTER)
HELD = {"finalizers": ["example.com/held"]}
RULES = {
    "apiGroups": ["*"],
    "apiVersions": ["*"],
    "operations": ["*"],
    "resources": ["*/*"],
    "scope": "*",
}


def dirty(client: Client) -> None:
    """Leave what hinders a deletion: finalizers, namespaces, webhooks that nobody answers."""
    crds = [custom_resource_definition(kind) for kind in (WIDGET, ROCK)]
    install_crds(client, crds)
    client.create(MutableObject.new(kinds.core.v1.Namespace, "left"))
    client.create(MutableObject.new(WIDGET, "a", namespace="left", metadata=HELD))
    client.create(MutableObject.new(ROCK, "a", metadata=HELD))
    client.create(MutableObject.new(kinds.core.v1.ConfigMap, "a", namespace="kube-system"))
    role = MutableObject.new(kinds.rbac.v1.ClusterRole, "left", metadata=HELD)
    client.create(role)
    # A webhook of a definition converts its objects, which it does not.
    nowhere = {"url": "https://127.0.0.1:1/", "caBundle": ""}
    conversion = {
        "strategy": "Webhook",
        "webhook": {"clientConfig": nowhere, "conversionReviewVersions": ["v1"]},
    }
    old = custom_resource_definition(Kind(group="example.com", version="v1", kind="Old"))
    old["spec"]["versions"].append({**old["spec"]["versions"][0], "name": "v2", "storage": False})
    old["spec"]["conversion"] = conversion
    client.create(old)
    configuration = MutableObject.new(
        kinds.admissionregistration.v1.ValidatingWebhookConfiguration, "left"
    )
    configuration["webhooks"] = [
        {
            "name": "left.example.com",
            "clientConfig": nowhere,
            "rules": [RULES],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }
    ]
    client.create(configuration)


def test_the_next_user_finds_nothing_of_what_was_left(shared_plane: SharedPlane) -> None:
    with shared_plane.lent() as plane, Client(plane.client_config(), metrics=Metrics()) as client:
        dirty(client)
    with shared_plane.lent() as again, Client(again.client_config(), metrics=Metrics()) as client:
        assert again is plane
        assert contents_of_new(client) == shared_plane.contents


def test_it_is_not_used_again_where_something_is_changed_that_a_new_one_has(
    shared_plane: SharedPlane,
) -> None:
    with shared_plane.lent() as plane:
        namespace = ("namespaces", "", "kube-public")
        assert is_cleared(plane, shared_plane.contents)
        assert not is_cleared(plane, shared_plane.contents | {namespace: "another state"})
