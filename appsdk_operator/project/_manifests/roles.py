"""The account of an App and its roles, made of its permissions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from appsdk_operator.app import Permission
from appsdk_operator.project._manifests.tree import Commented, Node
from appsdk_operator.project._manifests.values import Deployed, Values
from appsdk_operator.resource import Kind, Versions, kinds

__all__ = ["account", "roles"]

_RBAC = "rbac.authorization.k8s.io"
_HOOKS = kinds.admissionregistration.v1


def account(deployed: Deployed, values: Values) -> dict[str, Node]:
    """The service account of the pods."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": deployed.name,
            "namespace": values.namespace,
            "labels": deployed.labels,
            "annotations": values.account_annotations,
        },
    }


def roles(deployed: Deployed, values: Values) -> list[dict[str, Node]]:
    """Roles and bindings: namespaced where the permission is."""
    by_place: dict[str | None, list[Permission]] = {}
    for each in _permissions(deployed):
        for place in _places(each, deployed):
            by_place.setdefault(place, []).append(each)
    found = []
    for place, permissions in by_place.items():
        kind = "ClusterRole" if place is None else "Role"
        metadata: dict[str, Node] = {"name": deployed.name, "labels": deployed.labels}
        if place is not None:
            # The operator's own namespace is another one in each installation.
            metadata["namespace"] = values.namespace if place == deployed.namespace else place
        found.append(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": kind,
                "metadata": metadata,
                "rules": [Commented(each.rule, each.reasons) for each in permissions],
            }
        )
        found.append(
            {
                "apiVersion": f"{_RBAC}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": deployed.name},
                "subjects": [
                    {
                        "kind": "ServiceAccount",
                        "name": deployed.name,
                        "namespace": values.namespace,
                    }
                ],
            }
        )
    return found


def _permissions(deployed: Deployed) -> Iterator[Permission]:
    """Those of the App, and of what the manifests add to it."""
    own = deployed.app.permissions()
    yield from own
    election = deployed.app.options.leader_election
    if deployed.is_elected and election is None:
        yield Permission(
            groups=["coordination.k8s.io"],
            resources=["leases"],
            verbs=["get", "create", "update"],
            namespace=deployed.namespace,
            reasons=[f"the leader election of {deployed.name}"],
        )
    if deployed.certificates == "managed" and not any("secrets" in e.resources for e in own):
        yield from _of_certificates(deployed)


def _of_certificates(deployed: Deployed) -> Iterator[Permission]:
    """The rules that ManagedCertificates documents."""
    yield Permission(
        groups=[""],
        resources=["secrets"],
        verbs=["get", "list", "watch", "update"],
        names=[deployed.secret],
        namespace=deployed.namespace,
        reasons=["the certificate of its webhooks"],
    )
    yield Permission(
        groups=[""],
        resources=["secrets"],
        verbs=["create"],
        namespace=deployed.namespace,
        reasons=["the certificate of its webhooks, before there is one"],
    )
    types = {rule.type for rule in deployed.app.webhooks.rules}
    configurations = [
        (_HOOKS.MutatingWebhookConfiguration, "mutating" in types),
        (_HOOKS.ValidatingWebhookConfiguration, "validating" in types),
    ]
    for kind, is_used in configurations:
        if is_used:
            yield _injection(kind, [deployed.name])
    converted = [crd.name for crd in deployed.app.crds() if "conversion" in crd["spec"]]
    if converted:
        yield _injection(kinds.apiextensions.v1.CustomResourceDefinition, converted)


def _injection(kind: Kind[Any, Any], names: Iterable[str]) -> Permission:
    return Permission(
        groups=[kind.group],
        resources=[kind.plural],
        verbs=["get", "list", "watch", "patch"],
        names=names,
        reasons=["the authority of the webhooks' certificate"],
    )


def _places(permission: Permission, deployed: Deployed) -> tuple[str | None, ...]:
    """The namespaces in which it is given; None: the cluster."""
    if permission.namespace is not None:
        return (permission.namespace or deployed.namespace,)
    is_lease = permission.resources == ("leases",) and permission.groups == ("coordination.k8s.io",)
    if is_lease and len(permission.reasons) == 1 and deployed.is_elected:
        return (deployed.namespace,)
    namespaces = deployed.app.namespaces
    if not namespaces or not _is_namespaced(permission, deployed):
        return (None,)
    return namespaces


def _is_namespaced(permission: Permission, deployed: Deployed) -> bool:
    cluster = {
        (each.kind.group, each.kind.plural)
        for each in kinds.builtin_kinds()
        if not each.kind.is_namespaced
    }
    for one in deployed.app.kinds:
        hub = one.hub if isinstance(one, Versions) else one
        if not hub.is_namespaced:
            cluster.add((hub.group, hub.plural))
    return not any(
        (group, resource.partition("/")[0]) in cluster
        for group in permission.groups
        for resource in permission.resources
    )
