"""The account of an App, its roles with their bindings, and the roles of people for its kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from appsdk_operator.app import App, Permission
from appsdk_operator.project._manifests.options import ManifestOptions
from appsdk_operator.project._manifests.tree import Commented, Expression, Node
from appsdk_operator.project._manifests.values import PLACEHOLDER, Deployed, Values
from appsdk_operator.project._rbac.roles import roles
from appsdk_operator.resource import Kind, Versions, kinds

_RBAC: Final = "rbac.authorization.k8s.io"
_HOOKS: Final = kinds.admissionregistration.v1
_LEASES: Final = kinds.coordination.v1.Lease
_EVENTS: Final = kinds.events.v1.Event
_POD: Final = ""
"""The namespace of the operator's pods."""


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


def role_objects(deployed: Deployed, values: Values) -> list[dict[str, Node]]:
    """Roles, each with its binding; the reasons of each rule are comments."""
    # The namespace of a chart's release may be one of those that the App names, or none of them.
    is_chart = isinstance(values.namespace, Expression)
    own = PLACEHOLDER if is_chart else deployed.namespace
    made = roles(
        [*deployed.app.permissions(), *_added(deployed)],
        name=deployed.name,
        namespace=own,
        namespaces=deployed.app.namespaces,
        recorded=deployed.options.recorded,
    )
    found = []
    places: list[tuple[str | None, tuple[Permission, ...]]] = [(None, made.cluster)]
    for place, permissions in (*places, *made.by_namespace.items()):
        if not permissions:
            continue
        kind = "ClusterRole" if place is None else "Role"
        is_extra = is_chart and place == own and len(made.by_namespace) > 1
        name = f"{deployed.name}-own" if is_extra else deployed.name
        metadata: dict[str, Node] = {"name": name, "labels": deployed.labels}
        if place is not None:
            metadata["namespace"] = values.namespace if place == own else place
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
                "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
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


def added_permissions(app: App) -> list[Permission]:
    """What the options of the manifests of an App may add to those that it declares.

    Raises:
        ValueError: as :meth:`App.crds`.
    """
    return _added(
        Deployed(app=app, options=ManifestOptions(leader_election=True, certificates="managed"))
    )


def _added(deployed: Deployed) -> list[Permission]:
    found: list[Permission] = []
    if deployed.is_elected and deployed.app.options.leader_election is None:
        found += _of_election(deployed.name)
    if deployed.certificates == "managed" and not deployed.declares_certificates:
        found += _of_certificates(deployed)
    return found


def _of_election(name: str) -> Iterator[Permission]:
    reason = f"the leader election of {name}"
    yield _own(_LEASES, ("get", "update"), reason, names=[name])
    # The name of what is created is not known to RBAC.
    yield _own(_LEASES, ("create",), reason)
    yield _own(_EVENTS, ("create", "patch"), f"Events about who leads {name}")


def _of_certificates(deployed: Deployed) -> Iterator[Permission]:
    """The rules of ManagedCertificates that the manifests have the names for."""
    reason = "its Secret has the certificates of the webhooks"
    secrets = kinds.core.v1.Secret
    yield _own(secrets, ("get", "list", "watch", "update"), reason, names=[deployed.secret])
    yield _own(secrets, ("create",), reason)
    types = {rule.type for rule in deployed.app.webhooks.rules}
    configurations = (
        (_HOOKS.MutatingWebhookConfiguration, "mutating" in types),
        (_HOOKS.ValidatingWebhookConfiguration, "validating" in types),
    )
    for kind, is_used in configurations:
        if is_used:
            yield _injection(kind, [deployed.name])
    converted = [crd.name for crd in deployed.app.crds() if "conversion" in crd["spec"]]
    if converted:
        yield _injection(kinds.apiextensions.v1.CustomResourceDefinition, converted)


def _own(
    kind: Kind[Any, Any], verbs: Iterable[str], reason: str, names: Iterable[str] = ()
) -> Permission:
    return Permission(
        groups=[kind.group],
        resources=[kind.plural],
        verbs=verbs,
        names=names,
        namespace=_POD,
        reasons=[reason],
    )


def _injection(kind: Kind[Any, Any], names: Iterable[str]) -> Permission:
    return Permission(
        groups=[kind.group],
        resources=[kind.plural],
        verbs=["get", "list", "watch", "patch"],
        names=names,
        is_cluster_wide=True,
        reasons=["it gives them the authority of the webhooks' certificates"],
    )


_READ: Final = ["get", "list", "watch"]
_WRITE: Final = ["create", "update", "patch", "delete", "deletecollection"]


def user_roles(deployed: Deployed) -> list[dict[str, Node]]:
    """A ClusterRole for ``view``, and one for ``edit`` and ``admin``; none without kinds."""
    resources: dict[str, list[str]] = {}
    for each in deployed.app.kinds:
        kind = each.hub if isinstance(each, Versions) else each
        resources.setdefault(kind.group, []).append(kind.plural)
    if not resources:
        return []
    return [
        _role(deployed, "view", resources, _READ, ["view"]),
        _role(deployed, "edit", resources, _READ + _WRITE, ["edit", "admin"]),
    ]


def _role(
    deployed: Deployed,
    name: str,
    resources: dict[str, list[str]],
    verbs: list[str],
    into: list[str],
) -> dict[str, Any]:
    aggregation = {f"{_RBAC}/aggregate-to-{each}": "true" for each in into}
    rules: list[dict[str, Any]] = []
    for group, plurals in resources.items():
        rules.append({"apiGroups": [group], "resources": plurals, "verbs": verbs})
        rules.append(
            {
                "apiGroups": [group],
                "resources": [f"{plural}/status" for plural in plurals],
                "verbs": ["get"],
            }
        )
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"{deployed.name}-{name}",
            "labels": {**deployed.labels, **aggregation},
        },
        "rules": rules,
    }
