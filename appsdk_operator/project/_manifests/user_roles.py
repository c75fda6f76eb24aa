"""Roles of people for an App's kinds, which Kubernetes adds to its own view, edit and admin."""

from __future__ import annotations

from typing import Any, Final

from appsdk_operator.project._manifests.tree import Node
from appsdk_operator.project._manifests.values import Deployed
from appsdk_operator.resource import Versions

__all__ = ["user_roles"]

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
    aggregation = {f"rbac.authorization.k8s.io/aggregate-to-{each}": "true" for each in into}
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
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": f"{deployed.name}-{name}",
            "labels": {**deployed.labels, **aggregation},
        },
        "rules": rules,
    }
