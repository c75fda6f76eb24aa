"""What the manifests of an App leave in a cluster, in an order in which it can be deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import attrs

from appsdk_operator.project._manifests.kustomize import base_objects, monitoring_objects
from appsdk_operator.project._manifests.values import Deployed, for_kustomize
from appsdk_operator.resource import Kind, kinds

_THEIRS: Final = (
    Kind(group="cert-manager.io", version="v1", kind="Issuer"),
    Kind(group="cert-manager.io", version="v1", kind="Certificate"),
    Kind(group="monitoring.coreos.com", version="v1", kind="ServiceMonitor"),
    Kind(group="monitoring.coreos.com", version="v1", kind="PrometheusRule"),
)
_ELSEWHERE: Final = (
    "Namespace",
    "CustomResourceDefinition",
    "Deployment",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
)
"""Those that have a step of their own, and the namespace, which stays."""


@attrs.frozen
class Placed:
    """An object of a name."""

    kind: Kind[Any, Any]
    name: str
    namespace: str = ""
    is_labelled: bool = True
    """Whether its label says that it is the operator's; others are known by their names alone."""


def inventory(deployed: Deployed) -> Iterator[Placed]:
    """All but CRDs, Deployment, webhook configurations and the namespace.

    Whatever the certificates were from, and however many replicas there were: with several, one
    was elected.
    """
    seen: dict[Placed, None] = {}
    for certificates in ("cert-manager", "managed"):
        options = attrs.evolve(deployed.options, certificates=certificates, leader_election=True)
        one = attrs.evolve(deployed, options=options)
        values = for_kustomize(one)
        files = base_objects(one, values, budget=True) | monitoring_objects(one, values)
        for each in (each for objects in files.values() for each in objects):
            if each["kind"] not in _ELSEWHERE:
                metadata = each["metadata"]
                kind = _kind_of(each["apiVersion"], each["kind"])
                seen[Placed(kind, metadata["name"], metadata.get("namespace", ""))] = None
    # Bindings before roles, and the account last.
    yield from sorted(seen, key=_rank)
    if deployed.certificates in ("cert-manager", "managed"):
        yield Placed(kinds.core.v1.Secret, deployed.secret, deployed.namespace, is_labelled=False)
    election = deployed.app.options.leader_election
    name = election.id if election is not None else deployed.name
    namespace = (election.namespace if election is not None else None) or deployed.namespace
    yield Placed(kinds.coordination.v1.Lease, name, namespace, is_labelled=False)


def _rank(placed: Placed) -> int:
    kind = placed.kind.kind
    if kind.endswith("Binding"):
        return 1
    return {"Role": 2, "ClusterRole": 2, "ServiceAccount": 3}.get(kind, 0)


def _kind_of(api_version: str, name: str) -> Kind[Any, Any]:
    known = (*_THEIRS, *(each.kind for each in kinds.builtin_kinds()))
    return next(each for each in known if (each.api_version, each.kind) == (api_version, name))
